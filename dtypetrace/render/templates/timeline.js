// ---------------------------------------------------------------- timeline

const lanes = one(".lanes"), scrub = one("#scrub");
function column(label, kind) {
  return tables.ops.columns.find((each) => each.label === label && (!kind || each.kind === kind));
}
function stepsOf(row) { // the steps in which an op ran; none for what ran before the first or after the last
  const ranIn = (band) => band.dataset.ran.split(" ").some((part) => { const [from, to] = part.split("-"); return row >= from && row <= to; });
  return all("[data-ran]", lanes).filter(ranIn).map((band) => one("h3", band.parentElement).textContent).join(", ");
}
function read(row) { // one op in words
  const value = (label, kind) => {
    const found = column(label, kind);
    return found ? (found.values ? found.values[found.at[row]] : found.at[row]) : "";
  };
  const sides = ["a", "b"].map((side) => value(side) && `${side}: ${value(side)}`); // of a page of two runs
  const dtypes = sides.filter(Boolean).join(" · ") || [value("in", "dtypes"), value("out", "dtypes")].filter(Boolean).join(" → ");
  return [`op ${row.toLocaleString("en")}: ${value("op")}`, dtypes, value("your line") || value("in", "text"), value("module"), value("phase"), stepsOf(row)].filter(Boolean).join(" · ");
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
  const at = ((row + 0.5) / Number(lanes.dataset.ops) - axis.from) / axis.span;
  lanes.style.setProperty("--at", at);
  lanes.classList.toggle("pointed", at >= 0 && at <= 1);
}

// the part of the axis that is shown, as shares of the whole: a drag chooses it, Ctrl and the wheel or + and - change it
const axis = { from: 0, span: 1 };
const FEWEST = 10; // ops that can have the whole width
function showPart(from, span) {
  const ops = Number(lanes.dataset.ops);
  axis.span = Math.min(1, Math.max(span, FEWEST / ops));
  axis.from = Math.max(0, Math.min(1 - axis.span, from));
  for (const strip of all("svg.strip", lanes)) {
    const columns = Number(lanes.dataset.columns), high = strip.viewBox.baseVal.height;
    strip.setAttribute("viewBox", `${axis.from * columns} 0 ${axis.span * columns} ${high}`);
  }
  for (const mark of all(".pin", lanes)) {
    const left = (mark.at - axis.from) / axis.span;
    mark.hidden = left < 0 || left > 1;
    mark.style.left = `${100 * left}%`;
  }
  scrub.min = Math.floor(axis.from * ops);
  scrub.max = Math.min(ops, Math.ceil((axis.from + axis.span) * ops)) - 1;
  one("#axis-whole").disabled = one("#axis-out").disabled = axis.span === 1;
  if (lanes.classList.contains("pointed")) point(Number(scrub.value));
}
function zoom(factor, at = (Number(scrub.value) + 0.5) / Number(lanes.dataset.ops)) { // what is there stays where it is
  const middle = at < axis.from || at > axis.from + axis.span ? axis.from + axis.span / 2 : at;
  const span = Math.min(1, axis.span * factor);
  showPart(middle - ((middle - axis.from) / axis.span) * span, span);
}
function pan(way) { // the op that is read goes along
  const before = axis.from;
  showPart(axis.from + (way * axis.span) / 8, axis.span);
  const moved = Math.round((axis.from - before) * Number(lanes.dataset.ops));
  if (moved && tables.ops) point(Math.max(Number(scrub.min), Math.min(Number(scrub.max), Number(scrub.value) + moved)));
}
function shareAt(event, strip) {
  const box = strip.getBoundingClientRect();
  return axis.from + (Math.max(0, Math.min(1, (event.clientX - box.left) / box.width))) * axis.span;
}
function choosable(strip) { // a drag along a strip gives what it covers the whole width; a click lists
  let begun = null;
  const box = () => strip.getBoundingClientRect().width;
  strip.addEventListener("pointerdown", (event) => {
    if (event.button || event.pointerType === "touch") return; // a finger scrolls the page
    begun = shareAt(event, strip);
    strip.setPointerCapture(event.pointerId);
  });
  strip.addEventListener("pointerup", (event) => {
    const end = shareAt(event, strip), start = begun;
    begun = null;
    if (start === null) return;
    if ((Math.abs(end - start) / axis.span) * box() > 5) showPart(Math.min(start, end), Math.abs(end - start));
    else if (tables.ops) list(under(event, strip));
  });
  strip.addEventListener("click", (event) => { if (event.pointerType === "touch" && tables.ops) list(under(event, strip)); });
  strip.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return; // the page scrolls
    event.preventDefault();
    if (event.shiftKey) pan(Math.sign(event.deltaY || event.deltaX));
    else zoom(event.deltaY < 0 ? 0.7 : 1 / 0.7, shareAt(event, strip));
  }, { passive: false });
}
function list(row) {
  const [from, to] = around(row);
  tables.ops.ask(`ops:${from}-${to}`);
  one("#ops").scrollIntoView();
}
function under(event, strip) { // the op below the pointer: of this lane's phase, if one is in the column
  const ops = Number(lanes.dataset.ops);
  const row = Math.max(0, Math.min(ops - 1, Math.floor(shareAt(event, strip) * ops)));
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
    choosable(strip);
  }
  for (const mark of all(".pin", lanes)) mark.at = parseFloat(mark.style.left) / 100;
  one("#axis-in").addEventListener("click", () => zoom(0.5));
  one("#axis-out").addEventListener("click", () => zoom(2));
  one("#axis-whole").addEventListener("click", () => showPart(0, 1));
  scrub.addEventListener("input", () => point(Number(scrub.value)));
  scrub.addEventListener("focus", () => point(Number(scrub.value)));
  scrub.addEventListener("keydown", (event) => {
    const does = { Enter: () => list(Number(scrub.value)), "+": () => zoom(0.5), "-": () => zoom(2), 0: () => showPart(0, 1) }[event.key];
    const way = event.shiftKey && { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!does && !way) return;
    event.preventDefault();
    if (way) pan(way);
    else does();
  });
  one("#list-here").addEventListener("click", () => list(Number(scrub.value)));
}
