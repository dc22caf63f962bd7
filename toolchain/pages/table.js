// Sorting and filtering of the tables of a page. Cells tell what they sort by in data-value, else by their text.
"use strict";
(() => {
  const texts = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? cell.textContent.trim();
    const number = text === "" ? NaN : Number(text);
    return { text, number };
  };

  // Numbers before texts, nothing last, whichever way is sorted.
  const compare = (one, other, direction) => {
    if (one.text === "" || other.text === "") return (one.text === "") - (other.text === "");
    const numbers = [Number.isNaN(one.number), Number.isNaN(other.number)];
    if (numbers[0] !== numbers[1]) return numbers[0] - numbers[1];
    return direction * (numbers[0] ? texts.compare(one.text, other.text) : one.number - other.number);
  };

  const sort = (table, heading) => {
    const direction = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const one of table.tHead.rows[0].cells) {
      if (one.querySelector("button.sort")) one.setAttribute("aria-sort", "none");
    }
    heading.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, value: valueOf(row, heading.cellIndex) }));
    rows.sort((one, other) => compare(one.value, other.value, direction));
    body.append(...rows.map((one) => one.row));
  };

  const makeSortable = (table) => {
    for (const heading of table.tHead.rows[0].cells) {
      if ("unsorted" in heading.dataset) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...heading.childNodes);
      button.addEventListener("click", () => sort(table, heading));
      heading.append(button);
      heading.setAttribute("aria-sort", "none");
    }
  };

  const wordsOf = (row) => `${row.textContent} ${row.dataset.words ?? ""}`.toLowerCase();

  // Fields of a group: a search in the rows' text and data-words; a select whose data-among names an attribute of rows, a list
  // of words one of which must be the choice; a select with data-columns, which leaves one column beside the first.
  const makeFilterable = (group) => {
    const table = document.getElementById(group.dataset.filters);
    const rows = [...table.tBodies[0].rows];
    const count = group.querySelector("output");
    const fits = (row, field) => {
      if (field.value === "" || "columns" in field.dataset) return true;
      if (!("among" in field.dataset)) return wordsOf(row).includes(field.value.toLowerCase());
      return (row.dataset[field.dataset.among] ?? "").split(" ").includes(field.value);
    };
    const apply = () => {
      const fields = [...group.querySelectorAll("input, select")];
      let shown = 0;
      for (const row of rows) {
        row.hidden = !fields.every((field) => fits(row, field));
        shown += row.hidden ? 0 : 1;
      }
      const columns = fields.find((field) => "columns" in field.dataset)?.value ?? "";
      for (const row of table.rows) {
        for (const cell of row.cells) {
          cell.hidden = columns !== "" && cell.cellIndex > 0 && cell.cellIndex !== Number(columns);
        }
      }
      if (count) count.textContent = `${shown} of ${rows.length} rows`;
    };
    group.addEventListener("input", apply);
    group.addEventListener("change", apply);
    group.hidden = false;
    apply();
  };

  document.querySelectorAll("table[data-sortable]").forEach(makeSortable);
  document.querySelectorAll("[data-filters]").forEach(makeFilterable);
})();
