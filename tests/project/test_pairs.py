"""Everything composes: every pair of what was observed, how, with what, and what is asked, on a small land."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np
import pairs
import pandas as pd
import pytest
from pairs import ASKED, DISTRICTS, HALVES, HOW, OBSERVED, WITH, mapped, reason

import geobgp
from geobgp import GeobgpError, Matern, Posterior
from geobgp.units import exceeds

pytestmark = [
    pytest.mark.filterwarnings("ignore::geobgp.errors.GeobgpWarning"),
    pytest.mark.filterwarnings("ignore:.*:UserWarning:arviz"),
]

KINDS = list(itertools.product(OBSERVED, HOW))


def _params(whats: tuple[str, ...]) -> list[Any]:
    return [pytest.param(o, h, w, id=f"{o}-{h}-{w}") for (o, h), w in itertools.product(KINDS, whats)]


@cache
def _tried(observed: str, how: str, what: str | None, which: tuple[tuple[str, Any], ...]) -> Any:
    try:
        return mapped(observed, how, what, **dict(which))
    except Exception as error:
        return error


def fitted(observed: str, how: str, what: str | None = None, **which: Any) -> Any:
    """Return a map, fitted once."""
    out = _tried(observed, how, what, tuple(which.items()))
    if isinstance(out, Exception):
        raise out
    return out


def each(made: Any) -> list[Posterior]:
    """Return the posteriors of a map, or those of strata."""
    return [made] if isinstance(made, Posterior) else list(made.values())


def values_of(posterior: Posterior) -> np.ndarray:
    return posterior.node_intensity()["mean"].to_numpy()


def amounts(posterior: Posterior, table: pd.DataFrame) -> np.ndarray:
    """Return what every region counts for in a mean."""
    return table["exposure" if "exposure" in table else "land_km2"].to_numpy()


# -- With what -------------------------------------------------------------------------------------------------


def check_laws(posterior: Posterior) -> None:
    """Check what holds of every map: order, probabilities, conservation."""
    table = posterior.node_intensity()
    shown = table["mean"].notna().to_numpy()
    assert shown.any() and (posterior.protection or shown.all())
    low, middle, high = (table[c].to_numpy()[shown] for c in table.columns if c.startswith("q"))
    assert (low <= middle).all() and (middle <= high).all() and (table["sd"][shown] > 0).all()
    thresholds = np.quantile(middle, [0.3, 0.7]) * [0.999, 1.001]
    chances = [posterior.exceedance(float(t)).values for t in thresholds]
    chances = [c[np.isfinite(c)] for c in chances]
    assert all(((c >= 0) & (c <= 1)).all() for c in chances) and (chances[0] >= chances[1]).all()
    assert chances[0].mean() > chances[1].mean()
    halves, whole = posterior.totals(HALVES), posterior.totals()
    main = "expected" if posterior.is_summed else "mean"
    if posterior.protection:
        return
    weight = np.ones(len(halves)) if posterior.is_summed else amounts(posterior, halves)
    rows = weight * halves[main].to_numpy()
    together = np.bincount(np.arange(len(rows)) // 2, rows)
    over = np.ones(len(whole)) if posterior.is_summed else amounts(posterior, whole)
    np.testing.assert_allclose(together, over * whole[main], rtol=1e-9)
    assert halves["land_km2"].to_numpy().reshape(-1, 2).sum(axis=1) == pytest.approx(94.0, rel=1e-3)


def check_with(posterior: Posterior, observed: str, how: str, what: str) -> None:
    """Check that a map has what it was made with."""
    table = posterior.totals(HALVES)
    if what == "exposure":
        assert posterior.exposure_kind in ("population", "exposure") and "exposure" in table
        if not posterior.is_summed:
            return
        people = posterior.by_period.sum(axis=1)
        np.testing.assert_allclose(table["exposure"].to_numpy().reshape(-1, 2).sum(axis=1), people)
        np.testing.assert_allclose(table["rate"], table["expected"] / table["exposure"] * posterior.shown.factor)
    elif what == "effort":
        assert posterior.effort is not None
        if posterior.is_summed and "reported" in table:
            assert (table["reported"] < table["expected"]).all()
    elif what in ("numeric covariate", "levels"):
        name = "height" if what == "numeric covariate" else "soil"
        assert any(term.startswith(name) for term in posterior.coefficients["name"])
    elif what == "overdispersion":
        assert posterior.likelihood.dispersion is not None
    elif what == "integrated hyperparameters":
        assert len(posterior.fit.states) > 1
    elif what == "permeable water":
        assert posterior.basis_info["permeability"] == 0.5
    elif what == "small-number protection":
        assert posterior.min_count == 3
    elif what == "full resolution":
        assert posterior.basis_info["m"] == "full"
    elif what == "another interval":
        assert list(posterior.node_intensity().columns) == ["mean", "sd", "q10", "q50", "q90"]
        assert {"q10", "q90"} <= set(table.columns)


@pytest.mark.parametrize(("observed", "how", "what"), _params(WITH))
def test_it_can_be_mapped_with(observed, how, what):
    why = reason(observed, how, what)
    if why is not None:
        with pytest.raises((GeobgpError, TypeError), match=why[0]):
            fitted(observed, how, what)
        return
    made = fitted(observed, how, what)
    for posterior in each(made)[:1]:
        check_laws(posterior)
        check_with(posterior, observed, how, what)
        if what == "units":
            plain = each(fitted(observed, how))[0]
            factor = posterior.shown.factor / plain.shown.factor
            np.testing.assert_allclose(values_of(posterior), factor * values_of(plain), rtol=1e-9)
            assert posterior.units != plain.units


# -- What is asked ---------------------------------------------------------------------------------------------


class Asked:
    """What can be asked, a method each, with what must hold of the answer."""

    def __init__(self, observed: str, how: str, folder: Any) -> None:
        self.observed, self.how, self.folder = observed, how, folder
        self.posterior: Posterior = each(fitted(observed, how))[0]
        self.timed = self.posterior.periods is not None
        self.n_periods = self.posterior.n_periods
        self.events = self.posterior.exposure_kind != "observation"

    def other(self, **which: Any) -> Posterior:
        return each(fitted(self.observed, self.how, None, **which))[0]

    def threshold(self) -> float:
        return float(np.median(values_of(self.posterior)))

    def summary(self):
        summary = self.posterior.summary()
        assert self.posterior.units in str(summary)

    def coefficients(self):
        assert "intercept" in set(self.posterior.coefficients["name"])
        assert np.isfinite(self.posterior.coefficients["mean"]).all()

    def dataset(self):
        data = self.posterior.dataset(thresholds=[self.threshold()])
        shape = self.posterior.domain.grid.shape
        assert data["mean"].shape == ((self.n_periods, *shape) if self.timed else shape)
        assert data["mean"].attrs["units"] == self.posterior.units and "coverage" in data

    def intensity(self):
        data, nodes = self.posterior.intensity(), values_of(self.posterior).reshape(self.n_periods, -1)
        grids = np.array([self.posterior.domain.to_grid(one) for one in nodes])
        np.testing.assert_allclose(data["mean"].values.reshape(grids.shape), grids)

    def latent(self):
        data, mean = self.posterior.latent(), self.posterior.intensity()["q50"]
        inverse = self.posterior.link.inverse(data["q50"].values) * self.posterior.shown.factor
        np.testing.assert_allclose(inverse, mean.values, rtol=1e-6)

    def exceedance(self):
        chance = self.posterior.exceedance(self.threshold())
        shown = chance.values[np.isfinite(chance.values)]
        assert ((shown >= 0) & (shown <= 1)).all() and "threshold" in chance.attrs

    def values_at(self):
        places = self.posterior.domain.node_points[:4]
        table = self.posterior.values_at(places)
        nodes = values_of(self.posterior).reshape(self.n_periods, -1)[:, :4]
        np.testing.assert_allclose(table["mean"].to_numpy().reshape(self.n_periods, 4), nodes)
        assert ("period" in table) == self.timed

    def intensity_at(self):
        places = self.posterior.domain.node_points[:4]
        pd.testing.assert_frame_equal(self.posterior.intensity_at(places), self.posterior.values_at(places))

    def sample(self):
        draws = self.posterior.sample(400, 1)
        axes = ("draw", "time", "node") if self.timed else ("draw", "node")
        table = self.posterior.node_intensity()
        assert draws.dims == axes and draws.attrs["units"] == self.posterior.units
        error = table["sd"].to_numpy() / np.sqrt(400)
        gap = draws.mean("draw").values.ravel() - table["mean"].to_numpy()
        assert np.abs(gap / error).mean() < 3

    def totals(self):
        table = self.posterior.totals(DISTRICTS, by="half")
        assert len(table) == 2 * self.n_periods and ("period" in table) == self.timed
        if self.posterior.is_summed and self.observed != "cases and controls":
            assert table["observed"].sum() == pytest.approx(self.posterior.n_points)
            assert self.posterior.totals()["observed"].sum() == pytest.approx(table["observed"].sum())

    def ranks(self):
        table = self.posterior.ranks(HALVES, top=1, n_samples=200)
        first = table["p_first"].to_numpy().reshape(self.n_periods, 2)
        np.testing.assert_allclose(first.sum(axis=1), 1.0)
        assert ("period" in table) == self.timed

    def versus(self):
        answer = self.posterior.versus(self.other(seed=5), names=("one", "other"))
        for one in answer.values() if self.timed else [answer]:
            chance = one.increase().values
            assert (chance[np.isfinite(chance)] <= 1).all() and len(one.totals(HALVES)) == 2

    def compare(self):
        other = self.other(kernel=Matern(1.5, 2500.0, 0.8))
        table = geobgp.compare({"smooth": self.posterior, "rough": other})
        assert sorted(table.index) == ["rough", "smooth"] and np.isfinite(table["elbo"]).all()

    def excursion(self):
        answer = self.posterior.excursion(self.threshold(), n_samples=200)
        for one in answer.values() if self.timed else [answer]:
            assert not (one.above & one.below).any()

    def hotspots(self):
        table = self.posterior.hotspots(self.threshold(), 0.6, n_samples=200)
        assert len(table) and (table["p_all"] >= 0.6).all() and (table["p_mean"] >= table["p_all"]).all()
        main = {"expected", "mean", "relative_risk"} & set(table)
        assert main and np.isfinite(table[list(main)]).all(axis=None) and ("class" in table) == self.timed
        assert table.crs.to_epsg() == 28992 and table.attrs["units"] == self.posterior.units

    def people_above(self):
        table = self.posterior.people_above(self.threshold(), HALVES, n_samples=200)
        whole = self.posterior.people_above(self.threshold(), n_samples=200)
        (main,) = [c for c in table if c.endswith("_above") and c != "share_above"]
        both = table[main].to_numpy().reshape(self.n_periods, 2).sum(axis=1)
        np.testing.assert_allclose(both, whole[main], rtol=1e-9)
        assert whole["share_above"].between(0.05, 0.95).all() and ("period" in table) == self.timed

    def variation(self):
        assert self.posterior.variation(held_out=False).verdict in ("varies", "may vary", "no evidence")

    def residuals(self):
        answer = self.posterior.residuals(n_simulations=39)
        for one in answer.values() if self.timed else [answer]:
            assert len(one.pearson) == len(one.observed) and np.isfinite(one.dispersion)

    def cross_validate(self):
        how = {} if self.timed else {"rounds": 0}
        checked = self.posterior.cross_validate(**how)
        assert np.isfinite(checked.score)

    def level(self):
        assert len(self.posterior.level()) == self.n_periods

    def trend(self):
        chance = self.posterior.trend(n_samples=50)["p_increase"].values
        assert ((chance >= 0) & (chance <= 1) | np.isnan(chance)).all()

    def forecast(self):
        ahead = self.posterior.forecast(2)
        assert ahead.periods.labels == ("2023", "2024") and np.isfinite(values_of(ahead)).all()
        wider = ahead.node_intensity()["sd"] / ahead.node_intensity()["mean"]
        assert wider.loc["2024"].mean() > 0.99 * wider.loc["2023"].mean()

    def in_units(self):
        np.testing.assert_allclose(values_of(self.posterior.in_units(None)), values_of(self.posterior))

    def with_interval(self):
        table = self.posterior.with_interval(0.5).node_intensity()
        assert list(table.columns) == ["mean", "sd", "q25", "q50", "q75"]

    def protected(self):
        hidden = self.posterior.protected(3)
        assert hidden.min_count == 3 and {"hidden", "why"} <= set(hidden.totals(HALVES))
        if self.timed and self.observed != "cases and controls":
            checked, exact = hidden.cross_validate().table, self.posterior.cross_validate()
            few = exact.table["observed"].between(1, 2)
            assert few.any() and checked["observed"][few].isna().all()
            assert hidden.cross_validate().score == pytest.approx(exact.score, rel=1e-9)

    def at(self):
        one = self.posterior.at(-1)
        assert one.periods is None
        np.testing.assert_allclose(values_of(one), values_of(self.posterior).reshape(self.n_periods, -1)[-1], rtol=1e-9)

    def to_raster(self):
        import rasterio

        written = self.posterior.to_raster(self.folder / "rasters", [self.threshold()])
        name = "mean_2020.tif" if self.timed else "mean.tif"
        (path,) = (one for one in written if one.name == name)
        with rasterio.open(path) as raster:
            assert raster.crs.to_epsg() == 28992 and raster.nodata is not None
            values = raster.read(1, masked=True).filled(np.nan)
        expected = self.posterior.intensity()["mean"].values.reshape(-1, *values.shape)[0]
        np.testing.assert_allclose(values, expected, rtol=1e-5)

    def to_netcdf(self):
        self._read_back("to_netcdf", "map.nc", "open_dataset")

    def to_zarr(self):
        pytest.importorskip("zarr")
        self._read_back("to_zarr", "map.zarr", "open_zarr")

    def _read_back(self, write: str, name: str, read: str):
        import xarray as xr

        path = getattr(self.posterior, write)(self.folder / name)
        with getattr(xr, read)(path) as data:
            np.testing.assert_allclose(data["mean"].values, self.posterior.intensity()["mean"].values, rtol=1e-5)

    def to_qgis(self):
        assert self.posterior.to_qgis(self.folder, [self.threshold()], regions=HALVES).exists()

    def to_map(self):
        path = self.folder / "map.html"
        self.posterior.to_map(path, regions=HALVES)
        assert self.posterior.units in path.read_text("utf-8").replace("\\u00b2", "²")

    def to_report(self):
        text = self.posterior.to_report(self.folder / "report.html", regions=HALVES, checks=False).read_text("utf-8")
        assert self.posterior.units in text and "west" in text

    def to_polygons(self):
        frame = self.posterior.to_polygons([self.threshold()], smooth=False)
        assert frame.area.sum() == pytest.approx(self.n_periods * 94e6, rel=1e-6)

    def tolerance_contours(self):
        frame = self.posterior.tolerance_contours(risk=self.threshold(), probability=0.6)
        assert set(frame["risk"]) <= {"raised", "lowered"} and ("period" in frame) == self.timed

    def to_arviz(self):
        pytest.importorskip("arviz")
        answer = self.posterior.to_arviz(20, chains=2)
        for one in answer.values() if self.timed and isinstance(answer, dict) else [answer]:
            assert {"chain", "draw"} <= set(one["posterior"].sizes)

    def plot(self):
        import matplotlib.pyplot as plt

        self.posterior.plot()
        plt.close("all")

    def cells(self):
        name = f"exceedance_{self.threshold():g}"
        table = self.posterior.cells(thresholds=[self.threshold()])
        np.testing.assert_allclose(table["mean"], values_of(self.posterior))
        assert table[name].between(0, 1).all() and ("period" in table) == self.timed
        assert table["land_km2"].sum() == pytest.approx(self.n_periods * 94.0, rel=1e-3)

    def explore(self):
        page = self.posterior.explore(threshold=self.threshold(), **self.last()).get_root().render()
        words = exceeds(self.posterior.quantity, self.threshold(), self.posterior.units)
        assert page.count('"type": "Feature"') == self.posterior.domain.n_nodes and words in page

    def last(self) -> dict[str, Any]:
        """Return the period that is asked for, where there are some."""
        return {"period": self.posterior.time.labels[-1]} if self.timed else {}

    def drawn(self, name: str, regions: Any = HALVES) -> Any:
        """Return a figure of regions."""
        import matplotlib.pyplot as plt

        axes = getattr(self.posterior, name)(regions, **self.last())
        plt.close("all")
        return axes

    def plot_ranks(self):
        axes = self.drawn("plot_ranks")
        assert {label.get_text() for label in axes.get_yticklabels()} == {"west", "east"}

    def plot_funnel(self):
        axes = self.drawn("plot_funnel", self.posterior.domain.geometry)  # which cuts no area
        assert self.posterior.units in axes.get_ylabel()

    def plot_regions(self):
        assert sum(len(drawn.get_paths()) for drawn in self.drawn("plot_regions").collections) == 2

    def to_animation(self):
        assert self.posterior.to_animation(self.folder / "film.gif", width=200).stat().st_size > 1000

    def told(self) -> Posterior:
        """Return the map with a covariate."""
        return each(fitted(self.observed, self.how, "numeric covariate"))[0]

    def effects(self):
        (row,) = self.told().effects().to_dict("records")
        (main,) = {"rate_ratio", "odds_ratio", "difference"} & set(row)
        assert row["covariate"] == "height" and np.isfinite(row[main]) and row["from"] < row["to"]

    def effect_plot(self):
        import matplotlib.pyplot as plt

        axes = self.told().effect_plot("height")
        assert "height" in axes.get_xlabel()
        plt.close("all")

    def what_if(self):
        posterior = self.told()
        height = posterior.coefficients.set_index("name").loc["height", "mean"]
        low, high = (posterior.what_if({"height": value}) for value in (0.0, 1.0))
        change = high.latent()["q50"].values - low.latent()["q50"].values
        np.testing.assert_allclose(change[np.isfinite(change)], height, rtol=1e-6)

    def save(self):
        again = Posterior.load(self.posterior.save(self.folder / "fit"))
        np.testing.assert_array_equal(again.node_intensity(), self.posterior.node_intensity())
        assert (again.units, again.quantity) == (self.posterior.units, self.posterior.quantity)
        pd.testing.assert_frame_equal(
            pd.DataFrame(again.totals().drop(columns="geometry")),
            pd.DataFrame(self.posterior.totals().drop(columns="geometry")),
        )


_OF_TIME = ("level", "trend", "forecast", "at")


@pytest.mark.parametrize(("observed", "how", "what"), _params(ASKED))
def test_it_can_be_asked(observed, how, what, tmp_path):
    asked = Asked(observed, how, tmp_path)
    why = reason(observed, how, what)
    if why is not None:
        with pytest.raises(GeobgpError, match=why[0]):
            getattr(asked, what)()
        return
    getattr(asked, what)()


def test_there_is_a_check_of_all_that_is_asked():
    helpers = {"other", "threshold", "told", "last", "drawn"}
    assert {name for name in vars(Asked) if not name.startswith("_")} - helpers == set(ASKED)


# -- Laws of pairs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("observed", "how", "what"), _params(("backwards",)))
def test_the_order_of_rows_does_not_matter(observed, how, what):
    for one, other in zip(each(fitted(observed, how)), each(fitted(observed, how, backwards=True)), strict=True):
        np.testing.assert_allclose(values_of(one), values_of(other), rtol=1e-6)


@pytest.mark.parametrize(("observed", "how", "what"), _params(("one",)))
def test_one_period_or_stratum_is_the_map_without(observed, how, what):
    if how == "in space":
        return
    (one,), plain = each(fitted(observed, how, one=True)), fitted(observed, "in space", one=True)
    np.testing.assert_allclose(values_of(one), values_of(plain), rtol=1e-6)


def test_inputs_that_change_may_be_named_by_their_periods():
    tables = [pairs.INPUTS.assign(people=(1.0 + k) * pairs.INPUTS["people"]) for k in range(len(pairs.YEARS))]
    given = [tables, dict(zip(map(str, pairs.YEARS), tables, strict=True))]
    one, other = (mapped("points", "over periods", exposure=e, exposure_column="people") for e in given)
    np.testing.assert_array_equal(one.exposure, other.exposure)
    np.testing.assert_allclose(one.exposure[2], 3.0 * one.exposure[0])
    with pytest.raises(GeobgpError, match="is none of the periods"):
        mapped("points", "over periods", effort={"May": pairs.INPUTS}, effort_column="share")


# -- The table itself ------------------------------------------------------------------------------------------


def test_few_pairs_are_refused():
    assert len(pairs.REFUSED) <= 12


def test_the_manual_has_the_table():
    assert pairs.PAGE.read_text("utf-8") == pairs.page(), "run python tests/helpers/pairs.py"
