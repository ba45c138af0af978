"""Sites held out of fits of values, classes and surveys: against fits without them, and calibrated."""

from __future__ import annotations

import numpy as np
import pytest
from models import square
from scipy import stats
from scipy.special import expit

from geobgp.checks.crossval import cross_validate
from geobgp.checks.samples import SiteSample
from geobgp.data.effects import Effects
from geobgp.errors import DataError
from geobgp.inference.engine import engine_for
from geobgp.inference.families import BetaBinomial, Binomial
from geobgp.inference.fit import fit
from geobgp.inference.hyper import Hyper
from geobgp.model import BoundaryGP
from geobgp.posterior import Posterior
from geobgp.prior.full_rank import FullRank
from geobgp.prior.harmonic import HarmonicBasis
from geobgp.prior.kernels import Matern

SIDE = 10.0


def basis(kind):
    domain = square(SIDE)
    return FullRank(domain) if kind == "full" else HarmonicBasis.compute(domain, 60, cache=False)


def sites(kind, n=60, seed=0, family="gaussian"):
    """Return a model of values at random sites, the sites and what was observed there."""
    rng = np.random.default_rng(seed)
    coords = rng.uniform(0.2, SIDE - 0.2, (n, 2))
    f = 1.2 * np.sin(coords[:, 0] / 2.0) + 0.5 * np.cos(coords[:, 1] / 1.5)
    values = {
        "gaussian": lambda: f + 0.3 * rng.normal(size=n),
        "bernoulli": lambda: (rng.random(n) < expit(2.0 * f)).astype(float),
        "poisson": lambda: rng.poisson(np.exp(f + 1.0)).astype(float),
    }[family]()
    kernel = Matern(1.0 if kind == "full" else 1.5, lengthscale=3.0, sd=1.0)
    noise = 0.3 if family == "gaussian" else None
    return BoundaryGP(basis(kind), kernel, family, noise=noise, link="logit", mean="zero"), coords, values


def held_out(model, coords, values, blocks, **more):
    posterior = model.fit(coords, values)
    return cross_validate(posterior, blocks, sample=SiteSample(posterior, coords, values), **more)


@pytest.mark.parametrize("kind", ["features", "full"])
def test_values_at_held_out_sites_are_those_of_a_fit_without_them(kind):
    """Gaussian sites are exact: so is what is left when they are taken away."""
    model, coords, values = sites(kind)
    checked = held_out(model, coords, values, 5.0)
    assert len(checked.blocks) == 4 and checked.blocks["sites"].sum() == 60
    of = model.basis.domain.node_at(coords)
    for block in range(4):
        out = checked.block_of[of] == block
        state = model.fit(coords[~out], values[~out]).fit.states[0]
        mean, covariance = state.joint_at(coords[out])
        covariance = covariance + 0.3**2 * np.eye(out.sum())
        exact = stats.multivariate_normal(mean, covariance).logpdf(values[out])
        assert checked.blocks["log_density"].iloc[block] == pytest.approx(exact, abs=1e-5)
        rows = checked.sites[checked.sites["block"] == block]
        np.testing.assert_array_equal(np.sort(rows.index), np.flatnonzero(out))
        each = stats.norm(mean, np.sqrt(covariance.diagonal())).logpdf(values[out])
        np.testing.assert_allclose(rows["log_density"].loc[np.flatnonzero(out)], each, atol=0.3)
        np.testing.assert_allclose(rows["expected"].loc[np.flatnonzero(out)], mean, atol=0.2)


@pytest.mark.parametrize("kind", ["features", "full"])
@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
def test_classes_and_counts_at_held_out_sites_are_near_a_fit_without_them(kind, family):
    model, coords, values = sites(kind, family=family)
    checked = held_out(model, coords, values, 5.0)
    of = model.basis.domain.node_at(coords)
    for block in (0, 3):
        out = checked.block_of[of] == block
        again = model.fit(coords[~out], values[~out])
        mean, covariance = again.fit.states[0].joint_at(coords[out])
        eta = np.random.default_rng(0).multivariate_normal(mean, covariance, 20_000)
        logs = again.likelihood.log_density(values[out], eta).sum(axis=1)
        exact = float(np.log(np.mean(np.exp(logs - logs.max()))) + logs.max())
        assert checked.blocks["log_density"].iloc[block] == pytest.approx(exact, abs=0.03 * out.sum())


@pytest.mark.parametrize("kind", ["features", "full"])
def test_sites_one_by_one(kind):
    """Each cell's sites are a block; repeated measurements of a place are held out together."""
    model, coords, values = sites(kind, n=40)
    coords[1], coords[2] = coords[0], coords[0]
    checked = held_out(model, coords, values, "sites")
    nodes = model.basis.domain.node_at(coords)
    assert len(checked.blocks) == len(np.unique(nodes)) and len(checked.sites) == 40
    assert checked.sites["block"].loc[[0, 1, 2]].nunique() == 1
    out = nodes == nodes[0]
    state = model.fit(coords[~out], values[~out]).fit.states[0]
    mean, covariance = state.joint_at(coords[out])
    covariance = covariance + 0.3**2 * np.eye(out.sum())
    exact = stats.multivariate_normal(mean, covariance).logpdf(values[out])
    row = checked.blocks.loc[nodes[0]]
    assert row["log_density"] == pytest.approx(exact, abs=1e-5)
    assert row["observed"] == pytest.approx(values[out].mean()) and row["sites"] == out.sum()


