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


def test_a_true_model_s_parts_are_calibrated(domain):
    mean = np.exp(0.05 * domain.node_points[:, 0])
    pit = []
    for seed in range(12):
        found = check(known(domain, mean), counts_of(domain, mean, seed), rng=seed)
        assert found.empty_observed == pytest.approx(found.empty_expected, abs=0.03)
        pit.append(found.parts["pit"].iloc[:-1])
    assert stats.kstest(np.concatenate(pit), "uniform").pvalue > 0.01


def test_clusters_that_a_flat_map_cannot_follow_leave_nodes_empty(domain):
    rate = np.where(np.random.default_rng(1).random(domain.n_nodes) < 0.02, 50.0, 0.1)
    found = check(known(domain, np.full(domain.n_nodes, rate.mean())), counts_of(domain, rate))
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


def test_the_same_on_every_run_and_with_no_events(domain):
    mean = np.full(domain.n_nodes, 1.0)
    values = counts_of(domain, mean)
    first, second = (check(known(domain, mean, 0.3), values) for _ in range(2))
    pd.testing.assert_frame_equal(first.parts, second.parts)
    empty = check(known(domain, np.full(domain.n_nodes, 1e-9)), np.zeros(domain.n_nodes))
    assert empty.parts["pit"].between(0, 1).all() and empty.empty_observed == 1.0
