// ---------------------------------------------------------------- one search over everything

const MOST = 7; // results of each kind
const search = one("#search"), results = one("#results");
let index = null;
function counted(label, prefix, kind) { // the values of a column of the ops: each leads to its ops
  const column = tables.ops && tables.ops.columns.find((each) => each.label === label && each.kind === "text");
  if (!column) return [];
  const counts = new Map();
  for (let row = 0; row < tables.ops.rows; row++) {
    const value = column.values[column.at[row]];
    if (value) counts.set(value, (counts.get(value) || 0) + 1);
  }
  return [...counts].map(([value, count]) => ({
    kind, text: value, more: `${count.toLocaleString("en")} op${count > 1 ? "s" : ""}`,
    go: () => { tables.ops.ask(prefix + value); one("#ops").scrollIntoView(); },
  }));
}
function indexed() {
  const findings = cards.map((card) => ({
    kind: "finding", text: one("h3", card).textContent, more: one("summary code", card).textContent,
    all: card.textContent, go: () => go(card.id),
  }));
  const names = new Set();
  const modules = tree ? all("li", tree).flatMap((li) => {
    const above = path(li).slice(0, -li.dataset.name.length);
    return [li.dataset.name, ...(li.dataset.same || "").split(" ").filter(Boolean)].map((name) => above + name);
  }) : [];
  const shown = modules.filter((name) => !names.has(name) && names.add(name)).map((name) => ({ kind: "module", text: name, more: "", go: () => go("module=" + name) }));
  const others = counted("module", "module:", "module").filter(({ text }) => !names.has(text));
  const lines = [...counted("your line", "line:", "line"), ...counted("in", "line:", "line")];
  const ops = counted("op", "op:", "op");
  const receipt = all("#receipt tbody tr").map((row) => ({
    kind: "receipt", text: [...row.cells].slice(0, 3).map((cell) => cell.textContent.trim()).filter(Boolean).join(" "), more: row.cells[3].textContent,
    all: row.textContent, go: () => row.scrollIntoView({ block: "center" }),
  }));
  return [...findings, ...shown, ...others, ...ops, ...lines, ...receipt].map((entry) => ({ ...entry, lower: (entry.all || entry.text).toLowerCase() }));
}
function look() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  index = index || indexed();
  const rank = ({ text }) => (text.toLowerCase() === search.value.toLowerCase().trim() ? 0 : 1) * 1000 + Math.min(text.length, 999);
  const numbered = search.value.match(/^\s*(?:op\s*)?#?(\d+)\s*$/);
  const found = !words.length ? [] : ["finding", "module", "op", "line", "receipt"].flatMap((kind) => index
    .filter((entry) => entry.kind === kind && words.every((word) => alike(entry.lower, word)))
    .sort((a, b) => rank(a) - rank(b)).slice(0, MOST));
  for (const table of words.length ? Object.values(tables) : []) { // whatever else has these words: a dtype, a file, a cast
    const { length } = table.fitting(search.value).rows, asked = search.value.trim();
    if (length) found.push({ kind: "table", text: table.title, more: `${length.toLocaleString("en")} row${length > 1 ? "s" : ""}`, go: () => { table.ask(asked); one("#" + table.name).scrollIntoView(); } });
  }
  if (numbered && tables.ops && Number(numbered[1]) < tables.ops.rows) found.push({ kind: "op", text: "op " + numbered[1], more: "", go: () => go("op-" + numbered[1]) });
  results.replaceChildren(...found.map((entry, number) => {
    const item = make("li", { role: "option", id: "result-" + number, "aria-selected": "false" }, make("i", {}, entry.kind), make("span", {}, entry.text), make("i", {}, entry.more));
    item.addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
    item.addEventListener("click", () => take(entry));
    item.entry = entry;
    return item;
  }));
  results.hidden = !words.length;
  if (words.length && !found.length) results.append(make("li", { role: "option", "aria-selected": "false", "aria-disabled": "true" }, "nothing found"));
  search.setAttribute("aria-expanded", String(!results.hidden));
  search.removeAttribute("aria-activedescendant");
}
function take(entry) {
  close();
  search.blur();
  entry.go();
}
function close() {
  results.hidden = true;
  search.setAttribute("aria-expanded", "false");
  search.removeAttribute("aria-activedescendant");
}
function move(step) {
  const items = all("li[id]", results);
  if (!items.length) return;
  const at = items.findIndex((item) => item.getAttribute("aria-selected") === "true");
  const next = at < 0 ? (step > 0 ? 0 : items.length - 1) : (at + step + items.length) % items.length;
  items.forEach((item, number) => item.setAttribute("aria-selected", String(number === next)));
  search.setAttribute("aria-activedescendant", items[next].id);
  items[next].scrollIntoView({ block: "nearest" });
}
search.addEventListener("input", look);
search.addEventListener("focus", () => { if (search.value) look(); });
search.addEventListener("blur", close);
search.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    move(event.key === "ArrowDown" ? 1 : -1);
  } else if (event.key === "Enter") {
    const chosen = one("[aria-selected=true]", results) || one("li[id]", results);
    if (chosen && !results.hidden) take(chosen.entry);
  }
});
