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
  const turns = all(".way", one(".row", line)).length > 1, found = "found" in line.dataset;
  const label = [path(line) + same, said, turns && "another dtype goes out than came in", found && "has a finding"].filter(Boolean).join(", ");
  const stripes = make("s", {}, ...parts.map(([name, amount]) => make("s", { class: name, style: `flex:${amount}` })));
  const bar = make("button", { type: "button", tabindex: -1, title: label, "aria-label": label, class: parts.length ? parts[0][0] : "none" }, line.dataset.name + same, stripes);
  const cell = make("div", { class: `cell${found ? " found" : ""}${turns ? " turns" : ""}`, style: `flex:${whole || 1}` }, bar);
  const inside = one(":scope>details>ul", line);
  if (inside) cell.append(make("div", {}, ...[...inside.children].map(cellFor)));
  cell.line = line;
  return cell;
}
function widen(cell) { // the cells beside it, and beside those around it, make room; null: none does
  for (const other of all(".cell", map)) other.hidden = false;
  widened = cell;
  for (let own = cell; own; own = cellAbove(own)) for (const beside of own.parentElement.children) beside.hidden = beside !== own;
  one("#map-out").disabled = !cell;
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
  const roots = all(".tree>ul>li").filter((line) => shares(line).length);
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
}
