"use strict";
// Draws the plots of #data as SVG. One cursor and one zoom for all of them; values stand in the legends.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const NS = "http://www.w3.org/2000/svg", LEFT = 58, RIGHT = 12, TOP = 14, BOTTOM = 24;
  const KEY = "corpusmill:" + location.pathname;
  let kept = { log: {}, hidden: {}, open: {}, zoom: null, scroll: null };
  try { kept = Object.assign(kept, JSON.parse(sessionStorage.getItem(KEY))); } catch { /* no storage: nothing kept */ }
  const keep = () => { try { sessionStorage.setItem(KEY, JSON.stringify(kept)); } catch { /* as above */ } };
  let cursor = null, drag = null;

  const number = v => v === 0 ? "0" : Math.abs(v) >= 1e5 || Math.abs(v) < 1e-3 ? v.toExponential(2).replace(/\.?0+e/, "e")
    : String(Number(v.toPrecision(4)));
  const count = v => {
    for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (Math.abs(v) >= size * 0.9995) return Number((v / size).toPrecision(4)) + " " + letter;
    return String(Number(v.toPrecision(4)));
  };
  const share = v => Number((100 * v).toPrecision(3)) + " %", whole = v => v.toLocaleString("en", { maximumFractionDigits: 2 });
  const forms = { number, count, share, whole };

  const make = (parent, name, attributes, words) => {
    const one = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    if (words !== undefined) one.textContent = words;
    parent.append(one);
    return one;
  };

  function ticks(low, high, most) {
    const rough = (high - low) / most || 1, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find(f => f * power >= rough * 0.999);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
    return found;
  }
  function logTicks(low, high, most) {
    const decades = Math.log10(high / low), every = Math.ceil(decades / most), found = [];
    if (decades < 0.4) return ticks(low, high, most).filter(v => v > 0);
    const fine = decades < 0.9 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : decades < 2.2 ? [1, 2, 5] : [1];
    for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++)
      for (const f of fine) if (e % every === 0 && f * 10 ** e >= low && f * 10 ** e <= high) found.push(f * 10 ** e);
    return found;
  }
  function nearest(xs, x) { // index of the closest of rising numbers
    let low = 0, high = xs.length - 1;
    while (high - low > 1) { const mid = (low + high) >> 1; if (xs[mid] < x) low = mid; else high = mid; }
    return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
  }
  function tokensAt(step) {
    const { x, y } = data.tokens;
    if (!x.length) return "";
    const i = Math.max(1, x.findIndex(one => one >= step));
    const [x0, x1, y0, y1] = x.length === 1 ? [0, x[0], 0, y[0]] : [x[i - 1], x[i], y[i - 1], y[i]];
    return " · " + count(y0 + (y1 - y0) * (step - x0) / (x1 - x0 || 1)) + " tokens";
  }
  const summed = deltas => { let at = 0; return deltas.map(d => at += d); };

  data.tokens.x = summed(data.tokens.x);
  const plots = [];
  data.groups.forEach((group, g) => {
    const colours = new Map(); // the same name has the same colour in all plots of a group
    group.plots.forEach((plot, p) => {
      const id = group.title + "/" + plot.title, box = document.getElementById(`plot-${g}-${p}`);
      const layers = plot.series.filter(s => s.kind === "layer").length;
      const series = plot.series.map((one, n) => {
        if (plot.series.length > 1 && one.kind !== "layer" && !colours.has(one.name)) colours.set(one.name, colours.size);
        const place = plot.series.length > 1 ? colours.get(one.name) : 0;
        const colour = one.kind === "layer" ? `hsl(${265 - 225 * n / Math.max(layers - 1, 1)} 62% 55%)`
          : one.kind === "dashes" && (layers || plot.series.length < 3) ? "var(--soft)" : `var(--c${place % 10})`;
        const xs = summed(one.x), dash = one.kind === "dashes" ? "5 4" : place > 9 ? "2 3" : "none";
        return { ...one, xs, colour, dash };
      });
      const made = { ...plot, id, series, chart: box.querySelector(".chart"), said: box.querySelector(".said"),
        about: [plot.unit, plot.note].filter(Boolean).join(" · "), form: forms[plot.form], logged: () => kept.log[id] ?? plot.log };
      legend(made, box.querySelector(".legend"));
      const button = box.querySelector("button");
      button.addEventListener("click", () => { kept.log[id] = !made.logged(); keep(); draw(made); });
      made.button = button;
      plots.push(made);
    });
  });
  const farthest = Math.max(1, ...plots.flatMap(plot => plot.series.map(s => s.xs.at(-1) ?? 1)));
  const reset = document.getElementById("unzoom");
  const zoomTo = range => { kept.zoom = range; keep(); reset.hidden = !range; plots.forEach(draw); };
  reset.addEventListener("click", () => zoomTo(null));

  function legend(plot, list) {
    plot.values = plot.series.map(one => {
      const item = document.createElement("li"), button = document.createElement("button");
      const [line, name, value] = ["i", "span", "b"].map(tag => document.createElement(tag));
      line.style.borderTop = `2.5px ${one.dash === "none" ? "solid" : "dashed"} ${one.colour}`;
      name.textContent = one.name;
      button.type = "button";
      button.append(line, name, value);
      const key = plot.id + "/" + one.name;
      const show = () => { one.hidden = !!kept.hidden[key]; button.setAttribute("aria-pressed", String(!one.hidden)); };
      button.addEventListener("click", () => { kept.hidden[key] = !kept.hidden[key]; keep(); show(); draw(plot); });
      show();
      item.append(button);
      list.append(item);
      return value;
    });
  }

  function draw(plot) {
    const { chart } = plot, width = Math.max(chart.clientWidth, 200), height = 216, log = plot.logged();
    const [from, to] = kept.zoom ?? [0, farthest];
    let low = Infinity, high = -Infinity;
    for (const one of plot.series) if (!one.hidden) one.xs.forEach((x, i) => {
      const y = one.y[i];
      if (x >= from && x <= to && !(log && y <= 0)) { low = Math.min(low, y); high = Math.max(high, y); }
    });
    if (low > high) [low, high] = log ? [0.1, 1] : [0, 1];
    if (log) {
      const pad = Math.max((high / low) ** 0.05, 1.02);
      [low, high] = [low / pad, high * pad];
    } else {
      const pad = (high - low || Math.abs(high) || 1) * 0.06;
      [low, high] = [low >= 0 && (low - pad < 0 || low < 0.4 * high) ? 0 : low - pad, high + pad];
    }
    const scale = log ? Math.log : v => v, span = scale(high) - scale(low);
    const X = x => LEFT + (width - LEFT - RIGHT) * (x - from) / (to - from || 1);
    const Y = y => height - BOTTOM - (height - TOP - BOTTOM) * (scale(y) - scale(low)) / span;
    chart.replaceChildren();
    const svg = make(chart, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0 });
    const last = plot.series.map(one => `${one.name} ${one.y.length ? plot.form(one.y.at(-1)) : "none"}`);
    svg.setAttribute("aria-label", `${plot.title} by step; last: ${last.slice(0, 12).join(", ")}`);
    const clip = make(make(svg, "clipPath", { id: "clip-" + plots.indexOf(plot) }), "rect",
      { x: LEFT, y: 0, width: width - LEFT - RIGHT + 3, height: height - BOTTOM + 2 }).parentNode.id;
    for (const y of (log ? logTicks : ticks)(low, high, 5)) {
      make(svg, "line", { x1: LEFT, x2: width - RIGHT, y1: Y(y), y2: Y(y), class: "grid" });
      make(svg, "text", { x: LEFT - 7, y: Y(y) + 4, class: "tick", "text-anchor": "end" }, plot.form(y));
    }
    for (const x of ticks(from, to, Math.max(2, Math.floor(width / 100))).filter(Number.isInteger)) {
      make(svg, "line", { x1: X(x), x2: X(x), y1: height - BOTTOM, y2: height - BOTTOM + 4, class: "axis" });
      const anchor = X(x) > width - 24 ? "end" : "middle";
      make(svg, "text", { x: Math.min(X(x), width - 2), y: height - 6, class: "tick", "text-anchor": anchor }, count(x));
    }
    make(svg, "line", { x1: LEFT, x2: width - RIGHT, y1: height - BOTTOM, y2: height - BOTTOM, class: "axis" });
    make(svg, "text", { x: LEFT - 14, y: height - 6, class: "tick", "text-anchor": "end" }, "step");
    const inside = make(svg, "g", { "clip-path": `url(#${clip})` });
    for (const event of data.events) {
      if (event.step < from || event.step > to) continue;
      const x = X(event.step), group = make(inside, "g", { class: "event k-" + (["skip", "rollback", "stop"].indexOf(event.kind) + 1) });
      make(group, "line", { x1: x, x2: x, y1: TOP - 4, y2: height - BOTTOM });
      make(group, "path", { d: `M${x - 5},${TOP - 12}h10l-5,8z` });
      make(group, "title", {}, event.words);
    }
    for (const one of plot.series) {
      if (one.hidden) continue;
      const parts = [];
      let pen = "M";
      one.xs.forEach((x, i) => {
        if (log && one.y[i] <= 0) { pen = "M"; return; }
        parts.push(`${pen}${X(x).toFixed(1)},${Y(one.y[i]).toFixed(1)}`);
        pen = "L";
      });
      const style = { stroke: one.colour, "stroke-dasharray": one.dash };
      make(inside, "path", { d: parts.join(""), class: "line " + one.kind, ...style });
      if ((one.kind === "dots" && one.xs.length <= 120) || one.xs.length === 1) one.xs.forEach((x, i) => {
        if (!(log && one.y[i] <= 0)) make(inside, "circle", { cx: X(x), cy: Y(one.y[i]), r: 2.6, fill: one.colour });
      });
    }
    plot.at = make(inside, "line", { y1: TOP - 4, y2: height - BOTTOM, class: "cursor", visibility: "hidden" });
    plot.band = make(inside, "rect", { y: TOP, height: height - TOP - BOTTOM, class: "band", visibility: "hidden" });
    plot.X = X;
    plot.button.setAttribute("aria-pressed", String(log));
    const step = event => {
      const x = event.clientX - svg.getBoundingClientRect().left;
      return Math.min(to, Math.max(from, from + (to - from) * (x - LEFT) / (width - LEFT - RIGHT)));
    };
    svg.addEventListener("pointermove", event => point(step(event), plot));
    svg.addEventListener("pointerleave", () => { if (!drag) point(null, plot); });
    svg.addEventListener("pointerdown", event => {
      if (event.pointerType !== "mouse" || event.button) return point(step(event), plot);
      event.preventDefault();
      svg.setPointerCapture(event.pointerId);
      drag = { plot, from: step(event) };
    });
    svg.addEventListener("pointerup", event => {
      if (!drag) return;
      const ends = [drag.from, step(event)].sort((a, b) => a - b), wide = X(ends[1]) - X(ends[0]) > 6;
      drag = null;
      if (wide) zoomTo([Math.floor(ends[0]), Math.ceil(ends[1])]); else point(step(event), plot);
    });
    svg.addEventListener("dblclick", () => zoomTo(null));
    svg.addEventListener("keydown", event => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key], xs = plot.series[0].xs;
      if (event.key === "Escape") point(null, plot);
      if (!way || !xs.length) return;
      event.preventDefault();
      const i = cursor === null ? xs.length - 1 : nearest(xs, cursor) + way;
      point(xs[Math.min(Math.max(i, 0), xs.length - 1)], plot);
    });
    mark(plot, plot);
  }

  let waiting = false;
  function point(step, over) {
    cursor = step;
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; plots.forEach(plot => mark(plot, over)); });
  }
  function mark(plot, over) { // cursor, legend and words of one plot
    plot.series.forEach((one, i) => {
      const place = cursor === null ? one.xs.length - 1 : nearest(one.xs, cursor);
      plot.values[i].textContent = one.xs.length ? plot.form(one.y[place]) : "–";
    });
    plot.at.setAttribute("visibility", cursor === null ? "hidden" : "visible");
    plot.said.textContent = plot.about;
    plot.band.setAttribute("visibility", drag && drag.plot === plot ? "visible" : "hidden");
    if (cursor === null) return;
    const x = plot.X(cursor);
    plot.at.setAttribute("x1", x);
    plot.at.setAttribute("x2", x);
    if (drag && drag.plot === plot) {
      const start = plot.X(drag.from);
      plot.band.setAttribute("x", Math.min(x, start));
      plot.band.setAttribute("width", Math.abs(x - start));
    }
    if (plot !== over) return;
    const close = data.events.filter(e => Math.abs(plot.X(e.step) - x) < 6)
      .sort((a, b) => Math.abs(a.step - cursor) - Math.abs(b.step - cursor))[0];
    plot.said.textContent = close ? close.words : `step ${Math.round(cursor).toLocaleString("en")}${tokensAt(cursor)}`;
  }

  reset.hidden = !kept.zoom;
  plots.forEach(draw);
  for (const one of document.querySelectorAll("details[id]")) {
    if (kept.open[one.id]) one.open = true;
    one.addEventListener("toggle", () => { kept.open[one.id] = one.open; keep(); });
  }
  let drawn = document.documentElement.clientWidth;
  addEventListener("resize", () => {
    const width = document.documentElement.clientWidth;
    if (width !== drawn) { drawn = width; plots.forEach(draw); }
  });
  const written = document.getElementById("written");
  if (written) written.textContent = new Date(1000 * Number(written.dataset.at)).toLocaleTimeString();
  if (kept.scroll !== null) scrollTo(0, kept.scroll); // this page loaded itself again
  history.scrollRestoration = "auto";
  kept.scroll = null;
  keep();
  const again = () => {
    if (document.hidden || drag) return setTimeout(again, 500);
    kept.scroll = scrollY;
    keep();
    history.scrollRestoration = "manual";
    location.reload();
  };
  if (data.live) setTimeout(again, 1000 * data.live);
  document.documentElement.dataset.drawn = String(plots.length);
})();
