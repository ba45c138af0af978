import numpy as np
import pandas as pd
import pytest
import shapely
from posteriors import prescribed
from scipy import stats

from geobgp.checks.residuals import _ranked_parts, check
from geobgp.land.domain import Domain
from geobgp.posterior import Posterior


def known(domain: Domain, mean: np.ndarray, spread: float = 1e-9) -> Posterior:
    """Return a posterior that knows the intensity, up to a log-normal factor at each node."""
    return prescribed(domain, np.log(mean) - spread**2 / 2, spread)


@pytest.fixture(scope="module")
def domain():
    isles = [shapely.box(3.0 * k, 40, 3.0 * k + 2, 42) for k in range(14)]
    return Domain.from_polygons([shapely.box(0, 0, 40, 36), *isles], cell_size=1.0, crs="local")


def counts_of(domain, mean, seed=0):
    return np.random.default_rng(seed).poisson(mean * domain.node_areas).astype(float)


def test_a_true_model_passes_and_its_pit_values_are_level(domain):
    mean = np.exp(0.05 * domain.node_points[:, 0])
    found = check(known(domain, mean), counts_of(domain, mean))
    assert found.verdict()[0]
    assert stats.kstest(found.blocks["pit"], "uniform").pvalue > 0.01
    assert found.covered == pytest.approx(0.9, abs=0.08)
    assert found.dispersion == pytest.approx(1.0, abs=0.35)
    assert found.empty_observed == pytest.approx(found.empty_expected, abs=0.03)


def test_clusters_that_a_flat_map_cannot_follow_are_noticed(domain):
    rate = np.where(np.random.default_rng(1).random(domain.n_nodes) < 0.02, 50.0, 0.1)
    found = check(known(domain, np.full(domain.n_nodes, rate.mean())), counts_of(domain, rate))
    fine, words = found.verdict()
    assert not fine and words.startswith("Only") and "full resolution" in words
    assert found.dispersion > 3
    assert found.empty_observed > found.empty_expected + 0.3


def test_parts_add_up_and_small_ones_are_together(domain):
    mean = np.full(domain.n_nodes, 2.0)
    values = counts_of(domain, mean)
    found = check(known(domain, mean, 0.2), values)
    assert len(found.parts) == 12  # ten parts, the five smaller ones, and all
    assert found.parts["land"].iloc[:-1].sum() == pytest.approx(found.parts["land"].iloc[-1])
    assert found.parts["observed"].iloc[:-1].sum() == values.sum() == found.parts["observed"].iloc[-1]
    assert found.parts["land"].iloc[0] == pytest.approx(40 * 36)
    assert (found.parts["predicted_q05"] <= found.parts["expected"]).all()
    label, n = _ranked_parts(domain)
    assert n == 11 and label.max() == 10 and (label[domain.node_points[:, 1] < 38] == 0).all()


def test_blocks_are_squares_that_hold_all_nodes(domain):
    values = counts_of(domain, np.full(domain.n_nodes, 1.0))
    found = check(known(domain, np.full(domain.n_nodes, 1.0)), values)
    assert len(found.block_of) == domain.n_nodes
    assert found.blocks["observed"].sum() == values.sum()
    places = np.column_stack([domain.node_rows, domain.node_cols]) // round(found.side)
    np.testing.assert_array_equal(found.blocks[["row", "col"]].to_numpy()[found.block_of], places)


def test_the_same_on_every_run_and_with_no_events(domain):
    mean = np.full(domain.n_nodes, 1.0)
    values = counts_of(domain, mean)
    first, second = (check(known(domain, mean, 0.3), values) for _ in range(2))
    pd.testing.assert_frame_equal(first.blocks, second.blocks)
    empty = check(known(domain, np.full(domain.n_nodes, 1e-9)), np.zeros(domain.n_nodes))
    assert empty.verdict()[0] and np.isfinite(empty.dispersion)
