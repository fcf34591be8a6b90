"use strict";
// Draws the figures, lets buttons, keys and the pointer choose the stretch of time shown, and finds
// rows of long tables.
(async () => {
  const charts = JSON.parse(document.getElementById("figures").textContent);
  const views = [];
  const zoomed = [];

  // Columns become rows; texts stand once, with a number per row.
  function rows(columns) {
    const names = Object.keys(columns);
    const read = names.map((name) => {
      const column = columns[name];
      return Array.isArray(column)
        ? (index) => column[index]
        : (index) => column.of[column.at[index]];
    });
    const first = columns[names[0]];
    const count = names.length ? (Array.isArray(first) ? first : first.at).length : 0;
    return Array.from({ length: count }, (_, index) =>
      Object.fromEntries(names.map((name, at) => [name, read[at](index)])));
  }

  async function draw(name, chart) {
    const place = document.getElementById(`chart-${name}`);
    for (const source of chart.spec.data) {
      if (source.name in chart.data) source.values = rows(chart.data[source.name]);
    }
    const found = await vegaEmbed(place, chart.spec, {
      mode: "vega", renderer: "svg", actions: false, ast: true, defaultStyle: false,
      tooltip: { disableDefaultStyle: true },
    });
    views.push([place, found.view]);
    if (chart.zooms) {
      zoomed.push(found.view);
      place.closest("figure").classList.add("zooms");
      listen(place, found.view);
    }
  }

  let whole = [0, 1];
  let shown = [0, 1];

  function show(from, to) {
    const length = Math.max((whole[1] - whole[0]) / 1e5, Math.min(to - from, whole[1] - whole[0]));
    const begin = Math.min(Math.max(whole[0], from), whole[1] - length);
    shown = [begin, begin + length];
    for (const view of zoomed) view.signal("t0", shown[0]).signal("t1", shown[1]).runAsync();
  }

  const actions = {
    in: () => scale(0.5),
    out: () => scale(2),
    left: () => move(-0.25),
    right: () => move(0.25),
    all: () => show(...whole),
  };

  function scale(factor) {
    const middle = (shown[0] + shown[1]) / 2;
    const half = ((shown[1] - shown[0]) / 2) * factor;
    show(middle - half, middle + half);
  }

  function move(share) {
    const by = (shown[1] - shown[0]) * share;
    show(shown[0] + by, shown[1] + by);
  }

  const keys = {
    "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all",
  };

  function listen(place, view) {
    const frame = place.parentElement;
    frame.addEventListener("keydown", (event) => {
      const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
      if (action === undefined) return;
      event.preventDefault();
      actions[action]();
    });
    let begin = null;
    let box = null;
    const inside = (event) => event.clientX - place.getBoundingClientRect().left;
    const time = (x) => view.scale("x").invert(x - view.origin()[0]);
    place.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      begin = inside(event);
    });
    window.addEventListener("pointermove", (event) => {
      if (begin === null) return;
      if (box === null) {
        box = document.createElement("div");
        box.className = "drag";
        frame.append(box);
      }
      const here = inside(event);
      box.style.left = `${Math.min(begin, here)}px`;
      box.style.width = `${Math.abs(here - begin)}px`;
      event.preventDefault();
    });
    window.addEventListener("pointerup", (event) => {
      if (begin === null) return;
      const here = inside(event);
      const [from, to] = [Math.min(begin, here), Math.max(begin, here)];
      begin = null;
      if (box !== null) box.remove();
      box = null;
      if (to - from > 4) show(time(from), time(to));
    });
  }

  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => actions[button.dataset.zoom]());
  }
  for (const [name, chart] of Object.entries(charts)) await draw(name, chart);
  if (zoomed.length) {
    whole = [zoomed[0].signal("t0"), zoomed[0].signal("t1")];
    shown = whole;
  }
  // Long tables show their beginning until all is asked for; the text field shows what holds a text,
  // opens what it is in, and fades all else in the figures.
  const first = 30;
  const field = document.getElementById("find");
  const lists = [...document.querySelectorAll("details table")].map((table) => {
    const rows = [...table.tBodies[0].rows].map((row) => [row, row.textContent.toLowerCase()]);
    const list = { rows, whole: rows.length <= 1.5 * first, more: null };
    if (!list.whole) {
      list.more = document.createElement("button");
      list.more.type = "button";
      list.more.className = "screen";
      list.more.textContent = `show all ${rows.length} rows`;
      list.more.addEventListener("click", () => {
        list.whole = true;
        find();
      });
      table.closest(".wide").after(list.more);
    }
    return list;
  });
  const boxes = [...document.querySelectorAll(".graph .box")].map((box) =>
    [box, box.querySelector("title").textContent.toLowerCase()]);
  let shut = []; // what was folded before the text field opened it

  function find() {
    const wanted = field === null ? "" : field.value.trim().toLowerCase();
    let found = 0;
    let total = 0;
    for (const { rows, whole, more } of lists) {
      rows.forEach(([row, text], at) => {
        const here = wanted ? text.includes(wanted) : whole || at < first;
        row.classList.toggle("left-out", !here);
        found += here ? 1 : 0;
      });
      total += rows.length;
      if (more !== null) more.hidden = wanted !== "" || whole;
    }
    for (const [box, text] of boxes) {
      const here = text.includes(wanted);
      box.classList.toggle("sought", wanted !== "" && here);
      box.classList.toggle("other", !here);
    }
    if (!shut.length && wanted) {
      shut = [...document.querySelectorAll("details:not([open])")];
    }
    for (const fold of shut) {
      fold.open = wanted !== ""
        && fold.querySelector("tbody tr:not(.left-out), .box.sought") !== null;
    }
    if (!wanted) shut = [];
    if (field !== null) {
      field.form.querySelector("output").textContent = wanted ? `${found} of ${total} rows` : "";
    }
    for (const [, view] of views) {
      if ("wanted" in view.getState().signals) view.signal("wanted", wanted).runAsync();
    }
  }

  if (field !== null) {
    field.form.hidden = false;
    field.addEventListener("input", find);
    // The enter key goes from one box that was found to the next.
    let at = -1;
    field.addEventListener("input", () => { at = -1; });
    field.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const found = boxes.filter(([box]) => box.classList.contains("sought"));
      if (!found.length) return;
      at = (at + 1) % found.length;
      found[at][0].scrollIntoView({ block: "center", inline: "center" });
    });
  }
  find();

  // Figures that were folded away have had no width.
  for (const fold of document.querySelectorAll("details")) {
    fold.addEventListener("toggle", () => {
      for (const [place, view] of views) {
        if (fold.open && fold.contains(place)) view.width(place.clientWidth).run();
      }
    });
  }

  // Paper shows what is folded away, and figures as wide as it is, with letters of full size.
  const opened = [];
  function fit() {
    for (const [place, view] of views) view.width(place.clientWidth).run();
  }
  window.addEventListener("beforeprint", () => {
    document.body.classList.add("paper");
    for (const part of document.querySelectorAll("details:not([open]):not(.long)")) {
      part.open = true;
      opened.push(part);
    }
    fit();
  });
  window.addEventListener("afterprint", () => {
    document.body.classList.remove("paper");
    for (const part of opened.splice(0)) part.open = false;
    fit();
  });
  document.documentElement.dataset.drawn = "yes";
})();
