"""Excursions: joint probabilities against closed forms, against new draws, and by simulation from the prior."""

import json

import numpy as np
import pytest
import rasterio
from models import square
from paths import HELPERS
from posteriors import fitted, island, prescribed
from scipy.stats import norm
from system import run_qgis

from geobgp import LGCP, BoundaryGP, DataError, FullRank, HarmonicBasis, Matern
from geobgp.checks.excursions import excursion
from geobgp.simulate import simulate_prior


@pytest.fixture(scope="module", params=["features", "full"])
def basis(request):
    domain = square(12.0)
    return HarmonicBasis.compute(domain, 60, cache=False) if request.param == "features" else FullRank(domain)


def kernel_of(basis):
    return Matern(1.0 if isinstance(basis, FullRank) else 1.5, lengthscale=5.0, sd=1.0)


def test_independent_nodes_multiply():
    domain = square()
    rng = np.random.default_rng(0)
    mean, sd = rng.normal(0.0, 2.0, domain.n_nodes), 0.7
    found = excursion(prescribed(domain, mean, sd), 1.5, 0.9, n_samples=20_000)
    for joint, chance in (
        (found.joint_above, norm.sf(np.log(1.5), mean, sd)),
        (found.joint_below, norm.cdf(np.log(1.5), mean, sd)),
    ):
        order = np.argsort(-chance)
        np.testing.assert_allclose(joint[order], np.cumprod(chance[order]), atol=0.015)


def test_a_new_draw_is_covered_and_no_node_could_be_added(basis):
    trend = np.exp(0.35 * (basis.domain.node_points[:, 0] - 4.0))
    counts = np.random.default_rng(1).poisson(trend).astype(float)
    posterior = LGCP(basis, kernel_of(basis)).fit(counts)
    found = posterior.excursion(1.5, 0.8)
    truth = np.asarray(posterior.sample(4000, rng=77))
    for region, joint, holds in (
        (found.above, found.joint_above, truth > 1.5),
        (found.below, found.joint_below, truth <= 1.5),
    ):
        assert 0 < region.sum() < basis.domain.n_nodes
        # Two samples of thousands: three standard errors are 0.04.
        assert holds[:, region].all(axis=1).mean() == pytest.approx(0.8, abs=0.06)
        more = joint >= np.unique(joint[~region])[-1]
        assert holds[:, more].all(axis=1).mean() < 0.8 + 0.04
    assert not (found.above & found.below).any()


def test_the_truth_is_covered_as_often_as_promised(basis):
    kernel = kernel_of(basis)
    fields = simulate_prior(basis, kernel, rng=3, n=120)
    rng = np.random.default_rng(4)
    above = below = 0
    for field in fields:
        truth = np.exp(field + np.log(8.0))
        posterior = LGCP(basis, kernel).fit(rng.poisson(truth).astype(float))
        found = posterior.excursion(8.0, 0.9, n_samples=400)
        above += (truth > 8.0)[found.above].all()
        below += (truth <= 8.0)[found.below].all()
    # 90 % of 120 with four standard errors; regions of whole nodes promise a little less than they hold.
    assert 0.9 * 120 - 13 <= above <= 120
    assert 0.9 * 120 - 13 <= below <= 120


def test_another_probability_needs_no_new_samples():
    posterior = fitted()[0]
    found = posterior.excursion(0.5)
    np.testing.assert_array_equal(found.at(0.6).above, posterior.excursion(0.5, 0.6).above)
    assert found.at(0.99).above.sum() <= found.above.sum() <= found.at(0.5).above.sum()
    areas = found.areas()
    assert sum(areas.values()) == pytest.approx(posterior.domain.node_areas.sum() / 1e6)
    assert "km² above" in repr(found)


def test_grid_and_polygons_say_the_same():
    posterior = fitted()[0]
    domain = posterior.domain
    found = posterior.excursion(0.5)
    grid = found.to_dataset()["excursion"].values
    region = np.where(found.above, 1.0, np.where(found.below, -1.0, 0.0))
    cell = grid[domain.node_rows, domain.node_cols]
    # A river's two sides share cells: only where both are sure is the cell.
    assert ((cell == region) | (cell == 0)).all() and (cell == region).mean() > 0.9
    assert set(np.unique(grid[np.isfinite(grid)])) <= {-1.0, 0.0, 1.0}
    frame = found.to_polygons()
    assert frame.crs == domain.crs and frame.geometry.is_valid.all()
    assert frame.geometry.area.sum() == pytest.approx(domain.planar_areas.sum(), rel=1e-6)
    for row in frame.itertuples():
        mine = np.flatnonzero({"above": region == 1, "below": region == -1, "uncertain": region == 0}[row.region])
        assert row.geometry.area == pytest.approx(domain.planar_areas[mine].sum(), rel=1e-6)
    assert np.isnan(frame.set_index("region").loc["uncertain", "probability"])


def test_files(tmp_path):
    found = fitted()[0].excursion(0.5)
    paths = found.to_raster(tmp_path)
    assert [p.name for p in paths] == ["excursion.tif", "probability_above.tif", "probability_below.tif"]
    with rasterio.open(paths[0]) as src:
        assert src.crs.to_epsg() == 28992 and src.tags(1)["threshold"] == "0.5"
        assert "90 % all at once" in src.tags(1)["long_name"]
    assert "surely above 0.5 events per km²" in paths[0].with_suffix(".qml").read_text("utf-8")
    found.to_polygons(tmp_path / "regions.gpkg")
    assert (tmp_path / "regions.gpkg").exists()


@pytest.mark.qgis
@pytest.mark.slow
def test_qgis_shows_three_named_classes(tmp_path):
    domain = island()
    mean = np.where(domain.node_points[:, 0] < 155_000, -2.0, np.where(domain.node_points[:, 1] < 463_000, 0.0, 2.0))
    prescribed(domain, mean, 0.1).excursion(1.0).to_raster(tmp_path)
    answer = run_qgis(HELPERS / "qgis_check.py", tmp_path / "excursion.tif", "/dev/null", "2", json.dumps([]))
    assert answer["legend"] == [
        "surely below 1 events per km²", "not sure", "surely above 1 events per km²",
    ]  # fmt: skip


def test_the_figure_names_its_classes():
    found = fitted()[0].excursion(0.5)
    ax = found.plot()
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert words == ["surely above", "not sure", "surely below"]
    assert ax.get_title(loc="left") == "Above and below 0.5 events per km², 90 % sure"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threshold": 0.0}, "threshold must be a positive number; found 0.0"),
        ({"threshold": float("nan")}, "found nan"),
        ({"threshold": 1.0, "probability": 0.3}, "at least 0.5 and below 1; found 0.3"),
        ({"threshold": 1.0, "probability": 1.0}, "found 1.0"),
        ({"threshold": 1.0, "probability": 0.99, "n_samples": 50}, "50 samples cannot tell 99.0 %.*99 or more"),
    ],
)
def test_mistakes(options, words):
    with pytest.raises(DataError, match=words):
        fitted()[0].excursion(**options)


def test_values_have_excursions_too():
    domain = square(5.0)
    basis = HarmonicBasis.compute(domain, 14, cache=False)
    posterior = BoundaryGP(basis, Matern(1.5, lengthscale=4.0, sd=1.0), noise=0.1).fit(
        domain.node_points, domain.node_points[:, 0] - 2.5
    )
    found = posterior.excursion(0.0)
    assert found.above[domain.node_points[:, 0] > 4].all() and found.below[domain.node_points[:, 0] < 1].all()
    assert found.units == posterior.units
