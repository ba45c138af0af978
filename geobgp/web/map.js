window.geobgp = (function () {
  "use strict";
  const R = 6378137;

  // Text goes in as text, never as markup.
  function el(tag, className, text) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }
  function table(rows) {
    const out = el("table");
    for (const [name, text] of rows) {
      const row = out.appendChild(el("tr"));
      row.appendChild(el("th", "", name));
      row.appendChild(el("td", "", text));
    }
    return out;
  }
  function svg(tag, attributes, text) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const name in attributes) node.setAttribute(name, attributes[name]);
    if (text !== undefined) node.textContent = text;
    return node;
  }
  function number(value, digits) {
    digits = digits || 3;
    if (!Number.isFinite(value)) return "\u2013";
    if (value === 0) return "0";
    value = Number(value.toPrecision(digits));
    const size = Math.abs(value);
    if (size < 1e-4 || size >= 1e9) {
      const [mantissa, power] = value.toExponential().split("e");
      return mantissa + "e" + Number(power);
    }
    const decimals = Math.max(digits - 1 - Math.floor(Math.log10(size)), 0);
    return value.toLocaleString("en-GB", { maximumFractionDigits: Math.min(decimals, 20) });
  }
  // The longest length of one digit, 1, 2 or 5, that is not above one.
  function roundLength(most) {
    const power = Math.pow(10, Math.floor(Math.log10(most))), first = most / power;
    return power * (first >= 5 ? 5 : first >= 2 ? 2 : 1);
  }
  function lengthText(length, local) {
    if (local) return number(length) + (length === 1 ? " unit" : " units");
    return length < 1000 ? number(length) + " m" : number(length / 1000) + " km";
  }
  // As geobgp.web.layers.chance_codes rounds them.
  function percent(p) {
    if (!Number.isFinite(p)) return "\u2013";
    const tenths = Math.round(1000 * p);
    if (tenths > 999) return "> 99.9 %";
    if (tenths < 1) return "< 0.1 %";
    return (tenths / 10).toFixed(tenths >= 100 && tenths <= 900 ? 0 : 1) + " %";
  }

  // The inverse of geobgp.web.page.pack.
  async function unpack(text, rows, cols) {
    const planes = await inflated(bytes(text));
    const n = rows * cols, out = new Uint16Array(n);
    for (let r = 0, at = 0; r < rows; r++) {
      let left = 0;
      for (let c = 0; c < cols; c++, at++) {
        const folded = planes[at] * 256 + planes[n + at];
        left += folded & 1 ? -(folded + 1) / 2 : folded / 2;
        out[at] = left + (r > 0 ? out[at - cols] : 0);
      }
    }
    return out;
  }
  // The lines of a picture of geobgp.web.page.palette_png: a byte of no use, then one for each pixel, 0 for none.
  async function pixels(url) {
    const raw = bytes(url.slice(url.indexOf(",") + 1)), view = new DataView(raw.buffer);
    let at = 8;
    while (view.getUint32(at + 4) !== 0x49444154) at += 12 + view.getUint32(at);
    return inflated(raw.subarray(at + 8, at + 8 + view.getUint32(at)));
  }
  function bytes(text) { return Uint8Array.from(atob(text), c => c.charCodeAt(0)); }
  async function inflated(raw) {
    const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }
  // The number of a code of geobgp.web.layers.Decimals: the decimal itself, nothing is rounded here.
  function decode(code, cells) {
    if (code < 2) return code ? 0 : NaN;
    if (cells.signed && code > 32767) return -decode(65535 - code, { ...cells, signed: false });
    if (code === 65535) return Infinity;
    const first = Math.pow(10, cells.digits - 1), digits = (code - 2) % (9 * first) + first;
    return Number(digits + "e" + (Math.floor((code - 2) / (9 * first)) + cells.lowest - cells.digits + 1));
  }
  // Column and row of a place, by its share of the way east and south: geobgp.web.layers.Patches.at.
  function locate(patches, s, t) {
    const k = patches.count, n = patches.knots;
    const east = Math.min(Math.floor(k * s), k - 1), south = Math.min(Math.floor(k * t), k - 1);
    const across = weights(k * s - east, n), down = weights(k * t - south, n);
    let col = 0, row = 0;
    for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) {
      const at = ((south * n + i) * k + east) * n + j, weight = down[i] * across[j];
      col += weight * patches.cols[at];
      row += weight * patches.rows[at];
    }
    return [col, row];
  }
  function weights(z, n) {
    const out = [];
    for (let j = 0; j < n; j++) {
      const gap = z - (1 - Math.cos(Math.PI * j / (n - 1))) / 2;
      if (gap === 0) return Array.from({ length: n }, (_, i) => i === j ? 1 : 0);
      out.push((j % 2 ? -1 : 1) * (j === 0 || j === n - 1 ? 0.5 : 1) / gap);
    }
    const sum = out.reduce((a, b) => a + b);
    return out.map(w => w / sum);
  }

  // What the colours of a layer mean, the highest class first; hatching has no colour.
  function keys(layer) {
    const special = [[layer.hatched, null], [layer.hidden, "#bdbdbd"]].filter(([label]) => label);
    return [...layer.classes.slice().reverse(), ...special.map(([label, colour]) => ({ label: label, colour: colour }))];
  }
  function entries(list, layer) {
    for (const entry of keys(layer)) {
      const row = list.appendChild(el("li")), swatch = row.appendChild(el("i", entry.colour ? "" : "geobgp-hatched"));
      if (entry.colour) swatch.style.background = entry.colour;
      row.appendChild(el("span", "", entry.label));
    }
  }

  function start(map, layers, groups, layerControl, config) {
    const grid = config.grid, cells = config.cells, bounds = L.latLngBounds(config.bounds);
    let active = 0, shown = null, pointed = null, popup = null, time = null, compare = null;
    const arrays = {};

    const frame = map.getContainer();

    function card(position, className, build) {
      const control = L.control({ position: position });
      control.onAdd = function () {
        const box = el("div", "geobgp-card " + className);
        L.DomEvent.disableClickPropagation(box);
        L.DomEvent.disableScrollPropagation(box);
        build(box);
        return box;
      };
      return control.addTo(map);
    }

    // All of the land, above the bar of a map over time.
    const foot = config.time ? 64 : 0;
    function whole(options) { map.fitBounds(bounds, { paddingBottomRight: [0, foot], ...options }); }

    let subtitle = null;
    card("topleft", "geobgp-title", function (box) {
      box.appendChild(el("h1", "", config.title));
      subtitle = box.appendChild(el("p"));
      if (config.about.length) {
        const more = box.appendChild(el("details"));
        more.appendChild(el("summary", "", "About this map"));
        more.appendChild(el("div")).appendChild(table(config.about));
      }
    });
    L.control.zoom({ position: "topleft" }).addTo(map);
    const home = L.control({ position: "topleft" });
    home.onAdd = function () {
      const bar = el("div", "leaflet-bar leaflet-control"), link = el("a", "geobgp-home", "\u2302");
      link.href = "#"; link.title = "Show all"; link.setAttribute("role", "button");
      link.setAttribute("aria-label", "Show all");
      L.DomEvent.on(link, "click", function (e) { L.DomEvent.stop(e); whole(); });
      L.DomEvent.disableClickPropagation(bar);
      bar.appendChild(link);
      return bar;
    };
    home.addTo(map);

    let legendBox = null, readout = null;
    // The layers that are seen: one, or those on both sides of the divider.
    function seenLayers() {
      const right = compare && compare.state();
      return [...new Set([active, right ? right.layer : active])].map(k => config.layers[k]);
    }
    function legend() {
      const open = legendBox.firstChild ? legendBox.firstChild.open : window.innerWidth > 640, both = seenLayers();
      legendBox.replaceChildren();
      for (const layer of both) {
        const more = legendBox.appendChild(el("details"));
        more.open = open;
        more.appendChild(el("summary", "", layer.heading));
        more.appendChild(el("div", "geobgp-units", layer.units));
        entries(more.appendChild(el("ul")), layer);
        if (layer.note) more.appendChild(el("div", "geobgp-units", layer.note));
        if (config.hotspots && layer === both[both.length - 1]) more.appendChild(el("div", "geobgp-units", config.hotspots.words));
        const strip = legendBox.appendChild(el("div", "geobgp-strip"));
        for (const entry of layer.classes) strip.appendChild(el("i")).style.background = entry.colour;
      }
      subtitle.textContent = config.layers[active].subtitle;
    }
    card("bottomright", "geobgp-legend", function (box) { legendBox = box; legend(); });
    card("bottomright", "geobgp-readout", function (box) { readout = box; });
    const scale = L.control.scale({ position: "bottomleft", imperial: false, maxWidth: 140 });
    if (config.local) scale._updateMetric = function (length) {
      const round = roundLength(length);
      this._updateScale(this._mScale, lengthText(round, true), round / length);
    };
    scale.addTo(map);

    // Column and row of the picture at a place.
    function pixel(lng, lat) {
      const x = config.local ? lng : R * lng * Math.PI / 180;
      const y = config.local ? lat : R * Math.asinh(Math.tan(lat * Math.PI / 180));
      return [(x - grid.west) / grid.pixel, (grid.north - y) / grid.pixel];
    }
    // The number of the cell at a place; -1 where it has none, or the picture shows no land.
    function cellAt(latlng) {
      const west = bounds.getWest();
      const lng = config.local ? latlng.lng : west + ((((latlng.lng - west) % 360) + 360) % 360);
      const [px, py] = pixel(lng, latlng.lat);
      if (!shown || !(px >= 0 && py >= 0 && px < grid.cols && py < grid.rows)) return -1;
      if (!shown[Math.floor(py) * (grid.cols + 1) + 1 + Math.floor(px)]) return -1;
      const [u, v] = locate(config.patches, px / grid.cols, py / grid.rows);
      const col = Math.floor((u - cells.col) / cells.block), row = Math.floor((v - cells.row) / cells.block);
      if (!(row >= 0 && col >= 0 && row < cells.rows && col < cells.cols)) return -1;
      const k = row * cells.cols + col;
      return arrays[config.drawn][k] ? k : -1;
    }
    // One number of a cell in a period.
    function value(name, k, period) {
      const code = arrays[name][period * cells.rows * cells.cols + k];
      return name[0] !== "p" ? decode(code, cells) : code ? (code - 1) / 1000 : NaN;
    }
    // The layer and the period that are seen on the left, or everywhere; and those that are seen at a place.
    function left() { return { layer: active, period: time ? time.shown() : 0 }; }
    function sideAt(latlng) { return compare && compare.isRight(latlng) ? compare.state() : left(); }
    // Everything known about the cell at a place; null where there is none.
    function at(latlng) {
      const k = cellAt(latlng), out = {};
      if (k < 0) return null;
      for (const name in arrays) out[name] = value(name, k, sideAt(latlng).period);
      return out;
    }
    const above = window.geobgp.overlays(map, groups, config, pixel, () => [left(), compare && compare.state()]);
    const averaged = "average of " + cells.block + " \u00d7 " + cells.block + " cells";
    function interval(v) { return config.interval + " interval " + number(v.low) + " \u2013 " + number(v.high); }
    function show(v, latlng) {
      readout.replaceChildren();
      const side = v ? sideAt(latlng) : left();
      const region = v ? above.regionAt(latlng) : null, spot = v ? above.hotspotsAt(latlng, side.period)[0] : null;
      above.mark(spot || region);
      if (!v) { readout.appendChild(el("span", "geobgp-quiet", config.hint)); return; }
      const first = readout.appendChild(el("div")), layer = config.layers[side.layer];
      first.appendChild(el("b", "", number(v[config.drawn])));
      first.appendChild(document.createTextNode(config.unit + (config.centre === "median" ? " (median)" : "")));
      readout.appendChild(el("div", "", interval(v)));
      if (time && compare.state()) readout.appendChild(el("div", "geobgp-quiet", time.label(side.period)));
      if (cells.block > 1) readout.appendChild(el("div", "geobgp-quiet", averaged));
      if (layer.key === "uncertainty") {
        const sd = "cv" in v ? "sd / mean " + number(v.cv) + " %" : "sd " + number(v.sd) + " " + layer.units;
        readout.appendChild(el("div", "geobgp-quiet", sd));
      } else if (layer.key === "difference") {
        const pair = number(v.first) + " compared with " + number(v.second);
        readout.appendChild(el("div", "geobgp-quiet", pair + " " + layer.units));
      } else if (layer.field) {
        readout.appendChild(el("div", "geobgp-quiet", layer.chance + ": " + percent(v[layer.field])));
      }
      for (const [item, n] of [[spot, 3], [region, 2]]) if (item) {
        const box = readout.appendChild(el("div", "geobgp-region"));
        box.appendChild(el("b", "", item.name));
        box.appendChild(el("div", "", above.rows(item, side.period).slice(0, n).map(row => row.join(" ")).join("; ")));
      }
      if (time) readout.appendChild(time.chart(cellAt(latlng), region, side.period));
    }
    show(null);
    function place(latlng) {
      if (config.local) return number(latlng.lng, 6) + ", " + number(latlng.lat, 6);
      const lat = latlng.lat, lng = ((((latlng.lng + 180) % 360) + 360) % 360) - 180;
      return Math.abs(lat).toFixed(4) + "\u00b0 " + (lat < 0 ? "S" : "N") + ", " +
        Math.abs(lng).toFixed(4) + "\u00b0 " + (lng < 0 ? "W" : "E");
    }
    map.on("mousemove", function (e) { pointed = e.latlng; show(at(e.latlng), e.latlng); });
    map.on("mouseout", function () { pointed = null; show(null); });
    // Where a popup fits between the cards; one that stays above the middle has less room.
    function room(centred) {
      const size = map.getSize(), wide = size.x > 640, top = frame.querySelector(".geobgp-title").offsetHeight + 20;
      const west = 56, east = wide ? 262 : 10, south = foot + (wide ? 12 : legendBox.offsetHeight + 26);
      const width = centred ? size.x - 2 * west : size.x - west - east, height = centred ? size.y / 2 - top : size.y - top - south;
      return { maxWidth: Math.min(300, width - 38), maxHeight: Math.max(height - 50, 80),
        autoPanPaddingTopLeft: [west, top], autoPanPaddingBottomRight: [east, south] };
    }
    // All there is to say of a place, in a popup; false where there is nothing. `options.region` is a region that was
    // searched for, whether or not there is a number at the place of its name.
    function open(latlng, options) {
      const { region: wanted, quiet, ...how } = options || {}, v = at(latlng), side = sideAt(latlng);
      if (!v && !wanted) { map.closePopup(); return false; }
      const rows = [], numbers = v || {};
      if (v) rows.push([config.centre, number(v[config.drawn])], [config.interval + " interval", number(v.low) + " \u2013 " + number(v.high)]);
      for (const [name, words] of [["q50", "median"], ["mean", "mean"]]) {
        if (name in numbers && name !== config.drawn) rows.push([words, number(v[name])]);
      }
      if ("sd" in numbers) rows.push(["standard deviation", number(v.sd)]);
      if (v) for (const layer of config.layers) if (layer.field) rows.push([layer.chance, percent(v[layer.field])]);
      if (v) config.pair.forEach(function (name, k) { rows.push([name, number(k ? v.second : v.first)]); });
      const region = wanted || above.regionAt(latlng), items = [...(v ? above.hotspotsAt(latlng, side.period) : []), region].filter(Boolean);
      const box = el("div"), period = time ? time.label(side.period) + "; " : "";
      const where = period + config.units + "; " + place(latlng);
      if (v) {
        if (wanted) box.appendChild(el("h2", "", "At its name"));
        box.appendChild(table(rows));
        box.appendChild(el("div", "geobgp-quiet", where));
        if (cells.block > 1) box.appendChild(el("div", "geobgp-quiet", averaged));
        if (time) box.appendChild(time.chart(cellAt(latlng), null, side.period));
      }
      for (const item of items) {
        const part = el("div");
        part.appendChild(el("h2", "", item.name));
        part.appendChild(table(above.rows(item, side.period)));
        if (time && item === region) part.appendChild(time.chart(-1, region, side.period));
        if (item === wanted) box.prepend(part); else box.append(part);
      }
      if (map.getSize().x <= 640) legendBox.querySelectorAll("details").forEach(more => { more.open = false; });
      // Where there is little room it scrolls.
      L.popup({ ...room(how.autoPan === false), ...how }).setLatLng(latlng).setContent(box).openOn(map);
      popup = latlng;
      if (quiet) return true;
      spoken.textContent = [...(v ? [rows.map(row => row.join(": ")).join(", "), where] : []),
        ...items.map(item => item.name + ": " + above.rows(item, side.period).map(row => row.join(": ")).join(", "))].join("; ");
      return true;
    }
    map.on("click", function (e) { open(e.latlng); });
    map.on("popupclose", function () { popup = null; });

    // The same with keys alone: arrows and + - are Leaflet's, Enter reads the middle, which a cross marks.
    const spoken = frame.appendChild(el("div", "geobgp-spoken"));
    spoken.setAttribute("role", "status");
    spoken.setAttribute("aria-live", "polite");
    const keys = "Arrow keys move the map, + and - zoom, Enter shows the value at the cross" +
      (config.time ? "; Page Up and Page Down change the " + config.time.noun + ", the space bar plays." : ".");
    frame.setAttribute("role", "region");
    frame.setAttribute("aria-label", "Map: " + config.title + ". " + keys);
    frame.appendChild(el("div", "geobgp-cross")).setAttribute("aria-hidden", "true");
    // Leaflet takes the focus at a click as well; the ring and the cross are for keys.
    frame.addEventListener("pointerdown", function () { frame.classList.add("geobgp-pointing"); }, true);
    window.addEventListener("keydown", function () { frame.classList.remove("geobgp-pointing"); }, true);
    function say(text) { readout.replaceChildren(el("span", "geobgp-quiet", text)); }
    frame.addEventListener("focus", function () { if (frame.matches(":focus-visible:not(.geobgp-pointing)")) say(keys); });
    frame.addEventListener("blur", function () { show(null); });
    frame.addEventListener("keydown", function (e) {
      if (e.key !== "Enter" || e.target !== frame) return;
      const middle = map.getCenter();
      if (open(middle, { autoPan: false })) show(at(middle), middle);
      else { say("No land at the cross."); spoken.textContent = "No land at the cross; " + place(middle); }
    });
    map.on("baselayerchange", function (e) {
      const k = layers.indexOf(e.layer);
      if (k >= 0) { active = k; changed(); }
    });
    // Another layer or period is seen, on either side.
    function changed() {
      legend();
      above.turn();
      again(true);
      if (link) link.write();
    }

    const slider = el("label", "geobgp-opacity", "Opacity"), input = slider.appendChild(el("input"));
    const list = layerControl.getContainer().querySelector(".leaflet-control-layers-list");
    input.type = "range"; input.min = 0; input.max = 100; input.value = Math.round(100 * config.opacity);
    input.addEventListener("input", function () {
      layers.forEach(l => l.setOpacity(input.value / 100));
      compare.opacity(input.value / 100);
    });
    list.appendChild(slider);

    L.geoJSON({ type: "MultiLineString", coordinates: config.shoreline },
      { interactive: false, style: { color: "#33434b", weight: 1, opacity: 0.8, smoothFactor: 0 } }).addTo(groups.shoreline);
    // What is read again when something else is shown.
    function again(quiet) {
      if (!arrays[config.drawn]) return;
      if (popup) open(popup, { autoPan: false, quiet: quiet });
      if (pointed) show(at(pointed), pointed);
    }
    function speak(words) { spoken.textContent = words; }
    let link = null;
    const tools = { value: value, number: number, speak: speak, left: left, open: open, room: room, arrange: arrange };
    if (config.time) time = window.geobgp.time(map, layers, config, { ...tools, again: function (quiet) {
      above.turn();
      again(quiet);
      if (compare) compare.name();
      if (link) link.write();
    } });
    compare = window.geobgp.compare(map, layers, config, { ...tools, time: time, changed: changed, list: list });
    legend();
    above.turn();
    if (config.points) config.points.coords.forEach(function (c, k) {
      const dot = L.circleMarker(c, { radius: 3, weight: 1, color: "#ffffff", fillColor: "#16323f", fillOpacity: 0.9 });
      if (config.points.labels) dot.bindTooltip(el("span", "", config.points.labels[k]));
      dot.addTo(groups.points);
    });
    map.attributionControl.setPrefix("geobgp | Leaflet");
    whole({ animate: false });

    // The layer control is open, and the legend too, where the column has room for them and for the numbers of a place.
    function arrange() {
      const size = map.getSize(), both = legendBox.querySelectorAll("details");
      const numbers = 84 + (config.regions ? 50 : 0) + (config.hotspots ? 50 : 0) + (time ? 106 : 0);
      layerControl.roomy = true;
      layerControl.expand();
      const height = layerControl.getContainer().offsetHeight, free = size.y - foot - numbers - 50;
      layerControl.roomy = size.x > 640 && height + legendBox.offsetHeight <= free;
      // Who is choosing in it goes on.
      if (!layerControl.getContainer().matches(":hover, :focus-within")) layerControl.collapse();
      if (size.x > 640 && 44 + legendBox.offsetHeight > free) both.forEach(more => { more.open = false; });
    }

    // What paper and pictures show: the map, or both sides of it.
    function sheets() {
      const seen = key => Boolean(config[key] && map.hasLayer(groups[key]));
      return [left(), compare.state()].filter(Boolean).map(side => ({
        layer: config.layers[side.layer], picture: compare.picture(side), opacity: input.value / 100, seen: seen,
        hotspots: above.hotspots(side.period), period: time ? time.label(side.period) : ""
      }));
    }
    window.addEventListener("beforeprint", function () {
      document.body.appendChild(window.geobgp.sheet(config, sheets(), pixel));
    });
    window.addEventListener("afterprint", function () {
      document.querySelectorAll(".geobgp-print").forEach(sheet => sheet.remove());
    });

    async function load() {
      if (!("DecompressionStream" in window)) {
        config.hint = "This browser is too old to show values.";
        show(null);
        return;
      }
      // Periods lie one below the other, each in one line.
      const shape = config.time ? [config.time.labels.length, cells.rows * cells.cols] : [cells.rows, cells.cols];
      for (const name in config.arrays) arrays[name] = await unpack(config.arrays[name], ...shape);
      shown = await pixels(layers[0]._url);
    }
    window.geobgp.tools(map, config, { ...tools, list: list, groups: groups, sheets: sheets, pixel: pixel, inflated: text => inflated(bytes(text)) });
    arrange();
    map.on("resize", arrange);
    link = window.geobgp.link(map, layers, config, { ...tools, time: time, compare: compare, bounds: bounds, foot: foot });
    return { compare: compare, link: link, map: map, layers: layers, at: at, time: time, above: above, ready: load(), number: number };
  }
  return { start: start, number: number, el: el, svg: svg, keys: keys, entries: entries, roundLength: roundLength, lengthText: lengthText };
})();
