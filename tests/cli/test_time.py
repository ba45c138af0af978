"""geobgp map --time: a folder with all periods, that plays, and is replaced as a whole."""

import json

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
import shapely
import xarray as xr

from geobgp import Posterior
from geobgp.cli.app import main

CRS = "EPSG:32631"
WEST, SOUTH = 600_000.0, 5_800_000.0


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("time")
    rng = np.random.default_rng(5)
    month = rng.integers(0, 8, 500)
    x = WEST + 1000 * np.clip(rng.normal(3.0 + 2 * month, 2.5), 0.1, 19.9)
    y = SOUTH + 1000 * rng.uniform(0.1, 11.9, 500)
    dates = [f"{d:02d}/{m + 1:02d}/2020" for m, d in zip(month, rng.integers(1, 28, 500), strict=True)]
    pd.DataFrame({"easting": x, "northing": y, "date": dates}).to_csv(folder / "cases.csv", index=False)
    land = shapely.box(WEST, SOUTH, WEST + 20_000, SOUTH + 12_000)
    gpd.GeoDataFrame({"name": ["land"]}, geometry=[land], crs=CRS).to_file(folder / "land.gpkg")
    halves = [shapely.box(WEST + a, SOUTH, WEST + a + 10_000, SOUTH + 12_000) for a in (0, 10_000)]
    gpd.GeoDataFrame({"name": ["west", "east"]}, geometry=halves, crs=CRS).to_file(folder / "regions.gpkg")
    return folder


QUICK = ["--cell-size", "1000", "--features", "24", "--permeability", "0", "--crs", CRS]


def command(files, *more):
    base = ["map", str(files / "cases.csv"), "--land", str(files / "land.gpkg"), "--time", "date"]
    form = ["--date-format", "%d/%m/%Y", "--points-crs", CRS]
    return [*base, *form, *QUICK, "--no-cache", "-q", *more]


@pytest.fixture(scope="module")
def out(files):
    target = files / "out"
    code = main(command(files, "--every", "month", "--forecast", "2", "--regions", str(files / "regions.gpkg"),
                        "--threshold", "0.5", "-o", str(target)))  # fmt: skip
    assert code == 0
    return target


def test_the_folder_has_all_periods(out):
    names = {p.name for p in out.iterdir()}
    assert {"map.html", "map.qgz", "report.html", "intensity.nc", "regions.gpkg", "posterior.geobgp", "summary.json",
            "ratio_per_year.tif", "probability_of_increase.tif", "periods"} <= names  # fmt: skip
    rasters = sorted(p.name for p in (out / "periods").glob("mean_*.tif"))
    assert rasters == [f"mean_2020-{m:02d}.tif" for m in range(1, 11)]
    styles = {p.read_text() for p in (out / "periods").glob("mean_*.qml")}
    assert len(styles) == 1, "one legend for all, the forecast too"
    assert (out / "periods" / "exceedance_0.5_2020-03.tif").exists()


def test_numbers_are_the_same_in_all_files(out):
    import xarray as xr

    posterior = Posterior.load(out / "posterior.geobgp")
    record = json.loads((out / "summary.json").read_text())
    assert posterior.n_periods == 8 and record["periods"]["labels"] == list(posterior.periods.labels)
    assert record["points"]["used"] == 500 and record["options"]["every"] == "month"
    np.testing.assert_allclose(record["periods"]["level"]["expected"], posterior.level()["expected"])
    with xr.open_dataset(out / "intensity.nc") as data:
        assert data["forecast"].values.tolist() == [0] * 8 + [1] * 2
        np.testing.assert_allclose(data["mean"][:8], posterior.intensity()["mean"], rtol=1e-5)
    regions = gpd.read_file(out / "regions.gpkg", layer="regions")
    assert len(regions) == 16 and regions["observed"].sum() == pytest.approx(500)
    trend = gpd.read_file(out / "regions.gpkg", layer="trend").set_index("name")
    assert trend.loc["east", "p_increase"] > 0.95 > 0.05 > trend.loc["west", "p_increase"]
    assert "--time date --every month" in record["command"] and record["checks"]["periods_left_out"] == 2
    assert "2020-10" in (out / "map.html").read_text() and "forecast" in (out / "report.html").read_text()
    assert posterior.cross_validate(last=2).coverage == record["checks"]["coverage"]


