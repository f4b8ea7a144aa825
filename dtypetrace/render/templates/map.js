// ---------------------------------------------------------------- map of the modules: width by work, colour by dtype

const map = one("#map");
const NAMED = { f64: "float64", f32: "float32", bf16: "bfloat16", f16: "float16", f8: "float8", other: "other" };
let widened = null; // the cell that has the whole width
const barOf = (cell) => one(":scope>button", cell);
const insideOf = (cell) => one(":scope>div", cell);
const cellAbove = (cell) => cell.parentElement.closest(".cell");
function shares(line) { // [family, amount] of what a module computed, the largest first
  return (line.dataset.work || "").split(" ").filter(Boolean).map((part) => part.split(":")).map(([name, amount]) => [name, Number(amount)]);
}
function cellFor(line) {
  const parts = shares(line), whole = parts.reduce((sum, [, amount]) => sum + amount, 0);
  const same = line.dataset.same ? ` … ${line.dataset.same.split(" ").pop()}` : "";
  const said = parts.map(([name, amount]) => `${NAMED[name]} ${Math.round((100 * amount) / whole)}%`).join(", ");
  const out = all(".way", one(".row", line))[1], found = "found" in line.dataset;
  const turns = Boolean(out && one("b:not(.no-way)", out)); // a refused call gives nothing out
  const label = [path(line) + same, said, turns && "another dtype goes out than came in", found && "has a finding"].filter(Boolean).join(", ");
  const stripes = make("s", {}, ...parts.map(([name, amount]) => make("s", { class: name, style: `flex:${amount}` })));
  const bar = make("button", { type: "button", tabindex: -1, title: label, "aria-label": label, class: parts.length ? parts[0][0] : "none" }, line.dataset.name + same, stripes);
  const cell = make("div", { class: `cell${found ? " found" : ""}${turns ? " turns" : ""}`, style: `flex:${whole || 1}` }, bar);
  const inside = one(":scope>details>ul", line);
  if (inside) cell.append(make("div", {}, ...[...inside.children].map(cellFor)));
  cell.line = line;
  return cell;
}
const DRAWN = "http://www.w3.org/2000/svg";
let followed = null; // the card whose path is drawn
function cellOf(name) { // the cell of a module; where that has no room, the one around it
  const line = lineOf(name);
  let cell = line && all(".cell", map).find((each) => each.line === line);
  while (cell && !barOf(cell).offsetWidth) cell = cellAbove(cell);
  return cell;
}
function follow(card) { // the way of a finding's dtype: from its birth, or from above where that is outside, to where it matters
  if (!map || !map.firstElementChild || !card || !card.dataset.path) return;
  followed = card;
  const names = card.dataset.path.split(","), frame = map.getBoundingClientRect();
  const cells = names.map(cellOf), middle = (cell) => { const { left, width, bottom } = barOf(cell).getBoundingClientRect(); return [left + width / 2 - frame.left, bottom - frame.top - 5]; };
  const stops = cells.filter((cell, at) => cell && cell !== cells[at - 1]).map(middle);
  const way = names[0] || !stops.length ? stops : [[stops[0][0], 2], ...stops];
  const svg = document.createElementNS(DRAWN, "svg");
  svg.setAttribute("aria-hidden", "true");
  const shapes = [["polyline", { points: way.join(" ") }], ...way.map(([cx, cy], at) => ["circle", { cx, cy, r: at === way.length - 1 ? 6 : 4, class: at ? "" : "born" }])];
  for (const [tag, values] of shapes) {
    const shape = document.createElementNS(DRAWN, tag);
    for (const [name, value] of Object.entries(values)) shape.setAttribute(name, value);
    svg.append(shape);
  }
  all(":scope>svg", map).forEach((old) => old.remove());
  map.append(svg);
  const choices = cards.filter((each) => each.dataset.path).slice(0, 12).map((each) => make("button", { type: "button", "data-card": each.id, "aria-pressed": each === card }, each.id));
  one("#map-path").replaceChildren(...choices, make("span", {}, `Born ${names.map((name) => name || "outside the modules").join(" → ")}`));
}
function widen(cell) { // the cells beside it, and beside those around it, make room; null: none does
  for (const other of all(".cell", map)) other.hidden = false;
  widened = cell;
  for (let own = cell; own; own = cellAbove(own)) for (const beside of own.parentElement.children) beside.hidden = beside !== own;
  one("#map-out").disabled = !cell;
  follow(followed);
}
function openCell(cell) { // a cell that has the whole width already leads to its line in the tree
  if (cell === widened) toModule(path(cell.line));
  else widen(cell);
}
function stand(cell) { // Tab stops at one cell, the arrow keys go to the others
  for (const bar of all("button[tabindex='0']", map)) bar.tabIndex = -1;
  barOf(cell).tabIndex = 0;
}
function beside(cell, step) {
  const row = [...cell.parentElement.children].filter((each) => !each.hidden);
  return row[row.indexOf(cell) + step];
}
if (map) {
  const known = all(".tree>ul>li"), worked = known.filter((line) => shares(line).length);
  const led = cards.find((card) => card.dataset.path), roots = worked.length || !led ? worked : known;
  if (!worked.length) one("#model-map .about").textContent = "The modules, equally wide, because none has finished a matmul or convolution. Click one to widen it, and once more to go to its line.";
  map.append(...roots.map(cellFor));
  one("#model-map").hidden = !roots.length;
  if (roots.length) stand(one(".cell", map));
  map.addEventListener("click", (event) => {
    const bar = event.target.closest("button");
    if (bar) { stand(bar.parentElement); openCell(bar.parentElement); }
  });
  map.addEventListener("keydown", (event) => {
    const cell = event.target.closest(".cell");
    if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") widen(widened && cellAbove(widened));
    else {
      const next = {
        ArrowRight: () => beside(cell, 1), ArrowLeft: () => beside(cell, -1),
        ArrowDown: () => insideOf(cell) && one(":scope>.cell:not([hidden])", insideOf(cell)), ArrowUp: () => cellAbove(cell),
      }[event.key];
      if (!next) return;
      const to = next();
      if (to) { stand(to); barOf(to).focus(); }
    }
    event.preventDefault();
  });
  one("#map-out").addEventListener("click", () => widen(widened && cellAbove(widened)));
  one("#map-path").addEventListener("click", (event) => {
    if (!event.target.dataset.card) return;
    follow(document.getElementById(event.target.dataset.card));
    one("#map-path [aria-pressed=true]").focus();
  });
  new ResizeObserver(() => follow(followed)).observe(map);
  follow(led);
}
