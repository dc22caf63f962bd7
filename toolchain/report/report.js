// A cell opens what is known of its trials. All of it is put in as text.
"use strict";
(() => {
  const cells = JSON.parse(document.getElementById("cells").textContent);
  const dialog = document.getElementById("details");

  const make = (name, className, ...content) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    element.append(...content);
    return element;
  };

  const describe = (cell, isOpen) => {
    const state = make("span", `state ${cell.class}`, cell.state);
    const list = make("dl", "facts");
    for (const [label, text] of cell.facts) {
      list.append(make("dt", "", label), make("dd", "lines", text));
    }
    const found = make("details", "trial", make("summary", "", `${cell.title} `, state), list);
    if (cell.log) {
      const log = make("pre", "", cell.log);
      log.tabIndex = 0;
      found.append(make("h3", "", "log"), log);
    }
    found.open = isOpen;
    return found;
  };

  const show = (numbers) => {
    const shown = numbers.map((number) => cells[number]);
    const content = document.getElementById("details-content");
    const title = document.getElementById("details-title");
    title.textContent = shown.length === 1 ? shown[0].title : `${shown.length} cells`;
    content.replaceChildren(...shown.map((cell) => describe(cell, shown.length === 1)));
    dialog.showModal();
    title.focus();
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-cells]");
    if (button) show(button.dataset.cells.trim().split(/\s+/).map(Number));
  });
  document.getElementById("close").addEventListener("click", () => dialog.close());
})();