def test_what_an_earlier_run_wrote_is_replaced(files, out):
    (out / "mine.txt").write_text("stays")
    more = ["--every", "quarter", "--dynamics", "separable", "--between", "2020-01/2020-12", "-o", str(out)]
    assert main(command(files, *more)) == 1
    assert main(command(files, *more, "--force")) == 0
    assert sorted(p.name for p in (out / "periods").glob("mean_*.tif")) == [f"mean_2020-Q{q}.tif" for q in (1, 2, 3, 4)]
    assert (out / "mine.txt").exists() and not (out / "regions.gpkg").exists()
    record = json.loads((out / "summary.json").read_text())
    assert "--between 2020-01/2020-12" in record["command"] and len(record["periods"]["labels"]) == 4


def test_districts_by_month_are_checked_against_what_came(files):
    rng, rows = np.random.default_rng(1), []
    for k in range(4):
        square = shapely.box(WEST + 5000 * k, SOUTH, WEST + 5000 * (k + 1), SOUTH + 12_000)
        rows += [(f"d{k}", f"2020-{m:02d}", rng.poisson(5 + 3 * k), square) for m in range(1, 9)]
    table = gpd.GeoDataFrame(rows, columns=["name", "month", "cases", "geometry"], crs=CRS)
    table.loc[table["cases"] < 4, "cases"] = np.nan
    table.to_file(files / "districts.gpkg")
    words = ["map", "--areas", str(files / "districts.gpkg"), "--count", "cases", "--suppressed", "0-3",
             "--land", str(files / "land.gpkg"), "--time", "month", "--every", "month", "--dynamics", "separable",
             *QUICK, "--no-cache", "-q", "-o", str(files / "by_district")]  # fmt: skip
    assert main(words) == 0
    checks = json.loads((files / "by_district" / "summary.json").read_text())["checks"]
    assert checks["parts"] == "areas" and checks["numbers"] == 8 and checks["unknown"] == 0
    regions = gpd.read_file(files / "by_district" / "regions.gpkg", layer="regions")
    seen = regions.set_index(["name", "period"])["observed"].sort_index()
    pd.testing.assert_series_equal(seen, table.set_index(["name", "month"])["cases"].sort_index(), check_names=False)
    assert checks["suppressed"] == int(table[table["month"] >= "2020-07"]["cases"].isna().sum())
    assert "of held-out numbers within 90 %" in (files / "by_district" / "report.html").read_text()


def test_people_who_change_from_month_to_month(files, capsys):
    """A table with cases and people by district and month is its own exposure; so are files, one for each month."""
    rng, rows = np.random.default_rng(2), []
    for k in range(4):
        square = shapely.box(WEST + 5000 * k, SOUTH, WEST + 5000 * (k + 1), SOUTH + 12_000)
        for m in range(1, 7):
            people = 1000.0 * (k + 1) * (3.0 if m > 3 else 1.0)
            rows.append((f"d{k}", f"2020-{m:02d}", rng.poisson(0.02 * people), people, square))
    columns = ["name", "month", "cases", "people", "geometry"]
    table = gpd.GeoDataFrame(rows, columns=columns, crs=CRS)
    table.to_file(files / "people.gpkg")
    each = []
    for m in range(1, 7):
        each.append(files / f"people-{m}.gpkg")
        table[table["month"] == f"2020-{m:02d}"].drop(columns="month").to_file(each[-1])
    words = ["map", "--areas", str(files / "people.gpkg"), "--count", "cases", "--exposure-column", "people",
             "--land", str(files / "land.gpkg"), "--time", "month", "--every", "month", "--dynamics", "separable",
             *QUICK, "--no-cache", "-q"]  # fmt: skip
    assert main([*words, "--exposure", str(files / "people.gpkg"), "-o", str(files / "long")]) == 0
    several = [w for path in each for w in ("--exposure", str(path))]
    assert main([*words, *several, "-o", str(files / "several")]) == 0
    levels = []
    for name in ("long", "several"):
        regions = gpd.read_file(files / name / "regions.gpkg", layer="regions")
        levels.append(regions["rate"].to_numpy())
        assert regions.groupby("period")["exposure"].sum().round().tolist() == [10_000.0] * 3 + [30_000.0] * 3
        # The rate stays what it is while people come and cases with them.
        by_month = regions.groupby("period")["expected"].sum() / regions.groupby("period")["exposure"].sum()
        assert by_month.between(0.013, 0.028).all()
    np.testing.assert_allclose(levels[0], levels[1], rtol=1e-6)
    record = json.loads((files / "several" / "summary.json").read_text())
    assert record["options"]["exposure"] == [path.name for path in each]
    assert record["command"].count("--exposure people-") == 6
    assert main([*words, *several[:4], "-o", str(files / "two")]) == 1
    assert "--exposure is given for 2 periods; there are 6 months" in capsys.readouterr().err
    assert main([*words, "--exposure", str(files / "none.gpkg"), *several, "-o", str(files / "two")]) == 1
    assert "none.gpkg" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--every", "fortnight"], "--every is 'day'"),
        ([], "--every month"),
        (["--every", "month", "--show-points"], "shows no points"),
        (["--every", "month", "--features", "full"], "needs features"),
        (["--every", "month", "--between", "2020"], "--between"),
    ],
)
def test_mistakes_are_told_in_the_shells_words(files, tmp_path, capsys, more, text):
    assert main([*command(files), *more, "-o", str(tmp_path / "no")]) == 1
    assert text in capsys.readouterr().err and not (tmp_path / "no").exists()


