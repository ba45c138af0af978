"""Cross-validation by blocks: its laws, its verdicts, and mistakes that are met with words."""

from __future__ import annotations

from dataclasses import replace

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from models import all_modes, poisson_problem, prior_covariance, square
from posteriors import island, prescribed
from scipy.special import gammaln
from scipy.stats import binom, kstest

from geobgp.checks.blocks import auto_side, squares
from geobgp.checks.compare import compare
from geobgp.checks.scoring import per_event
from geobgp.errors import CRSError, DataError, InputWarning, SizeError
from geobgp.land.domain import Domain
from geobgp.model import LGCP, BoundaryGP
from geobgp.posterior import Posterior
from geobgp.prior.full_rank import FullRank
from geobgp.prior.kernels import Matern

KERNEL = Matern(1.0, lengthscale=4.0, sd=1.0)


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    domain = square(12.0)
    return LGCP(FullRank(domain), KERNEL).fit(poisson_problem(domain, total=400).counts)


@pytest.fixture(scope="module")
def checked(posterior):
    return posterior.cross_validate(3.0)


def drawn(domain: Domain, level: float, seed: int) -> np.ndarray:
    """Counts of a log-Gaussian Cox process with the kernel above."""
    rng = np.random.default_rng(seed)
    covariance = prior_covariance(all_modes(domain), KERNEL, fixed_sd=None)
    spread = np.sqrt(covariance.diagonal())
    covariance = KERNEL.sd**2 * covariance / spread[:, None] / spread
    f = rng.multivariate_normal(np.zeros(domain.n_nodes), covariance, method="eigh")
    return rng.poisson(level * domain.node_areas * np.exp(f)).astype(float)


def test_a_true_model_is_calibrated():
    domain = square(20.0)
    pit = []
    for seed in range(4):
        found = LGCP(FullRank(domain), KERNEL).fit(drawn(domain, 2.0, seed)).cross_validate(4.0)
        assert found.failures() == []
        pit.append(found.pit)
    inside = np.abs(np.concatenate(pit) - 0.5) <= 0.45
    low, high = binom.interval(0.99, inside.size, 0.9)
    assert low <= inside.sum() <= high
    assert kstest(np.concatenate(pit), "uniform").pvalue > 0.01


def test_a_map_that_is_too_sure_is_found_out():
    domain = square(20.0)
    stiff = LGCP(FullRank(domain), Matern(1.0, 8.0, 0.05)).fit(drawn(domain, 4.0, 1)).cross_validate(4.0)
    assert stiff.coverage < stiff.coverage_band[0]
    told = stiff.failures()
    assert len(told) == 1 and told[0].startswith("Only") and "surer than it should be" in told[0]
    assert told[0] in stiff.verdict() and stiff.facts()["fine"] is False


def test_a_score_is_that_of_a_held_out_poisson_process_where_the_rate_is_known():
    """With next to no variance of f a block has the rate of the others, which is known as a gamma variate is."""
    domain = square(12.0)
    counts = poisson_problem(domain, total=500).counts
    flat = LGCP(FullRank(domain), Matern(1.0, 3.0, 1e-3)).fit(counts).cross_validate(4.0)
    n, events = len(flat.blocks), flat.blocks["observed"].to_numpy()
    assert n == 9 and events.sum() == counts.sum()
    others, area = counts.sum() - events, 144 - 16
    expected = gammaln(events + others) - gammaln(others) + others * np.log(area)
    expected -= (events + others) * np.log(144)
    np.testing.assert_allclose(flat.blocks["log_density"], expected, atol=0.1, rtol=0.01)
    one = counts.sum() / 144
    np.testing.assert_allclose(
        flat.blocks["score"], flat.blocks["log_density"] - (events * np.log(one) - one * 16), atol=1e-9
    )
    assert flat.score < 0.001


def test_the_log_density_does_not_depend_on_the_cells():
    """The same events on cells of 1 and of ½, on which the model is the same."""
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 12, (600, 2)) ** 1.1 / 12**0.1
    found = []
    for cell in (1.0, 0.5):
        domain = square(12.0, cell)
        counts = np.bincount(domain.locate(points), minlength=domain.n_nodes).astype(float)
        found.append(LGCP(FullRank(domain), Matern(1.0, 6.0, 0.5)).fit(counts).cross_validate(4.0))
    first, second = (one.blocks for one in found)
    pd.testing.assert_series_equal(first["observed"], second["observed"])
    gap = (first["log_density"] - second["log_density"]) / first["observed"]
    assert gap.abs().max() < 0.02
    assert found[0].score == pytest.approx(found[1].score, abs=0.005)


