"use strict";
// Follows the server: what it sends replaces what differs, and nothing else, so that what is
// scrolled, focused, unfolded or sorted stays so.
(() => {
  const place = document.getElementById("live");
  const said = document.getElementById("said");
  const again = 3000; // milliseconds until a server that refused is asked again
  let source = null;

  function alter(there, wanted) {
    if ("own" in there.dataset) return; // another script's
    for (const { name } of [...there.attributes]) {
      if (name !== "open" && !wanted.hasAttribute(name)) there.removeAttribute(name);
    }
    for (const { name, value } of wanted.attributes) {
      if (name !== "open" && there.getAttribute(name) !== value) there.setAttribute(name, value);
    }
    if ("keyed" in wanted.dataset) alterKeyed(there, wanted);
    else alterInOrder(there, wanted);
  }

  // Children with ids keep the place that the reader has sorted them to; new ones come in between.
  function alterKeyed(there, wanted) {
    const known = new Map([...there.children].map((child) => [child.id, child]));
    let next = null;
    for (const child of [...wanted.children].reverse()) {
      const old = known.get(child.id);
      known.delete(child.id);
      if (old === undefined) there.insertBefore(child, next);
      else alter(old, child);
      next = old ?? child;
    }
    for (const gone of known.values()) gone.remove();
  }

  function alterInOrder(there, wanted) {
    const olds = [...there.childNodes];
    const children = [...wanted.childNodes];
    children.forEach((child, at) => {
      const old = olds[at];
      if (old === undefined) there.append(child);
      else if (old.nodeName !== child.nodeName || old.id !== child.id) old.replaceWith(child);
      else if (old.nodeType === Node.ELEMENT_NODE) alter(old, child);
      else if (old.data !== child.data) old.data = child.data;
    });
    for (const gone of olds.slice(children.length)) gone.remove();
  }

  function show(event) {
    const made = document.createElement("template");
    made.innerHTML = JSON.parse(event.data);
    const wanted = document.createElement("div");
    wanted.id = place.id;
    wanted.append(made.content);
    alter(place, wanted);
    said.textContent = "live";
    document.dispatchEvent(new Event("altered"));
  }

  function listen() {
    if (source !== null || document.hidden) return;
    const mine = new EventSource(document.body.dataset.events);
    source = mine;
    mine.addEventListener("message", show);
    mine.addEventListener("trouble", (event) => {
      said.textContent = JSON.parse(event.data);
    });
    mine.addEventListener("error", () => {
      said.textContent = "no answer from the dashboard; this is what it told last";
      if (mine.readyState !== EventSource.CLOSED) return; // the browser asks again by itself
      leave();
      setTimeout(listen, again);
    });
  }

  function leave() {
    source?.close();
    source = null;
  }

  // Browsers allow six connections to a server: a page that nobody sees holds none.
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", listen);
  listen();
})();
