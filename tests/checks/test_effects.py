"""Effects on the scale people report, curves, evidence, and maps under other covariates."""

import matplotlib
import numpy as np
import pytest
from shapely.geometry import box

from geobgp import LGCP, Categorical, DataError, Domain, Group, HarmonicBasis, Interaction, Matern, Smooth
from geobgp.errors import InputWarning

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def domain():
    return Domain.from_polygons(box(0, 0, 10, 10), cell_size=0.4, crs="local")


@pytest.fixture(scope="module")
def fitted(domain):
    rng = np.random.default_rng(4)
    n = domain.n_nodes
    given = {
        "hump": rng.uniform(0, 1, n), "line": rng.normal(0, 2, n), "none": rng.uniform(0, 1, n),
        "use": rng.choice(["wood", "meadow"], n), "clinic": rng.integers(0, 10, n),
    }  # fmt: skip
    log_rate = 3.0 + 1.2 * np.exp(-(((given["hump"] - 0.5) / 0.15) ** 2)) + 0.2 * given["line"]
    log_rate = log_rate + np.log(2.0) * (given["use"] == "wood") + rng.normal(0, 0.5, 10)[given["clinic"]]
    counts = rng.poisson(np.exp(log_rate) * domain.node_areas)
    covariates = {
        "hump": Smooth(given["hump"]), "line": given["line"], "none": Smooth(given["none"]),
        "use": Categorical(given["use"], reference="meadow"), "clinic": Group(given["clinic"]),
        "both": Interaction("line", "none"),
    }  # fmt: skip
    basis = HarmonicBasis.compute(domain, 32, cache=False)
    return given, LGCP(basis, Matern(1.5, lengthscale=6.0, sd=0.2), covariates=covariates).fit(counts)


def test_the_table_holds_the_truth_on_the_scale_people_report(fitted):
    given, posterior = fitted
    table = posterior.effects(evidence=True).set_index("covariate")
    line = table.loc["line"]
    low, high = np.quantile(given["line"], [0.25, 0.75])
    assert (line["from"], line["to"]) == (pytest.approx(low), pytest.approx(high))
    assert line["rate_ratio_q05"] * 0.97 < np.exp(0.2 * (high - low)) < line["rate_ratio_q95"] * 1.03
    per_unit = posterior.coefficients.set_index("name").loc["line", "mean"]
    assert line["rate_ratio"] == pytest.approx(np.exp(per_unit * (high - low)), rel=1e-3)
    wood = table.loc["use"]
    assert (wood["from"], wood["to"]) == ("meadow", "wood")
    assert wood["rate_ratio_q05"] < 2.1 and wood["rate_ratio_q95"] > 1.9
    assert 0.25 < table.loc["clinic", "tau"] < 1.0
    assert table.loc["clinic", "tau_q05"] < table.loc["clinic", "tau"] < table.loc["clinic", "tau_q95"]
    # Evidence: for the hump and its curve, the line, the use and the clinics; not for what does nothing.
    assert table.loc["hump", "evidence_curve"] > 20
    assert (table.loc[["hump", "line", "use", "clinic"], "evidence"] > 5).all()
    assert table.loc["none", "evidence_curve"] < 1 and table.loc["none", "evidence"] < 0
    assert table.loc["both", "rate_ratio"] != table.loc["both", "rate_ratio"] and table.loc["both", "tau"] < 0.3
    names = set(posterior.coefficients["name"])
    assert "hump" in names and not any("curve" in name for name in names)
    assert "sd of effects of hump" in str(posterior.summary())


def test_a_curve_holds_the_truth_and_is_drawn(fitted):
    given, posterior = fitted
    curve = posterior.effect_curve("hump")
    truth = 1.2 * np.exp(-(((curve["value"] - 0.5) / 0.15) ** 2))
    truth -= np.mean(1.2 * np.exp(-(((given["hump"] - 0.5) / 0.15) ** 2)))
    inside = (np.log(curve["q05"]) <= truth) & (truth <= np.log(curve["q95"]))
    assert inside.mean() > 0.75
    ax = posterior.effect_plot("hump")
    assert ax.get_xlabel() == "hump" and "rate ratio" in ax.get_ylabel()
    matplotlib.pyplot.close("all")
    for name, words in (("use", "levels"), ("both", "an interaction"), ("rain", "no covariate 'rain'")):
        with pytest.raises(DataError, match=words):
            posterior.effect_curve(name)


def test_a_map_under_other_covariates(fitted, domain):
    given, posterior = fitted
    median = posterior.node_intensity()["q50"].to_numpy()
    steeper = posterior.what_if({"line": 0.5 * given["line"]})
    same = posterior.what_if({"line": given["line"]})
    np.testing.assert_allclose(same.node_intensity()["q50"], median, rtol=1e-9)
    assert not np.allclose(steeper.node_intensity()["q50"], median)
    wood = posterior.what_if({"use": "wood"}).node_intensity()["q50"].to_numpy()
    ratio = posterior.effects().set_index("covariate").loc["use", "rate_ratio"]
    meadow = given["use"] == "meadow"
    np.testing.assert_allclose(wood[~meadow], median[~meadow], rtol=1e-9)
    np.testing.assert_allclose(wood[meadow] / median[meadow], ratio, rtol=1e-6)
    with pytest.warns(InputWarning, match=r"hump reaches 1\.\d* beyond .* on 100 % of the nodes"):
        posterior.what_if({"hump": 2.0})
    with pytest.raises(DataError, match="no level 'sand'"):
        posterior.what_if({"use": "sand"})
    with pytest.raises(DataError, match="'both' is an interaction"):
        posterior.what_if({"both": 1.0})
    with pytest.raises(DataError, match="of one fit"):
        posterior.what_if({"use": "wood"}).versus(posterior)


def test_confounding_with_the_field_is_told(domain):
    rng = np.random.default_rng(0)
    east = domain.node_points[:, 0]
    counts = rng.poisson(np.exp(1.0 + np.sin(0.7 * east)) * domain.node_areas)
    slope = np.sin(0.7 * east) + rng.normal(0, 1.0, domain.n_nodes)
    basis = HarmonicBasis.compute(domain, 64, cache=False)
    posterior = LGCP(basis, Matern(1.5), covariates={"proxy": slope}).fit(counts)
    table = posterior.effects()
    assert abs(table["differs_by_se"][0]) > 2
    assert table.attrs["sentences"][0].startswith("The effect of proxy is ")
    plain = LGCP(basis, Matern(1.5)).fit(counts)
    with pytest.raises(DataError, match="without covariates"):
        plain.effects()


def test_over_periods_too(domain):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (3, domain.n_nodes))
    counts = rng.poisson(3.0 * np.exp(np.sin(5 * x)) * domain.node_areas).astype(float)
    basis = HarmonicBasis.compute(domain, 16, cache=False)
    model = LGCP(basis, Matern(1.5, lengthscale=5.0, sd=0.2), covariates={"x": Smooth(x)}, dynamics="separable")
    posterior = model.fit(counts)
    curve = posterior.effect_curve("x")
    assert np.corrcoef(np.log(curve["q50"]), np.sin(5 * curve["value"]))[0, 1] > 0.97
    assert posterior.effects()["tau"][0] > 0.1
    low = posterior.what_if({"x": 0.3})
    same = posterior.what_if({"x": x})
    np.testing.assert_allclose(
        same.fit.states[0].node_moments()[0], posterior.fit.states[0].node_moments()[0], atol=1e-9
    )
    assert low.fit.states[0].node_moments()[0].shape == (3, domain.n_nodes)
