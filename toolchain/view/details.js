// What there is to say of one kernel, step, operator or tensor.
"use strict";

const kernelHeading = (kernel) => `Kernel ${kernel.number}: ${show.ops(kernel.ops)}`;

const speedFacts = (model, kernel) => {
  const time = model.times.get(kernel.number);
  const bound = boundOf(model, kernel);
  const limit = bound ? `${show.number(bound.gflops)} GFLOP/s, by ${bound.by}` : null;
  if (!time) return [["time", "not measured"], ["bound", limit]];
  const roof = model.index.roofline;
  const part = (value, most) => (value && most ? ` (${show.percent(value / most)} of the roof's ${show.number(most)})` : "");
  const rate = time.gflops ? `${show.number(time.gflops)} GFLOP/s${part(time.gflops, roof?.gflops)}` : null;
  const traffic = time.gbytes_per_s
    ? `${show.number(time.gbytes_per_s)} GB/s${part(time.gbytes_per_s, roof?.gbytes_per_s)}` : null;
  const reached = bound && time.gflops ? `, of which it reaches ${show.percent(time.gflops / bound.gflops)}` : "";
  return [
    ["time", `${show.number(time.ms)} ms in ${show.count(time.calls, "call")}, ${show.percent(model.share(kernel.number))} of all kernels`],
    ["arithmetic", rate],
    ["memory", traffic],
    ["bound", limit && limit + reached],
  ];
};

const launchTable = (launches) => {
  const columns = ["function", "grid", "block", "shared", "arch", "registers", "spills", "private"];
  const rows = launches.flatMap((one) =>
    (one.resources.length ? one.resources : [{}]).map((found) => [
      one.name, show.shape(one.grid), show.shape(one.block), found.shared_bytes ?? one.shared_bytes, found.arch,
      found.registers, found.spills, found.private_bytes,
    ]));
  return h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map((one) => h("th", { scope: "col" }, one)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((one) => h("td", {}, String(one ?? ""))))))));
};

const kernelDetails = (model, number) => {
  const kernel = model.index.kernels[number];
  if (!kernel) return null;
  const { steps } = model.index;
  const texts = h("div", { class: "texts" }, h("p", { class: "quiet" }, "unpacking…"));
  const trace = h("div", {});
  const loops = h("div", {});
  model.textsOf(number).then((found) => {
    const wanted = kernel.texts.includes("assembly") ? ["source", "assembly"] : ["scheduled", "source"];
    const panes = wanted.map((name, n) => textPane(kernel, found, name, n ? "right text" : "left text"));
    texts.replaceChildren(...panes.map((one) => one.element));
    trace.replaceChildren(traceSteps(found.trace));
    loops.replaceChildren(...kernel.inner_loops.map((one) => h("button", {
      type: "button", class: "loop", click: () => panes[1].reveal(`${one.label}:`),
    }, `${one.label}: ${show.count(one.instructions, "instruction")}, ${show.count(one.multiply_adds, "multiply-add")}, ${show.count(one.spills, "spill")}`)));
  });
  return [
    h("h2", {}, kernelHeading(kernel)),
    facts([
      ...speedFacts(model, kernel),
      ["work", `${show.number(kernel.flops / 1e6)} MFLOP, ${show.bytes(kernel.bytes)} a call: ${show.number(intensityOf(kernel))} operations for each byte`],
      ["kind", kernel.kind],
      ["calls", someOf(kernel.steps, (n) => [link("step", n), ` ${cut(steps[n].origin.join(", "), 60)}`], 6)],
      ["ONNX nodes", someOf(kernel.origin, (name) => name, 6)],
    ]),
    rooflinePlot(model, kernel),
    kernel.launches.length ? [h("h3", {}, "Launches"), launchTable(kernel.launches)] : null,
    h("h3", {}, "Schedule: how the loops were rearranged"), trace,
    kernel.inner_loops.length ? [h("h3", {}, "Inner loops of the machine code"), loops] : null,
    h("h3", {}, "Texts"), texts,
  ];
};

const tensorLine = (model, number) => {
  const tensor = model.tensors.get(number);
  if (!tensor) return `tensor ${number}`;
  return [link("tensor", number, tensor.name || `tensor ${number}`), ` ${tensor.dtype} ${show.shape(tensor.shape)}`,
    tensor.layout ? `, ${tensor.layout}` : ""];
};

const stepDetails = (model, number) => {
  const step = model.index.steps[number];
  if (!step) return null;
  const { nodes, kernels } = model.index;
  const lines = (list) => (list.length ? someOf(list, (one) => tensorLine(model, one)) : null);
  return [
    h("h2", {}, `Step ${number}: ${show.ops(step.ops)}`),
    facts([
      ["kernel", [link("kernel", step.kernel), kernels[step.kernel].steps.length > 1 ? `, called ${kernels[step.kernel].steps.length} times` : ""]],
      ["operators", step.nodes.length
        ? someOf(step.nodes, (n) => [link("node", n, nodes[n].op), ` ${nodes[n].origin.join(", ")}`]) : null],
      ["ONNX nodes", someOf(step.origin, (name) => name)],
      ["reads", lines(step.reads)],
      ["weights", lines(step.constants)],
      ["writes", lines(step.writes)],
    ]),
    kernelDetails(model, step.kernel),
  ];
};

const nodeDetails = (model, number) => {
  const node = model.index.nodes[number];
  if (!node) return null;
  const lines = (list) => (list.length ? someOf(list, (one) => tensorLine(model, one)) : null);
  const { steps } = model.index;
  const place = node.steps.length
    ? someOf(node.steps, (n) => [link("step", n), " by ", link("kernel", steps[n].kernel)])
    : "no kernel: it is another view of the same memory, or its parts lie in place";
  return [
    h("h2", {}, `Operator ${node.op}`),
    facts([
      ["ONNX nodes", node.origin.length ? someOf(node.origin, (name) => name) : "none: the compiler put it in"],
      ["computed in", place],
      ...node.attrs.map(([name, value]) => [name, value]),
      ["reads", lines(node.reads)],
      ["writes", lines(node.writes)],
    ]),
  ];
};

const tensorDetails = (model, number) => {
  const tensor = model.tensors.get(number);
  if (!tensor) return null;
  const bar = model.index.memory.bars.find((one) => one.tensor === number);
  const maker = model.makerOf(number);
  const readers = model.readersOf(number);
  const memory = tensor.memory || "none: it never leaves its kernel";
  return [
    h("h2", {}, `Tensor ${tensor.name || number}`),
    facts([
      ["type", `${tensor.dtype} ${show.shape(tensor.shape)}`],
      ["layout", tensor.layout],
      ["index map", tensor.index_map],
      ["size", `${show.bytes(tensor.bytes)} as it lies in memory`],
      ["memory", memory],
      ["inside", tensor.inside === null ? null : tensorLine(model, tensor.inside)],
      ["alive", bar ? `from step ${bar.first} to step ${bar.last}` : null],
      ["made by", maker === undefined ? null : [link("step", maker), " ", show.ops(model.index.steps[maker].ops)]],
      ["read by", readers.length ? someOf(readers, (n) => [link("step", n), ` ${show.ops(model.index.steps[n].ops)}`]) : null],
    ]),
  ];
};

const DETAILS = { kernel: kernelDetails, step: stepDetails, node: nodeDetails, tensor: tensorDetails };
