"use strict";
// Draws the figures and lets buttons, keys and the pointer choose the stretch of time shown.
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