def test_intervals_of_values_hold_and_a_field_predicts_better_than_one_level():
    pit = []
    for seed in range(6):
        checked = held_out(*sites("features", n=80, seed=seed), "sites", rng=seed)
        assert checked.score > 2 * checked.se and checked.events == "sites"
        assert "predicted better than by one level everywhere" in checked.verdict()
        assert checked.n_events == 80 and "nats per site" in repr(checked)
        pit.append(checked.sites["pit"])
        # CRPS in the values' own unit: between nothing and the spread of the values.
        assert 0.0 < checked.sites["crps"].mean() < checked.sites["observed"].std()
        assert (checked.sites["interval_score"] >= checked.sites["crps"]).all()
    inside = np.abs(np.concatenate(pit) - 0.5) <= 0.45
    assert 0.84 <= inside.mean() <= 0.95


def test_a_field_that_is_too_stiff_is_found_out():
    model, coords, values = sites("features", n=80)
    stiff = BoundaryGP(model.basis, Matern(1.5, lengthscale=3.0, sd=0.05), noise=0.1, mean="zero")
    checked = held_out(stiff, coords, values, "sites")
    assert checked.failures() and not checked.fine and checked.score < 0


def surveyed(family, coords, positive, tested):
    """Return a fit of numbers of positives among those tested."""
    prior, kernel = basis("features"), Matern(1.5, lengthscale=3.0, sd=1.0)
    columns = np.ones((prior.domain.n_nodes, 1))
    engine = engine_for(prior, kernel, columns, np.array([3.0]), 0.0, coords, "even")
    hyper = Hyper.for_domain(kernel, SIDE, 1.0)
    return Posterior(
        fit=fit(engine, family.of(positive, tested), hyper),
        basis=prior,
        kernel=kernel,
        likelihood=family,
        exposure=np.ones(prior.domain.n_nodes),
        exposure_kind="observation",
        design=Effects(),
        points={"used": len(positive)},
        scaling="even",
    )


def test_surveys_whose_sites_vary_more_than_chance():
    """Shares of sites are beta-distributed: a beta-binomial is calibrated, and a binomial is too sure."""
    rng = np.random.default_rng(5)
    coverage, scores = {"beta": [], "plain": []}, {"beta": [], "plain": []}
    for seed in range(3):
        coords = rng.uniform(0.2, SIDE - 0.2, (90, 2))
        p = expit(1.2 * np.sin(coords[:, 0] / 2.0) - 0.5)
        tested = rng.integers(20, 80, 90).astype(float)
        positive = rng.binomial(tested.astype(int), rng.beta(6.0 * p, 6.0 * (1.0 - p))).astype(float)
        nothing = np.zeros(0)
        families = {"beta": BetaBinomial(nothing, nothing, k=6.0), "plain": Binomial(nothing, nothing)}
        for name, family in families.items():
            posterior = surveyed(family, coords, positive, tested)
            sample = SiteSample(posterior, coords, positive, tested)
            checked = cross_validate(posterior, 2.0, sample=sample, rng=seed)
            assert checked.blocks["observed"].sum() == positive.sum()
            coverage[name].append(np.mean(np.abs(checked.sites["pit"] - 0.5) <= 0.45))
            scores[name].append(checked.blocks["log_density"].sum() / 90)
    assert 0.83 <= np.mean(coverage["beta"]) <= 0.97 and np.mean(coverage["plain"]) < 0.75
    assert np.mean(scores["beta"]) > np.mean(scores["plain"]) + 0.3


def test_sites_at_the_same_nodes_share_their_covariance():
    """Persons of one node, twice: rows of the joint covariance repeat, in features as at full resolution."""
    for kind in ("features", "full"):
        model, coords, values = sites(kind)
        state = model.fit(coords, values).fit.states[0]
        nodes = np.array([5, 17, 5])
        mean, covariance = state.joint_at(nodes)
        once = state.node_covariance(np.array([5, 17]))
        np.testing.assert_allclose(covariance, once[np.ix_([0, 1, 0], [0, 1, 0])], rtol=1e-9)
        assert mean[0] == mean[2]


def test_one_site_cannot_be_predicted_from_others():
    model, coords, values = sites("features")
    posterior = model.fit(coords, values)
    with pytest.raises(DataError, match="at least two are needed; found 1"):
        cross_validate(posterior, 5.0, sample=SiteSample(posterior, coords[:1], values[:1]))
    with pytest.raises(DataError, match="Refits without each block are for points only"):
        held_out(model, coords, values, 5.0, refit=True)
