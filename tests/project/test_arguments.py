"""Every public argument is guarded: wrong types and values are refused with an error of ours that names the argument.

Doors are found by looking: all public functions, constructors and methods. A new one is tried by itself, and fails here
until its arguments are checked; if it needs an argument that is not known yet, `GOOD` must say what a right one is.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely

import geobgp
from geobgp import LGCP, BoundaryGP, Domain, FullRank, GeobgpError, Grid, HarmonicBasis, Matern
from geobgp.checks.compare import Versus
from geobgp.checks.excursions import Excursion
from geobgp.checks.residuals import Residuals
from geobgp.simulate import simulate_prior

#: Results that public methods give; they have methods of their own.
RESULTS = (Excursion, Residuals, Versus)
#: Functions that are documented, though not at the top.
BESIDES = (simulate_prior,)
#: Classes that others make: their constructors are no doors.
MADE_ELSEWHERE = {"AreaCounts", "Counts", "CrossValidation", "Domain", "Excursion", "HarmonicBasis", "Periods",
                  "Posterior", "Residuals", "Variation", "Versus"}  # fmt: skip
#: Methods for the rooms of the house, not for visitors.
INSIDE = {
    "BoundaryGP": {"fit_measurements", "from_inputs"},
    "Domain": {"from_land", "from_geometry", "interpolation", "polygon_of"},
    "FullRank": {"from_arrays", "keep", "posterior_factor", "powers", "sample_prior", "longest_lengthscale",
        "truncated_variance"},
    "Grid": {"cell_of", "centres", "from_cells", "to_cells", "shapes_from_cells", "shapes_to_cells"},
    "HarmonicBasis": {"by_part", "from_arrays", "from_vectors", "sample_prior", "longest_lengthscale",
        "truncated_variance"},
    "LGCP": {"from_inputs"},
    "Matern": {"correlation", "log_density", "log_shape", "truncated_variance", "eigenvalue_needed"},
    "Counts": {"slice"},
    "AreaCounts": {"slice"},
    "Periods": {"index_of", "index_of_days", "joined", "of_ordinals", "same_as", "slice"},
    "Posterior": {"draws", "mean_by_period", "sample_blocks"},
    "SquaredExponential": {"correlation", "log_density", "log_shape", "truncated_variance", "eigenvalue_needed"},
}  # fmt: skip
#: Where a value that is wrong elsewhere is right.
ALLOWED = {
    ("Posterior.to_map", "title"): ("",),
    ("Posterior.plot", "title"): ("",),
    ("Posterior.plot_funnel", "title"): ("",),
    ("Posterior.plot_ranks", "title"): ("",),
    ("Posterior.plot_regions", "title"): ("",),
    ("Posterior.to_animation", "title"): ("",),
    ("Posterior.plot", "label"): ("",),
    ("Domain.plot", "title"): ("",),
    ("Posterior.in_units", "units"): ("",),
    ("Versus.to_map", "title"): ("",),
    ("map_intensity", "units"): ("",),
    ("map_strata", "units"): ("",),
    ("map_tiles", "units"): ("",),
    ("map_values", "units"): ("",),
    ("bin_points", "max_snap"): (math.inf,),
    ("Domain.nearest", "max_distance"): (math.inf,),
    ("Domain.to_grid", "fill"): (math.nan, math.inf, -math.inf),
}
#: Maps that are fitted where a wrong value is not refused, and the columns that they need.
PLACED = {
    "map_intensity": {}, "map_risk": {}, "map_values": {"value": "lead"},
    "map_prevalence": {"positive": "positive", "tested": "tested"},
}  # fmt: skip
#: Where the error names the option of `map_intensity` that an argument comes from.
TOLD_AS = {
    ("Periods.between", "edges"): "every",
    ("Periods.calendar", "first"): "between",
    ("Periods.calendar", "last"): "between",
}
#: Asked of a posterior over periods.
OVER_TIME = {"at", "forecast", "level", "plot_level", "to_animation", "to_zarr", "trend"}
#: Checked where the words are known: bases take all kernels but for full resolution.
UNCHECKED = {("HarmonicBasis.check_kernel", "kernel")}


@cache
def world() -> dict[str, Any]:
    """A small square, points on it, and one of everything that doors belong to."""
    square = shapely.box(0, 0, 10, 10)
    domain = Domain.from_polygons(square, cell_size=1, crs="local")
    rng = np.random.default_rng(0)
    counts = rng.poisson(np.exp(0.2 * domain.node_points[:, 0]))
    basis = HarmonicBasis.compute(domain, m=12, cache=False)
    kernel = Matern(1.5, lengthscale=6.0, sd=0.7)
    posterior = LGCP(basis, kernel).fit(counts)
    other = LGCP(basis, Matern(1.5, lengthscale=6.0, sd=0.5)).fit(counts)
    halves = [shapely.box(0, 0, 5, 10), shapely.box(5, 0, 10, 10)]
    table = gpd.GeoDataFrame({"n": [3, 4], "age": ["a", "b"], "population": [9, 9]}, geometry=halves)
    return {
        "Domain": domain, "Grid": domain.grid, "HarmonicBasis": basis, "FullRank": FullRank(domain),
        "LGCP": LGCP(basis, kernel), "BoundaryGP": BoundaryGP(basis, kernel), "Posterior": posterior,
        "Matern": kernel, "SquaredExponential": geobgp.SquaredExponential(6.0, 0.7),
        "Excursion": posterior.excursion(2.0, n_samples=50), "Versus": posterior.versus(other),
        "Residuals": posterior.residuals(n_simulations=39), "CrossValidation": posterior.cross_validate(5.0),
        "Variation": posterior.variation(),
        "Counts": geobgp.bin_points(rng.random((9, 2)) * 10, domain),
        "AreaCounts": geobgp.bin_areas(table, domain, "n"),
        "square": square, "points": rng.random((40, 2)) * 10, "counts": counts, "other": other, "table": table,
        "Periods": geobgp.Periods.calendar("month", "2020-01", "2020-05"),
        "over time": LGCP(basis, kernel, dynamics="separable").fit(np.array([counts] * 6), resume=False),
        "cases": pd.DataFrame({"age": ["a", "b"]}),
        "sites": pd.DataFrame(rng.random((40, 2)) * 10, columns=["easting", "northing"]).assign(
            positive=rng.binomial(20, 0.3, 40), tested=20, lead=rng.normal(5.0, 1.0, 40)
        ),
        "labelled": pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [4.0, 5.0, 6.0], "age": ["a", "a", "b"]}),
    }  # fmt: skip


def good(validated: str, name: str, tmp: Path) -> Any:
    """Return a right value of an argument that must be given."""
    w = world()
    special = {
        ("bin_areas", "count"): "n", ("bin_places", "events"): w["labelled"], ("bin_places", "places"): w["table"],
        ("expected_counts", "by"): "age", ("expected_counts", "cases"): w["cases"],
        ("Posterior.to_animation", "path"): tmp / "film.gif",
        ("map_tiles", "out"): tmp / "tiles", ("map_strata", "by"): "age", ("map_strata", "points"): w["labelled"],
        ("expected_counts", "population"): w["table"], ("BoundaryGP.fit", "values"): np.ones(40),
        ("Categorical", "source"): "soil.tif", ("Smooth", "source"): "rain.tif", ("Interaction", "first"): "rain",
        ("Interaction", "second"): "soil",
        ("Posterior.effect_plot", "name"): "rain", ("FullRank.check_kernel", "kernel"): Matern(1.0),
    }  # fmt: skip
    usual = {
        "points": w["points"], "cases": w["points"], "controls": w["points"][::-1], "land": w["square"],
        "domain": w["Domain"], "basis": w["HarmonicBasis"], "kernel": w["Matern"], "areas": w["table"],
        "counts": w["counts"], "coords": w["points"], "regions": w["table"][["age", "geometry"]],
        "posteriors": {"a": w["Posterior"], "b": w["other"]}, "other": w["other"], "path": tmp / "out", "folder": tmp,
        "cell_size": 1.0, "intensity": 2.0, "rng": 1, "n": 2, "m": 4, "threshold": 2.0, "levels": [1.0],
        "probability": 0.8, "lengthscale": 2.0, "sd": 1.0, "omega": np.ones(2), "max_distance": 1.0,
        "values": np.ones(100), "every": "month", "first": "2020-01-01", "last": "2020-03-01", "edges": [0, 1], "k": 2,
        "min_count": 2, "surveys": w["sites"], "samples": w["sites"],
        "period": 0, "periods": 1, "units": None, "bounds": (0, 0, 4, 4), "shape": (2, 2), "affine": w["Grid"].affine,
    }  # fmt: skip
    found = special.get((validated, name), usual.get(name))
    assert found is not None, f"{validated} needs {name!r}: say in this test what a right one is"
    return found


def doors() -> Iterator[tuple[str, str, str]]:
    """Yield every public argument: the door, its owner's name ("" for functions), the argument."""
    for one in (*(getattr(geobgp, name) for name in geobgp.__all__), *RESULTS, *BESIDES):
        if not inspect.isclass(one):
            yield from ((one.__name__, "", name) for name in arguments(one))
        elif not issubclass(one, BaseException):
            if one.__name__ not in MADE_ELSEWHERE:
                yield from ((one.__name__, "", name) for name in arguments(one))
            for method, function in inspect.getmembers(one, callable):
                if not (method.startswith("_") or method in INSIDE.get(one.__name__, ())):
                    names = arguments(function)
                    yield from ((f"{one.__name__}.{method}", one.__name__, n) for n in names if n != "self")


