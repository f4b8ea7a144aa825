"use strict";
(() => {
  const one = (selector, inside = document) => inside.querySelector(selector);
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const root = document.documentElement;
  root.classList.add("js");

  // an element with text only: nothing of the trace is ever parsed as HTML
  function make(tag, attributes = {}, ...inside) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...inside);
    return element;
  }

  // ---------------------------------------------------------------- theme

  function remembered(value) { // a sandboxed frame has no storage
    try {
      if (value) localStorage.setItem("dtypetrace-theme", value);
      return localStorage.getItem("dtypetrace-theme");
    } catch { return null; }
  }
  if (remembered()) root.dataset.theme = remembered();
  function turn() {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    remembered(root.dataset.theme);
  }

  // ---------------------------------------------------------------- findings

  const cards = all("article.card");
  let current = -1;
  function choose(index) {
    if (!cards.length) return;
    if (current >= 0) cards[current].classList.remove("current");
    current = Math.max(0, Math.min(cards.length - 1, index));
    cards[current].classList.add("current");
    one("details", cards[current]).open = true;
    cards[current].focus({ preventScroll: true });
    cards[current].scrollIntoView({ block: "start" });
  }
  function jumped() {
    const index = cards.findIndex((card) => "#" + card.id === decodeURIComponent(location.hash));
    if (index >= 0) choose(index);
  }

  function copy(button) {
    const area = make("textarea", { "aria-hidden": "true" });
    area.value = button.dataset.copy;
    button.append(area);
    area.select();
    const copied = document.execCommand("copy"); // the clipboard of a file or a sandboxed frame is closed to the newer way
    area.remove();
    button.textContent = copied ? "copied" : "select and copy it";
  }

  // ---------------------------------------------------------------- module tree

  const tree = one(".tree"), filter = one("#tree-filter"), onlyFound = one("#only-found");
  function path(item) {
    const names = [];
    for (let li = item; li; li = li.parentElement.closest(".tree li")) names.unshift(li.dataset.name);
    return names.join(".");
  }
  let before = null; // which modules were unfolded before something was looked for
  function sift() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const asked = words.length > 0 || (onlyFound && onlyFound.checked);
    const folds = all("details", tree);
    if (asked && !before) before = folds.map((fold) => fold.open);
    let shown = 0;
    const look = (list, above) => { // a line that stands for several siblings is found by each of their names
      let any = false;
      for (const li of list.children) {
        const own = [li.dataset.name, ...(li.dataset.same ? li.dataset.same.split(" ") : [])];
        const names = above.flatMap((prefix) => own.map((name) => prefix + name)).slice(0, 500);
        const fits = names.some((name) => words.every((word) => name.toLowerCase().includes(word)));
        const found = fits && (!onlyFound || !onlyFound.checked || "found" in li.dataset);
        const inside = one(":scope>details>ul", li);
        const below = inside ? look(inside, names.map((name) => name + ".")) : false;
        li.hidden = asked && !found && !below;
        if (asked && inside) one("details", li).open = below;
        shown += found;
        any = any || found || below;
      }
      return any;
    };
    look(one(":scope>ul", tree), [""]);
    if (!asked && before) {
      folds.forEach((fold, index) => { fold.open = before[index]; });
      before = null;
    }
    one("#tree-count").textContent = asked ? shown.toLocaleString("en") + " found" : "";
  }
  if (tree) {
    filter.addEventListener("input", sift);
    if (onlyFound) onlyFound.addEventListener("change", sift);
    one("#unfold").addEventListener("click", (event) => {
      const folds = all("details", tree), open = folds.some((fold) => !fold.open);
      folds.forEach((fold) => { fold.open = open; });
      event.target.textContent = open ? "fold all" : "unfold all";
    });
    tree.addEventListener("click", (event) => {
      const cell = event.target.closest("li .row>span:last-child");
      if (cell && tables.ops) {
        event.preventDefault();
        tables.ops.ask("module:" + path(cell.closest("li")));
        one("#ops").scrollIntoView();
      }
    });
  }

  // ---------------------------------------------------------------- tables

  const PAGE = 50;
  const NUMBERS = ["number", "bytes", "flop", "figure"];
  const UNITS = { bytes: "B", flop: "FLOP" };
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
  function decoded(group) { // front coding: how many characters are shared with the entry before, then the rest
    const coded = group.values[0], texts = [];
    for (let i = 0, text = ""; i < coded.length; i += 2) texts.push((text = text.slice(0, coded[i]) + coded[i + 1]));
    group.values[0] = texts;
  }
  class Table {
    constructor(spec) {
      this.rows = spec.rows;
      this.columns = [];
      this.texts = [];
      for (const group of spec.groups) {
        for (let i = 1; i < group.at.length; i++) group.at[i] += group.at[i - 1]; // they come as differences
        if (group.values && group.columns[0][1] === "text" && group.values.length) decoded(group);
        group.columns.forEach(([label, kind], n) => {
          const values = group.values ? group.values[n] : null;
          let rank = null; // entries of a group are sorted by their first column
          if (values && n > 0) {
            rank = new Int32Array(values.length);
            const order = [...new Set(values)].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
            const place = new Map(order.map((value, index) => [value, index]));
            values.forEach((value, index) => { rank[index] = place.get(value); });
          }
          this.columns.push({ label, kind, at: group.at, values, rank });
        });
        if (group.values) this.texts.push({ at: group.at, label: group.columns[0][0], texts: group.values[0].map((_, i) => group.values.map((v) => v[i]).join(" ").toLowerCase()) });
      }
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
      section.append(controls, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": spec.title }, table));
    }
    ask(text) {
      this.input.value = text;
      this.page = 0;
      this.sieve(text);
    }
    sieve(text) {
      const words = text.toLowerCase().split(/\s+/).filter(Boolean);
      const found = words.map((word) => {
        const name = word.startsWith("module:") ? word.slice(7) : ""; // a module and what is in it, nothing that is called alike
        const asked = name ? this.texts.filter(({ label }) => label === "module") : this.texts;
        const fits = name ? (entry) => entry === name || entry.startsWith(name + ".") : (entry) => entry.includes(word);
        return asked.map(({ at, texts }) => ({ at, hit: texts.map(fits) }));
      });
      this.order = [];
      for (let row = 0; row < this.rows; row++) {
        if (found.every((groups) => groups.some(({ at, hit }) => hit[at[row]]))) this.order.push(row);
      }
      this.sort();
    }
    sort() {
      const column = this.columns[this.column];
      if (column) {
        const key = column.rank ? (row) => column.rank[column.at[row]] : (row) => column.at[row];
        this.order.sort((a, b) => (key(a) - key(b)) * this.direction || a - b);
      }
      this.heads.forEach((head, index) => {
        if (index === this.column) head.setAttribute("aria-sort", this.direction > 0 ? "ascending" : "descending");
        else head.removeAttribute("aria-sort");
      });
      this.show();
    }
    show() {
      const from = this.page * PAGE, rows = this.order.slice(from, from + PAGE);
      this.body.replaceChildren(...rows.map((row) => make("tr", {}, ...this.columns.map((column) => this.cell(column, row)))));
      const total = this.order.length.toLocaleString("en");
      this.count.textContent = !rows.length ? "none found" : this.order.length <= PAGE ? total : `${(from + 1).toLocaleString("en")}–${(from + rows.length).toLocaleString("en")} of ${total}`;
      this.back.disabled = from === 0;
      this.next.disabled = from + PAGE >= this.order.length;
    }
    cell({ kind, values, at }, row) {
      const value = values ? values[at[row]] : at[row];
      if (kind === "number") return make("td", { class: value ? "number" : "number zero" }, value ? value.toLocaleString("en") : "·");
      if (kind in UNITS) return make("td", { class: value ? "number" : "number zero" }, value ? size(value, UNITS[kind]) : "·");
      if (kind === "figure") return make("td", { class: "number" }, Number.isFinite(value) ? String(value) : "");
      if (kind === "flag") return make("td", {}, value ? "yes" : "");
      if (kind !== "dtypes") return make("td", { class: kind }, ...value.split(/(?<=\/)|(?<=\.)(?!py\b)/).flatMap((part) => [part, make("wbr")]));
      const parts = value.split(DTYPE).map((part, index) => (index % 2 ? make("b", { class: family(part) }, part) : part.replace(/(\d) $/, "$1\u00a0")));
      return make("td", { class: kind }, ...parts);
    }
  }
  function build() {
    for (const spec of JSON.parse(one("#data").textContent)) tables[spec.id] = new Table(spec);
    performance.mark("tables");
    root.dataset.ready = "";
  }

  // ---------------------------------------------------------------- keys and buttons

  function help() {
    const dialog = one("#help");
    if (dialog.open) dialog.close();
    else dialog.showModal();
  }
  function toFilter() { // that of the section in view
    const inputs = all("input[type=search]").filter((input) => input.offsetParent);
    const seen = inputs.find((input) => input.closest("section").getBoundingClientRect().bottom > innerHeight / 3) || inputs[0];
    if (seen) seen.focus();
  }
  const keys = {
    j: () => choose(current + 1),
    k: () => choose(current < 0 ? 0 : current - 1),
    o: () => { if (cards.length) { if (current < 0) choose(0); else { const fold = one("details", cards[current]); fold.open = !fold.open; } } },
    t: turn,
    "/": toFilter,
    "?": help,
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox]),textarea");
    if (event.key === "Escape" && typing) typing.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  one("#theme").addEventListener("click", turn);
  one("#keys").addEventListener("click", help);
  all(".copy").forEach((button) => button.addEventListener("click", () => copy(button)));
  addEventListener("hashchange", jumped);
  if (location.protocol === "about:") { // in a notebook's frame a link with a fragment leads nowhere
    document.addEventListener("click", (event) => {
      const link = event.target.closest('a[href^="#"]');
      const target = link && document.getElementById(link.hash.slice(1));
      if (!target) return;
      event.preventDefault();
      if (cards.includes(target)) choose(cards.indexOf(target));
      else target.scrollIntoView();
    });
  }
  addEventListener("beforeprint", () => all("details").forEach((fold) => { fold.open = true; }));
  jumped();
  requestAnimationFrame(() => setTimeout(build)); // once the page has been painted
})();
