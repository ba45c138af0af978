// The map on paper: all of the land, fitted to the page whatever its size, with title, legend and scale.
window.geobgp.sheet = (function () {
  "use strict";
  const el = window.geobgp.el, svg = window.geobgp.svg;

  // state: the number of the layer, its picture and opacity, which overlays are seen, the period;
  // pixel: from longitude and latitude to column and row of the picture.
  function sheet(config, state, pixel) {
    const layer = config.layers[state.active], grid = config.grid;
    const out = el("div", "geobgp-print"), body = el("div", "geobgp-sheet");
    out.appendChild(el("h1", "", config.title));
    if (state.period) out.appendChild(el("h2", "", state.period));
    if (config.subtitle) out.appendChild(el("p", "", config.subtitle));
    out.appendChild(body);
    // Below the land there is room for the scale.
    const text = 0.022 * Math.max(grid.cols, grid.rows);
    const map = svg("svg", { viewBox: [0, 0, grid.cols, grid.rows + 3 * text].join(" ") });
    map.appendChild(svg("image", {
      href: state.picture, width: grid.cols, height: grid.rows, opacity: state.opacity,
      preserveAspectRatio: "none", style: "image-rendering: pixelated"
    }));
    const line = { fill: "none", stroke: "#33434b", "vector-effect": "non-scaling-stroke" };
    // What goes on beyond the picture is cut off.
    const frame = map.appendChild(svg("svg", { width: grid.cols, height: grid.rows }));
    function lines(parts, style) {
      const path = parts.map(part => "M" + part.map(c => pixel(c[0], c[1]).map(v => v.toFixed(2))).join("L"));
      frame.appendChild(svg("path", { ...line, d: path.join(""), ...style }));
    }
    if (state.seen("shoreline")) lines(config.shoreline, { "stroke-width": 0.7 });
    if (state.seen("context")) lines(config.context.lines, { "stroke-width": 0.6, "stroke-dasharray": "3 2" });
    if (state.seen("regions")) lines(config.regions.items.flatMap(item => item.outline), { "stroke-width": 1, stroke: "#1c2529" });
    if (state.seen("hotspots")) for (const item of state.hotspots) {
      lines(item.outline, { "stroke-width": 3, stroke: "#ffffff" });
      lines(item.outline, { "stroke-width": 1.6, stroke: item.colour, "stroke-dasharray": item.dashed ? "4 3" : "none" });
    }
    if (state.seen("points")) for (const [lat, lng] of config.points.coords) {
      const [x, y] = pixel(lng, lat);
      map.appendChild(svg("circle", { cx: x, cy: y, r: text / 6, fill: "#16323f" }));
    }
    // Names within the picture, where they do not lie on each other.
    const names = window.geobgp.names(config, state.seen), size = 0.8 * text;
    const spots = names.map(function ([lat, lng, name]) { return [...pixel(lng, lat), 0.55 * size * name.length, size, name]; });
    const inside = spots.filter(([x, y, w]) => x - w / 2 > 0 && x + w / 2 < grid.cols && y > size && y < grid.rows);
    for (const [x, y, , , name] of window.geobgp.declutter(inside)) map.appendChild(svg("text", {
      x: x, y: y, "font-size": size, "text-anchor": "middle", "dominant-baseline": "middle", class: "geobgp-name",
      "stroke-width": size / 5
    }, name));
    const [[south], [north]] = config.bounds;
    const unit = grid.pixel * (config.local ? 1 : Math.cos((south + north) * Math.PI / 360));
    const length = window.geobgp.roundLength(grid.cols * unit / 4), y = grid.rows + 2.4 * text;
    map.appendChild(svg("path", { ...line, d: `M0 ${y - text / 3}V${y}H${length / unit}V${y - text / 3}`, "stroke-width": 1.2 }));
    map.appendChild(svg("text", { x: text / 4, y: y - text / 2, "font-size": text },
      window.geobgp.lengthText(length, config.local)));
    body.appendChild(map);
    const legend = body.appendChild(el("div", "geobgp-legend"));
    legend.appendChild(el("b", "", layer.heading));
    legend.appendChild(el("div", "geobgp-units", layer.units));
    window.geobgp.entries(legend.appendChild(el("ul")), layer);
    if (state.seen("hotspots")) legend.appendChild(el("div", "geobgp-units", config.hotspots.words));
    return out;
  }
  return sheet;
})();