def test_ambiguous_dates_ask(files, tmp_path, capsys):
    words = command(files, "--every", "month", "-o", str(tmp_path / "no"))
    cases = pd.read_csv(files / "cases.csv")
    cases[cases["date"].str[:2].astype(int) <= 12].to_csv(tmp_path / "cases.csv", index=False)  # no date tells
    words = [str(tmp_path / "cases.csv") if w == str(files / "cases.csv") else w for w in words]
    assert main([w for w in words if w not in ("--date-format", "%d/%m/%Y")]) == 1
    assert "--date-format %d/%m/%Y or --date-format %m/%d/%Y" in capsys.readouterr().err


def test_a_forecast_needs_dates(files, tmp_path, capsys):
    words = [
        "map",
        str(files / "cases.csv"),
        "--land",
        str(files / "land.gpkg"),
        "--forecast",
        "2",
        "-o",
        str(tmp_path / "no"),
    ]
    assert main(words) == 1
    assert "--forecast belongs to events with dates" in capsys.readouterr().err


def test_every_kind_of_data_has_forecasts_and_values_have_thresholds_below_zero(tmp_path):
    """Scores that are negative, shares and risks by year: a forecast of each, and the probability of more than -2."""
    rng = np.random.default_rng(0)
    gpd.GeoDataFrame(geometry=[shapely.box(150_000, 460_000, 160_000, 470_000)], crs=28992).to_file(tmp_path / "l.gpkg")
    xy, tested = rng.uniform((150_000, 460_000), (160_000, 470_000), (150, 2)), rng.integers(5, 20, 150)
    east = (xy[:, 0] - 150_000) / 10_000
    frame = gpd.GeoDataFrame(
        {
            "score": 2 * east - 2.5 + 0.5 * rng.normal(size=150), "ill": rng.random(150) < 0.3 + 0.3 * east,
            "tested": tested, "positive": rng.binomial(tested, 0.2 + 0.4 * east), "year": rng.integers(2019, 2022, 150),
        },
        geometry=gpd.points_from_xy(*xy.T),
        crs=28992,
    )  # fmt: skip
    frame.to_file(tmp_path / "p.gpkg")
    common = [str(tmp_path / "p.gpkg"), "--land", str(tmp_path / "l.gpkg"), "--cell-size", "1000", "--features", "16"]
    common += ["--permeability", "0", "--no-checks", "--no-cache", "-q", "--time", "year", "--every", "year"]
    kinds = {
        "values": ["--value", "score", "--threshold", "-2"],
        "prevalence": ["--positive", "positive", "--tested", "tested"],
        "risk": ["--status", "ill"],
    }
    for kind, more in kinds.items():
        assert main([kind, *common, *more, "--forecast", "2", "-o", str(tmp_path / kind)]) == 0
        with xr.open_dataset(tmp_path / kind / "intensity.nc") as data:
            assert data["forecast"].values.tolist() == [0, 0, 0, 1, 1]
            assert "exceedance__2" in data or kind != "values"
        assert main([kind, *common, *more, "-o", str(tmp_path / "no"), "--threshold", "-1"]) == (kind != "values")
