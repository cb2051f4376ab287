"use strict";
(() => {
  // Every text goes into the page as text: nothing here parses markup.
  const make = (tag, cls, text) => {
    const e = document.createElement(tag);
    if (cls) e.className = cls;
    if (text !== undefined && text !== "") e.textContent = text;
    return e;
  };
  const all = (what, under = document) => [...under.querySelectorAll(what)];
  const one = (id) => document.getElementById(id);
  const read = (id) => { const e = one(id); return e ? JSON.parse(e.textContent) : null; };

  // Theme: as the system has it, or chosen.
  const system = matchMedia("(prefers-color-scheme: dark)");
  const themes = ["system", "dark", "light"];
  let theme = "system";
  try { theme = localStorage.getItem("fitz-conformance-theme") || theme; } catch { /* a page without storage keeps nothing */ }
  const paint = () => {
    document.documentElement.dataset.theme = theme === "system" ? (system.matches ? "dark" : "light") : theme;
    one("theme").textContent = "Theme: " + theme;
  };
  if (!themes.includes(theme)) theme = "system";
  paint();
  system.addEventListener("change", paint);
  one("theme").addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem("fitz-conformance-theme", theme); } catch { /* as above */ }
    paint();
  });

  // Filters, which the address keeps so that a view can be sent to somebody.
  const cases = all(".case");
  const selects = ["folder", "transport", "labels", "auth", "clause"].map(one);
  const chips = all(".chip");
  const search = one("q");
  const wanted = () => {
    const statuses = chips.filter((c) => c.getAttribute("aria-pressed") === "true").map((c) => c.dataset.status);
    return { words: search.value.toLowerCase().split(/\s+/).filter(Boolean), statuses, values: Object.fromEntries(selects.map((s) => [s.id, s.value])) };
  };
  const fits = (c, w) => {
    const d = c.dataset, v = w.values;
    return (!w.statuses.length || w.statuses.includes(d.status)) && (!v.folder || v.folder === d.folder) && (!v.transport || v.transport === d.transport) &&
      (!v.labels || v.labels === d.labels) && (!v.auth || v.auth === d.auth) && (!v.clause || d.clauses.includes(" " + v.clause + " ")) && w.words.every((word) => d.search.includes(word));
  };
  const apply = () => {
    const w = wanted();
    let n = 0;
    for (const c of cases) {
      c.hidden = !fits(c, w);
      if (!c.hidden) n++;
    }
    for (const g of all(".group")) {
      const left = all(".case:not([hidden])", g).length;
      g.hidden = !left;
      g.querySelector(".n").textContent = left;
    }
    one("nothing").hidden = n > 0;
    one("shown").textContent = n === cases.length ? n + " cases" : n + " of " + cases.length + " cases";
    const hash = new URLSearchParams();
    if (search.value) hash.set("q", search.value);
    if (w.statuses.length) hash.set("status", w.statuses.join(","));
    for (const s of selects) if (s.value) hash.set(s.id, s.value);
    try { history.replaceState(null, "", hash.size ? "#" + hash : location.pathname + location.search); } catch { /* not everywhere allowed for files */ }
  };
  const press = (list) => chips.forEach((c) => c.setAttribute("aria-pressed", String(list.includes(c.dataset.status))));
  const restore = () => {
    const hash = new URLSearchParams(location.hash.slice(1));
    search.value = hash.get("q") || "";
    press((hash.get("status") || "").split(","));
    for (const s of selects) s.value = hash.get(s.id) || "";
    for (const s of selects) if (s.selectedIndex < 0) s.value = "";
    return hash.get("case");
  };
  search.addEventListener("input", apply);
  selects.forEach((s) => s.addEventListener("change", apply));
  chips.forEach((c) => c.addEventListener("click", () => { c.setAttribute("aria-pressed", String(c.getAttribute("aria-pressed") !== "true")); apply(); }));
  one("reset").addEventListener("click", () => { search.value = ""; press([]); selects.forEach((s) => { s.value = ""; }); apply(); search.focus(); });
  all(".matrix .cell").forEach((b) => b.addEventListener("click", () => {
    for (const key of ["folder", "transport", "labels", "auth"]) one(key).value = b.dataset[key];
    one("clause").value = search.value = "";
    press([]);
    apply();
    one("cases").scrollIntoView();
  }));
  document.addEventListener("keydown", (e) => {
    if (e.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName) && !e.ctrlKey && !e.metaKey && !e.altKey) {
      e.preventDefault();
      search.focus();
    } else if (e.key === "Escape" && document.activeElement === search) {
      search.value = "";
      apply();
    }
  });

  // Copying works from files too, where some browsers have no clipboard.
  document.addEventListener("click", async (e) => {
    if (!e.target.matches(".copy")) return;
    const code = e.target.parentElement.querySelector("code");
    let copied = true;
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      copied = document.execCommand("copy");
    }
    e.target.textContent = copied ? "Copied" : "Selected";
    setTimeout(() => { e.target.textContent = "Copy"; }, 1500);
  });

  // A case is filled when it is opened for the first time.
  const clauses = read("clauses") || {};
  const ms = (us) => (us / 1000).toFixed(3) + " ms";
  const fill = (c) => {
    if (c.dataset.filled) return;
    c.dataset.filled = "yes";
    for (const li of all("li[data-clause]", c)) li.append(make("span", "", clauses[li.dataset.clause] || "—"));
    for (const t of all(".timeline", c)) draw(t, read("data-" + t.dataset.of));
  };
  cases.forEach((c) => c.addEventListener("toggle", () => { if (c.open) fill(c); }));

  const draw = (at, data) => {
    const rows = make("div", "rows");
    const cols = make("div", "cols");
    const ends = make("span");
    ends.append(make("span", "", "client"), make("span", "", "broker"));
    cols.append(make("span", "t", "since start"), make("span", "", "link"), ends);
    rows.append(cols);
    const of = new Map();
    for (const r of data.rows) {
      const e = { f: entry, l: late, s: step, e: event, g: gap }[r.k](r, data);
      rows.append(e);
      if (!of.has(r.l)) of.set(r.l, []);
      of.get(r.l).push(e);
    }
    const tools = make("div", "tools");
    tools.append(make("b", "", "Timeline"));
    const names = [...data.links.map((name, i) => [i, name]), [-1, "steps"], [-2, "driver events"]];
    for (const [key, name] of names) {
      if (!of.has(key)) continue;
      const label = make("label"), box = make("input");
      box.type = "checkbox";
      box.checked = true;
      box.addEventListener("change", () => of.get(key).forEach((e) => { e.hidden = !box.checked; }));
      label.append(box, key >= 0 ? make("span", "lk k" + key % 6, name) : name);
      tools.append(label);
    }
    const hint = make("span", "dim ends", "Choose a frame to see its bytes.");
    tools.append(hint);
    at.replaceChildren(tools, rows);
  };

  const front = (r, data) => [make("span", "t", ms(r.t)), r.l >= 0 ? make("span", "lk k" + r.l % 6, data.links[r.l]) : make("span")];
  const named = (r) => {
    const nm = make("span", "nm", r.m || r.w || "bytes");
    if (r.w && r.w !== "event" && r.m) nm.prepend(make("i", "", r.w + " "));
    if (r.f) nm.append(make("i", "", " " + r.f));
    return nm;
  };
  const arrow = (r) => {
    const a = make("span", "arrow");
    a.append(named(r));
    if (r.lb) a.append(make("span", "lab", "label " + r.lb));
    return a;
  };
  const shaft = (r) => {
    const s = make("span", "shaft");
    s.setAttribute("role", "img");
    s.setAttribute("aria-label", r.d === "up" ? "to the broker" : "to the client");
    return s;
  };
  const way = (r) => (r.d ? " " + r.d : " note-row");

  const entry = (r, data) => {
    const stopped = r.ft && r.d;
    const e = make("details", "row" + way(r) + (stopped ? " stopped" : ""));
    const head = make("summary");
    const lane = make("span", "lane"), a = arrow(r);
    if (r.in) a.append(make("span", "fate", "made on the way"));
    if (r.ft) a.append(make("span", "fate", r.ft));
    if (r.b && r.b.length > 1) a.append(make("span", "fate", "changed"));
    if (r.ru) a.append(make("span", "fate", r.ru));
    if (r.x) a.append(make("span", "flt", "fault"));
    if (r.d) a.append(shaft(r));
    lane.append(a);
    if (r.v) lane.append(make("span", "val", r.v));
    head.append(...front(r, data), lane);
    e.append(head);
    e.addEventListener("toggle", () => { if (e.open && e.childElementCount === 1) e.append(detail(r)); });
    return e;
  };
  const plain = (r, data, cls) => {
    const e = make("div", "plain " + cls), lane = make("span", "lane");
    e.append(...front(r, data), lane);
    return [e, lane];
  };
  const late = (r, data) => {
    const [e, lane] = plain(r, data, "late" + way(r)), a = arrow(r);
    a.append(make("span", "fate", "now delivered: " + r.ru), shaft(r));
    lane.append(a);
    return e;
  };
  const step = (r, data) => {
    const [e, lane] = plain(r, data, r.bad ? "step bad" : "step");
    lane.append(make("b", "", (r.bad ? "✗ " : "") + "step " + r.m), make("code", "", r.v), " ", make("span", "dim", ms(r.tk || 0)));
    return e;
  };
  const event = (r, data) => {
    const [e, lane] = plain(r, data, "event");
    lane.append(make("b", "", "◆ " + r.m), " ", make("span", "", r.lb || ""), " ", make("code", "", r.v || ""));
    return e;
  };
  const gap = (r, data) => {
    const [e, lane] = plain(r, data, "gap");
    lane.append("… " + r.v);
    return e;
  };

  const detail = (r) => {
    const e = make("div", "more"), facts = make("dl", "facts");
    const fact = (name, value) => {
      if (value === undefined || value === "" || value === null) return;
      const d = make("div");
      d.append(make("dt", "", name), make("dd", "", String(value)));
      facts.append(d);
    };
    fact("entry", r.n);
    fact("connection", r.c);
    fact("read", ms(r.t));
    fact("delivered", r.dl === undefined ? undefined : ms(r.dl) + (r.dl > r.t ? " (" + ms(r.dl - r.t) + " later)" : ""));
    fact("fate", r.ft);
    fact("rule", r.ru);
    fact("label", r.lb);
    fact("transport message", r.g);
    fact("note", r.no);
    fact("fault", r.x);
    e.append(facts);
    (r.b || []).forEach((hex, i) => e.append(bytes(hex, (r.p || [])[i] || [], r.z[i], r.b.length > 1 ? ["as read", "as delivered"][i] : "bytes")));
    return e;
  };

  // Bytes with the meaning of each: fields point to their bytes and the other way round. Arrow keys go from field to field.
  const bytes = (hex, parts, size, title) => {
    const e = make("div", "bytes");
    const known = hex.length / 2;
    e.append(make("h3", "", title + ": " + size + (known < size ? ", the first " + known + " shown" : "")));
    const box = make("div", "hex"), says = make("p", "says dim"), table = make("table", "fields");
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", title + ", field by field; arrow keys go on");
    says.setAttribute("aria-live", "polite");
    if (!parts.length) parts = [[0, known, "bytes", "", ""]];
    const headRow = make("tr");
    for (const h of ["at", "bytes", "field", "type", "value"]) { const th = make("th", "", h); th.scope = "col"; headRow.append(th); }
    const thead = make("thead"), body = make("tbody");
    thead.append(headRow);
    table.append(thead, body);
    const spans = [], lines = [];
    const on = (i) => {
      spans.forEach((s, n) => { s.classList.toggle("on", n === i); s.tabIndex = n === i ? 0 : -1; });
      lines.forEach((l, n) => l.classList.toggle("on", n === i));
      const [off, len, path, type, text] = parts[i];
      says.replaceChildren(make("b", "", path), (type ? " " + type : "") + (text ? " = " + text : "") + " (" + len + (len === 1 ? " byte" : " bytes") + " at " + off + ")");
    };
    parts.forEach(([off, len, path, type, text], i) => {
      const colour = "c" + (/^(type|length)$| length$/.test(path) ? 0 : 1 + i % 6);
      const s = make("span", "sp " + colour, (hex.slice(2 * off, 2 * (off + len)).match(/../g) || []).join(" "));
      s.tabIndex = i ? -1 : 0;
      s.setAttribute("role", "button");
      s.setAttribute("aria-label", path + (text ? " = " + text : ""));
      s.title = path + (type ? " " + type : "") + (text ? " = " + text : "");
      const l = make("tr"), name = make("td");
      name.append(make("i", colour), path);
      l.append(make("td", "", String(off)), make("td", "", String(len)), name, make("td", "", type), make("td", "", text));
      for (const x of [s, l]) { x.addEventListener("mouseenter", () => on(i)); x.addEventListener("click", () => on(i)); }
      s.addEventListener("focus", () => on(i));
      spans.push(s);
      lines.push(l);
      box.append(s);
      body.append(l);
    });
    box.addEventListener("keydown", (k) => {
      const i = spans.indexOf(document.activeElement);
      const to = { ArrowRight: i + 1, ArrowDown: i + 1, ArrowLeft: i - 1, ArrowUp: i - 1, Home: 0, End: spans.length - 1 }[k.key];
      if (i < 0 || to === undefined || !spans[to]) return;
      k.preventDefault();
      spans[to].focus();
    });
    e.append(box, says, table);
    return e;
  };

  // At the start: the view of the address, and the first case that is no pass.
  const start = () => {
    const named = restore();
    apply();
    const first = named ? cases.find((c) => c.dataset.name === named) : cases.find((c) => c.dataset.status !== "pass" && !c.hidden);
    if (!first) return;
    first.open = true;
    fill(first);
    if (named) { first.hidden = false; first.closest(".group").hidden = false; first.scrollIntoView(); }
  };
  start();
})();
