"""Cases and controls: against a dense reference and simulated truth; laws; what a user meets."""

from __future__ import annotations

import json

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
from models import all_modes, prior_covariance, square
from scipy.special import expit

from geobgp import FullRank, Matern, Posterior, map_risk
from geobgp.auto.tasks import fit_risk
from geobgp.cli.app import main
from geobgp.data.persons import Groups, Persons
from geobgp.errors import DataError
from geobgp.output.palette import RATIO_BREAKS, classes_in

KERNEL = Matern(1.0, lengthscale=2.5, sd=0.7)


def even_covariance(domain, kernel=KERNEL):
    """Return the even prior covariance at the nodes, written out."""
    natural = prior_covariance(all_modes(domain), kernel, None)
    root = np.sqrt(np.diag(natural))
    return kernel.sd**2 * natural / root[:, None] / root


def persons(node, **columns):
    return Persons(None, np.asarray(node), pd.DataFrame(columns, index=range(len(node))))


def simulated(domain, seed, n_cases=500, n_controls=700, kernel=KERNEL, flat=False):
    """Return the true relative risk, and nodes of cases and controls, people being uneven over the land."""
    rng = np.random.default_rng(seed)
    chol = np.linalg.cholesky(even_covariance(domain, kernel) + 1e-9 * np.eye(domain.n_nodes))
    people = domain.node_areas * np.exp(0.8 * (chol @ rng.standard_normal(domain.n_nodes)))
    people /= people.sum()
    risk = np.ones(domain.n_nodes) if flat else np.exp(chol @ rng.standard_normal(domain.n_nodes))
    risk /= people @ risk
    controls = rng.choice(domain.n_nodes, n_controls, p=people)
    return risk, rng.choice(domain.n_nodes, n_cases, p=people * risk), controls


def dense_reference(y, n, offset, covariance):
    """Return the optimum's means and variances: damped rounds of dense algebra, with many nodes of quadrature."""
    points, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    inverse = np.linalg.inv(covariance)
    w, b = np.zeros(len(y)), np.zeros(len(y))
    for _ in range(200):
        v = np.linalg.inv(inverse + np.diag(w))
        m = v @ b
        p = expit(offset + m[:, None] + np.sqrt(np.diag(v))[:, None] * points)
        new_w = n * ((p * (1 - p)) @ weights)
        new_b = y - n * (p @ weights) + new_w * m
        w, b = 0.5 * (w + new_w), 0.5 * (b + new_b)
    return m, np.diag(v)


def test_agrees_with_a_dense_reference():
    domain = square()
    _, cases, controls = simulated(domain, 0)
    groups = Groups.of(persons(cases), persons(controls))
    posterior = fit_risk(groups, FullRank(domain), KERNEL)
    y = np.bincount(cases, minlength=100)
    n = y + np.bincount(controls, minlength=100)
    mean, variance = dense_reference(y, n, np.log(500 / 700), even_covariance(domain) + 100.0)
    ours = posterior.fit.states[0].node_moments()
    shift = np.log((n - y) @ np.exp(mean + variance / 2) / 700)
    np.testing.assert_allclose(ours[0], mean - shift, atol=2e-3)
    np.testing.assert_allclose(ours[1], variance, rtol=2e-2)


def test_intervals_hold_the_true_risk():
    domain, inside = square(), []
    basis = FullRank(domain)
    for seed in range(12):
        risk, cases, controls = simulated(domain, seed)
        found = fit_risk(Groups.of(persons(cases), persons(controls)), basis).node_intensity()
        inside.append(((found["q05"] < risk) & (risk < found["q95"])).mean())
    assert 0.86 <= np.mean(inside) <= 0.94


def test_constant_risk_is_flat():
    domain = square()
    _, cases, controls = simulated(domain, 3, 2000, 2000, flat=True)
    found = fit_risk(Groups.of(persons(cases), persons(controls)), FullRank(domain)).node_intensity()
    assert np.abs(np.log(found["q50"])).max() < 0.2
    assert ((found["q05"] < 1) & (found["q95"] > 1)).mean() > 0.95


