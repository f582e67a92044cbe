"use strict";
// Tables with more than a few rows can be sorted by their headings and filtered. Without this script all is there.
for (const region of document.querySelectorAll(".scroll")) {
  const table = region.querySelector("table"), body = table.tBodies[0], rows = [...body.rows];
  if (rows.length < 4) continue;
  const last = rows[rows.length - 1], fixed = last.cells[0].textContent === "total" ? [rows.pop()] : [];
  const value = (row, at) => {
    const text = row.cells[at].textContent.trim().replaceAll("\u2212", "-"), units = {kB: 1e3, MB: 1e6, GB: 1e9, ms: 1e-3, min: 60, h: 3600};
    const found = /^(-?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*([a-zA-Z]*)/.exec(text);
    return found ? parseFloat(found[1].replaceAll(",", "")) * (units[found[2]] || 1) : text;
  };
  if (!matchMedia("(max-width: 40rem)").matches) [...table.tHead.rows[0].cells].forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "sort";
    button.append(...head.childNodes);
    head.append(button);
    if (!button.textContent.trim()) button.textContent = "row";
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const each of head.parentNode.cells) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      rows.sort((one, other) => {
        const a = value(one, at), b = value(other, at);
        const order = typeof a === "number" && typeof b === "number" ? a - b
          : typeof a === typeof b ? String(a).localeCompare(String(b)) : typeof a === "number" ? -1 : 1;
        return up ? order : -order;
      });
      body.append(...rows, ...fixed);
    });
  });
  if (rows.length < 9) continue;
  const label = document.createElement("label"), field = document.createElement("input");
  label.className = "filter";
  field.type = "search";
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
  label.append("Rows with ", field);
  region.before(label);
}
