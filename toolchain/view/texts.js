// The texts of a kernel, two side by side; long ones are laid out only where they are seen.
"use strict";

const TEXT_NAMES = {
  loops: "loops as defined", scheduled: "loops as scheduled", lowered: "loops as lowered", source: "source",
  assembly: "assembly", trace: "trace as JSON",
};
const CHUNK = 200;
const LINE_HEIGHT = 18;

const textPane = (kernel, texts, chosen, label) => {
  const body = h("div", { class: "text", tabindex: 0, "aria-label": label });
  const pick = h("select", { "aria-label": `${label}: which text` });
  for (const name of kernel.texts) {
    const lines = texts[name].split("\n").length;
    pick.append(h("option", { value: name }, `${TEXT_NAMES[name]} (${show.count(lines, "line")})`));
  }
  let lines = [];
  const fill = () => {
    lines = (texts[pick.value] ?? "").split("\n");
    const chunks = [];
    for (let first = 0; first < lines.length; first += CHUNK) {
      const part = lines.slice(first, first + CHUNK);
      const chunk = h("pre", {}, part.join("\n"));
      chunk.style.containIntrinsicSize = `auto ${part.length * LINE_HEIGHT}px`;
      chunks.push(chunk);
    }
    body.replaceChildren(...chunks);
    body.scrollTop = 0;
  };
  const choose = (name) => {
    pick.value = kernel.texts.includes(name) ? name : kernel.texts[0];
    fill();
  };
  // Show a line that begins with `start`, as a label of assembly.
  const reveal = (start) => {
    if (pick.value !== "assembly") choose("assembly");
    const n = lines.findIndex((one) => one.startsWith(start));
    if (n >= 0) body.scrollTop = n * LINE_HEIGHT;
    body.scrollIntoView({ block: "nearest" });
  };
  pick.addEventListener("change", fill);
  choose(chosen);
  return { element: h("div", { class: "pane" }, pick, body), reveal };
};

const traceSteps = (text) => {
  const value = (one) => {
    if (Array.isArray(one)) return `[${one.map(value).join(", ")}]`;
    if (one !== null && typeof one === "object") return `step ${one.ref[0]}.${one.ref[1]}`;
    return typeof one === "string" ? one : JSON.stringify(one);
  };
  const line = (step) => {
    const given = Object.entries(step.with).map(([name, one]) => `${name}=${value(one)}`).join(", ");
    const decided = "decision" in step ? `: ${value(step.decision)}` : "";
    const gives = step.gives.length ? ` → ${step.gives.join(", ")}` : "";
    return h("li", {}, h("code", {}, h("b", {}, step.do), `(${given})${decided}${gives}`));
  };
  const steps = JSON.parse(text).instructions;
  return steps.length ? h("ol", { class: "trace", start: 0 }, steps.map(line)) : h("p", {}, "nothing was rearranged");
};
