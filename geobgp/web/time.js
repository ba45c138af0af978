// A map over time: which period is shown, a bar to choose it and to play them all, and the course of a place.
window.geobgp.time = (function () {
  "use strict";
  const el = window.geobgp.el, svg = window.geobgp.svg;
  const WIDTH = 216, HEIGHT = 96, LEFT = 4, RIGHT = 4, TOP = 16, BOTTOM = 16;

  function time(map, layers, config, tools) {
    const periods = config.time, n = periods.labels.length, number = tools.number;
    let shown = periods.start, timer = null;
    const frame = map.getContainer(), bar = el("div", "geobgp-time");
    document.body.classList.add("geobgp-timed");
    frame.appendChild(bar);
    L.DomEvent.disableClickPropagation(bar);
    L.DomEvent.disableScrollPropagation(bar);
    function button(text, label, act) {
      const out = bar.appendChild(el("button", "", text));
      out.type = "button";
      out.setAttribute("aria-label", label);
      out.title = label;
      out.addEventListener("click", act);
      return out;
    }
    const back = button("\u2039", "Back", () => step(-1));
    const player = button("\u25b6", "Play", toggle);
    const on = button("\u203a", "Forward", () => step(1));
    back.setAttribute("aria-label", "Back by one " + periods.noun);
    on.setAttribute("aria-label", "Forward by one " + periods.noun);
    const track = bar.appendChild(el("div", "geobgp-track")), slider = track.appendChild(el("input"));
    slider.type = "range"; slider.min = 0; slider.max = n - 1; slider.step = 1;
    slider.setAttribute("aria-label", periods.noun[0].toUpperCase() + periods.noun.slice(1));
    slider.addEventListener("input", function () { pause(); set(Number(slider.value)); });
    const ends = track.appendChild(el("div", "geobgp-ends"));
    ends.setAttribute("aria-hidden", "true");
    ends.appendChild(el("span", "", periods.labels[0]));
    ends.appendChild(el("span", "", periods.labels[n - 1]));
    const caption = bar.appendChild(el("div", "geobgp-period"));

    function label(period) { return periods.labels[period ?? shown] + periods.marks[period ?? shown]; }
    function set(period, quiet) {
      shown = Math.min(Math.max(period, 0), n - 1);
      layers.forEach((layer, k) => layer.setUrl(periods.pictures[k][shown]));
      slider.value = shown;
      slider.setAttribute("aria-valuetext", label());
      caption.textContent = label();
      back.setAttribute("aria-disabled", shown === 0);
      on.setAttribute("aria-disabled", shown === n - 1);
      tools.again(quiet);
    }
    // At the first and at the last there is nowhere to go.
    function step(by) { pause(); set(shown + by); }
    function pause() {
      if (timer !== null) window.clearInterval(timer);
      timer = null;
      player.textContent = "\u25b6";
      player.setAttribute("aria-label", "Play");
      player.title = "Play";
    }
    function toggle() {
      if (timer !== null) { pause(); return; }
      player.textContent = "\u2759\u2759";
      player.setAttribute("aria-label", "Pause");
      player.title = "Pause";
      if (shown === n - 1) set(0, true);
      timer = window.setInterval(function () {
        set(shown + 1, true);
        if (shown === n - 1) pause();
      }, periods.milliseconds);
    }
    frame.addEventListener("keydown", function (e) {
      if (e.target !== frame) return;
      if (e.key === "PageDown") step(1);
      else if (e.key === "PageUp") step(-1);
      else if (e.key === " ") toggle();
      else return;
      e.preventDefault();
      if (e.key !== " ") tools.speak(label());
    });

    // The numbers of a cell, or of a region, over all periods.
    function series(cell, region) {
      const at = Array.from({ length: n }, (_, t) => t);
      if (!region) {
        return Object.fromEntries([["middle", config.drawn], ["low", "low"], ["high", "high"]].map(
          ([part, name]) => [part, at.map(t => tools.value(name, cell, t))]));
      }
      return region.series;
    }
    // A small line chart with its band; the line is broken where it is a nowcast or a forecast.
    function chart(cell, region, period) {
      const s = series(cell, region), ends = [...s.low, ...s.high, ...s.middle].filter(Number.isFinite);
      const least = Math.min(...ends, 0), most = Math.max(...ends, 0) || (least < 0 ? 0 : 1);
      const x = t => LEFT + (n > 1 ? t / (n - 1) : 0.5) * (WIDTH - LEFT - RIGHT);
      const y = v => TOP + (most - v) / (most - least) * (HEIGHT - TOP - BOTTOM);
      const out = svg("svg", { class: "geobgp-chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
      const what = (region ? region.name + ", " + region.series.of : "This place") +
        " over time, with " + (region ? region.series.interval : config.interval) + " interval";
      out.setAttribute("aria-label", what);
      const point = (v, t) => x(t).toFixed(2) + " " + y(v).toFixed(2);
      const path = points => points.length ? "M" + points.join("L") : "";
      const late = periods.marks.findIndex(mark => mark), known = Math.min(late < 0 ? n : late, n), there = Array.from({ length: n }, (_, t) => t).filter(t => Number.isFinite(s.middle[t]));
      const line = (from, to) => path(there.filter(t => t >= from && t < to).map(t => point(s.middle[t], t)));
      const band = path([...there.map(t => point(s.high[t], t)), ...there.map(t => point(s.low[t], t)).reverse()]);
      out.appendChild(svg("path", { d: band, class: "geobgp-band" }));
      out.appendChild(svg("path", { d: `M${LEFT} ${y(0)}H${WIDTH - RIGHT}`, class: "geobgp-axis" }));
      out.appendChild(svg("path", { d: line(0, known), class: "geobgp-line" }));
      if (known < n) out.appendChild(svg("path", { d: line(Math.max(known - 1, 0), n), class: "geobgp-line geobgp-ahead" }));
      out.appendChild(svg("path", { d: `M${x(period).toFixed(2)} ${TOP}V${HEIGHT - BOTTOM}`, class: "geobgp-now" }));
      if (Number.isFinite(s.middle[period])) out.appendChild(svg("circle", { cx: x(period).toFixed(2), cy: y(s.middle[period]).toFixed(2), r: 3, class: "geobgp-dot" }));
      out.appendChild(svg("text", { x: LEFT, y: TOP - 5 }, number(most)));
      out.appendChild(svg("text", { x: LEFT, y: HEIGHT - 4 }, periods.labels[0]));
      out.appendChild(svg("text", { x: WIDTH - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, periods.labels[n - 1]));
      const box = el("div", "geobgp-course");
      box.appendChild(out);
      return box;
    }
    set(shown, true);
    return { shown: () => shown, label: label, set: set, chart: chart, series: series, playing: () => timer !== null };
  }
  return time;
})();