def test_what_is_in_the_table(checked, posterior):
    b = checked.blocks
    assert isinstance(b, gpd.GeoDataFrame) and len(b) == 16 and checked.side == 3.0
    assert b["observed"].sum() == posterior.observed.sum() == checked.n_events
    np.testing.assert_allclose(b["land_area"], 9.0)
    assert ((b["predicted_q05"] <= b["expected"]) & (b["expected"] <= b["predicted_q95"])).all()
    assert b["pit"].between(0, 1).all()
    assert checked.score == pytest.approx(b["score"].sum() / checked.n_events)
    assert (checked.block_of >= 0).all()
    inside = shapely.contains_xy(b.geometry.to_numpy()[checked.block_of], *posterior.domain.node_points.T)
    assert inside.all()
    assert "nats per event" in repr(checked)


def test_it_is_the_same_on_every_run_and_after_a_file(checked, posterior, tmp_path):
    again = posterior.cross_validate(3.0)
    pd.testing.assert_frame_equal(pd.DataFrame(again.blocks), pd.DataFrame(checked.blocks))
    other = posterior.cross_validate(3.0, rng=1)
    assert (other.pit != checked.pit).any()
    np.testing.assert_array_equal(other.blocks["log_density"], checked.blocks["log_density"])
    back = Posterior.load(posterior.save(tmp_path / "fit")).cross_validate(3.0)
    np.testing.assert_allclose(back.blocks["log_density"], checked.blocks["log_density"], rtol=1e-9)


def test_regions_and_folds_are_blocks_as_well(checked, posterior):
    regions = gpd.GeoDataFrame(geometry=checked.blocks.geometry.to_numpy())
    by_region = posterior.cross_validate(regions)
    np.testing.assert_allclose(by_region.blocks["log_density"], checked.blocks["log_density"], atol=1e-8)
    names = np.array([f"fold {k:02}" for k in checked.block_of])
    by_fold = posterior.cross_validate(names)
    assert by_fold.blocks.index[3] == "fold 03"
    np.testing.assert_allclose(by_fold.blocks["log_density"], checked.blocks["log_density"], atol=1e-8)
    np.testing.assert_allclose(by_fold.blocks.area, 9.0)


def test_nodes_without_a_fold_are_never_held_out(posterior):
    east = posterior.domain.node_points[:, 0]
    folds = np.where(east < 3, 0.0, np.where(east > 9, 1.0, np.nan))
    found = posterior.cross_validate(folds)
    assert len(found.blocks) == 2 and (found.block_of == -1).sum() == (np.isnan(folds)).sum()
    assert found.n_events == posterior.observed[~np.isnan(folds)].sum()


def test_a_buffer_takes_away_what_helps(checked, posterior):
    far = posterior.cross_validate(3.0, buffer=2.5)
    assert far.blocks["log_density"].sum() < checked.blocks["log_density"].sum()
    assert far.n_events == checked.n_events
    width = (np.sqrt(far.blocks["predicted_q95"]) - np.sqrt(far.blocks["predicted_q05"])).mean()
    assert width > (np.sqrt(checked.blocks["predicted_q95"]) - np.sqrt(checked.blocks["predicted_q05"])).mean()


def test_no_exposure_no_events():
    domain = square(12.0)
    exposure = np.where(domain.node_points[:, 0] < 6, 0.0, domain.node_areas)
    counts = np.where(exposure > 0, poisson_problem(domain).counts, 0.0)
    found = LGCP(FullRank(domain), KERNEL, exposure=exposure).fit(counts).cross_validate(4.0)
    west = found.blocks.centroid.x < 4
    assert (found.blocks.loc[west, "expected"] == 0).all()
    np.testing.assert_allclose(found.blocks.loc[west, "log_density"], 0.0, atol=1e-6)
    assert np.isfinite(found.score)


def test_squares_follow_the_lengthscale_within_reason(posterior):
    made = squares(posterior.domain, auto_side(posterior))
    assert len(made) >= 20  # two lengthscales would be nine
    assert np.bincount(made.of).max() <= posterior.domain.n_nodes / 16
    assert auto_side(posterior) % posterior.domain.cell_size == 0