def test_swapping_roles_inverts_the_ratio():
    domain = square()
    _, cases, controls = simulated(domain, 1)
    basis = FullRank(domain)
    one = fit_risk(Groups.of(persons(cases), persons(controls)), basis).node_intensity()
    two = fit_risk(Groups.of(persons(controls), persons(cases)), basis).node_intensity()
    assert np.log(one["q50"]).std() > 0.3
    np.testing.assert_allclose(one["q50"] * two["q50"], 1.0, atol=0.03)
    np.testing.assert_allclose(one["q05"] * two["q95"], 1.0, atol=0.03)


def people(seed=0, n=6000):
    """Return cases and controls with age and smoking, in tables with places; smokers live in the west."""
    rng = np.random.default_rng(seed)
    xy = rng.uniform(0, 10, (n, 2))
    smokes = rng.uniform(size=n) < np.where(xy[:, 0] < 5, 0.6, 0.2)
    age = rng.normal(50, 10, n)
    ill = rng.uniform(size=n) < expit(-3.0 + 1.5 * smokes + 0.05 * (age - 50))
    frame = gpd.GeoDataFrame({"age": age, "smokes": np.where(smokes, "yes", "no")}, geometry=shapely.points(xy))
    return frame[ill], frame[~ill].iloc[:1500]


LAND = shapely.box(0, 0, 10, 10)
QUICK = {"crs": "local", "cell_size": 1.0, "permeability": 0.0}


def test_confounders_are_allowed_for():
    cases, controls = people()
    bare = map_risk(cases, controls, LAND, **QUICK)
    told = map_risk(cases, controls, LAND, confounders=["age", "smokes"], **QUICK)
    effect = told.coefficients.set_index("name")["mean"]
    assert effect["age"] == pytest.approx(0.05, abs=0.015)
    assert effect["smokes yes (reference: no)"] == pytest.approx(1.5, abs=0.25)
    west = told.domain.node_points[:, 0] < 4
    contrast = [np.log(p.node_intensity()["q50"])[west].mean() - np.log(p.node_intensity()["q50"])[~west].mean()
                for p in (bare, told)]  # fmt: skip
    assert contrast[0] > 0.3 and abs(contrast[1]) < 0.15
    smoker = told.intensity_at([[5.0, 5.0]] * 2, covariates={"age": 50, "smokes": ["yes", "no"]})["q50"]
    assert smoker[0] / smoker[1] == pytest.approx(np.exp(effect["smokes yes (reference: no)"]), rel=1e-6)


def test_outputs(tmp_path):
    _, cases, controls = simulated(square(), 1)
    rng = np.random.default_rng(0)
    places = [square().node_points[node] + rng.uniform(-0.4, 0.4, (len(node), 2)) for node in (cases, controls)]
    posterior = map_risk(*places, LAND, **QUICK)
    data = posterior.intensity()
    assert data["mean"].attrs["units"] == "times the average risk"
    assert classes_in(data, "mean").breaks.tolist() == list(RATIO_BREAKS)
    share = posterior.exposure / posterior.exposure.sum()
    assert share @ posterior.node_intensity()["mean"] == pytest.approx(1.0)
    regions = [shapely.box(0, 0, 5, 10), shapely.box(5, 0, 10, 10)]
    totals = posterior.totals(regions)
    assert totals["exposure"] @ totals["relative_risk"] == pytest.approx(500)
    assert (totals["relative_risk_q05"] < totals["relative_risk_q95"]).all()
    sure = posterior.tolerance_contours(tmp_path / "sure.gpkg")
    above = posterior.exceedance(1.0).values
    assert set(sure["risk"]) == {"raised", "lowered"} and (tmp_path / "sure.gpkg").exists()
    cells = np.isfinite(above).sum()
    assert sure.set_index("risk")["area"]["raised"] == pytest.approx((above > 0.975).sum() * 100 / cells, abs=8)
    with pytest.raises(DataError, match=r"above 0\.5 and below 1"):
        posterior.tolerance_contours(probability=0.2)
    posterior.save(tmp_path / "a.geobgp")
    loaded = Posterior.load(tmp_path / "a.geobgp")
    pd.testing.assert_frame_equal(loaded.node_intensity(), posterior.node_intensity())
    probability, _ = loaded.predict_y(np.array([[5.0, 5.0]]))
    risk = posterior.intensity_at([[5.0, 5.0]])["q50"][0]
    odds = probability[0] / (1 - probability[0])
    assert odds == pytest.approx(risk * 500 / 700, rel=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"confounders": ["sex"]}, "cases has no column 'sex'"),
        ({"confounders": ["age", "smokes", "age"]}, "named twice: 'age'"),
        ({"cases": lambda c: c.assign(age=np.nan), "confounders": "age"}, "'age' is missing for"),
        ({"cases": lambda c: c.iloc[:0]}, "nothing is left to map"),
        ({"controls": lambda c: c.translate(99, 0)}, "1,500 lie off the land"),
        ({"cases": lambda c: "cases.gpkg"}, r"no file cases\.gpkg"),
        ({"cases": lambda c: np.ones(3)}, "expected a GeoDataFrame"),
        ({"permeability": 3.0}, "'auto' or a number from 0 to 1"),
    ],
)
@pytest.mark.filterwarnings("ignore::geobgp.errors.DroppedPointsWarning")
def test_what_cannot_be(change, message):
    both = dict(zip(("cases", "controls"), people(n=3000), strict=True))
    both["controls"] = people()[1]
    for name in ("cases", "controls"):
        if name in change:
            both[name] = change[name](both[name])
    options = QUICK | {k: v for k, v in change.items() if k not in both}
    with pytest.raises(ValueError, match=message):
        map_risk(both["cases"], both["controls"], LAND, **options)


