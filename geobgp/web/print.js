// The map on paper and as a picture: all of the land, fitted to the page whatever its size, with title, legend and scale.
(function () {
  "use strict";
  const el = window.geobgp.el, svg = window.geobgp.svg;
  const INK = "#1c2529", QUIET = "#53646c", FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

  // The map of a side with its scale. side: the layer, its picture and opacity, which overlays are seen, its hot spots, the
  // period; pixel: from longitude and latitude to column and row of the picture.
  // `fine` is how many pixels of a picture there are to one of its drawing.
  function drawing(config, side, pixel, fine = 1) {
    const grid = config.grid;
    // Below the land there is room for the scale.
    const text = 0.022 * Math.max(grid.cols, grid.rows);
    const map = svg("svg", { viewBox: [0, 0, grid.cols, grid.rows + 3 * text].join(" ") });
    map.appendChild(svg("image", {
      href: side.picture, width: grid.cols, height: grid.rows, opacity: side.opacity,
      preserveAspectRatio: "none", style: "image-rendering: pixelated"
    }));
    const line = { fill: "none", stroke: "#33434b", "vector-effect": "non-scaling-stroke" };
    // What goes on beyond the picture is cut off.
    const frame = map.appendChild(svg("svg", { width: grid.cols, height: grid.rows }));
    function lines(parts, style) {
      const path = parts.map(part => "M" + part.map(c => pixel(c[0], c[1]).map(v => v.toFixed(2))).join("L"));
      frame.appendChild(svg("path", { ...line, d: path.join(""), ...style }));
    }
    if (side.seen("shoreline")) lines(config.shoreline, { "stroke-width": 0.7 * fine });
    if (side.seen("context")) lines(config.context.lines, { "stroke-width": 0.6 * fine, "stroke-dasharray": `${3 * fine} ${2 * fine}` });
    if (side.seen("regions")) lines(config.regions.items.flatMap(item => item.outline), { "stroke-width": fine, stroke: INK });
    if (side.seen("hotspots")) for (const item of side.hotspots) {
      lines(item.outline, { "stroke-width": 3 * fine, stroke: "#ffffff" });
      lines(item.outline, { "stroke-width": 1.6 * fine, stroke: item.colour, "stroke-dasharray": item.dashed ? `${4 * fine} ${3 * fine}` : "none" });
    }
    if (side.seen("points")) for (const [lat, lng] of config.points.coords) {
      const [x, y] = pixel(lng, lat);
      map.appendChild(svg("circle", { cx: x, cy: y, r: text / 6, fill: "#16323f" }));
    }
    // Names within the picture, where they do not lie on each other.
    const names = window.geobgp.names(config, side.seen), size = 0.8 * text;
    const spots = names.map(function ([lat, lng, name]) { return [...pixel(lng, lat), 0.55 * size * name.length, size, name]; });
    const inside = spots.filter(([x, y, w]) => x - w / 2 > 0 && x + w / 2 < grid.cols && y > size && y < grid.rows);
    for (const [x, y, , , name] of window.geobgp.declutter(inside)) map.appendChild(svg("text", {
      class: "geobgp-name", x: x, y: y, "font-size": size, "font-weight": 600, fill: INK, stroke: "#fff", "stroke-width": size / 5, "paint-order": "stroke",
      "stroke-linejoin": "round", "text-anchor": "middle", "dominant-baseline": "middle"
    }, name));
    const [[south], [north]] = config.bounds;
    const unit = grid.pixel * (config.local ? 1 : Math.cos((south + north) * Math.PI / 360));
    const length = window.geobgp.roundLength(grid.cols * unit / 4), y = grid.rows + 2.4 * text;
    map.appendChild(svg("path", { ...line, d: `M0 ${y - text / 3}V${y}H${length / unit}V${y - text / 3}`, "stroke-width": 1.2 * fine }));
    map.appendChild(svg("text", { x: text / 4, y: y - text / 2, "font-size": text, fill: INK },
      window.geobgp.lengthText(length, config.local)));
    return map;
  }
  // The words below its legend.
  function notes(config, side) { return [side.layer.note, side.seen("hotspots") ? config.hotspots.words : ""].filter(Boolean); }
  // The words above one side of two.
  function caption(side) { return [side.layer.heading, side.period].filter(Boolean).join(", "); }

  // The sheet of paper, of one side or of two.
  function sheet(config, sides, pixel) {
    const out = el("div", "geobgp-print"), one = sides.length === 1;
    out.appendChild(el("h1", "", config.title));
    if (one && sides[0].period) out.appendChild(el("h2", "", sides[0].period));
    out.appendChild(el("p", "", sides[0].layer.subtitle));
    const pair = out.appendChild(el("div", "geobgp-sides"));
    for (const side of sides) {
      const body = pair.appendChild(el("div", "geobgp-sheet"));
      if (!one) body.appendChild(el("h2", "", caption(side)));
      body.appendChild(drawing(config, side, pixel));
      const legend = body.appendChild(el("div", "geobgp-legend"));
      legend.appendChild(el("b", "", side.layer.heading));
      legend.appendChild(el("div", "geobgp-units", side.layer.units));
      window.geobgp.entries(legend.appendChild(el("ul")), side.layer);
      for (const words of notes(config, side)) legend.appendChild(el("div", "geobgp-units", words));
    }
    return out;
  }

  const WIDTH = 1000, MARGIN = 32, LEGEND = 250, GAP = 32, FINE = 2;
  // The same as one drawing, with its width and height.
  function whole(config, sides, pixel) {
    const pen = document.createElement("canvas").getContext("2d");
    const out = svg("svg", { xmlns: "http://www.w3.org/2000/svg", "font-family": FONT });
    out.appendChild(svg("rect", { width: "100%", height: "100%", fill: "#ffffff" }));
    // Text in lines of a width; returns where the next one begins.
    function write(words, x, y, width, size, style) {
      pen.font = (style["font-weight"] || 400) + " " + size + "px " + FONT;
      let line = "";
      function end() {
        y += 1.3 * size;
        out.appendChild(svg("text", { x: x, y: y - 0.3 * size, "font-size": size, ...style }, line));
      }
      for (const word of words.replace(/ %/g, "\u00a0%").split(/ +/)) {
        const longer = line ? line + " " + word : word;
        if (line && pen.measureText(longer).width > width) { end(); line = word; } else line = longer;
      }
      if (line) end();
      return y;
    }
    const bold = { "font-weight": 600, fill: INK }, quiet = { fill: QUIET }, one = sides.length === 1, grid = config.grid;
    const shape = (grid.rows + 0.066 * Math.max(grid.cols, grid.rows)) / grid.cols;
    const width = one ? Math.min(WIDTH, 1200 / shape) : Math.min(0.75 * WIDTH, 1200 / shape), each = Math.max(width, 300) + GAP + LEGEND;
    const total = 2 * MARGIN + sides.length * each + (sides.length - 1) * GAP;
    let top = write(config.title, MARGIN, MARGIN, total - 2 * MARGIN, 26, bold);
    if (one && sides[0].period) top = write(sides[0].period, MARGIN, top, total - 2 * MARGIN, 21, bold);
    top = write(sides[0].layer.subtitle, MARGIN, top + 2, total - 2 * MARGIN, 16, quiet) + 16;
    let bottom = top;
    sides.forEach(function (side, k) {
      const west = MARGIN + k * (each + GAP), from = one ? top : write(caption(side), west, top, each, 19, bold) + 6;
      const map = out.appendChild(drawing(config, side, pixel, FINE)), east = west + width + GAP;
      for (const [key, value] of [["x", west], ["y", from], ["width", width], ["height", width * shape]]) map.setAttribute(key, value);
      let y = write(side.layer.heading, east, from, LEGEND, 17, bold);
      y = write(side.layer.units, east, y, LEGEND, 15, quiet) + 4;
      for (const entry of window.geobgp.keys(side.layer)) {
        out.appendChild(svg("rect", { x: east, y: y, width: 30, height: 22, fill: entry.colour || "#ffffff" }));
        if (!entry.colour) for (let x = 0; x < 30; x += 6) {
          out.appendChild(svg("path", { d: `M${east + x} ${y + 22}L${east + Math.min(x + 22, 30)} ${y + Math.max(x - 8, 0)}`, stroke: "#33434b" }));
        }
        y = Math.max(write(entry.label, east + 40, y + 1, LEGEND - 40, 16, { fill: INK }), y + 22);
      }
      for (const words of notes(config, side)) y = write(words, east, y + 6, LEGEND, 14, quiet);
      bottom = Math.max(bottom, y, from + width * shape);
    });
    const height = Math.ceil(bottom + MARGIN);
    for (const [key, value] of [["width", Math.ceil(total)], ["height", height], ["viewBox", `0 0 ${Math.ceil(total)} ${height}`]]) out.setAttribute(key, value);
    return [out, Math.ceil(total), height];
  }
  // A picture of it.
  async function png(config, sides, pixel) {
    const [drawn, width, height] = whole(config, sides, pixel), canvas = document.createElement("canvas"), image = new Image();
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(drawn));
    await image.decode();
    canvas.width = FINE * width;
    canvas.height = FINE * height;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise(done => canvas.toBlob(done, "image/png"));
  }
  Object.assign(window.geobgp, { sheet: sheet, png: png });
})();
