// What bounds the kernels: rates over the operations for each byte, on logarithmic axes.
"use strict";

const intensityOf = (kernel) => (kernel.bytes ? kernel.flops / kernel.bytes : 0);

// The most that a kernel can reach, and by what; null without operations.
const boundOf = (model, kernel) => {
  const roof = model.index.roofline;
  const intensity = intensityOf(kernel);
  if (!roof || !intensity) return null;
  const fed = intensity * roof.gbytes_per_s;
  return { gflops: Math.min(roof.gflops, fed), by: fed < roof.gflops ? "memory" : "arithmetic" };
};

const rooflinePlot = (model, chosen, wide = 420, tall = 240) => {
  const roof = model.index.roofline;
  const kernels = model.index.kernels.filter((one) => intensityOf(one) > 0);
  if (!roof || !kernels.length) return null;
  const rate = (kernel) => model.times.get(kernel.number)?.gflops ?? null;
  const rates = kernels.map(rate).filter((one) => one);
  const [left, right, top, bottom] = [46, wide - 10, 10, tall - 34];
  const ridge = roof.gflops / roof.gbytes_per_s;
  const spans = {
    x: [Math.min(ridge / 4, ...kernels.map(intensityOf)) / 1.5, Math.max(ridge * 4, ...kernels.map(intensityOf)) * 1.5],
    y: [Math.min(roof.gflops / 100, ...rates) / 1.5, Math.max(roof.gflops, ...rates) * 1.5],
  };
  const along = (value, [least, most], from, to) =>
    from + ((to - from) * Math.log(value / least)) / Math.log(most / least);
  const x = (value) => along(value, spans.x, left, right);
  const y = (value) => Math.min(bottom, along(value, spans.y, bottom, top));
  const ticks = ([least, most]) => {
    const found = [];
    for (let n = Math.ceil(Math.log10(least)); 10 ** n <= most; n += 1) found.push(Number(`1e${n}`));
    return found;
  };
  const grid = [
    ...ticks(spans.x).map((one) => [
      svg("line", { x1: x(one), x2: x(one), y1: top, y2: bottom }),
      svg("text", { x: x(one), y: bottom + 14, "text-anchor": "middle" }, String(one)),
    ]),
    ...ticks(spans.y).map((one) => [
      svg("line", { x1: left, x2: right, y1: y(one), y2: y(one) }),
      svg("text", { x: left - 5, y: y(one) + 4, "text-anchor": "end" }, String(one)),
    ]),
  ];
  const fed = spans.x[0] * roof.gbytes_per_s;
  const start = fed >= spans.y[0] ? [left, y(fed)] : [x(spans.y[0] / roof.gbytes_per_s), bottom];
  const line = svg("polyline", {
    class: "roof", points: `${start} ${[x(ridge), y(roof.gflops)]} ${[right, y(roof.gflops)]}`,
  });
  const points = kernels.map((kernel) => {
    const reached = rate(kernel);
    if (reached === null && kernel !== chosen) return null;
    const label = `kernel ${kernel.number}: ${show.ops(kernel.ops)}${reached ? `, ${show.number(reached)} GFLOP/s` : ""}`;
    const at = { cx: x(intensityOf(kernel)), cy: reached ? y(reached) : y(boundOf(model, kernel).gflops) };
    const size = reached ? 3 + 7 * Math.sqrt(model.share(kernel.number) ?? 0) : 4;
    const kind = `${kernel === chosen ? "point chosen" : "point"}${reached ? "" : " unmeasured"}`;
    return svg("a", { href: `#kernel-${kernel.number}`, "aria-label": label },
      svg("circle", { ...at, r: size, class: kind }, svg("title", {}, label)));
  });
  return h("figure", { class: "roofline" },
    svg("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "group", "aria-label": "roofline" },
      svg("g", { class: "grid" }, grid), line, points,
      svg("text", { x: (left + right) / 2, y: tall - 4, "text-anchor": "middle" }, "operations for each byte"),
      svg("text", { x: 12, y: tall / 2, transform: `rotate(-90 12 ${tall / 2})`, "text-anchor": "middle" }, "GFLOP/s")),
    h("figcaption", {}, `Roof: ${show.number(roof.gflops)} GFLOP/s and ${show.number(roof.gbytes_per_s)} GB/s, ${roof.source}. Above it is what reads from caches, and what needs fewer operations than counted (Winograd).`));
};
