"""What the report says of thresholds: how many people live above them, and the hot spots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from geobgp.checks.hotspots import CLASSES, about_hotspots, numbered
from geobgp.inference.mixture import interval_in
from geobgp.privacy import is_published
from geobgp.text import chance, events, number
from geobgp.totals import counted_in

if TYPE_CHECKING:
    import pandas as pd

    from geobgp.output.grids import View
    from geobgp.posterior import Posterior

#: What is counted above a threshold, in words.
COUNTED = {
    "people": "People",
    "expected_cases": "Expected cases",
    "exposure": "Exposure",
    "controls": "Controls",
    "km2": "km²",
    "area": "Square units",
}


def above(posterior: Posterior, thresholds: Sequence[float], when: str) -> dict[str, Any]:
    """Return the table of how many people (or km²) lie above each threshold, in the last period where there are some.

    A file of what may be shown knows no joint draws, and has no such table.
    """
    if not thresholds or is_published(posterior):
        return {"above_head": ()}
    tables = [posterior.people_above(value) for value in thresholds]
    rows = [table[table["period"] == when].iloc[0] if when else table.iloc[0] for table in tables]
    name = counted_in(posterior)
    ends, shares = interval_in(tables[0], f"{name}_above"), interval_in(tables[0], "share_above")
    assert ends is not None
    assert shares is not None
    cells = [
        (
            number(value, 6),
            events(row[f"{name}_above"]),
            f"{events(row[ends.low])} to {events(row[ends.high])}",
            f"{number(100 * row['share_above'], 2)} %",
            f"{number(100 * row[shares.low], 2)} to {number(100 * row[shares.high], 2)} %",
        )
        for value, row in zip(thresholds, rows, strict=True)
    ]
    head = (f"Above, {posterior.units}", COUNTED[name], ends.words, "Share", shares.words)
    hidden = max((float(row[f"{name}_hidden"]) for row in rows if f"{name}_hidden" in row), default=0.0)
    return {
        "above_head": head,
        "above_rows": cells,
        "above_hidden": f"{events(hidden)} {COUNTED[name].lower()}" if hidden > 0 else "",
    }


def above_columns(frame: pd.DataFrame) -> dict[str, str]:
    """Return the columns of a table of regions that count what lies above thresholds, with their headings."""
    named = {column: str(column).partition("_above_") for column in frame.columns}
    return {
        column: f"{COUNTED[what]} above {value}"
        for column, (what, _, value) in named.items()
        if what in COUNTED and value and "_q" not in value
    }


def hotspots(frame: pd.DataFrame | None, when: str, most: int) -> dict[str, Any]:
    """Return the table of hot spots, in the last period where there are some; nothing where none were asked for."""
    if frame is None:
        return {"hotspots": None}
    shown = frame[frame["period"] == when] if when and "period" in frame else frame
    columns: dict[str, list[str]] = {"Hot spot": [name.removeprefix("Hot spot ") for name in numbered(shown)]}
    if "class" in shown:
        columns["Probability of the class"] = [chance(p) for p in shown["p_class"]]
    plain = {"land_km2": "km²", "land_area": "square units", "exposure": "Exposure", "observed": "Observed"}
    columns |= {words: [events(v) for v in shown[name]] for name, words in plain.items() if name in shown}
    for name in ("expected", "mean", "rate", "relative_risk"):
        words = name.capitalize().replace("_", " ")
        ends = interval_in(shown, "" if name in ("expected", "mean") else name)
        if name not in shown or ends is None:
            continue
        columns[words] = [number(v, 3) for v in shown[name]]
        between = zip(shown[ends.low], shown[ends.high], strict=True)
        columns[f"{words}, {ends.words}"] = [f"{number(low, 3)} to {number(high, 3)}" for low, high in between]
    columns["All of it above"] = [chance(p) for p in shown["p_all"]]
    columns["Mean above"] = [chance(p) for p in shown["p_mean"]]
    kinds = {kind: CLASSES[kind] for kind in dict.fromkeys(shown.get("class", ()))}
    return {
        "hotspots": about_hotspots(frame) if len(frame) else "",
        "hotspot_head": tuple(columns),
        "hotspot_rows": list(zip(*columns.values(), strict=True))[:most],
        "more_hotspots": len(shown) - most,
        "hotspot_classes": kinds,
    }


def about_thresholds(view: View, thresholds: Sequence[float], frame: pd.DataFrame | None, most: int) -> dict[str, Any]:
    """Return all that the page says of thresholds."""
    when = "" if view.fitted is None else view.fitted.labels[-1]
    return above(view.posterior, sorted(set(thresholds)), when) | hotspots(frame, when, most)