def arguments(function: Callable[..., Any]) -> list[str]:
    found = inspect.signature(function).parameters.values()
    return [p.name for p in found if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def find(validated: str, owner: str) -> Callable[..., Any]:
    if not owner:
        known = {f.__name__: f for f in BESIDES}
        return known.get(validated) or getattr(geobgp, validated)
    method = validated.partition(".")[2]
    return getattr(world()["over time" if owner == "Posterior" and method in OVER_TIME else owner], method)


def wrong_values(annotation: str, default: Any) -> list[Any]:
    """Return values that an argument with this annotation cannot have."""
    words = set(re.findall(r"[\w.]+", annotation))
    plain = words - {"None"}
    out: list[Any] = [object()]
    if "Any" not in words and "None" not in words and default is not None:
        out.append(None)
    several = {"Sequence", "tuple", "Mapping"} & words
    if "float" in words or "int" in words:
        out += [["ten"], [math.nan], [object()]] if several else ["ten", math.nan, math.inf, -math.inf, []]
        out += [] if "bool" in words or several else [True]
    if "int" in words and not several and "float" not in words:
        out += [-1, 2.5]
    if "str" in words and several and "float" not in words:
        out += [3, [3]]
    if plain == {"str"}:
        out += [3, ["a"]] + ([] if default == "" else [""])
    if plain == {"bool"}:
        out += ["yes", 2]
    if "Literal" in words or plain & {"Boundary", "Scheme", "Scaling"}:
        out += ["nonsense", 3.5, True] if "bool" not in words else ["nonsense"]
    if "Path" in words and "gpd.GeoDataFrame" not in words:
        out += [3, ""]
    if plain & {"np.ndarray", "Basis", "Domain", "Kernel", "Posterior", "pd.DataFrame"}:
        out += ["ten"] if "str" not in words else []
    return out


@pytest.mark.parametrize(("validated", "owner", "name"), sorted(set(doors())), ids=lambda v: v or "-")
def test_a_wrong_argument_is_refused_by_name(validated, owner, name, tmp_path):
    if (validated, name) in UNCHECKED:
        return
    function = find(validated, owner)
    parameters = inspect.signature(function).parameters
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    needed = {p.name for p in parameters.values() if p.default is p.empty and p.kind not in several}
    needed |= {"points", "land", "controls"} & set(parameters)
    given = {n: good(validated, n, tmp_path) for n in needed - {name}}
    if validated == "map_strata":
        other = {"controls", "points"} if name in ("cases", "samples", "surveys") else {"controls"}
        given = {n: v for n, v in {"by": "age", **given}.items() if n not in {name, *other}}
    if validated in PLACED:
        given |= {"crs": "local", "cell_size": 1.0, "max_seconds": 0.0} | PLACED[validated]
        given |= {"areas": world()["table"], "count": "n"} if name in ("count", "suppressed") else {}
        given |= {"cache": False, "m": 4} if validated == "map_intensity" else {"permeability": 0.0}
    parameter = parameters[name]
    for value in wrong_values(str(parameter.annotation), parameter.default):
        if any(value is v or value == v for v in ALLOWED.get((validated, name), ())):
            continue
        with pytest.raises(GeobgpError) as caught:
            function(**(given | {name: value}))
        assert caught.value.option == TOLD_AS.get((validated, name), name), f"{value!r}: {caught.value}"
        assert not list(tmp_path.iterdir())


def test_what_is_listed_is_there():
    for owner, methods in INSIDE.items():
        cls = getattr(geobgp, owner)
        assert all(hasattr(cls, method) for method in methods), owner
    assert {*geobgp.__all__, *(r.__name__ for r in RESULTS)} >= MADE_ELSEWHERE
    known = {(validated, name) for validated, _, name in doors()}
    assert set(ALLOWED) | set(TOLD_AS) | UNCHECKED <= known


def test_right_arguments_are_let_in(tmp_path):
    w = world()
    assert w["Posterior"].sample(np.int64(2), np.random.default_rng(1)).shape == (2, 100)
    assert HarmonicBasis.compute(w["Domain"], m=np.int64(5), cache=np.bool_(False)).m == 5
    assert Grid.from_bounds(np.array([0, 0, 4, 4]), np.float32(2)).shape == (2, 2)
    assert len(w["Posterior"].to_raster(str(tmp_path), np.array([2.0]), quantiles=[0.5])) == 5
