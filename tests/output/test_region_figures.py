"""Figures of regions and films: what is drawn is what the tables say."""

from __future__ import annotations

import geopandas as gpd
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import shapely
from models import square
from pairs import HALVES, mapped
from PIL import Image
from posteriors import fitted
from scipy.stats import poisson

from geobgp import LGCP, DataError, FullRank, Matern
from geobgp.output import palette
from geobgp.output.figures import DrawnMap, _film_picture, funnel_limits, overdispersion_of
from geobgp.output.grids import View

mpl.use("Agg")


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def posterior():
    return fitted()[0]


@pytest.fixture(scope="module")
def regions(posterior):
    """Nine rectangles that share out the land, with names."""
    west, south, east, north = posterior.domain.grid.bounds
    x, y = np.linspace(west, east, 4), np.linspace(south, north, 4)
    shapes = [shapely.box(x[i], y[j], x[i + 1], y[j + 1]) for i in range(3) for j in range(3)]
    land = posterior.domain.geometry
    return gpd.GeoDataFrame(
        {"name": [f"R{k}" for k in range(9)]}, geometry=[s & land.envelope for s in shapes], crs=28992
    )


def colours_of(collection):
    return [mpl.colors.to_hex(c) for c in collection.get_facecolors()]


def test_a_caterpillar_has_every_region_at_its_rate_with_its_interval(posterior, regions):
    table = posterior.ranks(regions).sort_values("rate")
    ax = posterior.plot_ranks(regions)
    lines, points = ax.collections
    np.testing.assert_allclose(points.get_offsets()[:, 0], table["rate"])
    ends = np.array([segment[:, 0] for segment in lines.get_segments()])
    np.testing.assert_allclose(ends, table[["rate_q05", "rate_q95"]])
    assert [t.get_text() for t in ax.get_yticklabels()] == table["name"].tolist()
    sure = [{True: "#8a1f4b", False: "#7b8a91"}[p >= 0.95] if p > 0.05 else "#2070b4" for p in table["p_above"]]
    assert colours_of(points) == sure and len(set(sure)) > 1
    assert ax.lines[0].get_xdata()[0] == posterior.overall
    assert posterior.units in ax.get_xlabel() and "90 % interval" in ax.get_xlabel()
    beside = [t.get_text() for t in ax.child_axes[0].get_yticklabels()]
    assert beside[-1].startswith(f"{table['rank'].iloc[-1]:g} (")
    same = posterior.plot_ranks(posterior.ranks(regions), reference=1.0)
    np.testing.assert_array_equal(same.collections[1].get_offsets(), points.get_offsets())
    assert same.lines[0].get_xdata()[0] == 1.0


def test_hidden_regions_are_counted_not_drawn(posterior, regions):
    hidden = posterior.protected(30)
    table = hidden.ranks(regions)
    ax = hidden.plot_ranks(regions)
    assert 0 < table["rate"].isna().sum() < 9
    assert len(ax.collections[1].get_offsets()) == table["rate"].notna().sum()
    assert f"{table['rate'].isna().sum()} without a rate are left out" in ax.get_xlabel()
    grey = hidden.plot_regions(regions)
    assert "grey: hidden" in grey.get_xlabel() and "#bdbdbd" in [
        c for drawn in grey.collections for c in colours_of(drawn)
    ]


def test_a_funnel_has_observed_rates_and_the_limits_of_chance(posterior, regions):
    table = posterior.totals(regions)
    table["observed"] = np.random.default_rng(0).poisson(table["expected"]).astype(float)
    table.loc[4, "observed"] = np.nan
    ax = posterior.plot_funnel(table)
    known = table["observed"].notna() & (table["land_km2"] > 0)
    observed = next(c for c in ax.collections if c.get_label() == "observed")
    model = next(c for c in ax.collections if c.get_label() == "the model's")
    at = np.column_stack([table["land_km2"], table["observed"] / table["land_km2"]])[known]
    np.testing.assert_allclose(observed.get_offsets(), at)
    np.testing.assert_allclose(model.get_offsets()[:, 1], table["rate"][known])
    # Under chance alone the counts lie within the curves as often as they say.
    curves = [line for line in ax.lines if len(line.get_xdata()) == 300]
    for low, high, chance in ((*curves[:2], 0.95), (*curves[2:], 0.998)):
        area = np.asarray(low.get_xdata())
        mean = posterior.overall * area
        bounds = [np.asarray(line.get_ydata()) * area for line in (low, high)]
        inside = poisson.cdf(np.floor(bounds[1]), mean) - poisson.cdf(np.ceil(bounds[0]) - 1, mean)
        assert (np.abs(inside - chance) < poisson.pmf(np.floor(mean), mean))[mean > 5].all()
    beyond = (table["observed"] > funnel_limits(posterior.overall * table["land_km2"].to_numpy(), 0.998)[1])[known]
    assert [c == "#8a1f4b" for c in colours_of(observed)] == beyond.tolist() and beyond.any()


