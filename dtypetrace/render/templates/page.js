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

function remembered(name, value) { // a sandboxed frame has no storage
  try {
    if (value) localStorage.setItem("dtypetrace-" + name, value);
    return localStorage.getItem("dtypetrace-" + name);
  } catch { return null; }
}
if (remembered("theme")) root.dataset.theme = remembered("theme");
function turn() {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  remembered("theme", root.dataset.theme);
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
const framed = location.protocol === "about:"; // in a notebook's frame, which has no address of its own
function jumped() {
  let wanted = location.hash.slice(1);
  try { wanted = decodeURIComponent(wanted); } catch { /* written by hand */ }
  if (wanted) jumpedTo(wanted);
}
function jumpedTo(wanted) { // a finding, an op or a module
  const index = cards.findIndex((card) => card.id === wanted);
  if (index >= 0) choose(index);
  else if (wanted.startsWith("op-") && tables.ops) tables.ops.jump(Number(wanted.slice(3)));
  else if (wanted.startsWith("module=")) toModule(wanted.slice(7));
}
function go(wanted) { // the address bar shows the link, so that it can be passed on
  const hash = "#" + encodeURIComponent(wanted).replaceAll("%3D", "=");
  if (location.hash !== hash && !framed) history.replaceState(null, "", hash);
  jumpedTo(wanted);
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

// ---------------------------------------------------------------- editors

const LIKE_CODE = (scheme) => ({ path, line, column }) => `${scheme}://file${path}:${line}:${column}`;
const LIKE_IDEA = (scheme) => ({ path, line, column }) => `${scheme}://open?file=${path}&line=${line}&column=${column}`;
const EDITORS = {
  "VS Code": LIKE_CODE("vscode"),
  "VS Code Insiders": LIKE_CODE("vscode-insiders"),
  VSCodium: LIKE_CODE("vscodium"),
  Cursor: LIKE_CODE("cursor"),
  Windsurf: LIKE_CODE("windsurf"),
  Zed: LIKE_CODE("zed"),
  PyCharm: LIKE_IDEA("pycharm"),
  "IntelliJ IDEA": LIKE_IDEA("idea"),
  "Sublime Text": ({ path, line, column }) => `subl://open?url=file://${path}&line=${line}&column=${column}`,
};
function aim() { // the links that open a line in the chosen editor
  const name = remembered("editor") in EDITORS ? remembered("editor") : one("#editor") && one("#editor").value;
  if (!name || framed) return;
  one("#editor").value = name;
  for (const link of all("a[data-file]").filter((each) => each.dataset.file)) {
    const file = link.dataset.file.replaceAll("\\", "/");
    const path = (file.startsWith("/") ? "" : "/") + file.split("/").map(encodeURIComponent).join("/").replace(/^([A-Za-z])%3A/, "$1:");
    link.href = EDITORS[name]({ path, line: link.dataset.line, column: link.dataset.column || 1 });
    link.title = "Open in " + name;
  }
}
if (one("#editor")) {
  one("#editor").append(...Object.keys(EDITORS).map((name) => make("option", {}, name)));
  one("#editor").addEventListener("change", (event) => { remembered("editor", event.target.value); aim(); });
  aim();
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
function lineOf(name) { // the line of a module, or of the similar siblings that it is shown with
  let found = null, list = tree && one(":scope>ul", tree), rest = name;
  while (list && rest) {
    const next = [...list.children].find((li) => [li.dataset.name, ...(li.dataset.same || "").split(" ")].some((own) => own && (rest === own || rest.startsWith(own + "."))));
    if (!next) return found;
    const own = [next.dataset.name, ...(next.dataset.same || "").split(" ")].find((each) => each && (rest === each || rest.startsWith(each + ".")));
    rest = rest.slice(own.length + 1);
    found = next;
    list = one(":scope>details>ul", next);
  }
  return found;
}
function toModule(name) {
  const line = lineOf(name);
  if (!line) return;
  for (const other of all(".row.current", tree)) other.classList.remove("current");
  for (let fold = line.parentElement.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  const row = one(".row", line);
  row.classList.add("current");
  row.setAttribute("tabindex", row.getAttribute("tabindex") || "-1");
  row.focus({ preventScroll: true });
  row.scrollIntoView({ block: "center" });
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
    const row = event.target.closest("li .row");
    if (row && !event.target.closest("a") && !framed) history.replaceState(null, "", "#module=" + encodeURIComponent(path(row.closest("li"))));
    if (cell && tables.ops) {
      event.preventDefault();
      tables.ops.ask("module:" + path(cell.closest("li")));
      one("#ops").scrollIntoView();
    }
  });
}
