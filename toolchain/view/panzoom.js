// Panning and zooming of a drawing: by mouse, by one or two fingers, by keys and by buttons.
"use strict";

const panZoom = (surface, layer, changed = () => {}) => {
  const LEAST = 0.02;
  const MOST = 6;
  const view = { x: 0, y: 0, scale: 1 };
  const fingers = new Map();
  let moved = 0;

  const apply = () => {
    layer.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
    changed(view);
  };
  const zoom = (factor, x = surface.clientWidth / 2, y = surface.clientHeight / 2) => {
    const scale = Math.min(MOST, Math.max(LEAST, view.scale * factor));
    view.x = x - ((x - view.x) * scale) / view.scale;
    view.y = y - ((y - view.y) * scale) / view.scale;
    view.scale = scale;
    apply();
  };
  const pan = (dx, dy) => {
    view.x += dx;
    view.y += dy;
    apply();
  };
  // Show a box of the drawing, no larger than `most` times its size.
  const fit = (box, most = 1) => {
    const width = Math.max(1, surface.clientWidth - 24);
    const height = Math.max(1, surface.clientHeight - 24);
    view.scale = Math.min(most, Math.max(LEAST, Math.min(width / box.width, height / box.height)));
    view.x = 12 + (width - box.width * view.scale) / 2 - box.x * view.scale;
    view.y = 12 + (height - box.height * view.scale) / 2 - box.y * view.scale;
    apply();
  };
  const centre = (x, y, scale = view.scale) => {
    view.scale = scale;
    view.x = surface.clientWidth / 2 - x * scale;
    view.y = surface.clientHeight / 2 - y * scale;
    apply();
  };

  const middle = () => {
    const places = [...fingers.values()];
    const [x, y] = [0, 1].map((n) => places.reduce((sum, one) => sum + one[n], 0) / places.length);
    const spread = places.length > 1 ? Math.hypot(places[0][0] - places[1][0], places[0][1] - places[1][1]) : 0;
    return { x, y, spread };
  };
  const place = (event) => {
    const box = surface.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  surface.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    if (fingers.size === 0) moved = 0;
    fingers.set(event.pointerId, place(event));
  });
  surface.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    const before = middle();
    fingers.set(event.pointerId, place(event));
    const after = middle();
    moved += Math.hypot(after.x - before.x, after.y - before.y);
    if (moved > 4 && !surface.hasPointerCapture(event.pointerId)) surface.setPointerCapture(event.pointerId);
    pan(after.x - before.x, after.y - before.y);
    if (before.spread > 0 && after.spread > 0) zoom(after.spread / before.spread, after.x, after.y);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    surface.addEventListener(name, (event) => fingers.delete(event.pointerId));
  }
  surface.addEventListener("click", (event) => moved > 4 && event.stopPropagation(), true);
  surface.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), ...place(event));
    },
    { passive: false },
  );
  const KEYS = {
    ArrowLeft: () => pan(80, 0), ArrowRight: () => pan(-80, 0), ArrowUp: () => pan(0, 80),
    ArrowDown: () => pan(0, -80), "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8),
  };
  surface.addEventListener("keydown", (event) => {
    if (!KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  return { view, zoom, pan, fit, centre };
};

const zoomButtons = (control, fit, ...others) =>
  h(
    "div",
    { class: "buttons" },
    h("button", { type: "button", "aria-label": "zoom in", click: () => control.zoom(1.25) }, "+"),
    h("button", { type: "button", "aria-label": "zoom out", click: () => control.zoom(0.8) }, "−"),
    h("button", { type: "button", click: fit }, "fit"),
    others,
  );
