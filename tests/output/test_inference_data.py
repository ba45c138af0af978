"""Draws for ArviZ: what they agree with, that ArviZ can use them, in both of its shapes, and what is refused."""

import builtins
import dataclasses
import sys
import types
import warnings

import numpy as np
import pytest
import xarray as xr
from models import square
from posteriors import fitted
from scipy.stats import poisson

from geobgp import LGCP, BoundaryGP, DataError, FullRank, HarmonicBasis, Matern
from geobgp.errors import SizeError
from geobgp.output import arviz as inference_data
from geobgp.output.arviz import MissingArviZError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    import arviz as az


@pytest.fixture(scope="module", params=["features", "full"])
def posterior(request):
    domain = square(12.0)
    full = request.param == "full"
    basis = FullRank(domain) if full else HarmonicBasis.compute(domain, 60, cache=False)
    height = 100.0 + 20.0 * np.sin(domain.node_points[:, 1])
    counts = np.random.default_rng(0).poisson(np.exp(0.02 * (height - 100) + 0.15 * domain.node_points[:, 0]))
    kernel = Matern(1.0 if full else 1.5, lengthscale=6.0, sd=0.5)
    return LGCP(basis, kernel, covariates={"height": height}).fit(counts.astype(float))


def test_draws_have_the_moments_of_the_posterior(posterior):
    data = posterior.to_arviz(2000, chains=2)
    found = data.posterior["coefficient"]
    assert found.dims == ("chain", "draw", "effect") and found["effect"].values.tolist() == ["intercept", "height"]
    known = posterior.coefficients.set_index("name")
    np.testing.assert_allclose(found.mean(("chain", "draw")), known["mean"], atol=5 * known["sd"].max() / 60)
    np.testing.assert_allclose(found.std(("chain", "draw")), known["sd"], rtol=0.08)
    table = posterior.node_intensity()
    drawn = data.posterior["intensity"]
    assert drawn.attrs["units"] == "events per unit area" and drawn.dims == ("chain", "draw", "node")
    np.testing.assert_allclose(drawn.mean(("chain", "draw")), table["mean"], rtol=0.1)
    np.testing.assert_allclose(drawn.std(("chain", "draw")), table["sd"], rtol=0.25)


def test_effects_and_field_are_drawn_together():
    """With a field of no variance the intensity is exp(intercept + slope · covariate), draw by draw."""
    domain = square()
    height = domain.node_points[:, 0] ** 2
    basis = HarmonicBasis.compute(domain, 40, cache=False)
    model = LGCP(basis, Matern(1.5, lengthscale=8.0, sd=1e-5), covariates={"height": height})
    data = model.fit(np.full(domain.n_nodes, 3.0)).to_arviz(20).posterior
    intercept, slope = (data["coefficient"].sel(effect=name).values[..., None] for name in ("intercept", "height"))
    np.testing.assert_allclose(np.log(data["intensity"]), intercept + slope * height, atol=1e-3)


def test_log_likelihood_and_observed(posterior):
    data = posterior.to_arviz(10, chains=3)
    observed, rate = (data.observed_data["events"], data.posterior["intensity"] * data.constant_data["exposure"])
    np.testing.assert_array_equal(observed, posterior.observed)
    np.testing.assert_allclose(data.log_likelihood["events"], poisson.logpmf(observed.values, rate.values))
    np.testing.assert_allclose(data.constant_data["easting"], posterior.domain.node_points[:, 0])
    drawn = data.posterior_predictive["events"]
    assert drawn.shape == (3, 10, posterior.domain.n_nodes)
    assert float(drawn.mean()) == pytest.approx(float(rate.mean()), rel=0.05)


def test_arviz_works_with_them(posterior):
    data = posterior.to_arviz()
    table = az.summary(data, var_names=["coefficient"])
    assert table.index.tolist() == ["coefficient[intercept]", "coefficient[height]"]
    # Independent draws: chains agree, and each draw counts as one.
    assert (table["r_hat"] <= 1.02).all() and (table["ess_bulk"] > 600).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of nodes that a draw's weights do not suit
        found = az.loo(data)
    # Leaving out one node of 144 costs a little.
    inside = float(np.log(np.exp(data.log_likelihood["events"]).mean(("chain", "draw"))).sum())
    assert inside - 40 < found.elpd_loo < inside
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # ArviZ 0.23 on matplotlib 3.11
        az.plot_posterior(data, var_names=["coefficient"])


def test_hyperparameters_are_drawn_where_they_were_integrated():
    domain = square()
    counts = np.random.default_rng(1).poisson(np.exp(0.3 * domain.node_points[:, 0] - 1.0)).astype(float)
    posterior = LGCP(FullRank(domain), Matern(1.0)).fit(counts, hyper="integrate")
    data = posterior.to_arviz(500, chains=2)
    states = posterior.fit.states
    weight = np.array([s.weight for s in states])
    assert set(np.unique(data.posterior["sd"])) <= {s.sd for s in states}
    expected = np.average([s.sd for s in states], weights=weight)
    assert float(data.posterior["sd"].mean()) == pytest.approx(expected, rel=0.1)
    assert "sd" not in fitted()[0].to_arviz(5).posterior


def test_the_same_seed_gives_the_same_draws(posterior):
    one, two, other = (posterior.to_arviz(5, rng=seed).posterior["intensity"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_arviz_from_1_0_on_gets_a_tree(posterior, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", types.ModuleType("arviz"))
    tree = posterior.to_arviz(5)
    assert isinstance(tree, xr.DataTree)
    assert set(tree.children) == {
        "posterior", "constant_data", "observed_data", "log_likelihood", "posterior_predictive",
    }  # fmt: skip
    assert tree["posterior"]["intensity"].dims == ("chain", "draw", "node")


def test_without_arviz(posterior, monkeypatch):
    kept = builtins.__import__

    def fail(name, *args, **kwargs):
        if name == "arviz":
            raise ImportError("No module named 'arviz'")
        return kept(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", fail)
    with pytest.raises(MissingArviZError, match=r"needs ArviZ.*pip install 'geobgp\[arviz\]'"):
        posterior.to_arviz()


def test_mistakes(posterior, monkeypatch):
    with pytest.raises(DataError, match="draws must be a whole number of at least 1; found 0"):
        posterior.to_arviz(0)
    with pytest.raises(DataError, match=r"chains must be a whole number of at least 1; found 1.5"):
        posterior.to_arviz(chains=1.5)
    monkeypatch.setattr(inference_data, "free_memory", lambda: 1_000_000)
    with pytest.raises(SizeError, match=r"1,000 draws at 144 nodes take 5.8 MB; 1.0 MB are free"):
        posterior.to_arviz()


def test_values_have_draws_too():
    domain = square(5.0)
    values = BoundaryGP(HarmonicBasis.compute(domain, 14, cache=False), Matern(1.5, lengthscale=5.0, sd=1.0))
    posterior = values.fit(domain.node_points, domain.node_points[:, 0])
    group = posterior.to_arviz(500)["posterior"]["value"]
    mean = posterior.node_intensity()
    np.testing.assert_allclose(group.mean(("chain", "draw")), mean["mean"], atol=5 * mean["sd"].max() / 2000**0.5)


def test_without_counts_there_is_no_likelihood():
    basis = HarmonicBasis.compute(square(), 40, cache=False)
    posterior = LGCP(basis, Matern(1.5, lengthscale=6.0, sd=0.5)).fit(np.ones(100))
    data = dataclasses.replace(posterior, observed=None).to_arviz(5)
    assert data.groups() == ["posterior", "constant_data"]
