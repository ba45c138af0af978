// Two layers, or two periods, side by side: a divider that is dragged across the map, and what lies to its right.
window.geobgp.compare = (function () {
  "use strict";
  const el = window.geobgp.el;

  function compare(map, layers, config, tools) {
    const frame = map.getContainer(), time = tools.time, periods = config.time ? config.time.labels : [];
    let state = null, share = 0.5, over = null, divider = null, chips = null, opacity = config.opacity;
    map.createPane("right").style.zIndex = 351;
    map.getPane("right").style.pointerEvents = "none";
    // Below popups.
    map.createPane("divider").style.zIndex = 640;

    // What the list of layers says of it: a box to tick, and then what is on the right.
    const box = tools.list.appendChild(el("div", "geobgp-compare"));
    const label = box.appendChild(el("label")), tick = label.appendChild(el("input"));
    tick.type = "checkbox";
    label.appendChild(el("span", "", " Side by side"));
    const choices = box.appendChild(el("div"));
    choices.hidden = true;
    function choice(name, words, key) {
      const select = choices.appendChild(el("select"));
      select.setAttribute("aria-label", name);
      words.forEach(function (text, k) { select.appendChild(el("option", "", text)).value = k; });
      select.addEventListener("change", function () { set({ ...state, [key]: Number(select.value) }); });
      return select;
    }
    choices.appendChild(el("div", "geobgp-units", "On the right:"));
    const layer = choice("Layer on the right", config.layers.map(l => l.heading), "layer");
    const period = time ? choice(config.time.noun[0].toUpperCase() + config.time.noun.slice(1) + " on the right", periods.map((_, t) => time.label(t)), "period") : null;
    // At first what is seen goes to the right, with the first period on the left; without periods the next layer is on the right.
    tick.addEventListener("change", function () {
      const here = tools.left();
      if (!tick.checked) set(null);
      else if (periods.length > 1) {
        time.set(0, true);
        set({ layer: here.layer, period: here.period || config.time.start || 1 });
      } else set({ layer: (here.layer + 1) % layers.length, period: here.period });
    });

    function picture(side) { return time ? config.time.pictures[side.layer][side.period] : layers[side.layer]._url; }
    function words(side) {
      const right = state, heading = config.layers[side.layer].heading;
      const parts = right && tools.left().layer === right.layer && time ? [] : [heading];
      return [...parts, ...(time ? [time.label(side.period)] : [])].join(", ");
    }
    // Names of both sides at the divider.
    function name() {
      if (!state) return;
      [tools.left(), state].forEach(function (side, k) { chips[k].textContent = words(side); });
      divider.querySelector("[role=slider]").setAttribute("aria-valuetext",
        Math.round(100 * share) + " %: " + words(tools.left()) + " on the left, " + words(state) + " on the right");
    }
    // Cut both sides along the divider; beyond the window there is enough for a drag.
    function cut() {
      const size = map.getSize(), wide = size.x + size.y;
      const [west, north] = xy(-wide, -wide), [east, south] = xy(size.x + wide, size.y + wide), [x] = xy(share * size.x, 0);
      const half = (a, b) => state ? `polygon(${a}px ${north}px,${b}px ${north}px,${b}px ${south}px,${a}px ${south}px)` : "";
      for (const [panes, a, b] of [[["cells", "left-spots"], west, x], [["right", "right-spots"], x, east]]) {
        for (const pane of panes) if (map.getPane(pane)) map.getPane(pane).style.clipPath = half(a, b);
      }
      if (!divider) return;
      const [, top] = xy(0, 0);
      Object.assign(divider.style, { left: x + "px", top: top + "px", height: size.y + "px" });
      const handle = divider.querySelector("[role=slider]");
      handle.setAttribute("aria-valuenow", Math.round(100 * share));
    }
    function xy(x, y) { const point = map.containerPointToLayerPoint([x, y]); return [point.x, point.y]; }
    function move(to) {
      share = Math.min(Math.max(to, 0.02), 0.98);
      cut();
      name();
    }
    function build() {
      divider = map.getPane("divider").appendChild(el("div", "geobgp-divider"));
      chips = ["left", "right"].map(side => divider.appendChild(el("div", "geobgp-chip geobgp-" + side)));
      const handle = divider.appendChild(el("div", "geobgp-handle", "\u21d4"));
      handle.tabIndex = 0;
      for (const [key, value] of [["role", "slider"], ["aria-label", "Divider between the two sides"],
        ["aria-orientation", "horizontal"], ["aria-valuemin", 0], ["aria-valuemax", 100]]) handle.setAttribute(key, value);
      L.DomEvent.disableClickPropagation(divider);
      divider.addEventListener("pointerdown", function (e) { divider.setPointerCapture(e.pointerId); e.preventDefault(); handle.focus(); });
      divider.addEventListener("pointermove", function (e) {
        if (!divider.hasPointerCapture(e.pointerId)) return;
        const rim = frame.getBoundingClientRect();
        move((e.clientX - rim.left) / rim.width);
      });
      divider.addEventListener("pointerup", tools.changed);
      handle.addEventListener("keydown", function (e) {
        const by = { ArrowLeft: -0.02, ArrowRight: 0.02, Home: -1, End: 1 }[e.key];
        if (!by) return;
        move(share + by);
        tools.changed();
        e.preventDefault();
        e.stopPropagation();
      });
    }
    // What is on the right, null for nothing.
    function set(side, to) {
      const turned = Boolean(state) !== Boolean(side);
      state = side;
      tick.checked = Boolean(side);
      choices.hidden = !side;
      if (to !== undefined) share = Math.min(Math.max(to, 0.02), 0.98);
      if (!side) {
        if (over) over.remove();
        if (divider) divider.remove();
        over = divider = null;
      } else {
        layer.value = side.layer;
        if (period) period.value = side.period;
        if (!over) over = L.imageOverlay(picture(side), config.bounds, { pane: "right", opacity: opacity, interactive: false }).addTo(map);
        over.setUrl(picture(side));
        over.getElement().alt = words(side) + ", on the right";
        if (!divider) build();
      }
      cut();
      name();
      tools.changed();
      if (turned) tools.arrange();
    }
    map.on("move zoom viewreset resize zoomend moveend", cut);
    return {
      set: set, name: name, picture: picture, share: () => share, state: () => state,
      isRight: latlng => Boolean(state) && map.latLngToContainerPoint(latlng).x > share * map.getSize().x,
      opacity: function (value) { opacity = value; if (over) over.setOpacity(value); }
    };
  }
  return compare;
})();
