"""Effects on the scale people report, curves, evidence, and maps under other covariates."""

from dataclasses import replace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from shapely.geometry import box

from geobgp import LGCP, Categorical, DataError, Domain, Group, HarmonicBasis, Interaction, Matern, Posterior, Smooth
from geobgp.checks.effects import _coefficients, effect_levels
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
    text = str(posterior.summary())
    assert "sd of effects of hump" in text and "a curve, see effects(); its straight part" in text
    assert "10 groups, from " in text and "clinic 3" not in text  # one line for all of them
    lines = text.splitlines()
    line, wood = (next(one for one in lines if one.startswith(f"  {name} ")) for name in ("line", "use wood"))
    assert line.endswith("per unit") and not wood.endswith("per unit")
    assert {c.get("group_of") for c in posterior.summary().to_dict()["coefficients"]} == {None, "clinic"}


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


def test_maps_of_one_fit_share_all_that_is_uncertain(fitted, domain):
    given, posterior = fitted
    changed = posterior.what_if({"use": "wood", "line": 0.5 * given["line"]})
    versus = changed.versus(posterior, names=("all wood", "as it is"))
    (state,), (other,) = posterior.fit.states, changed.fit.states
    rng = np.random.default_rng(0)
    draws = [one.sample_nodes(4000, np.random.default_rng(1)) for one in (other, state)]
    ratio = np.exp(draws[0] - draws[1])
    found = versus.node_ratio((0.05, 0.5, 0.95))
    for q in (0.05, 0.5, 0.95):
        np.testing.assert_allclose(found[f"q{int(100 * q):02d}"], np.quantile(ratio, q, axis=0), rtol=0.03)
    # Far narrower than that of independent maps, and an increase where the effects say so.
    independent = posterior._nodes.minus(changed._nodes)
    assert np.log(found["q95"] / found["q05"]).mean() < 0.5 * (3.29 * np.sqrt(independent.moments()[1])).mean()
    gap = np.exp(draws[0]) - np.exp(draws[1])
    some = rng.integers(0, domain.n_nodes, 50)
    for q in (0.05, 0.5, 0.95):
        at = versus.node_difference((q,))[f"q{int(100 * q):02d}"]
        below = (gap[:, some] < at[some]).mean(axis=0)
        assert np.abs(below - q).max() < 0.025
    mean, sd = (versus.node_difference(())[name] for name in ("mean", "sd"))
    np.testing.assert_allclose(mean[some], gap.mean(axis=0)[some], rtol=0.05)
    np.testing.assert_allclose(sd[some], gap.std(axis=0)[some], rtol=0.1)
    totals = versus.totals().iloc[0]
    weights = domain.node_areas / domain.node_areas.sum()
    sums = [np.exp(one) @ weights for one in draws]
    assert totals["ratio"] == pytest.approx(np.median(sums[0] / sums[1]), rel=0.01)
    assert totals["ratio_q95"] / totals["ratio_q05"] < 1.6
    # Where nothing changes the ratio is one and the difference zero, certainly.
    same = posterior.what_if({"use": given["use"]}).versus(posterior)
    assert np.allclose(same.node_ratio()["q95"], 1.0) and np.allclose(same.node_difference()["q05"], 0.0)


def test_effects_between_other_values(fitted):
    posterior = fitted[1]
    slope = posterior.coefficients.set_index("name").loc["line", "mean"]
    per_unit = posterior.effects(per="unit").set_index("covariate").loc["line"]
    assert per_unit["effect"] == "line: per unit"
    assert per_unit["rate_ratio"] == pytest.approx(np.exp(slope), rel=1e-3)
    asked = posterior.effects(per={"line": 3, "hump": (0.1, 0.5)}).set_index("covariate")
    assert asked.loc["line", "rate_ratio"] == pytest.approx(np.exp(3 * slope), rel=1e-3)
    curve = posterior.effect_curve("hump")
    low, high = (np.interp(at, curve["value"], np.log(curve["q50"])) for at in (0.1, 0.5))
    assert asked.loc["hump", "rate_ratio"] == pytest.approx(np.exp(high - low), rel=0.02)
    assert asked.loc["none", "effect"] == "curve: between quartiles"
    for per, words in (
        ({"use": 1.0}, "levels"),
        ({"rain": 1.0}, "no covariate 'rain'"),
        ({"line": (1, 1)}, "per must"),
    ):
        with pytest.raises(DataError, match=words):
            posterior.effects(per=per)


def test_an_interaction_is_a_ratio_of_ratios(domain):
    rng = np.random.default_rng(0)
    a, b = rng.normal(5, 2, domain.n_nodes), rng.choice(["old", "young"], domain.n_nodes)
    counts = rng.poisson(np.exp(2.0 + 0.1 * a + 0.2 * (a - 5) * (b == "young")) * domain.node_areas)
    basis = HarmonicBasis.compute(domain, 16, cache=False)
    covariates = {"a": a, "b": Categorical(b, reference="old"), "both": Interaction("a", "b")}
    posterior = LGCP(basis, Matern(1.5, lengthscale=6.0, sd=0.1), covariates=covariates).fit(counts)
    row = posterior.effects(per={"a": 2.0}).set_index("covariate").loc["both"]
    assert row["rate_ratio_q05"] < np.exp(0.4) < row["rate_ratio_q95"]
    at = posterior.what_if({"a": 7.0}), posterior.what_if({"a": 5.0})
    logs = np.log(at[0].node_intensity()["q50"] / at[1].node_intensity()["q50"]).to_numpy()
    ratio = logs[b == "young"].mean() - logs[b == "old"].mean()
    assert row["rate_ratio"] == pytest.approx(np.exp(ratio), rel=1e-6)