def test_blocks_on_a_globe_are_in_the_domains_crs():
    domain = island(2000.0)
    counts = np.random.default_rng(0).poisson(domain.node_areas / 1e6 * 0.5).astype(float)
    posterior = LGCP(FullRank(domain), Matern(1.0, 15_000.0, 1.0)).fit(counts)
    found = posterior.cross_validate()
    assert found.blocks.crs == domain.crs and "land_km2" in found.blocks
    halves = gpd.GeoSeries(
        [shapely.box(100_000, 400_000, 155_000, 500_000), shapely.box(155_000, 400_000, 250_000, 500_000)],
        crs=domain.crs,
    )
    two = posterior.cross_validate(halves.to_crs(4326))
    assert two.blocks["observed"].sum() == counts.sum()
    with pytest.raises(CRSError, match="no coordinate reference system"):
        posterior.cross_validate(gpd.GeoSeries(halves.to_numpy()))


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        (0.5, "at least that of a cell, 1 unit"),
        (-3.0, "at least that of a cell"),
        (float("nan"), "at least that of a cell"),
        (None, "'auto', a size, regions or folds; found None"),
        (1000.0, "at least two are needed"),
        ([shapely.box(50, 50, 60, 60)], "none of 1 region holds any land"),
        (np.zeros(7), "144 nodes; found 7 labels"),
        (np.zeros((12, 12)), "found the shape \\(12, 12\\)"),
        (np.full(144, np.nan), "no node has a fold"),
    ],
)
def test_blocks_that_make_no_sense(posterior, blocks, words):
    with pytest.raises(DataError, match=words):
        posterior.cross_validate(blocks)


def test_other_mistakes(posterior, monkeypatch):
    with pytest.raises(DataError, match="buffer must be a number of at least 0"):
        posterior.cross_validate(3.0, buffer=-1.0)
    domain = posterior.domain
    lonely = np.zeros(domain.n_nodes)
    lonely[5] = 1
    with pytest.raises(DataError, match="at least two are needed; found 1"):
        LGCP(FullRank(domain), KERNEL).fit(lonely).cross_validate()
    values = BoundaryGP(FullRank(domain), KERNEL, noise=0.1).fit(domain.node_points[:9], np.arange(9.0))
    assert len(values.cross_validate("sites").blocks) == 9
    with pytest.raises(DataError, match="knows none"):  # as from a file, which keeps no places
        replace(values, sites=None).cross_validate()
    with pytest.raises(DataError, match="knows none"):
        prescribed(domain, 0.0, 1.0).cross_validate()
    with pytest.warns(InputWarning, match="1 region of 3 hold no land"):
        posterior.cross_validate([shapely.box(0, 0, 6, 12), shapely.box(6, 0, 12, 12), shapely.box(50, 0, 51, 1)])
    monkeypatch.setattr("geobgp.checks.blocks.MOST_NODES", 30)
    with pytest.raises(SizeError, match="36 nodes cannot be held out at once"):
        posterior.cross_validate(6.0)


def test_a_standard_error_is_that_of_a_ratio():
    rng = np.random.default_rng(0)
    events = rng.poisson(20.0, (4000, 40)).astype(float)
    scores = 0.3 * events + rng.normal(0, 3.0, events.shape)
    pairs = np.array([per_event(s, e) for s, e in zip(scores, events, strict=True)])
    assert pairs[:, 1].mean() == pytest.approx(pairs[:, 0].std(), rel=0.05)


@pytest.mark.parametrize(
    ("times", "words"), [(1.02, "about as"), (0.97, "about as"), (1.6, "1.6 times as"), (0.5, "only 0.5 times as")]
)
def test_the_score_in_words(checked, times, words):
    blocks = checked.blocks.assign(score=np.log(times) * checked.blocks["observed"])
    told = replace(checked, blocks=blocks).verdict()
    assert told.endswith(f"where events happened they were {words} likely as with one rate everywhere.")


def test_it_can_be_drawn(checked):
    import matplotlib

    matplotlib.use("Agg")
    left, middle, right = checked.plot()
    assert left.get_xlabel() == "expected events" and right.get_ylabel() == "blocks"
    assert middle.images


@pytest.mark.parametrize("buffer", [0.0, 1.0])
def test_blocks_of_our_own_choice_are_made_small_enough_to_be_held_out(buffer, monkeypatch):
    posterior = LGCP(FullRank(square(24.0)), KERNEL).fit(poisson_problem(square(24.0), total=400).counts)
    usual = posterior.cross_validate(rounds=0)
    assert usual.wanted_side is None and "instead of" not in usual.verdict()
    monkeypatch.setattr("geobgp.checks.blocks.MOST_NODES", 12)
    checked = posterior.cross_validate(buffer=buffer, rounds=0)
    assert checked.side < checked.wanted_side == usual.side
    held = np.bincount(checked.block_of)
    assert held.max() <= 12 and held.sum() == posterior.domain.n_nodes and checked.n_events == usual.n_events
    assert f"{checked.side:g} instead of {usual.side:g} units wide, so that no more than 12 cells" in checked.verdict()
    assert checked.facts()["wanted_block_side"] == usual.side
    compared = compare({"one": posterior, "the same": posterior})
    assert compared["score"].iloc[0] == compared["score"].iloc[1]
