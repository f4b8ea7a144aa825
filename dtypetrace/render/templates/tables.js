// ---------------------------------------------------------------- tables

const PAGE = 50;
const NUMBERS = ["number", "bytes", "flop", "figure"];
const UNITS = { bytes: "B", flop: "FLOP" };
const EXACT = /^(module|op|line):(.+)$/;
const LABELS = { module: ["module"], op: ["op"], line: ["your line", "in"] };
const tables = {};
const DTYPE = /\b((?:b?float|complex|u?int)\d+\w*|bool)\b/;
function size(amount, unit) {
  const power = amount < 1000 ? 0 : Math.min(5, Math.floor(Math.log10(amount) / 3));
  return `${Number((amount / 1000 ** power).toPrecision(3))} ${["", "k", "M", "G", "T", "P"][power]}${unit}`;
}
function family(name) {
  if (name === "bfloat16") return "bf16";
  return /^float\d/.test(name) ? "f" + name.match(/\d+/)[0] : "other";
}
function cut(name) { // a name or path in one line: where it is too long for one, the end of its first half is not shown
  const file = name.includes("/"), most = file ? 32 : 60;
  if (name.length <= most) return name;
  const end = name.slice(13 - most), begins = Math.max(0, end.search(/[./](?!py\b)/));
  const middle = name.length - end.length + begins;
  return make("span", { class: file ? "cut file" : "cut", title: name }, make("span", {}, name.slice(0, middle)), make("span", {}, name.slice(middle)));
}
const SHORT = { bf16: "bfloat16", fp16: "float16", f16: "float16", half: "float16", fp32: "float32", f32: "float32", fp64: "float64", f64: "float64" };
const holds = (text, word) => (word === "float16" ? /(^|[^b])float16/.test(text) : text.includes(word));
const alike = (text, word) => holds(text, word) || (word in SHORT && holds(text, SHORT[word]));
class Table {
  constructor(spec) {
    this.name = spec.id;
    this.title = spec.title;
    this.rows = spec.rows;
    this.columns = spec.columns;
    this.texts = spec.columns.filter(({ values }) => values).map(({ label, at, values }) => ({ at, label, texts: values.map((v) => String(v).toLowerCase()) }));
    [this.column, this.direction] = spec.sort;
    this.page = 0;
    this.build(one("#" + spec.id), spec);
    this.sieve("");
  }
  build(section, spec) {
    this.input = make("input", { type: "search", placeholder: "filter " + spec.title.toLowerCase(), "aria-label": "Filter " + spec.title });
    this.input.addEventListener("input", () => { this.page = 0; this.sieve(this.input.value); });
    this.count = make("span", { role: "status" });
    this.back = make("button", { type: "button" }, "previous");
    this.next = make("button", { type: "button" }, "next");
    this.back.addEventListener("click", () => { this.page -= 1; this.show(); });
    this.next.addEventListener("click", () => { this.page += 1; this.show(); });
    const controls = make("p", { class: "controls" }, this.input, this.count);
    if (spec.rows > PAGE) controls.append(this.back, this.next);
    this.heads = this.columns.map((column, index) => {
      const button = make("button", { type: "button" }, column.label);
      button.addEventListener("click", () => {
        const first = column.kind === "text" || column.kind === "dtypes" ? 1 : -1;
        this.direction = this.column === index ? -this.direction : first;
        this.column = index;
        this.page = 0;
        this.sort();
      });
      return make("th", { scope: "col", class: NUMBERS.includes(column.kind) ? "number" : column.kind }, button);
    });
    this.body = make("tbody");
    const table = make("table", { "aria-label": spec.title }, make("thead", {}, make("tr", {}, ...this.heads)), this.body);
    section.append(controls, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": spec.title + ", rows" }, table));
  }
  ask(text) {
    this.input.value = text;
    this.page = 0;
    this.sieve(text);
  }
  jump(row) { // to one row, whatever is filtered
    if (!(row >= 0 && row < this.rows)) return;
    if (!this.order.includes(row)) this.ask("");
    this.page = Math.floor(this.order.indexOf(row) / PAGE);
    this.chosen = row;
    this.show();
    const shown = one("tr.current", this.body);
    shown.focus({ preventScroll: true });
    shown.scrollIntoView({ block: "center" });
  }
  fitting(text) { // the rows, and the words that they were found by
    const whole = text.trim().toLowerCase();
    const [, from, to] = whole.match(/^ops:(\d+)-(\d+)$/) || [0, 0, this.rows - 1];
    const words = from ? [] : EXACT.test(whole) ? [whole] : whole.split(/\s+/).filter(Boolean);
    const found = words.map((word) => {
      const [, kind, name] = word.match(EXACT) || []; // just this one, nothing that is called alike
      const fits = {
        module: (entry) => entry === name || entry.startsWith(name + "."), // and what is in it
        op: (entry) => entry === name,
        line: (entry) => entry === name,
      }[kind] || ((entry) => alike(entry, word));
      const asked = kind ? this.texts.filter(({ label }) => LABELS[kind].includes(label)) : this.texts;
      return asked.map(({ at, texts }) => ({ at, hit: texts.map(fits) }));
    });
    const rows = [];
    for (let row = Number(from); row <= to && row < this.rows; row++) {
      if (found.every((groups) => groups.some(({ at, hit }) => hit[at[row]]))) rows.push(row);
    }
    return { rows, hits: EXACT.test(whole) ? [] : words };
  }
  sieve(text) {
    ({ rows: this.order, hits: this.hits } = this.fitting(text));
    this.sort();
  }
  sort() {
    const column = this.columns[this.column];
    if (column) {
      this.order.sort((a, b) => (column.at[a] - column.at[b]) * this.direction || a - b);
    }
    this.heads.forEach((head, index) => {
      if (index === this.column) head.setAttribute("aria-sort", this.direction > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    this.show();
  }
  show() {
    const from = this.page * PAGE, rows = this.order.slice(from, from + PAGE);
    this.body.replaceChildren(...rows.map((row) => this.line(row)));
    const total = this.order.length.toLocaleString("en");
    const all = this.order.length < this.rows ? ` of ${this.rows.toLocaleString("en")}` : "", part = `${(from + 1).toLocaleString("en")}–${(from + rows.length).toLocaleString("en")} of `;
    this.count.textContent = !rows.length ? "none found" : (this.order.length <= PAGE ? "" : part) + total + (this.order.length <= PAGE ? all : "");
    this.back.disabled = from === 0;
    this.next.disabled = from + PAGE >= this.order.length;
  }
  line(row) {
    const cells = this.columns.map((column) => this.cell(column, row));
    if (this.name !== "ops") return make("tr", {}, ...cells);
    cells[0].append(make("a", { class: "to", href: "#op-" + row, "aria-label": "Link to op " + row }));
    return make("tr", { id: "op-" + row, ...(row === this.chosen ? { class: "current", tabindex: "-1" } : {}) }, ...cells);
  }
  marked(value) { // a text with the words that were looked for
    const low = value.toLowerCase(), parts = [];
    for (let at = 0; at < value.length;) {
      const begins = this.hits.map((word) => [low.indexOf(word, at), word.length]).filter(([begin]) => begin >= 0);
      const [begin, length] = begins.length ? begins.reduce((best, each) => (each[0] < best[0] ? each : best)) : [value.length, 0];
      parts.push(value.slice(at, begin), ...(length ? [make("mark", {}, value.slice(begin, begin + length))] : []));
      at = begin + length;
    }
    return parts;
  }
  cell({ kind, values, at }, row) {
    const value = values ? values[at[row]] : at[row];
    if (kind === "number") return make("td", { class: value ? "number" : "number zero" }, value ? value.toLocaleString("en") : "·");
    if (kind in UNITS) return make("td", { class: value ? "number" : "number zero" }, value ? size(value, UNITS[kind]) : "·");
    if (kind === "figure") return make("td", { class: "number" }, Number.isFinite(value) ? String(value) : "");
    if (kind === "flag") return make("td", {}, value ? "yes" : "");
    if (kind !== "dtypes" && this.hits.some((word) => value.toLowerCase().includes(word))) return make("td", { class: kind }, ...this.marked(value));
    if (kind !== "dtypes") return make("td", { class: kind }, cut(value));
    const parts = value.split(DTYPE).map((part, index) => (index % 2 ? make("b", { class: family(part) }, this.hits.some((word) => alike(part, word)) ? make("mark", {}, part) : part) : part.replace(/(\d) $/, "$1\u00a0")));
    return make("td", { class: kind }, ...parts);
  }
}
async function build() { // the tables are compressed JSON, in base 64
  const bytes = Uint8Array.from(atob(one("#data").textContent), (c) => c.charCodeAt(0));
  const specs = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  for (const spec of specs) tables[spec.id] = new Table(spec);
  performance.mark("tables");
  if (/^#op-/.test(location.hash)) jumped();
  root.dataset.ready = "";
}
