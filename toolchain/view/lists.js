// Tables of any length: only the rows that are seen are in the document.
"use strict";

const ROW = 32;

// columns: { name, value(item), show(item), number, width }; a row opens what `target` says.
const longTable = (label, columns, items, target) => {
  let rows = [...items];
  let sorted = { column: null, down: false };
  const grid = columns.map((one) => one.width ?? "minmax(4rem, 1fr)").join(" ");
  const canvas = h("div", { class: "canvas", role: "rowgroup" });
  const buttons = columns.map((one, n) =>
    h("div", { role: "columnheader", class: one.number ? "number" : null },
      h("button", { type: "button", click: () => sort(n) }, one.name)));
  const head = h("div", { class: "row head", role: "row" }, buttons);
  head.style.gridTemplateColumns = grid;
  const body = h("div", { class: "long", role: "table", "aria-label": label, "aria-rowcount": rows.length, tabindex: 0 },
    h("div", { role: "rowgroup", class: "heads" }, head), canvas);

  const make = (item, n) => {
    const cells = columns.map((one, column) => {
      const text = one.show ? one.show(item) : one.value(item);
      const shown = column === 0 ? h("a", { href: `#${target(item)}` }, String(text)) : String(text ?? "");
      return h("div", { role: "cell", class: one.number ? "number" : null, title: column ? shown : null }, shown);
    });
    const row = h("div", { class: "row", role: "row", "aria-rowindex": n + 1 }, cells);
    row.style.gridTemplateColumns = grid;
    row.style.top = `${n * ROW}px`;
    return row;
  };
  const render = () => {
    canvas.style.height = `${rows.length * ROW}px`;
    const first = Math.max(0, Math.floor(body.scrollTop / ROW) - 10);
    const last = Math.min(rows.length, first + Math.ceil(body.clientHeight / ROW) + 20);
    canvas.replaceChildren(...rows.slice(first, last).map((item, n) => make(item, first + n)));
  };
  const compare = (one, other) => {
    if (typeof one === "number" && typeof other === "number") return one - other;
    return String(one ?? "").localeCompare(String(other ?? ""), "en", { numeric: true });
  };
  const sort = (n) => {
    sorted = { column: n, down: sorted.column === n ? !sorted.down : Boolean(columns[n].number) };
    const { value } = columns[n];
    rows = [...items].sort((one, other) => (sorted.down ? -1 : 1) * compare(value(one), value(other)));
    buttons.forEach((one, column) =>
      one.setAttribute("aria-sort", column === n ? (sorted.down ? "descending" : "ascending") : "none"));
    body.scrollTop = 0;
    render();
  };
  body.addEventListener("scroll", render, { passive: true });
  new ResizeObserver(render).observe(body);
  return body;
};

const kernelTable = (model) => {
  const time = (kernel) => model.times.get(kernel.number);
  const bound = (kernel) => boundOf(model, kernel);
  const reached = (kernel) => (time(kernel)?.gflops && bound(kernel) ? time(kernel).gflops / bound(kernel).gflops : null);
  const part = (value) => (value === null || value === undefined ? "" : show.number(value));
  return longTable("kernels", [
    { name: "kernel", value: (one) => one.number, width: "5rem" },
    { name: "operators", value: (one) => show.ops(one.ops), width: "minmax(10rem, 2fr)" },
    { name: "calls", value: (one) => one.steps.length, number: true, width: "4rem" },
    { name: "ms", value: (one) => time(one)?.ms ?? -1, show: (one) => part(time(one)?.ms), number: true, width: "5rem" },
    { name: "share", value: (one) => model.share(one.number) ?? -1, show: (one) => show.percent(model.share(one.number)), number: true, width: "5rem" },
    { name: "GFLOP/s", value: (one) => time(one)?.gflops ?? -1, show: (one) => part(time(one)?.gflops), number: true, width: "5.5rem" },
    { name: "of bound", value: (one) => reached(one) ?? -1, show: (one) => show.percent(reached(one)), number: true, width: "5.5rem" },
    { name: "bound by", value: (one) => bound(one)?.by ?? "", width: "6rem" },
    { name: "ONNX nodes", value: (one) => one.origin.slice(0, 20).join(", "), width: "minmax(12rem, 3fr)" },
  ], model.index.kernels, (one) => `kernel-${one.number}`);
};

// What became of an ONNX node that no operator is named after.
const mergedInto = (model, one) => {
  const names = one.nodes.slice(0, 3).map((n) => {
    const node = model.index.nodes[n];
    return `${node.op} ${node.origin[0] ?? ""}`.trim();
  });
  const where = names.join(", ") + (one.nodes.length > names.length ? ", ..." : "");
  if (one.is_constant) return where ? `computed when compiling, for ${where}` : "computed when compiling";
  return where ? `merged into ${where}` : "nothing of it is left to do";
};

const mergedTarget = (one) => (one.nodes.length ? `node-${one.nodes[0]}` : "nodes");

const nodeTable = (model) => {
  const { nodes, steps, merged } = model.index;
  const kernelsOf = (one) => [...new Set(one.steps.map((n) => steps[n].kernel))];
  const rows = nodes.length
    ? [...nodes, ...merged.map((one) => ({ number: null, op: "", origin: [one.name], steps: [], merged: one }))]
    : steps.flatMap((step) => step.origin.map((name) => ({ number: null, op: "", origin: [name], steps: [step.number] })));
  const place = (one) => {
    if (one.steps.length) return `kernel ${kernelsOf(one).slice(0, 5).join(", ")}`;
    return one.merged ? mergedInto(model, one.merged) : "no kernel: a view, or in place";
  };
  const target = (one) => one.merged ? mergedTarget(one.merged) : (one.number !== null ? `node-${one.number}` : one.steps.length ? `step-${one.steps[0]}` : "nodes");
  return longTable("ONNX nodes", [
    { name: "node", value: (one) => one.origin.join(", ") || "(of the compiler)", width: "minmax(12rem, 3fr)" },
    { name: "operator", value: (one) => one.op, width: "minmax(6rem, 1fr)" },
    { name: "computed in", value: place, width: "minmax(10rem, 2fr)" },
  ], rows, target);
};

const tensorTable = (model) =>
  longTable("tensors", [
    { name: "tensor", value: (one) => one.name || `tensor ${one.number}`, width: "minmax(10rem, 2fr)" },
    { name: "type", value: (one) => one.dtype, width: "4rem" },
    { name: "shape", value: (one) => show.shape(one.shape), width: "minmax(8rem, 1fr)" },
    { name: "size", value: (one) => one.bytes, show: (one) => show.bytes(one.bytes), number: true, width: "6rem" },
    { name: "layout", value: (one) => one.layout, width: "minmax(9rem, 1fr)" },
    { name: "memory", value: (one) => one.memory || "in its kernel", width: "minmax(8rem, 1fr)" },
  ], model.index.tensors, (one) => `tensor-${one.number}`);
