// The graph: only what is near the window is in the document, so that thousands of boxes stay quick.
"use strict";

const HEIGHTS = { step: 46, view: 24, input: 38, output: 38 };
const LINE = 16;
const BETWEEN = 40;

const drawGraph = (model, surface, select) => {
  const { vertices, edges, widths, width } = model.index.drawing;
  const expanded = new Set();
  const layer = svg("g");
  const drawn = { edges: new Map(), vertices: new Map() };
  const paths = svg("g", { class: "edges" });
  const boxes = svg("g");
  layer.append(paths, boxes);
  surface.append(layer);
  let tops = [];
  let bottoms = [];
  let height = 0;
  let band = null;
  let selected = new Set();

  const stepOf = (vertex) => model.index.steps[vertex.ref];
  const heightOf = (n) => {
    const vertex = vertices[n];
    return HEIGHTS[vertex.kind] + (expanded.has(n) ? LINE * linesOf(vertex).length + 8 : 0);
  };
  const linesOf = (vertex) => {
    const step = stepOf(vertex);
    if (!step.nodes.length) return step.origin.map((name) => ["", name]);
    return step.nodes.map((n) => [model.index.nodes[n].op, model.index.nodes[n].origin.join(", ")]);
  };
  const place = () => {
    const rows = [];
    vertices.forEach((vertex, n) => {
      rows[vertex.layer] = Math.max(rows[vertex.layer] ?? 0, heightOf(n));
    });
    tops = [];
    bottoms = [];
    let y = 0;
    for (let row = 0; row < rows.length; row += 1) {
      tops.push(y);
      bottoms.push(y + (rows[row] ?? 0));
      y = bottoms[row] + BETWEEN;
    }
    height = Math.max(1, y - BETWEEN);
  };

  const routeOf = (edge) => {
    const [upper, lower] = [vertices[edge.upper], vertices[edge.lower]];
    const start = [upper.x, tops[upper.layer] + heightOf(edge.upper)];
    const end = [lower.x, tops[lower.layer]];
    const inner = (edge.bends ?? []).flatMap(([row, x]) => [[x, tops[row]], [x, bottoms[row]]]);
    return [start, ...inner, end];
  };
  const pathOf = (points) => {
    let path = `M${points[0]}`;
    points.slice(1).forEach(([x, y], n) => {
      const [fromX, fromY] = points[n];
      const half = (fromY + y) / 2;
      path += fromX === x ? `L${x},${y}` : `C${fromX},${half} ${x},${half} ${x},${y}`;
    });
    return path;
  };
  const tensorLabel = (tensor) => `${show.shape(tensor.shape)} ${tensor.layout}`;
  const fanOut = new Map();
  edges.forEach((edge) => fanOut.set(edge.upper, (fanOut.get(edge.upper) ?? 0) + 1));

  const makeEdge = (n) => {
    const edge = edges[n];
    const tensor = model.tensors.get(edge.tensor);
    const points = routeOf(edge);
    const group = svg("g", { class: tensor ? "edge" : "edge order" });
    if (tensor) {
      group.addEventListener("click", () => select(`tensor-${edge.tensor}`));
      group.append(svg("title", {}, `${tensor.name || `tensor ${tensor.number}`}: ${tensorLabel(tensor)}`));
    }
    const [last, first] = [points[points.length - 1], points[0]];
    if (edge.bends === null) {
      // Too long to be drawn: an end at each side says where it goes on.
      group.append(svg("path", { d: `M${first}l14,12` }), svg("path", { d: `M${last}l-14,-12` }));
      const to = vertices[edge.upper];
      const words = `from ${to.kind} ${to.ref}`;
      group.append(svg("text", { x: last[0] - 18, y: last[1] - 12, "text-anchor": "end" }, words));
      return group;
    }
    group.append(svg("path", { class: "reach", d: pathOf(points) }), svg("path", { d: pathOf(points) }));
    if (tensor) {
      const low = fanOut.get(edge.upper) > 1;
      const [x, y] = low ? [last[0], last[1] - 6] : [first[0], first[1] + 13];
      group.append(svg("text", { x: x + 5, y }, cut(tensorLabel(tensor), 40)));
    }
    return group;
  };

  const titleOf = (vertex) => {
    const { index } = model;
    if (vertex.kind === "step") return show.ops(stepOf(vertex).ops);
    if (vertex.kind === "view") return index.nodes[vertex.ref].op;
    const list = vertex.kind === "input" ? index.inputs : index.outputs;
    return list[vertex.ref].name;
  };
  const noteOf = (vertex) => {
    if (vertex.kind === "step") {
      const { kernel, number } = stepOf(vertex);
      const time = model.times.get(kernel);
      const each = time ? ` · ${show.number(time.ms / time.calls)} ms` : "";
      const all = model.share(kernel);
      const part = all === null ? "" : ` · ${show.percent(all / time.calls)}`;
      return `${number}: kernel ${kernel}${each}${part}`;
    }
    if (vertex.kind === "view") return "";
    const list = vertex.kind === "input" ? model.index.inputs : model.index.outputs;
    return `${vertex.kind} · ${list[vertex.ref].dtype} ${show.shape(list[vertex.ref].shape)}`;
  };
  const targetOf = (vertex) => {
    if (vertex.kind === "step") return `step-${vertex.ref}`;
    if (vertex.kind === "view") return `node-${vertex.ref}`;
    const list = vertex.kind === "input" ? model.index.input_tensors : model.index.output_tensors;
    return `tensor-${list[vertex.ref]}`;
  };
  const heatOf = (vertex) => {
    if (vertex.kind !== "step") return 0;
    const { kernel } = stepOf(vertex);
    const share = model.share(kernel);
    return share === null ? 0 : Math.min(1, Math.sqrt((4 * share) / model.times.get(kernel).calls));
  };

  const makeVertex = (n) => {
    const vertex = vertices[n];
    const [w, tall] = [widths[vertex.kind], heightOf(n)];
    const title = titleOf(vertex);
    const open = () => select(targetOf(vertex));
    const group = svg("g", {
      class: `vertex ${vertex.kind}${selected.has(n) ? " selected" : ""}`, "data-vertex": n,
      transform: `translate(${vertex.x - w / 2} ${tops[vertex.layer]})`,
      tabindex: 0, role: "button", "aria-label": `${title}, ${noteOf(vertex)}`,
      click: open,
      keydown: (event) => {
        if (event.key === "Enter" || event.key === " ") open();
        else if (event.key === "e" && vertex.kind === "step") toggle(n);
        else return;
        event.preventDefault();
      },
    });
    const box = { width: w, height: tall, rx: vertex.kind === "step" ? 6 : 12 };
    group.append(svg("rect", box));
    const heat = heatOf(vertex);
    if (heat > 0) group.append(svg("rect", { ...box, class: "heat", "fill-opacity": heat.toFixed(2) }));
    const room = Math.floor((w - (vertex.kind === "step" ? 34 : 12)) / 7);
    group.append(svg("title", {}, `${title}\n${noteOf(vertex)}`));
    group.append(svg("text", { x: 8, y: vertex.kind === "view" ? 16 : 17 }, cut(title, room)));
    if (vertex.kind !== "view") group.append(svg("text", { x: 8, y: 34, class: "note" }, cut(noteOf(vertex), 34)));
    if (vertex.kind === "step") group.append(...opener(n, vertex, w));
    return group;
  };
  const opener = (n, vertex, w) => {
    const isOpen = expanded.has(n);
    const button = svg(
      "g",
      {
        class: "opener", transform: `translate(${w - 24} 4)`,
        click: (event) => { event.stopPropagation(); toggle(n); },
      },
      svg("title", {}, isOpen ? "collapse" : "expand"),
      svg("rect", { width: 20, height: 20, rx: 4 }),
      svg("text", { x: 10, y: 15, "text-anchor": "middle" }, isOpen ? "−" : "+"),
    );
    if (!isOpen) return [button];
    const lines = linesOf(vertex).map(([op, origin], line) =>
      svg("text", { x: 8, y: HEIGHTS.step + LINE * (line + 1) - 4, class: "member" },
        svg("title", {}, `${op} ${origin}`), cut(`${op} ${origin}`.trim(), 30)));
    return [button, ...lines];
  };

  const update = (known, count, isNear, make, parent) => {
    for (let n = 0; n < count; n += 1) {
      if (!isNear(n)) {
        known.get(n)?.remove();
        known.delete(n);
      } else if (!known.has(n)) {
        known.set(n, parent.appendChild(make(n)));
      }
    }
  };
  const render = (view) => {
    const top = -view.y / view.scale;
    const tall = surface.clientHeight / view.scale;
    surface.classList.toggle("far", view.scale < 0.3);
    if (band && top >= band[0] && top + tall <= band[1]) return;
    band = [top - tall, top + 2 * tall];
    const [from, to] = band;
    const near = (one, other) => bottoms[other] >= from && tops[one] <= to;
    update(drawn.edges, edges.length, (n) => {
      const [upper, lower] = [vertices[edges[n].upper].layer, vertices[edges[n].lower].layer];
      return edges[n].bends === null ? near(upper, upper) || near(lower, lower) : near(upper, lower);
    }, makeEdge, paths);
    update(drawn.vertices, vertices.length, (n) => near(vertices[n].layer, vertices[n].layer), makeVertex, boxes);
  };
  const control = panZoom(surface, layer, render);
  const redraw = () => {
    place();
    for (const known of [drawn.edges, drawn.vertices]) {
      known.forEach((one) => one.remove());
      known.clear();
    }
    band = null;
    render(control.view);
  };
  const toggle = (n) => {
    const had = boxes.querySelector(":focus")?.dataset.vertex;
    if (!expanded.delete(n)) expanded.add(n);
    redraw();
    if (had !== undefined) drawn.vertices.get(Number(had))?.focus();
  };
  const toggleAll = (isOpen) => {
    expanded.clear();
    if (isOpen) vertices.forEach((one, n) => one.kind === "step" && expanded.add(n));
    redraw();
  };
  const fit = () => control.fit({ x: 0, y: 0, width: Math.max(1, width), height });
  // At first the beginning, as large as the page's text.
  const first = () => {
    const top = vertices.filter((one) => one.layer === 0).map((one) => one.x);
    const middle = top.length ? (Math.min(...top) + Math.max(...top)) / 2 : width / 2;
    control.centre(middle, surface.clientHeight / 2 - 24, 1);
  };
  const mark = (wanted, isMoved = true) => {
    selected = new Set(vertices.flatMap((vertex, n) => (wanted(vertex) ? [n] : [])));
    drawn.vertices.forEach((one, n) => one.classList.toggle("selected", selected.has(n)));
    const [n] = selected;
    if (n === undefined || !isMoved) return;
    const { x, layer: row } = vertices[n];
    control.centre(x, (tops[row] + bottoms[row]) / 2, Math.max(0.6, control.view.scale));
  };
  const buttons = zoomButtons(
    control,
    fit,
    h("button", { type: "button", click: () => toggleAll(true) }, "expand all"),
    h("button", { type: "button", click: () => toggleAll(false) }, "collapse all"),
  );
  surface.addEventListener("keydown", (event) => event.key === "f" && fit());
  place();
  return { first, fit, mark, redraw, buttons };
};