def test_limits_are_poisson_quantiles_at_whole_numbers_and_widen():
    mean = np.array([10.0, 30.0, 300.0])
    low, high = funnel_limits(mean, 0.95)
    for p, end in ((0.025, low), (0.975, high)):
        assert (poisson.cdf(np.floor(end), mean) <= p + 1e-9).all() and (poisson.cdf(np.ceil(end), mean) >= p).all()
    wide = funnel_limits(mean, 0.95, 2.0)
    np.testing.assert_allclose(wide[1] - mean, 2 * (high - mean))
    assert funnel_limits(np.array([0.1]), 0.95)[0] == 0.0


def test_overdispersion_is_variance_over_mean_at_one_rate():
    domain = square()
    counts = np.random.default_rng(0).negative_binomial(2.0, 2.0 / 7.0, domain.n_nodes).astype(float)
    model = LGCP(FullRank(domain), Matern(1.0, 4.0, 0.3), likelihood="negative-binomial")
    posterior = model.fit(counts)
    k = posterior.likelihood.dispersion_value
    mean = posterior.overall * posterior.exposure
    assert overdispersion_of(posterior) == pytest.approx(np.sum(mean + mean**2 / k) / mean.sum())
    assert overdispersion_of(fitted()[0]) == 1.0


def test_what_a_funnel_cannot_be_of(posterior, regions):
    for kind in ("values", "surveys", "cases and controls"):
        with pytest.raises(DataError, match="numbers of events among known exposures"):
            mapped(kind, "in space").plot_funnel(HALVES)
    with pytest.raises(DataError, match="has none"):
        posterior.plot_funnel(posterior.totals(regions).drop(columns="observed", errors="ignore"))


def test_regions_are_hatched_where_their_interval_reaches_into_another_class(posterior, regions):
    table = posterior.totals(regions)
    breaks = np.quantile(table["rate"], [0.3, 0.6]).round(3).tolist()
    ax = posterior.plot_regions(table, variable="rate", classes=breaks)
    low, mid, high = (np.searchsorted(breaks, table[name]) for name in ("rate_q05", "rate", "rate_q95"))
    unsure = (low != mid) | (high != mid)
    plain, hatched = ax.collections[:2]
    assert hatched.get_hatch() and not plain.get_hatch() and 0 < unsure.sum() < 9
    assert len(hatched.get_paths()) == unsure.sum() and len(plain.get_paths()) == (~unsure).sum()
    style = palette.styled_classes(posterior.styled(breaks).style, table["rate"].to_numpy())
    assert colours_of(plain) == [style.hex[k] for k in mid[~unsure]]
    assert colours_of(hatched) == [style.hex[k] for k in mid[unsure]]
    assert "hatched: the 90 % interval reaches into another class" in ax.get_xlabel()
    faded = posterior.plot_regions(table, variable="rate", classes=breaks, unsure="fade").collections[0]
    assert not faded.get_hatch()
    lighter = np.array([mpl.colors.to_rgb(style.hex[k]) for k in mid])
    lighter[unsure] += 0.65 * (1 - lighter[unsure])
    np.testing.assert_allclose(faded.get_facecolors()[:, :3], lighter, atol=1e-6)
    with pytest.raises(DataError, match="with an interval"):
        posterior.plot_regions(table, variable="observed")


def test_classes_by_default_are_as_fine_as_half_of_the_regions_are_sure(posterior, regions):
    table = posterior.totals(regions)
    narrow, wide = table.copy(), table.copy()
    for ends, width in ((narrow, 1e-6), (wide, 10.0)):
        ends["rate_q05"], ends["rate_q95"] = table["rate"] / (1 + width), table["rate"] * (1 + width)
    few = [len(posterior.plot_regions(one, variable="rate").collections) for one in (narrow, wide)]
    assert few[0] > 0
    sure = posterior.plot_regions(narrow, variable="rate")
    assert len(sure.collections[1].get_paths()) == 0
    unsure = posterior.plot_regions(wide, variable="rate")
    assert unsure.get_legend().get_texts()[0].get_text().startswith(">")


@pytest.mark.parametrize("kind", ["surveys", "values", "areas", "cases and controls", "points"])
def test_regions_of_every_kind_of_data(kind, regions):
    posterior = mapped(kind, "in space")
    west, south, east, north = posterior.domain.geometry.bounds
    halves = gpd.GeoDataFrame(
        {"name": ["a", "b"]},
        geometry=[shapely.box(west, south, west + 4e3, north), shapely.box(west + 4e3, south, east, north)],
        crs=28992,
    )
    drawn = posterior.plot_regions(halves).collections
    assert sum(len(c.get_paths()) for c in drawn) == 2