def test_uncertain_standard_deviations_widen_bands(domain):
    """The derivative of the mean in log tau is that of fits with it held."""
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 1, domain.n_nodes)
    counts = rng.poisson(np.exp(1.0 + (x > 0.5)) * domain.node_areas)
    basis = HarmonicBasis.compute(domain, 16, cache=False)
    posterior = LGCP(basis, Matern(1.5, lengthscale=6.0, sd=0.1), covariates={"x": Smooth(x)}).fit(counts)
    (mean, wide), (own, narrow) = _coefficients(posterior)[0], posterior.fit.states[0].coefficients()
    np.testing.assert_array_equal(mean, own)
    (at,) = posterior.design.learned.values()
    tau2 = posterior._fixed_sd[at] ** 2
    # Gaussian about the sites: a prior precision that is multiplied by exp(-2 d) moves the mean like this.
    step = 1e-4
    precision = np.linalg.inv(narrow)
    moved = []
    for sign in (-1, 1):
        changed = precision.copy()
        changed[at, at] += (np.exp(-2 * sign * step) - 1) / tau2
        moved.append(np.linalg.solve(changed, precision @ own))
    slope = (moved[1] - moved[0]) / (2 * step)
    np.testing.assert_allclose(
        wide - narrow, np.outer(slope, slope) * posterior.fit.hyper_cov[-1, -1], rtol=1e-4, atol=1e-9
    )


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


def test_evidence_is_unknown_where_the_uncertainty_of_its_sd_is(fitted):
    posterior = fitted[1]
    fit = replace(posterior.fit, hyper_cov=np.zeros_like(posterior.fit.hyper_cov))
    table = replace(posterior, fit=fit).effects(evidence=True).set_index("covariate")
    assert table["evidence"].isna().tolist() == [name in ("hump", "none", "clinic", "both") for name in table.index]
    assert table.loc["clinic", "tau"] > 0 and table[["tau_q05", "tau_q95"]].isna().all().all()


def test_levels_and_groups_are_drawn_with_their_intervals(fitted):
    posterior = fitted[1]
    levels, groups = effect_levels(posterior, "use"), effect_levels(posterior, "clinic")
    row = posterior.effects().set_index("covariate").loc["use"]
    wood = levels.set_index("level").loc["wood"]
    assert wood["q50"] == pytest.approx(row["rate_ratio"]) and wood["q95"] == pytest.approx(row["rate_ratio_q95"])
    assert levels.set_index("level").loc["meadow", "q50"] == 1 and levels["q05"].isna().sum() == 1
    ends = posterior.effects().set_index("covariate").loc["clinic"]
    assert [groups["level"].iloc[0], groups["level"].iloc[-1]] == [ends["from"], ends["to"]]
    assert groups["q50"].iloc[-1] / groups["q50"].iloc[0] == pytest.approx(ends["rate_ratio"])
    ax = posterior.effect_plot("clinic")
    assert [label.get_text() for label in ax.get_yticklabels()] == groups["level"].tolist()
    assert ax.get_xlabel() == "rate ratio against the average of the groups"
    assert posterior.effect_plot("use").get_xlabel() == "rate ratio against meadow"
    ax.figure.canvas.draw()
    for tick, label in zip(ax.get_xticks(), ax.get_xticklabels(), strict=True):  # marks say where they are
        assert not label.get_text() or float(label.get_text()) == pytest.approx(tick, rel=0.01)
    with pytest.raises(DataError, match="interaction"):
        posterior.effect_plot("both")
    with pytest.raises(DataError, match="of groups"):
        posterior.effect_curve("clinic")


def test_a_saved_fit_knows_its_effects(fitted, tmp_path):
    posterior = fitted[1]
    read = Posterior.load(posterior.save(tmp_path / "fit.geobgp"))
    before, after = posterior.effects(evidence=True), read.effects(evidence=True)
    assert "without_field" in after
    pd.testing.assert_frame_equal(after, before, rtol=1e-6)
    again = Posterior.load(read.save(tmp_path / "again.geobgp"))  # nor is it lost on the way
    pd.testing.assert_frame_equal(again.effects(), posterior.effects(), rtol=1e-6)
    pd.testing.assert_frame_equal(read.effect_curve("hump"), posterior.effect_curve("hump"), rtol=1e-6)
    wood = [one.what_if({"use": "wood"}).node_intensity()["q50"] for one in (posterior, read)]
    np.testing.assert_allclose(wood[1], wood[0], rtol=1e-6)


def test_the_report_has_all_of_them(fitted, tmp_path):
    text = fitted[1].to_report(tmp_path / "report.html").read_text("utf-8")
    section = text[text.index("Effects of covariates</h2>") :]
    for words in ("curve: between quartiles", "groups: lowest to highest", "meadow to wood", "Evidence, nats"):
        assert words in section
    assert "The effect of each covariate over its range" in section


def test_files_that_hide_small_numbers_have_effects_and_no_columns(fitted, tmp_path):
    protected = fitted[1].protected(5)
    read = Posterior.load(protected.save(tmp_path / "fit.geobgp"))
    before, after = (one.effects().set_index("covariate") for one in (protected, read))
    assert after.loc["use", "rate_ratio"] == pytest.approx(before.loc["use", "rate_ratio"])
    assert after.loc["line", "rate_ratio"] == pytest.approx(before.loc["line", "rate_ratio"], rel=0.1)
    assert read.effect_curve("hump").notna().all().all()
    with pytest.raises(DataError, match="does not know its covariates at the nodes"):
        read.what_if({"line": 1.0})
