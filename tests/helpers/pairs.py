"""The table of pairs: what was observed, how, with what, and what is asked; its data, and the page of the manual.

    python tests/helpers/pairs.py           # write docs/reference/pairs.md

`tests/project/test_pairs.py` runs every pair of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely

import geobgp
from geobgp import Matern

#: The page of the manual.
PAGE = Path(__file__).resolve().parents[2] / "docs/reference/pairs.md"

#: What was observed, and the function that maps it.
OBSERVED = {
    "points": "map_intensity",
    "areas": "map_intensity",
    "points and areas": "map_intensity",
    "mixed precision": "map_intensity",
    "cases and controls": "map_risk",
    "surveys": "map_prevalence",
    "values": "map_values",
}
HOW = ("in space", "over periods", "by stratum")
#: With what, besides nothing.
WITH = (
    "exposure",
    "effort",
    "numeric covariate",
    "levels",
    "overdispersion",
    "integrated hyperparameters",
    "permeable water",
    "small-number protection",
    "full resolution",
    "units",
    "another interval",
)
#: What is asked of a posterior, and the methods that answer.
ASKED = (
    "summary", "coefficients", "dataset", "intensity", "latent", "exceedance", "values_at", "intensity_at", "sample",
    "totals", "ranks", "versus", "compare", "excursion", "hotspots", "people_above", "variation", "residuals",
    "cross_validate", "level", "trend", "forecast", "in_units", "with_interval", "protected", "at", "to_raster",
    "to_netcdf", "to_zarr", "to_qgis", "to_map", "to_report", "to_polygons", "tolerance_contours", "to_arviz", "plot",
    "effects", "effect_plot", "what_if", "cells", "explore", "plot_ranks", "plot_funnel", "plot_regions",
    "to_animation", "save",
)  # fmt: skip

#: What is asked of several periods.
OF_TIME = ("level", "trend", "forecast", "at", "to_animation")

Some = str | tuple[str, ...] | None
#: Pairs without a meaning, and why: words that the message holds. (observed, how or None for all, with or asked).
REFUSED: dict[tuple[Some, Some, Some], tuple[str, str]] = {
    (None, "over periods", "full resolution"): (
        "every period has a weight for each",
        "n nodes in T periods are n x T unknowns, of which the chain over periods holds dense blocks of n x n",
    ),
    ("cases and controls", None, "exposure"): (
        "the controls are a sample of all people",
        "the controls are the exposure",
    ),
    ("values", None, "exposure"): ("means of regions are over their land", "a mean value is not multiplied by people"),
    (("surveys", "values"), None, "effort"): (
        "some are not reported",
        "who is not tested, and what is not measured, is not counted either: it cancels",
    ),
    ("cases and controls", None, "overdispersion"): (
        "a person is a case or is none",
        "a single yes or no has no spread beyond its mean: the variance is p (1 - p)",
    ),
    ("cases and controls", None, "units"): (
        "how many people there are is not known",
        "a case-control sample knows ratios only",
    ),
    ("surveys", None, "units"): ("which is a share", "a share of those tested, from 0 to 1, is per person as it is"),
    (("surveys", "values"), None, ("small-number protection", "protected")): (
        "mall numbers",
        "what is known of a place is based on samples, not on a number of events",
    ),
    (("cases and controls", "surveys", "values"), None, "plot_funnel"): (
        "numbers of events among known exposures",
        "a funnel compares numbers of events with what chance makes of them among known numbers of people",
    ),
    (None, ("in space", "by stratum"), OF_TIME): ("has no time", "what changes needs several periods"),
}

#: Ten by ten km with a lake.
WEST, SOUTH, SIDE, CRS = 150_000.0, 460_000.0, 10_000.0, 28992
LAND = gpd.GeoSeries([shapely.box(WEST, SOUTH, WEST + SIDE, SOUTH + SIDE)], crs=CRS)
LAKE = gpd.GeoSeries([shapely.box(WEST + 4e3, SOUTH + 4e3, WEST + 6e3, SOUTH + 7e3)], crs=CRS)
YEARS, SEXES = (2020, 2021, 2022), ("f", "m")
#: What every fit has, so that it is quick.
QUICK = {
    "crs": CRS, "cell_size": 1000.0, "m": 24, "permeability": 0.0, "cache": False,
    "kernel": Matern(1.5, 5000.0, 0.8),
}  # fmt: skip


def _squares(side: float, columns: Mapping[str, Callable[[np.ndarray], Any]]) -> gpd.GeoDataFrame:
    corners = [(x, y) for y in np.arange(0.0, SIDE, side) for x in np.arange(0.0, SIDE, side)]
    west = np.array([x / 1e3 for x, _ in corners])
    shapes = [shapely.box(WEST + x, SOUTH + y, WEST + x + side, SOUTH + y + side) for x, y in corners]
    return gpd.GeoDataFrame({name: of(west) for name, of in columns.items()}, geometry=shapes, crs=CRS)


#: Two regions that share out the land.
HALVES = gpd.GeoDataFrame(
    {"name": ["west", "east"]},
    geometry=[
        shapely.box(WEST, SOUTH, WEST + 4.5e3, SOUTH + SIDE),
        shapely.box(WEST + 4.5e3, SOUTH, WEST + SIDE, SOUTH + SIDE),
    ],
    crs=CRS,
)
INPUTS = _squares(
    2500.0,
    {
        "people": lambda x: 100.0 + 40.0 * x,
        "share": lambda x: 0.9 - 0.05 * x,
        "height": lambda x: np.sin(x) + 0.1 * np.arange(len(x)),
        "soil": lambda x: np.array(["clay", "sand"])[(np.arange(len(x)) % 3 == 0).astype(int)],
    },
)


#: Squares of 2 km, 25 of them, and in which half of the land they are.
DISTRICTS = _squares(
    2000.0, {"district": lambda x: np.arange(len(x)), "half": lambda x: np.where(x < 4, "west", "east")}
)


#: The areas that are the places of events, by level of precision.
PLACES = {level: DISTRICTS[[level, "geometry"]] for level in ("district", "half")}


@cache
def table(n: int = 360, seed: int = 0) -> gpd.GeoDataFrame:
    """Places on land, more of them in the east, with all that may have been observed there."""
    rng = np.random.default_rng(seed)
    x, y = SIDE * np.sqrt(rng.random(4 * n)), SIDE * rng.random(4 * n)
    places = gpd.GeoSeries(gpd.points_from_xy(WEST + x, SOUTH + y), crs=CRS)
    places = places[~places.intersects(LAKE.iloc[0])].iloc[:n].reset_index(drop=True)
    east = (places.x.to_numpy() - WEST) / SIDE
    tested = rng.integers(5, 40, n)
    columns = {
        "year": rng.choice(YEARS, n),
        "sex": rng.choice(SEXES, n),
        "ill": rng.random(n) < 0.25 + 0.5 * east,
        "tested": tested,
        "positive": rng.binomial(tested, 0.1 + 0.4 * east),
        "value": 3.0 + 2.0 * east + 0.3 * rng.normal(size=n),
    }
    return gpd.GeoDataFrame(columns, geometry=places, crs=CRS)


def districts(by: tuple[str, ...] = (), seed: int = 1) -> gpd.GeoDataFrame:
    """Districts with the number of events of each, by period and stratum too."""
    shapes, events = DISTRICTS[["district", "geometry"]], table(seed=seed)
    inside = gpd.sjoin(events, shapes, predicate="within")
    axes = {"year": YEARS, "sex": SEXES}
    every = pd.MultiIndex.from_product([shapes["district"], *(axes[b] for b in by)], names=["district", *by])
    cases = inside.groupby(["district", *by]).size().reindex(every, fill_value=0)
    return shapes.merge(cases.rename("cases").reset_index(), on="district")


def located(rows: gpd.GeoDataFrame) -> gpd.GeoDataFrame:
    """Return events of which some places are exact, and of others the district or the half is known."""
    square = DISTRICTS.iloc[DISTRICTS.sindex.nearest(rows.geometry, return_all=False)[1]]
    levels = np.array(["exact", *PLACES])[rows["tested"].to_numpy() % 3]
    return rows.assign(precision=levels, **{level: square[level].to_numpy() for level in PLACES})


def observations(
    observed: str, how: str, *, one: bool = False, seed: int = 0, backwards: bool = False
) -> dict[str, Any]:
    """Return what a function is given of observations.

    Parameters
    ----------
    observed, how : str
        As in `OBSERVED` and `HOW`.
    one : bool
        One period, or one stratum, of everything.
    seed : int
        Of the events.
    backwards : bool
        Rows from last to first.
    """
    rows = table(seed=seed)
    by = {"in space": (), "over periods": ("year",), "by stratum": ("sex",)}[how]
    areas = districts(() if one else by, seed + 1)
    if one:
        rows = rows.assign(year=2020, sex="f")
        areas = areas.assign(year=2020, sex="f")
    if observed == "values" or observed == "surveys":
        rows = rows.iloc[:120]
    if observed == "points and areas":
        rows = rows.iloc[:100]
    if backwards:
        rows, areas = (frame.iloc[::-1].reset_index(drop=True) for frame in (rows, areas))
    given: dict[str, Any] = {
        "points": lambda: {"points": rows},
        "areas": lambda: {"areas": areas, "count": "cases"},
        "points and areas": lambda: {"points": rows, "areas": areas, "count": "cases"},
        "mixed precision": lambda: {"points": located(rows), "places": PLACES, "precision": "precision"},
        "cases and controls": lambda: {"cases": rows, "status": "ill"},
        "surveys": lambda: {"surveys": rows, "positive": "positive", "tested": "tested"},
        "values": lambda: {"samples": rows, "value": "value"},
    }[observed]()
    if how == "over periods":
        given |= {"time": "year", "every": "year", "dynamics": "separable"}
    if how == "by stratum":
        given |= {"by": "sex", "n_jobs": 1}
    return given


def options(observed: str, what: str | None) -> dict[str, Any]:
    """Return the options that stand for what something is mapped with."""
    if what is None:
        return {}
    unit = dict.fromkeys(("areas", "points", "points and areas", "mixed precision"), "per 100 km²")
    family = "beta-binomial" if observed == "surveys" else "negative-binomial"
    return {
        "exposure": {"exposure": INPUTS, "exposure_column": "people"},
        "effort": {"effort": INPUTS, "effort_column": "share"},
        "numeric covariate": {"covariates": {"height": INPUTS[["height", "geometry"]]}},
        "levels": {"covariates": {"soil": INPUTS[["soil", "geometry"]]}},
        "overdispersion": {} if observed == "values" else {"likelihood": family},
        "integrated hyperparameters": {"hyper": "integrate", "kernel": None},
        "permeable water": {"permeability": 0.5},
        "small-number protection": {"min_count": 3},
        "full resolution": {"m": "full", "kernel": Matern(1.0, 5000.0, 0.8)},
        "units": {"units": unit.get(observed, "mg/kg" if observed == "values" else "per 1,000")},
        "another interval": {"interval": 0.8},
    }[what]


def mapped(observed: str, how: str, what: str | None = None, **which: Any) -> Any:
    """Return the map: a Posterior, or Strata. `which` observations, and options that are other ones."""
    chosen = {name: which.pop(name) for name in ("one", "seed", "backwards") if name in which}
    given = observations(observed, how, **chosen) | {"land": LAND, "water": LAKE}
    given |= QUICK | options(observed, what) | which
    if how == "by stratum":
        return geobgp.map_strata(**given)
    return getattr(geobgp, OBSERVED[observed])(**given)


def _is_of(given: Some, one: str) -> bool:
    return given is None or one == given or (isinstance(given, tuple) and one in given)


def _refused(observed: str, how: str, what: str) -> int | None:
    """Return which of the pairs without a meaning this is; None of those that work."""
    pair = (observed, how, what)
    fits = (k for k, one in enumerate(REFUSED) if all(_is_of(g, p) for g, p in zip(one, pair, strict=True)))
    return next(fits, None)


def reason(observed: str, how: str, what: str) -> tuple[str, str] | None:
    """Return what the message of a refused pair says, and why it has no meaning; None of those that work."""
    which = _refused(observed, how, what)
    return None if which is None else list(REFUSED.values())[which]


def _words(given: Some) -> str:
    return " and ".join(given) if isinstance(given, tuple) else given or ""


def page() -> str:
    """Return the page of the manual."""
    lines = [
        "# What goes with what",
        "",
        "Everything composes: what was observed, in space, over periods or by stratum, with what goes into a map, and",
        "what is asked of it. Every pair of these tables is tried by a test, and the page is written from the same",
        "definition. A dot: it works. A number: it has no meaning, and the message says why.",
        "",
    ]

    def cell(observed: str, how: str, what: str) -> str:
        which = _refused(observed, how, what)
        return "•" if which is None else f"[{which + 1}](#no-meaning)"

    for title, whats in (("Mapped with", WITH), ("Asked", ASKED)):
        lines += [f"## {title}", ""]
        for how in HOW:
            lines += [f"**{how.capitalize()}**", "", f"| | {' | '.join(OBSERVED)} |", f"|---{'|:-:' * len(OBSERVED)}|"]
            name = (lambda w: w) if whats is WITH else (lambda w: f"`{w}`")
            lines += [f"| {name(w)} | {' | '.join(cell(o, how, w) for o in OBSERVED)} |" for w in whats]
            lines += [""]
    lines += ["(no-meaning)=", "## No meaning", ""]
    for k, ((observed, how, what), (_, why)) in enumerate(REFUSED.items(), 1):
        named = ", ".join(f"`{w}`" for w in what) if isinstance(what, tuple) else what
        when = _words(how)
        lines.append(f"{k}. {named}, {_words(observed) or 'whatever was observed'}{f' {when}' if when else ''}: {why}.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
