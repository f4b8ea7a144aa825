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
  follow(cards[current]);
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
