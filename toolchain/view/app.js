// The page: tabs, search, the panel of details, and the fragment that says what of it is shown.
"use strict";

const TABS = ["graph", "kernels", "nodes", "tensors", "memory"];
const MOST_FOUND = 60;

const searchable = (model) => {
  const { kernels, nodes, steps, merged } = model.index;
  const all = [];
  const add = (kind, href, label) => all.push({ kind, href, label, text: `${kind} ${label}`.toLowerCase() });
  for (const one of kernels) add("kernel", `kernel-${one.number}`, `${one.number} ${show.ops(one.ops)}`);
  for (const one of nodes) {
    const words = `${one.origin.join(", ") || "(of the compiler)"} ${one.op}`;
    add("node", one.steps.length ? `step-${one.steps[0]}` : `node-${one.number}`, words);
  }
  if (!nodes.length) {
    for (const step of steps) for (const name of step.origin) add("node", `step-${step.number}`, name);
  }
  for (const one of merged) add("node", mergedTarget(one), `${one.name} (${mergedInto(model, one)})`);
  for (const one of model.tensors.values()) {
    add("tensor", `tensor-${one.number}`, `${one.name || one.number} ${one.dtype} ${show.shape(one.shape)}`);
  }
  return all;
};

const startSearch = (model, select) => {
  const [input, list] = ["search", "found"].map((id) => document.getElementById(id));
  const all = searchable(model);
  let found = [];
  let at = -1;
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const choose = (n) => {
    at = n;
    [...list.children].forEach((one, number) => one.setAttribute("aria-selected", number === n));
    list.children[n]?.scrollIntoView({ block: "nearest" });
    if (n >= 0) input.setAttribute("aria-activedescendant", `found-${n}`);
  };
  const open = (one) => {
    close();
    select(one.href);
  };
  const look = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return close();
    const every = all.filter((one) => words.every((word) => one.text.includes(word)));
    found = every.slice(0, MOST_FOUND);
    const items = found.map((one, n) => h("li", {
      id: `found-${n}`, role: "option", "aria-selected": "false",
      mousedown: (event) => event.preventDefault(), click: () => open(one),
    }, h("span", { class: "kind" }, one.kind), " ", one.label));
    const more = every.length - found.length;
    const last = more ? `${more} more` : every.length ? "" : "nothing of that name";
    list.replaceChildren(...items, ...(last ? [h("li", { class: "quiet", role: "presentation" }, last)] : []));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    return choose(found.length ? 0 : -1);
  };
  const KEYS = {
    ArrowDown: () => choose(Math.min(at + 1, found.length - 1)),
    ArrowUp: () => choose(Math.max(at - 1, 0)),
    Enter: () => found[at] && !list.hidden && open(found[at]),
    Escape: close,
  };
  input.addEventListener("input", look);
  input.addEventListener("focus", look);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (!KEYS[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    KEYS[event.key]();
  });
  return input;
};

const startTabs = (model, select) => {
  const surface = (name) => svg("svg", { class: `surface ${name}-surface`, tabindex: 0, role: "group", "aria-label": name });
  const made = new Map();
  const make = {
    graph: () => {
      const area = surface("graph");
      return { area, ...drawGraph(model, area, select) };
    },
    memory: () => {
      const area = surface("memory");
      if (!model.index.memory.bars.length) return { area: h("p", {}, "No memory plan: see what this page lacks, above.") };
      return { area, ...drawMemory(model, area, select) };
    },
    kernels: () => ({ area: h("div", { class: "stack" }, rooflinePlot(model, null, 640, 220), kernelTable(model)) }),
    nodes: () => ({ area: nodeTable(model) }),
    tensors: () => ({
      area: model.tensors.size ? tensorTable(model) : h("p", {}, "No tensors: see what this page lacks, above."),
    }),
  };
  const open = (name) => {
    for (const one of TABS) {
      document.getElementById(`tab-${one}`).setAttribute("aria-selected", one === name);
      document.getElementById(`view-${one}`).hidden = one !== name;
    }
    if (!made.has(name)) {
      const view = make[name]();
      made.set(name, view);
      document.getElementById(`view-${name}`).append(...[view.buttons, view.area].filter(Boolean));
      (view.first ?? view.fit)?.();
    }
    return made.get(name);
  };
  const current = () => TABS.find((one) => !document.getElementById(`view-${one}`).hidden);
  return { open, current };
};

const isMarked = (model, kind, number) => (vertex) => {
  if (vertex.kind === "step") {
    const step = model.index.steps[vertex.ref];
    if (kind === "kernel") return step.kernel === number;
    if (kind === "node") return step.nodes.includes(number);
    if (kind === "tensor") return step.writes.includes(number);
    return step.number === number;
  }
  if (vertex.kind === "view") {
    return kind === "node" ? vertex.ref === number : kind === "tensor" && model.index.nodes[vertex.ref].writes.includes(number);
  }
  return vertex.kind === "input" && kind === "tensor" && model.index.input_tensors[vertex.ref] === number;
};

const start = async () => {
  const model = await loadModel();
  const panel = document.getElementById("panel");
  const details = document.getElementById("details");
  const select = (target) => { location.hash = target; };
  const tabs = startTabs(model, select);
  let lastTab = "graph";

  const close = () => {
    panel.hidden = true;
    document.body.classList.remove("with-panel");
  };
  const openDetails = (kind, number) => {
    const content = DETAILS[kind]?.(model, number) ?? h("p", {}, `There is no ${kind} ${number} in this page.`);
    details.replaceChildren(...[content].flat(Infinity).filter(Boolean));
    panel.hidden = false;
    document.body.classList.add("with-panel");
    panel.scrollTop = 0;
    const graph = tabs.open(tabs.current() ?? lastTab);
    graph.mark?.(isMarked(model, kind, number));
  };
  const follow = () => {
    const name = location.hash.slice(1);
    const found = /^(kernel|step|node|tensor)-(\d+)$/.exec(name);
    if (found) {
      openDetails(found[1], Number(found[2]));
      return;
    }
    close();
    lastTab = TABS.includes(name) ? name : tabs.current() ?? "graph";
    tabs.open(lastTab);
  };

  for (const name of TABS) {
    document.getElementById(`tab-${name}`).addEventListener("click", () => {
      if (location.hash === `#${name}`) follow();
      else select(name);
    });
  }
  document.getElementById("close").addEventListener("click", () => select(tabs.current()));
  const wide = document.getElementById("wide");
  wide.addEventListener("click", () => wide.setAttribute("aria-pressed", document.body.classList.toggle("wide")));
  const search = startSearch(model, select);
  const neighbour = (by) => {
    const found = /^#(kernel|step)-(\d+)$/.exec(location.hash);
    if (!found) return;
    const count = found[1] === "kernel" ? model.index.kernels.length : model.index.steps.length;
    select(`${found[1]}-${Math.min(count - 1, Math.max(0, Number(found[2]) + by))}`);
  };
  const KEYS = {
    "/": () => search.focus(),
    Escape: () => !panel.hidden && select(tabs.current()),
    n: () => neighbour(1),
    p: () => neighbour(-1),
    ...Object.fromEntries(TABS.map((name, n) => [String(n + 1), () => select(name)])),
  };
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, textarea");
    if (!KEYS[event.key] || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  addEventListener("hashchange", follow);
  follow();
  document.body.dataset.ready = "yes";
};

start().catch((error) => {
  document.getElementById("trouble").textContent = `This page cannot be shown: ${error.message}`;
});
