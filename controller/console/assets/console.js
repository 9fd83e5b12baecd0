"use strict";
// Shows what the server renders: the first time with the page, then whenever it has changed.
(() => {
  const live = document.getElementById("live");
  const connection = document.getElementById("connection");
  const { live: stream, part } = document.body.dataset;
  if (!stream) return;
  const skew = Number(connection.dataset.now) - Date.now() / 1000;
  let source, later;

  const say = (state, text) => {
    connection.dataset.state = state;
    if (connection.textContent !== text) connection.textContent = text;
  };

  // patch makes one node like another, and leaves alone what is alike: focus and selection stay.
  const patch = (from, to) => {
    if (from.isEqualNode(to)) return;
    if (from.nodeType !== 1 || from.nodeName !== to.nodeName || from.id !== to.id) return from.replaceWith(to);
    for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
    for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    patchChildren(from, to);
  };
  const patchChildren = (from, to) => {
    const known = new Map();
    for (const c of from.children) if (c.id) known.set(c.id, c);
    let at = from.firstChild;
    for (const next of [...to.childNodes]) {
      const same = next.id && known.get(next.id);
      if (same) {
        if (same === at) at = at.nextSibling;
        else from.insertBefore(same, at);
        patch(same, next);
      } else if (at && !at.id && !next.id) {
        const old = at;
        at = at.nextSibling;
        patch(old, next);
      } else {
        from.insertBefore(next, at);
      }
    }
    while (at) {
      const old = at;
      at = at.nextSibling;
      old.remove();
    }
  };
  const show = (html) => {
    patchChildren(live, new DOMParser().parseFromString(html, "text/html").body);
    tick();
  };

  // The time that is left of leases on the system clock.
  const spell = (s) => {
    if (s < 100) return Math.ceil(s) + " s";
    if (s < 5400) return Math.round(s / 60) + " min";
    return s < 172800 ? Math.round(s / 3600) + " h" : Math.round(s / 86400) + " d";
  };
  const tick = () => {
    for (const t of live.querySelectorAll("time[data-until]")) {
      const left = t.dataset.until - (Date.now() / 1000 + skew);
      const text = left > 0 ? spell(left) + " left" : "run out";
      if (t.textContent !== text) t.textContent = text;
    }
  };
  setInterval(tick, 1000);

  const connect = () => {
    clearTimeout(later);
    if (source) source.close();
    source = null;
    if (document.hidden) return;
    source = new EventSource(stream + location.search);
    source.addEventListener("part", (e) => { say("live", "live"); show(e.data); });
    source.addEventListener("fault", (e) => say("lost", e.data));
    source.addEventListener("error", () => {
      say("lost", "connection lost, trying again");
      if (source && source.readyState === EventSource.CLOSED) later = setTimeout(connect, 2000);
    });
  };
  document.addEventListener("visibilitychange", connect);
  connect();
  tick();

  const filter = document.getElementById("filter");
  if (!filter) return;
  const form = filter.form, order = document.getElementById("order"), said = document.getElementById("said");
  let running, announce;
  const look = async () => {
    const query = new URLSearchParams(location.search);
    query.delete("page");
    query.delete("q");
    if (filter.value.trim()) query.set("q", filter.value);
    query.set("sort", order.value);
    if (query.get("sort") === "name") query.delete("sort");
    const search = query.size ? "?" + query : "";
    if (source) source.close(); // it shows the old choice
    clearTimeout(later);
    if (running) running.abort();
    running = new AbortController();
    try {
      const answer = await fetch(part + search, { signal: running.signal });
      if (!answer.ok) throw new Error(answer.statusText);
      const html = await answer.text();
      history.replaceState(null, "", location.pathname + search);
      show(html);
      clearTimeout(announce);
      announce = setTimeout(() => { said.textContent = live.querySelector("[data-count]").dataset.count; }, 700);
    } catch (e) {
      if (e.name === "AbortError") return;
      say("lost", "connection lost, trying again");
    }
    later = setTimeout(connect, 300);
  };
  filter.addEventListener("input", look);
  order.addEventListener("change", look);
  form.addEventListener("submit", (e) => { e.preventDefault(); look(); });
  form.classList.add("scripted");
  document.addEventListener("keydown", (e) => {
    if (e.key === "/" && !e.ctrlKey && !e.metaKey && !e.altKey && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.nodeName)) {
      e.preventDefault();
      filter.focus();
      filter.select();
    }
  });
})();
