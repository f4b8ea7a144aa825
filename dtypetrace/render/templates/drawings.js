// ---------------------------------------------------------------- drawings: zoom and pan

const DEEPEST = 8;
class Drawing {
  constructor(box, svg) {
    this.svg = svg;
    this.whole = svg.getAttribute("viewBox").split(" ").map(Number);
    this.reset();
    const button = (text, label, press) => {
      const made = make("button", { type: "button", "aria-label": label, title: label }, text);
      made.addEventListener("click", press);
      return made;
    };
    box.append(make("span", { class: "zoom" }, button("+", "Zoom in (+)", () => this.zoom(1.5)), button("−", "Zoom out (−)", () => this.zoom(1 / 1.5)), button("⤢", "Show all (0)", () => this.reset())));
    svg.addEventListener("wheel", (event) => { // the wheel alone scrolls the page
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, event);
    }, { passive: false });
    let from = null;
    svg.addEventListener("pointerdown", (event) => { from = this.scale > 1 ? { x: event.clientX, y: event.clientY, moved: false } : null; });
    svg.addEventListener("pointermove", (event) => {
      if (!from || !event.buttons) return;
      const size = svg.getBoundingClientRect(), dx = event.clientX - from.x, dy = event.clientY - from.y;
      if (!from.moved && Math.hypot(dx, dy) < 4) return;
      this.pan((-dx * this.view[2]) / size.width, (-dy * this.view[3]) / size.height);
      from = { x: event.clientX, y: event.clientY, moved: true };
    });
    svg.addEventListener("click", (event) => { if (from && from.moved) event.preventDefault(); from = null; }, true);
    box.addEventListener("keydown", (event) => {
      const press = {
        "+": () => this.zoom(1.5), "=": () => this.zoom(1.5), "-": () => this.zoom(1 / 1.5), 0: () => this.reset(),
        ArrowLeft: () => this.pan(-40, 0), ArrowRight: () => this.pan(40, 0), ArrowUp: () => this.pan(0, -40), ArrowDown: () => this.pan(0, 40),
      }[event.key];
      if (!press || event.ctrlKey || event.metaKey || (event.key.startsWith("Arrow") && this.scale === 1)) return;
      event.preventDefault();
      press();
    });
  }
  get scale() { return this.whole[2] / this.view[2]; }
  reset() {
    this.view = [...this.whole];
    this.show();
  }
  zoom(by, at) { // around the pointer, else around the middle
    const scale = Math.min(DEEPEST, Math.max(1, this.scale * by)), size = this.svg.getBoundingClientRect();
    const fx = at ? (at.clientX - size.left) / size.width : 0.5, fy = at ? (at.clientY - size.top) / size.height : 0.5;
    const [x, y, w, h] = this.view, wide = this.whole[2] / scale, tall = this.whole[3] / scale;
    this.view = [x + (w - wide) * fx, y + (h - tall) * fy, wide, tall];
    this.pan(0, 0);
  }
  pan(dx, dy) {
    const [x, y, w, h] = this.view;
    this.view = [Math.min(Math.max(0, x + dx), this.whole[2] - w), Math.min(Math.max(0, y + dy), this.whole[3] - h), w, h];
    this.show();
  }
  show() {
    this.svg.setAttribute("viewBox", this.view.map((each) => each.toFixed(1)).join(" "));
    this.svg.classList.toggle("zoomed", this.scale > 1.01);
  }
}
for (const box of all(".drawing")) if (one("svg.flow", box)) new Drawing(box, one("svg.flow", box));
