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
  if (!isShown(reached)) reach(lines()[0]);
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
  enter(line);
  row.scrollIntoView({ block: "center" });
}

// keys as in a tree view: Tab stops at one line, the arrow keys go to the others
let reached = null;
function isShown(item) {
  return Boolean(item) && !item.closest("[hidden]") && !item.parentElement.closest("details:not([open])");
}
function lines() { return all("li", tree).filter(isShown); }
function reach(item) {
  if (!item) return;
  if (reached) reached.tabIndex = -1;
  reached = item;
  item.tabIndex = 0;
}
function enter(item) {
  reach(item);
  item.focus({ preventScroll: true });
}
function foldOf(item) { return one(":scope>details", item); }
function fold(item, open) { // the event of the fold comes later; a screen reader reads the line at once
  foldOf(item).open = open;
  item.setAttribute("aria-expanded", open);
}
function sideways(item, open) { // right: unfold, then go inside; left: fold, then go to the module around it
  const inside = foldOf(item);
  if (inside && inside.open !== open) fold(item, open);
  else if (open && inside) return one(":scope>ul>li", inside);
  else if (!open) return item.parentElement.closest(".tree li") || item;
  return item;
}
function act(item) { // to its first finding, else to its ops
  const badge = one(":scope>.row .badge[href],:scope>details>.into .badge", item);
  if (badge) go(badge.hash.slice(1));
  else if (tables.ops) { tables.ops.ask("module:" + path(item)); one("#ops").scrollIntoView(); }
}
function moved(item, key) { // the line that a key leads to; undefined for a key that leads nowhere
  if (key === "ArrowRight" || key === "ArrowLeft") return sideways(item, key === "ArrowRight");
  const shown = lines(), at = shown.indexOf(item);
  return { ArrowDown: shown[at + 1] || item, ArrowUp: shown[at - 1] || item, Home: shown[0], End: shown[shown.length - 1] }[key];
}
function asTree() {
  const top = one(":scope>ul", tree);
  top.setAttribute("role", "tree");
  top.setAttribute("aria-label", "Modules");
  tree.removeAttribute("tabindex"); // one of its lines is reached instead
  for (const list of all("ul ul", tree)) list.setAttribute("role", "group");
  for (const item of all("li", tree)) {
    const row = one(".row", item), inside = foldOf(item);
    item.setAttribute("role", "treeitem");
    item.setAttribute("aria-label", [...row.children].map((cell) => cell.textContent.trim().replace(/\s+/g, " ")).filter(Boolean).join(", "));
    item.tabIndex = -1;
    if (!inside) continue;
    const expanded = () => item.setAttribute("aria-expanded", inside.open);
    inside.addEventListener("toggle", () => { expanded(); if (!isShown(reached)) reach(item); });
    expanded();
    row.tabIndex = -1;
  }
  for (const link of all(".badge[href]", tree)) link.tabIndex = -1; // Enter on the line leads there
  reach(lines()[0]);
  tree.addEventListener("focusin", (event) => {
    const item = event.target.closest("li");
    if (!item) return;
    if (event.target.matches("summary")) enter(item); // a click has gone there
    else reach(item);
  });
  tree.addEventListener("keydown", (event) => {
    const item = event.target;
    if (!item.matches("li") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter") act(item);
    else if (event.key === " " && foldOf(item)) fold(item, !foldOf(item).open);
    else {
      const next = moved(item, event.key);
      if (!next) return;
      enter(next);
      one(".row", next).scrollIntoView({ block: "nearest" });
    }
    event.preventDefault();
    event.stopPropagation();
  });
}
if (tree) {
  asTree();
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
