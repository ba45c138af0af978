// What lies above the pictures: regions with their numbers, and outlines and names for context.
(function () {
  "use strict";
  const el = window.geobgp.el;

  // Those of [x, y, width, height, ...], around their middles, that do not lie on one before them.
  function declutter(boxes) {
    const kept = [];
    for (const box of boxes) {
      const [x, y, w, h] = box;
      const free = kept.every(([a, b, c, d]) => Math.abs(a - x) >= (c + w) / 2 || Math.abs(b - y) >= (d + h) / 2);
      if (free) kept.push(box);
    }
    return kept;
  }
  // All names that may be written, the most important first: [latitude, longitude, name].
  function names(config, seen) {
    const context = seen("context") ? config.context.labels : [];
    const known = new Set(context.map(label => label[2]));
    const regions = seen("regions") ? config.regions.items.filter(item => item.place && !known.has(item.name)) : [];
    return [...regions.map(item => [...item.place, item.name]), ...context];
  }

  // `sides` are the layer and period on the left, and on the right of the divider (null where there is none).
  function overlays(map, groups, config, pixel, sides) {
    const seen = key => Boolean(config[key] && map.hasLayer(groups[key]));
    function draw(lines, group, style) {
      return L.geoJSON({ type: "MultiLineString", coordinates: lines }, { interactive: false, style: style }).addTo(group);
    }
    if (config.context) draw(config.context.lines, groups.context, { color: "#33434b", weight: 1, opacity: 0.75, dashArray: "4 3" });
    let marked = null, ring = null;
    if (config.regions) draw(config.regions.items.flatMap(item => item.outline), groups.regions, { color: "#1c2529", weight: 1.4, opacity: 0.9 });
    for (const key of ["regions", "hotspots"]) {
      for (const item of config[key] ? config[key].items : []) {
        item.group = groups[key];
        item.rings = item.outline.map(line => line.map(c => pixel(c[0], c[1])));
        const xs = item.rings.flat().map(c => c[0]), ys = item.rings.flat().map(c => c[1]);
        const least = values => values.reduce((a, b) => Math.min(a, b)), most = values => values.reduce((a, b) => Math.max(a, b));
        item.box = [least(xs), most(xs), least(ys), most(ys)];
      }
    }
    // Whether a ray to the east meets the outline an odd number of times.
    function within(item, x, y) {
      const [west, east, north, south] = item.box;
      if (x < west || x > east || y < north || y > south) return false;
      let odd = false;
      for (const ring of item.rings) for (let i = 1; i < ring.length; i++) {
        const [ax, ay] = ring[i - 1], [bx, by] = ring[i];
        if ((ay > y) !== (by > y) && x < ax + (y - ay) / (by - ay) * (bx - ax)) odd = !odd;
      }
      return odd;
    }
    // Those of some at a place; none where they are not shown.
    function among(key, items, latlng) {
      if (!latlng || !seen(key)) return [];
      const west = config.bounds[0][1];
      const lng = config.local ? latlng.lng : west + ((((latlng.lng - west) % 360) + 360) % 360);
      const [x, y] = pixel(lng, latlng.lat);
      return items.filter(item => within(item, x, y));
    }
    // The region at a place, null where there is none.
    function regionAt(latlng) { return among("regions", config.regions ? config.regions.items : [], latlng)[0] || null; }
    function hotspots(period = sides()[0].period) { return config.hotspots ? config.hotspots.items.filter(item => item.period === null || item.period === period) : []; }
    function hotspotsAt(latlng, period) { return among("hotspots", hotspots(period), latlng); }
    let spots = [];
    for (const pane of ["left", "right"]) if (config.hotspots) map.createPane(pane + "-spots", map.getPane("overlayPane")).style.pointerEvents = "none";
    // Outlines on a light rim, which stand out from all classes.
    function turn() {
      spots.forEach(layer => layer.remove());
      spots.forEach(layer => groups.hotspots.removeLayer(layer));
      spots = sides().flatMap((side, k) => side ? hotspots(side.period).flatMap(function (item) {
        const pane = (k ? "right" : "left") + "-spots";
        return [
          draw(item.outline, groups.hotspots, { pane: pane, color: "#ffffff", weight: 6, opacity: 0.9 }),
          draw(item.outline, groups.hotspots, { pane: pane, color: item.colour, weight: 3, dashArray: item.dashed ? "5 4" : null })
        ];
      }) : []);
    }
    function mark(item) {
      if (item === marked) return;
      if (ring) ring.remove();
      marked = item;
      ring = item ? draw(item.outline, item.group, { color: item.colour || "#1c2529", weight: item.colour ? 5 : 3.5 }) : null;
    }
    // What is known of a region in a period: a number that changes has one for each.
    function rows(item, period) {
      return item.rows.map(([name, text]) => [name, Array.isArray(text) ? text[period] : text]).filter(row => row[1] !== null);
    }

    // Names, as many as have room.
    let written = [];
    function write() {
      written.forEach(marker => marker.remove());
      const view = map.getBounds().pad(0.1);
      const spots = names(config, seen).filter(([lat, lng]) => view.contains([lat, lng])).map(function ([lat, lng, name]) {
        const at = map.latLngToContainerPoint([lat, lng]);
        return [at.x, at.y, 7 * name.length + 8, 18, L.latLng(lat, lng), name];
      });
      written = declutter(spots).slice(0, 300).map(([, , , , at, name]) => L.marker(at, {
        interactive: false, keyboard: false, icon: L.divIcon({ className: "geobgp-name", html: el("span", "", name), iconSize: [0, 0] })
      }).addTo(map));
    }
    if (config.context || config.regions) {
      map.on("zoomend moveend", write);
      map.on("overlayadd overlayremove", write);
    }
    return { regionAt: regionAt, hotspotsAt: hotspotsAt, hotspots: hotspots, turn: turn, mark: mark, rows: rows };
  }
  Object.assign(window.geobgp, { overlays: overlays, declutter: declutter, names: names });
})();
