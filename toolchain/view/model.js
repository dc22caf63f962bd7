// The data of the page: compressed JSON, unpacked once, and found by number. What names say is only ever text.
"use strict";

const unpack = async (text) => {
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
};

const embedded = (id) => JSON.parse(document.getElementById(id).textContent);

const loadModel = async () => {
  const index = await unpack(embedded("index"));
  const packedTexts = embedded("texts");
  const unpacked = new Map();
  const tensors = new Map(index.tensors.map((one) => [one.number, one]));
  const times = new Map((index.profile?.kernels ?? []).map((one) => [one.kernel, one]));
  const total = [...times.values()].reduce((sum, one) => sum + one.ms, 0);
  const readers = new Map();
  const makers = new Map();
  for (const step of index.steps) {
    for (const one of [...step.reads, ...step.constants]) {
      if (!readers.has(one)) readers.set(one, []);
      readers.get(one).push(step.number);
    }
    for (const one of step.writes) makers.set(one, step.number);
  }
  return {
    index,
    tensors,
    times,
    readersOf: (tensor) => readers.get(tensor) ?? [],
    makerOf: (tensor) => makers.get(tensor),
    // The part of all measured time that a kernel takes; null where nothing was measured.
    share: (kernel) => (times.has(kernel) && total > 0 ? times.get(kernel).ms / total : null),
    textsOf: (kernel) => {
      if (!unpacked.has(kernel)) unpacked.set(kernel, unpack(packedTexts[kernel]));
      return unpacked.get(kernel);
    },
  };
};

const show = {
  bytes: (count) => {
    for (const unit of ["B", "kB", "MB", "GB"]) {
      if (count < 1000 || unit === "GB") return unit === "B" ? `${count} B` : `${count.toFixed(1)} ${unit}`;
      count /= 1000;
    }
    return "";
  },
  number: (value) => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    return size >= 100 ? value.toFixed(0) : size >= 1 ? value.toPrecision(3) : value.toPrecision(2);
  },
  percent: (part) => (part === null ? "" : `${show.number(100 * part)} %`),
  shape: (dims) => (dims.length ? dims.join("x") : "scalar"),
  ops: (ops) => {
    const runs = [];
    for (const op of ops) {
      const last = runs[runs.length - 1];
      if (last?.op === op) last.count += 1;
      else runs.push({ op, count: 1 });
    }
    return runs.map((one) => (one.count > 1 ? `${one.count} ${one.op}` : one.op)).join(" + ");
  },
  count: (number, one) => `${number} ${one}${number === 1 ? "" : "s"}`,
};
