// What a reader takes along: a link to what is seen, the picture, the table of regions; and the search for a region.
(function () {
  "use strict";
  const el = window.geobgp.el;

  // The address keeps view, layer, period and both sides: #view=8.25/52.1/5.3&layer=p0&period=2019-03.
  function link(map, layers, config, tools) {
    const labels = config.time ? config.time.labels : [];
    let waiting = null, reading = false;
    // Where the whole land is seen, in a window of any size, no view is kept.
    function view() {
      const home = map._getBoundsCenterZoom(tools.bounds, { paddingBottomRight: [0, tools.foot] }), here = map.getCenter();
      const gap = map.project(home.center).distanceTo(map.project(here));
      if (Math.abs(home.zoom - map.getZoom()) < 1e-6 && gap < 3) return null;
      return [map.getZoom(), here.lat, here.lng].map(v => Number(v.toPrecision(8))).join("/");
    }
    function said(side) { return [["layer", config.layers[side.layer].id], ...(labels.length ? [["period", labels[side.period]]] : [])]; }
    function hash() {
      const parts = said(tools.left()), right = tools.compare.state(), where = view();
      if (where) parts.unshift(["view", where]);
      if (right) parts.push(...said(right).map(([key, value]) => ["right-" + key, value]), ["divider", tools.compare.share().toFixed(2)]);
      return "#" + parts.map(([key, value]) => key + "=" + encodeURIComponent(value).replace(/%2F/g, "/")).join("&");
    }
    // In a frame, the page around it is told.
    function write() {
      if (reading) return;
      window.clearTimeout(waiting);
      waiting = window.setTimeout(function () {
        // Some browsers refuse it, of frames from elsewhere or when it is often done.
        try {
          if (window.parent === window) window.history.replaceState(null, "", hash());
          else if (window.frameElement) window.frameElement.dispatchEvent(new CustomEvent("seen", { detail: hash() }));
        } catch (refused) { waiting = null; }
      }, 300);
    }
    // Nothing of an address is believed: what is not a layer or a period of this map is left as it is.
    function read(from) {
      const words = new URLSearchParams(from.slice(1));
      function side(prefix, otherwise) {
        const layer = config.layers.findIndex(l => l.id === words.get(prefix + "layer")), period = labels.indexOf(words.get(prefix + "period"));
        return { layer: layer < 0 ? otherwise.layer : layer, period: period < 0 ? otherwise.period : period };
      }
      reading = true;
      const before = tools.left(), next = side("", before);
      if (next.layer !== before.layer) {
        map.removeLayer(layers[before.layer]);
        map.addLayer(layers[next.layer]);
      }
      if (tools.time && next.period !== before.period) tools.time.set(next.period, true);
      const there = words.has("right-layer") || words.has("right-period"), share = Number(words.get("divider"));
      if (there || tools.compare.state()) tools.compare.set(there ? side("right-", next) : null, share > 0 && share < 1 ? share : 0.5);
      const at = (words.get("view") || "").split("/").map(Number);
      if (at.length === 3 && at.every(Number.isFinite) && words.get("view")) map.setView([at[1], at[2]], at[0], { animate: false });
      reading = false;
    }
    if (window.location.hash.length > 1) read(window.location.hash);
    map.on("moveend", write);
    window.addEventListener("hashchange", function () {
      const [given, own] = [window.location.hash, hash()].map(text => new URLSearchParams(text.slice(1)).toString());
      if (given !== own) read(window.location.hash);
    });
    return { write: write, hash: hash, read: read };
  }

  // As one searches: without accents and capitals.
  function plain(text) { return text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase().trim(); }
  // The region that is meant: the one of that name, else the first that begins with the words, else one that has them.
  function find(items, words) {
    const wanted = plain(words), test = [name => name === wanted, name => name.startsWith(wanted), name => name.includes(wanted)];
    if (!wanted) return null;
    for (const fits of test) {
      const found = items.filter(item => fits(plain(item.name)));
      if (found.length) return found.find(item => item.place) || found[0];
    }
    return null;
  }

  function tools(map, config, use) {
    const frame = map.getContainer();
    function file(blob, ending) {
      const anchor = el("a"), name = plain(config.title).replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60);
      anchor.href = URL.createObjectURL(blob);
      anchor.download = (name || "map") + ending;
      frame.appendChild(anchor).click();
      anchor.remove();
      window.setTimeout(() => URL.revokeObjectURL(anchor.href), 60000);
    }
    const row = use.list.appendChild(el("div", "geobgp-save"));
    function button(text, title, act) {
      const out = row.appendChild(el("button", "", text));
      out.type = "button";
      out.title = title;
      out.addEventListener("click", act);
    }
    button("Picture", "Download the map as a picture (PNG): all of the land, with legend and scale", async function () {
      file(await window.geobgp.png(config, use.sheets(), use.pixel), ".png");
    });
    row.insertBefore(el("span", "", "Download"), row.firstChild);
    if (!config.regions) return;
    button("Table", "Download the table of regions (CSV)", async function () {
      file(new Blob([await use.inflated(config.regions.csv)], { type: "text/csv;charset=utf-8" }), "-regions.csv");
    });

    const items = config.regions.items, card = frame.querySelector(".geobgp-title");
    const form = el("form", "geobgp-search"), input = form.appendChild(el("input")), list = form.appendChild(el("datalist"));
    const reply = form.appendChild(el("div", "geobgp-quiet"));
    input.type = "search"; input.placeholder = "Find a region"; input.autocomplete = "off";
    input.setAttribute("aria-label", "Find a region");
    input.setAttribute("list", list.id = "geobgp-regions");
    reply.setAttribute("role", "status");
    for (const name of [...new Set(items.map(item => item.name))].sort((a, b) => a.localeCompare(b))) list.appendChild(el("option")).value = name;
    function go() {
      const item = find(items, input.value);
      reply.textContent = item || !plain(input.value) ? "" : "No region of that name.";
      if (!item) return;
      map.addLayer(use.groups.regions);
      const bounds = L.latLngBounds(item.outline.flat().map(([lng, lat]) => [lat, lng])), room = use.room(false);
      map.fitBounds(bounds, { paddingTopLeft: room.autoPanPaddingTopLeft, paddingBottomRight: room.autoPanPaddingBottomRight, animate: false });
      const middle = bounds.getCenter();
      use.open(item.place ? L.latLng(item.place) : middle, { region: item });
    }
    form.addEventListener("submit", function (e) { e.preventDefault(); go(); });
    // One that was picked from the list.
    input.addEventListener("input", function (e) {
      reply.textContent = "";
      if (!e.inputType || e.inputType === "insertReplacementText") go();
    });
    card.insertBefore(form, card.querySelector("details"));
  }
  Object.assign(window.geobgp, { link: link, find: find, tools: tools });
})();
