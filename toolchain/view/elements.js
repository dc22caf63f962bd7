// Elements and their texts: the only place that makes any, so that no name becomes markup.
"use strict";

const filled = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== ""));
  return element;
};

// h("a", { href: "#x", click: () => {} }, "text", child): functions are listeners, the rest attributes.
const h = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

const svg = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const link = (kind, number, text = `${kind} ${number}`) => h("a", { href: `#${kind}-${number}` }, text);

// Facts as a list of terms; those without a value are left out.
const facts = (pairs) =>
  h(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );

// The first of many, and the others on demand.
const someOf = (items, make, most = 12) => {
  const list = h("ul", { class: "plain" }, items.slice(0, most).map((one) => h("li", {}, make(one))));
  if (items.length > most) {
    const more = h("button", { type: "button" }, `${items.length - most} more`);
    more.addEventListener("click", () => {
      more.parentElement.remove();
      list.append(...items.slice(most).map((one) => h("li", {}, make(one))));
    });
    list.append(h("li", {}, more));
  }
  return list;
};

const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
