"use strict";
// Sorts tables by the column whose heading is clicked; a second click turns the order round.
(() => {
  // A cell counts as its number where it has one; nothing stands last, whichever the order is.
  function worth(row, at) {
    const cell = row.cells[at];
    const number = cell.dataset.value;
    if (number === undefined) return cell.textContent.trim();
    return number === "" ? null : Number(number);
  }

  function compared(one, other) {
    return typeof one === "number" ? one - other : one.localeCompare(other, "en", { numeric: true });
  }

  function sort(table) {
    const chosen = table.querySelector("th[aria-sort]");
    if (chosen === null) return;
    const sign = chosen.getAttribute("aria-sort") === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [worth(row, chosen.cellIndex), row]);
    rows.sort(([one], [other]) => {
      if (one === null || other === null) return (one === null) - (other === null);
      return sign * compared(one, other);
    });
    const focused = document.activeElement; // a row that is moved loses the focus
    rows.forEach(([, row], at) => {
      if (body.rows[at] !== row) body.insertBefore(row, body.rows[at]);
    });
    if (body.contains(focused)) focused.focus({ preventScroll: true });
  }

  function choose(table, heading) {
    const before = heading.getAttribute("aria-sort");
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", before === "ascending" ? "descending" : "ascending");
    sort(table);
  }

  function prepare() {
    for (const table of document.querySelectorAll("table.sorts")) {
      if (table.tHead.dataset.own === undefined) {
        table.tHead.dataset.own = ""; // the server's heading does not take its place again
        for (const heading of table.tHead.rows[0].cells) {
          const button = document.createElement("button");
          button.type = "button";
          button.append(...heading.childNodes);
          button.addEventListener("click", () => choose(table, heading));
          heading.append(button);
        }
      }
      sort(table);
    }
  }

  document.addEventListener("altered", prepare);
  prepare();
})();
