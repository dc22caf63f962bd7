// The memory plan: steps to the right, addresses upwards; a bar is as long as its tensor lives.
"use strict";

const drawMemory = (model, surface, select) => {
  const { memory, steps } = model.index;
  const area = memory.arena_bytes + memory.sample_bytes;
  const wide = Math.max(4, Math.min(28, 1100 / Math.max(1, steps.length)));
  const [tall, gap, usedTall] = [420, 30, 90];
  const width = wide * steps.length;
  const height = (bytes) => (tall * bytes) / Math.max(1, area);
  const layer = svg("g");
  const bars = memory.bars.map((bar) => {
    const tensor = model.tensors.get(bar.tensor);
    const from = bar.offset + (bar.per_sample ? memory.arena_bytes : 0);
    const name = tensor ? tensor.name || `tensor ${tensor.number}` : `workspace of step ${bar.first}`;
    const words = `${name}: ${show.bytes(bar.bytes)} at ${bar.offset}, steps ${bar.first} to ${bar.last}`;
    const target = tensor ? `tensor-${tensor.number}` : `step-${bar.first}`;
    const span = wide * (bar.last - bar.first + 1);
    const box = { x: wide * bar.first, y: usedTall + gap + tall - height(from + bar.bytes), width: span, height: Math.max(0.5, height(bar.bytes)) };
    const room = Math.floor((span - 6) / 6);
    return svg("g", {
      class: tensor ? "bar" : "bar workspace", tabindex: 0, role: "button", "aria-label": words,
      click: () => select(target), keydown: (event) => event.key === "Enter" && select(target),
    }, svg("title", {}, words), svg("rect", box),
    box.height > 12 && room > 3 ? svg("text", { x: box.x + 4, y: box.y + 11 }, cut(name, room)) : null);
  });
  const used = steps.map((step) => memory.bars.reduce(
    (sum, bar) => sum + (bar.first <= step.number && step.number <= bar.last ? bar.bytes : 0), 0));
  const most = Math.max(1, ...used);
  const curve = used.map((bytes, n) => {
    const y = usedTall * (1 - bytes / most);
    return `${wide * n},${y} ${wide * (n + 1)},${y}`;
  });
  const every = Math.max(1, Math.ceil(steps.length / 30));
  const ticks = steps.filter((step) => step.number % every === 0).map((step) =>
    svg("text", { x: wide * (step.number + 0.5), y: usedTall + gap + tall + 16, "text-anchor": "middle" }, step.number));
  layer.append(
    svg("rect", { class: "arena", x: 0, y: usedTall + gap, width, height: tall }),
    svg("polygon", { class: "used", points: `0,${usedTall} ${curve.join(" ")} ${width},${usedTall}` }),
    svg("text", { x: 0, y: -6 }, `alive at each step, at most ${show.bytes(most)}`),
    svg("text", { x: 0, y: usedTall + gap - 6 }, `arena, ${show.bytes(area)}: what lies where at each step`),
    ...ticks, ...bars,
  );
  surface.append(layer);
  const control = panZoom(surface, layer);
  const fit = () => control.fit({ x: -8, y: -24, width: width + 16, height: usedTall + gap + tall + 48 }, 2);
  return { fit, buttons: zoomButtons(control, fit) };
};