def test_hot_spots_are_outlined_on_maps(posterior):
    table = posterior.hotspots(0.3)
    bare, outlined = posterior.plot(), posterior.plot(hotspots=table)
    more = [p for p in outlined.artists + outlined.patches if not p.get_fill()]
    assert len(more) - len([p for p in bare.artists + bare.patches if not p.get_fill()]) == 2 * len(table) > 0
    written = {t.get_text() for t in outlined.texts} - {t.get_text() for t in bare.texts}
    assert written == {str(k) for k in table["hotspot"]}
    with pytest.raises(DataError, match="none was given"):
        posterior.plot(hotspots=True)


def test_long_titles_of_films_do_not_lie_over_each_other():
    view = View(mapped("points", "over periods"))
    title = "Probability of more than 4.29e-06 events per unit area per day, of all that were reported"
    figure = _film_picture(view, DrawnMap.of(view), 1, title, ((4.0, 6.0), 60), None)
    figure.canvas.draw()
    above, below = figure._suptitle.get_window_extent(), figure.axes[0]._left_title.get_window_extent()
    assert above.y0 >= below.y1 and above.x1 <= figure.bbox.x1 and below.x1 <= figure.bbox.x1
    assert figure._suptitle.get_text().replace("\n", " ") == title


def test_a_film_has_a_picture_of_each_period(tmp_path):
    posterior = mapped("points", "over periods")
    path = posterior.to_animation(tmp_path / "film.gif", width=300, seconds=0.5)
    with Image.open(path) as film:
        assert film.n_frames == 3 and film.info["duration"] == 500 and film.info["loop"] == 0
        pictures = []
        for k in range(3):
            film.seek(k)
            pictures.append(np.asarray(film.convert("RGB")).astype(int))
    # Every class that is seen on a map is seen on its picture, and pictures differ.
    data = posterior.intensity()
    classes = palette.classes_in(data, "mean")
    for k, picture in enumerate(pictures):
        values = data["mean"].values[k]
        for number in set(classes.index(values[np.isfinite(values)])):
            gap = np.abs(picture - classes.colours[number].astype(int)).max(axis=2)
            assert (gap <= 8).sum() > 20
    assert (pictures[0] != pictures[1]).any() and (pictures[1] != pictures[2]).any()
    with pytest.raises(DataError, match=r"\.gif or \.mp4"):
        posterior.to_animation(tmp_path / "film.avi")
    with pytest.raises(DataError, match="no time"):
        mapped("points", "in space").to_animation(tmp_path / "film.gif")


def test_mp4_asks_for_ffmpeg_or_is_written(tmp_path, monkeypatch):
    posterior = mapped("points", "over periods")
    monkeypatch.setattr("geobgp.output.figures.which", lambda _: None)
    with pytest.raises(DataError, match="needs the program ffmpeg"):
        posterior.to_animation(tmp_path / "film.mp4")
    # A stand-in for it, that says what it is given.
    program = tmp_path / "ffmpeg"
    program.write_text('#!/bin/sh\nfor last; do :; done\necho "$*" > "$last"\nwc -c >> "$last"\n')
    program.chmod(0o755)
    monkeypatch.setattr("geobgp.output.figures.which", lambda _: str(program))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    said = posterior.to_animation(tmp_path / "film.mp4", width=300, seconds=0.5).read_text().split()
    wide, tall = map(int, said[said.index("-s") + 1].split("x"))
    assert wide % 2 == tall % 2 == 0 and said[said.index("-r") + 1] == "2"
    assert int(said[-1]) == 3 * 3 * wide * tall  # three pictures of three bytes a pixel


def test_tables_of_several_periods_are_not_taken_for_one():
    posterior = mapped("points", "over periods")
    table = posterior.totals(posterior.domain.geometry)
    with pytest.raises(DataError, match="about one year"):
        posterior.plot_regions(table)
    with pytest.raises(DataError, match="of several periods"):
        posterior.plot_regions(table, period=2021)
    assert posterior.plot_regions(posterior.domain.geometry, period=2021) is not None


def test_effort_is_taken_into_the_exposure_of_a_funnel():
    posterior = mapped("points", "in space", "effort")
    table = posterior.totals()
    ax = posterior.plot_funnel(table)
    observed = next(c for c in ax.collections if c.get_label() == "observed")
    seen = table["land_km2"] * table["reported"] / table["expected"]
    np.testing.assert_allclose(observed.get_offsets()[0], [seen.iloc[0], (table["observed"] / seen).iloc[0]])
    assert "those seen" in ax.get_xlabel()
