// ---------------------------------------------------------------- keys and buttons

function help() {
  const dialog = one("#help");
  if (dialog.open) dialog.close();
  else dialog.showModal();
}
const keys = {
  j: () => choose(current + 1),
  k: () => choose(current < 0 ? 0 : current - 1),
  o: () => { if (cards.length) { if (current < 0) choose(0); else { const fold = one("details", cards[current]); fold.open = !fold.open; } } },
  t: turn,
  "/": () => { search.focus(); search.select(); },
  "?": help,
};
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox],[type=range]),textarea,select");
  if (event.key === "Escape" && typing) typing.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});
one("#theme").addEventListener("click", turn);
one("#keys").addEventListener("click", help);
all(".copy").forEach((button) => { button.hidden = !button.dataset.copy; });
all(".copy").forEach((button) => button.addEventListener("click", () => copy(button)));
addEventListener("hashchange", jumped);
if (framed) { // in a notebook's frame a link with a fragment leads nowhere
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
