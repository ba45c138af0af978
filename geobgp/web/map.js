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

  // The classes of a layer, the highest first.
  function entries(list, layer) {
    for (const entry of layer.classes.slice().reverse()) {
      const row = list.appendChild(el("li"));
      row.appendChild(el("i")).style.background = entry.colour;
      row.appendChild(el("span", "", entry.label));
    }
    if (layer.hatched) {
      const row = list.appendChild(el("li"));
      row.appendChild(el("i", "geobgp-hatched"));
      row.appendChild(el("span", "", layer.hatched));
    }
    if (layer.hidden) {
      const row = list.appendChild(el("li"));
      row.appendChild(el("i", "geobgp-hidden"));
      row.appendChild(el("span", "", layer.hidden));
    }
  }

  function start(map, layers, groups, layerControl, config) {
    const grid = config.grid, cells = config.cells, narrow = window.innerWidth <= 640;
    const bounds = L.latLngBounds(config.bounds);
    let active = 0, shown = null, pointed = null, popup = null, time = null;
    const arrays = {};

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
    function whole() { map.fitBounds(bounds, { paddingBottomRight: [0, config.time ? 64 : 0] }); }

    card("topleft", "geobgp-title", function (box) {
      box.appendChild(el("h1", "", config.title));
      if (config.subtitle) box.appendChild(el("p", "", config.subtitle));
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
    function legend() {
      const layer = config.layers[active], open = legendBox.firstChild ? legendBox.firstChild.open : !narrow;
      legendBox.replaceChildren();
      const more = legendBox.appendChild(el("details"));
      more.open = open;
      more.appendChild(el("summary", "", layer.heading));
      more.appendChild(el("div", "geobgp-units", layer.units));
      entries(more.appendChild(el("ul")), layer);
      const strip = legendBox.appendChild(el("div", "geobgp-strip"));
      for (const entry of layer.classes) strip.appendChild(el("i")).style.background = entry.colour;
      if (layer.note) more.appendChild(el("div", "geobgp-units", layer.note));
      if (config.hotspots) more.appendChild(el("div", "geobgp-units", config.hotspots.words));
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
    // Everything known about the cell at a place; null where there is none.
    function at(latlng) {
      const k = cellAt(latlng), out = {};
      if (k < 0) return null;
      for (const name in arrays) out[name] = value(name, k, time ? time.shown() : 0);
      return out;
    }
    const above = window.geobgp.overlays(map, groups, config, pixel, () => time ? time.shown() : 0);
    const averaged = "average of " + cells.block + " \u00d7 " + cells.block + " cells";
    function interval(v) { return config.interval + " interval " + number(v.low) + " \u2013 " + number(v.high); }
    function show(v, latlng) {
      readout.replaceChildren();
      const region = v ? above.regionAt(latlng) : null, spot = v ? above.hotspotsAt(latlng)[0] : null;
      above.mark(spot || region);
      if (!v) { readout.appendChild(el("span", "geobgp-quiet", config.hint)); return; }
      const first = readout.appendChild(el("div")), layer = config.layers[active];
      first.appendChild(el("b", "", number(v[config.drawn])));
      first.appendChild(document.createTextNode(" " + config.units + (config.centre === "median" ? " (median)" : "")));
      readout.appendChild(el("div", "", interval(v)));
      if (cells.block > 1) readout.appendChild(el("div", "geobgp-quiet", averaged));
      if (layer.key === "uncertainty") {
        const sd = "cv" in v ? "sd / mean " + number(v.cv) + " %" : "sd " + number(v.sd) + " " + layer.units;
        readout.appendChild(el("div", "geobgp-quiet", sd));
      } else if (layer.key === "difference") {
        const pair = number(v.first) + " against " + number(v.second);
        readout.appendChild(el("div", "geobgp-quiet", pair + " " + layer.units));
      } else if (layer.field) {
        readout.appendChild(el("div", "geobgp-quiet", layer.chance + ": " + percent(v[layer.field])));
      }
      for (const [item, n] of [[spot, 3], [region, 2]]) if (item) {
        const box = readout.appendChild(el("div", "geobgp-region"));
        box.appendChild(el("b", "", item.name));
        box.appendChild(el("div", "", above.rows(item).slice(0, n).map(row => row.join(" ")).join("; ")));
      }
      if (time) readout.appendChild(time.chart(cellAt(latlng), region));
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
    // All there is to say of a place, in a popup; false where there is nothing.
    function open(latlng, options) {
      const v = at(latlng);
      if (!v) { map.closePopup(); return false; }
      const rows = [[config.centre, number(v[config.drawn])], [config.interval + " interval", number(v.low) + " \u2013 " + number(v.high)]];
      for (const [name, words] of [["q50", "median"], ["mean", "mean"]]) {
        if (name in v && name !== config.drawn) rows.push([words, number(v[name])]);
      }
      if ("sd" in v) rows.push(["standard deviation", number(v.sd)]);
      for (const layer of config.layers) if (layer.field) rows.push([layer.chance, percent(v[layer.field])]);
      config.pair.forEach(function (name, k) { rows.push([name, number(k ? v.second : v.first)]); });
      const box = el("div"), region = above.regionAt(latlng), spots = above.hotspotsAt(latlng), period = time ? time.label() + "; " : "";
      box.appendChild(table(rows));
      box.appendChild(el("div", "geobgp-quiet", period + config.units + "; " + place(latlng)));
      if (cells.block > 1) box.appendChild(el("div", "geobgp-quiet", averaged));
      if (time) box.appendChild(time.chart(cellAt(latlng), null));
      for (const item of [...spots, region]) if (item) {
        box.appendChild(el("h2", "", item.name));
        box.appendChild(table(above.rows(item)));
        if (time && item === region) box.appendChild(time.chart(-1, region));
      }
      // Where there is little room it scrolls, below the title.
      const top = frame.querySelector(".geobgp-title").offsetHeight + 20, most = frame.clientHeight - top - (config.time ? 190 : 120);
      const room = { maxWidth: 300, maxHeight: Math.max(most, 150), autoPanPaddingTopLeft: [10, narrow ? top : 10] };
      L.popup({ ...room, ...options }).setLatLng(latlng).setContent(box).openOn(map);
      popup = latlng;
      if (options && options.quiet) return true;
      const said = rows.map(row => row.join(": ")).join(", ") + "; " + period + config.units + "; " + place(latlng);
      spoken.textContent = [said, ...[...spots, region].filter(Boolean).map(
        item => item.name + ": " + above.rows(item).map(row => row.join(": ")).join(", "))].join("; ");
      return true;
    }
    map.on("click", function (e) { open(e.latlng); });
    map.on("popupclose", function () { popup = null; });

    // The same with keys alone: arrows and + - are Leaflet's, Enter reads the middle, which a cross marks.
    const frame = map.getContainer(), spoken = frame.appendChild(el("div", "geobgp-spoken"));
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
      if (k >= 0) { active = k; legend(); }
    });

    const slider = el("div", "geobgp-opacity"), input = el("input");
    input.type = "range"; input.min = 0; input.max = 100; input.value = Math.round(100 * config.opacity);
    input.setAttribute("aria-label", "Opacity");
    input.addEventListener("input", function () { layers.forEach(l => l.setOpacity(input.value / 100)); });
    slider.appendChild(el("span", "", "Opacity"));
    slider.appendChild(input);
    layerControl.getContainer().querySelector(".leaflet-control-layers-list").appendChild(slider);

    L.geoJSON({ type: "MultiLineString", coordinates: config.shoreline },
      { interactive: false, style: { color: "#33434b", weight: 1, opacity: 0.8, smoothFactor: 0 } }).addTo(groups.shoreline);
    // What is read again when another period is shown.
    function again(quiet) {
      if (time) above.turn();
      if (!time || !arrays[config.drawn]) return;
      if (popup) open(popup, { autoPan: false, quiet: quiet });
      if (pointed) show(at(pointed), pointed);
    }
    function speak(words) { spoken.textContent = words; }
    if (config.time) time = window.geobgp.time(map, layers, config, { value: value, number: number, speak: speak, again: again });
    above.turn();
    if (config.points) config.points.coords.forEach(function (c, k) {
      const dot = L.circleMarker(c, { radius: 3, weight: 1, color: "#ffffff", fillColor: "#16323f", fillOpacity: 0.9 });
      if (config.points.labels) dot.bindTooltip(el("span", "", config.points.labels[k]));
      dot.addTo(groups.points);
    });
    map.attributionControl.setPrefix("geobgp | Leaflet");
    whole();

    window.addEventListener("beforeprint", function () {
      document.body.appendChild(window.geobgp.sheet(config, {
        active: active, picture: layers[active]._url, opacity: input.value / 100,
        hotspots: above.hotspots(), seen: key => Boolean(config[key] && map.hasLayer(groups[key])), period: time ? time.label() : ""
      }, pixel));
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
    return { map: map, layers: layers, at: at, time: time, above: above, ready: load(), number: number };
  }
  return { start: start, number: number, el: el, svg: svg, entries: entries, roundLength: roundLength, lengthText: lengthText };
})();