def test_from_the_shell(tmp_path, capsys):
    cases, controls = people(n=2500)
    for name, frame in (("cases", cases), ("controls", controls)):
        x, y = 150_000 + 1000 * shapely.get_coordinates(frame.geometry).T
        pd.DataFrame({"easting": x, "northing": y, "smokes": frame["smokes"]}).to_csv(tmp_path / f"{name}.csv")
    land = shapely.box(150_000, 150_000, 160_000, 160_000)
    gpd.GeoDataFrame(geometry=[land], crs=28992).to_file(tmp_path / "land.gpkg")
    words = ["risk", "cases.csv", "controls.csv", "--land", "land.gpkg", "-o", "out"]
    words = [str(tmp_path / w) if "." in w or w == "out" else w for w in words]
    words += ["--cell-size", "1000", "--permeability", "0", "--confounder", "smokes", "-q"]
    assert main(words) == 0
    made = {p.name for p in (tmp_path / "out").iterdir()}
    assert {"mean.tif", "exceedance_1.tif", "tolerance.gpkg", "map.html", "report.html", "posterior.geobgp"} <= made
    record = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    assert record["points"]["cases"] == len(cases) and record["options"]["confounders"] == ["smokes"]
    assert "--confounder smokes" in record["command"]
    assert "A person is a case with log odds" in (tmp_path / "out" / "report.html").read_text("utf-8")
    assert main([*words[:-2], "sex", "-q", "--force"]) == 1
    assert "CASES has no column 'sex'" in capsys.readouterr().err


def test_one_table_with_a_status_is_cases_and_controls():
    cases, controls = people(n=3000)
    both = pd.concat([cases.assign(ill="case"), controls.assign(ill="control")]).sample(frac=1, random_state=0)
    one = map_risk(both, land=LAND, status="ill", **QUICK, m="full")
    two = map_risk(cases, controls, LAND, **QUICK, m="full")
    pd.testing.assert_frame_equal(one.node_intensity(), two.node_intensity(), rtol=1e-6)
    with pytest.raises(DataError, match="found both"):
        map_risk(cases, controls, LAND, status="ill")
    with pytest.raises(DataError, match="found neither"):
        map_risk(cases, land=LAND)
    with pytest.raises(DataError, match="cannot be understood, such as 'perhaps'"):
        map_risk(both.assign(ill="perhaps"), land=LAND, status="ill", **QUICK)


def test_the_search_is_that_of_counts():
    """Covariates, features by evidence and cells of several sizes: one gain for all of them."""
    rng = np.random.default_rng(5)
    xy = rng.uniform(0, 10, (4000, 2))
    ill = rng.uniform(size=4000) < expit(-1.5 + 0.4 * (xy[:, 0] - 5))
    found = map_risk(xy[ill], xy[~ill], LAND, crs="local", permeability=0.0, covariates={"east": lambda at: at[:, 0]})
    slope = found.coefficients.set_index("name").loc["east", "mean"]
    assert slope == pytest.approx(0.4, abs=0.06)
    gains = [record.gain for record in found.tried]
    assert len({record.cell_size for record in found.tried}) > 1 and np.ptp(gains) < 5.0
    assert [record.kept for record in found.tried].count(True) == 1
