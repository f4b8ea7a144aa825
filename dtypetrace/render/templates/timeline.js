// ---------------------------------------------------------------- timeline

const lanes = one(".lanes"), scrub = one("#scrub");
function column(label, kind) {
  return tables.ops.columns.find((each) => each.label === label && (!kind || each.kind === kind));
}
function stepOf(row) { // ops after the last step belong to none, ops before the first to none as well
  const parts = all(".ruler span", lanes), part = parts.find((each) => row <= Number(each.dataset.to));
  const early = parts.length && row / Number(lanes.dataset.ops) < parseFloat(parts[0].style.left) / 100 - 1e-4;
  return part && !early ? part.textContent : "";
}
function read(row) { // one op in words
  const value = (label, kind) => {
    const found = column(label, kind);
    return found ? (found.values ? found.values[found.at[row]] : found.at[row]) : "";
  };
  const dtypes = [value("in", "dtypes"), value("out", "dtypes")].filter(Boolean).join(" → ");
  return [`op ${row.toLocaleString("en")}: ${value("op")}`, dtypes, value("your line") || value("in", "text"), value("module"), value("phase"), stepOf(row)].filter(Boolean).join(" · ");
}
function around(row) { // the ops of the column that an op is drawn in
  const ops = Number(lanes.dataset.ops), columns = Number(lanes.dataset.columns);
  const at = Math.min(columns - 1, Math.floor(((row + 0.5) * columns) / ops));
  return [Math.floor((at * ops) / columns), Math.floor(((at + 1) * ops) / columns) - 1];
}
function point(row) {
  if (!tables.ops) return;
  scrub.value = row;
  const text = read(row);
  scrub.setAttribute("aria-valuetext", text);
  one("#reading").textContent = text;
  lanes.style.setProperty("--at", (row + 0.5) / Number(lanes.dataset.ops));
  lanes.classList.add("pointed");
}
function list(row) {
  const [from, to] = around(row);
  tables.ops.ask(`ops:${from}-${to}`);
  one("#ops").scrollIntoView();
}
function under(event, strip) { // the op below the pointer: of this lane's phase, if one is in the column
  const box = strip.getBoundingClientRect(), ops = Number(lanes.dataset.ops);
  const row = Math.max(0, Math.min(ops - 1, Math.floor(((event.clientX - box.left) / box.width) * ops)));
  const phases = strip.dataset.phase && column("phase");
  const is = (each) => phases.values[phases.at[each]] === strip.dataset.phase;
  if (!phases || is(row)) return row;
  const [from, to] = around(row);
  const near = Array.from({ length: to - from + 1 }, (_, n) => from + n).filter(is);
  return near.length ? near.reduce((best, each) => (Math.abs(each - row) < Math.abs(best - row) ? each : best)) : row;
}
if (lanes) {
  for (const strip of all("svg.strip", lanes)) {
    strip.addEventListener("pointermove", (event) => { if (tables.ops) point(under(event, strip)); });
    strip.addEventListener("click", (event) => { if (tables.ops) list(under(event, strip)); });
  }
  scrub.addEventListener("input", () => point(Number(scrub.value)));
  scrub.addEventListener("focus", () => point(Number(scrub.value)));
  scrub.addEventListener("keydown", (event) => { if (event.key === "Enter") list(Number(scrub.value)); });
  one("#list-here").addEventListener("click", () => list(Number(scrub.value)));
}
