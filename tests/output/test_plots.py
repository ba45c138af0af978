from __future__ import annotations

import matplotlib

matplotlib.use("agg")

import geopandas as gpd
import matplotlib.pyplot as plt
import numpy as np
import pytest
import shapely
from matplotlib import colormaps
from matplotlib.colors import to_hex
from posteriors import bumps, disc, fitted, island, prescribed

from geobgp import Domain, HarmonicBasis
from geobgp.errors import CRSError, DataError
from geobgp.output import figures as plots
from geobgp.output import palette
from geobgp.output.figures import land_path
from geobgp.text import number


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def posterior():
    domain = island()
    return prescribed(domain, bumps(domain), 0.4, title="Bites")


@pytest.fixture(scope="module")
def real():
    return fitted()[0]


def draw(ax):
    """Draw the figure, and return its pixels and a function from data to them."""
    figure = ax.figure
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)

    def at(x, y):
        px = ax.transData.transform(np.column_stack([np.atleast_1d(x), np.atleast_1d(y)]))
        return pixels[(pixels.shape[0] - px[:, 1]).astype(int), px[:, 0].astype(int)]

    return pixels, at


def test_cells_are_drawn_in_the_colours_of_their_classes(posterior):
    domain = posterior.domain
    ax = plots.plot(posterior, scale_bar=False, outline=False)
    _, at = draw(ax)
    values = posterior.intensity()["mean"].values.astype(np.float32)
    classes = palette.classes_for("mean", values)
    rows, cols = np.nonzero(domain.coverage == 1)
    seen = at(*domain.grid.centres(rows, cols))
    expected = classes.colours[classes.index(values[rows, cols])].astype(int)
    np.testing.assert_allclose(seen, expected, atol=1)


def test_nothing_is_drawn_on_water(posterior):
    domain = posterior.domain
    ax = plots.plot(posterior, scale_bar=False)
    _, at = draw(ax)
    rng = np.random.default_rng(0)
    west, south, east, north = domain.grid.bounds
    points = rng.uniform([west, south], [east, north], (4000, 2))
    wet = ~shapely.intersects_xy(domain.geometry.buffer(250), *points.T)
    water = np.array([int(plots.show_cells.__globals__["WATER"][k : k + 2], 16) for k in (1, 3, 5)])
    np.testing.assert_array_equal(at(*points[wet].T), np.broadcast_to(water, (wet.sum(), 3)))


def test_axes_in_axes_out(posterior, real):
    figure, axes = plt.subplots(2, 4)
    flat = axes.ravel()
    basis = HarmonicBasis.compute(disc(0.2), 6, cache=False)
    assert plots.plot(posterior, flat[0]) is flat[0]
    assert plots.plot(posterior, flat[1], variable="uncertainty") is flat[1]
    assert plots.plot(posterior, flat[2], variable="sd") is flat[2]
    assert plots.plot(posterior, flat[3], threshold=0.2) is flat[3]
    assert plots.plot(posterior.domain, flat[5]) is flat[5]
    assert (plots.plot_hyperparameters(real, flat[6:8]) == flat[6:8]).all()
    figure.canvas.draw()
    assert plots.plot(basis, 4).size == 4


def test_the_colour_bar_has_units_and_breaks(posterior):
    ax = plots.plot(posterior)
    bar = ax.figure.axes[1]
    assert bar.get_ylabel() == "mean, events per km²"
    classes = palette.classes_in(posterior.intensity(), "mean")
    shown = [t.get_text() for t in bar.get_yticklabels()]
    assert shown == [number(b, 6) for b in classes.breaks]
    assert ax.get_title(loc="left") == "Bites"


def test_quantiles_share_the_colours_of_the_mean(posterior):
    ticks = []
    for variable in ("mean", "q95"):
        ax = plots.plot(posterior, variable=variable)
        ticks.append([t.get_text() for t in ax.figure.axes[1].get_yticklabels()])
    assert ticks[0] == ticks[1]
    assert ax.get_title(loc="left") == "Intensity, 95 % quantile"


def test_points_are_brought_to_the_domains_crs(posterior):
    points = gpd.GeoSeries(gpd.points_from_xy([155_000, 160_000], [463_000, 468_000]), crs=28992)
    for given in (points, points.to_crs(4326), np.column_stack([points.x, points.y])):
        ax = plots.plot(posterior, points=given)
        (dots,) = (c for c in ax.collections if len(c.get_offsets()) == 2)
        np.testing.assert_allclose(dots.get_offsets(), np.column_stack([points.x, points.y]), atol=0.01)
    with pytest.raises(CRSError, match="of the points is not known"):
        plots.plot(posterior, points=points.set_crs(None, allow_override=True))


def test_one_and_two_classes_have_a_legend():
    domain = disc()
    ax = plots.plot(prescribed(domain, 0.0, 0.3), variable="uncertainty")
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["about 31 % everywhere"]
    ax = plots.show_cells(domain, domain.node_points[:, 0], classes=[3.0], label="easting")
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["> 3", "≤ 3"]
    ax.figure.canvas.draw()


def test_other_colours_leave_the_classes_of_probabilities_and_of_uncertainty(posterior):
    usual, own = posterior.plot(threshold=0.2), posterior.plot(threshold=0.2, cmap="magma")
    breaks = [[t.get_text() for t in ax.figure.axes[1].get_yticklabels()] for ax in (usual, own)]
    assert breaks[0] == breaks[1] == [number(b, 6) for b in palette.PROBABILITY_BREAKS]
    assert to_hex(own.images[0].cmap.colors[0]) == to_hex(colormaps["magma"](0.0))
    np.testing.assert_array_equal(usual.images[0].get_array(), own.images[0].get_array())
    for variable in ("uncertainty", "sd", "q95"):
        one, two = (posterior.plot(variable=variable, cmap=cmap) for cmap in (None, "magma"))
        np.testing.assert_array_equal(one.images[0].get_array(), two.images[0].get_array())


@pytest.mark.parametrize("spread", [0.2, 1.0])
def test_densities_are_those_of_the_axis_they_are_drawn_on(spread):
    """Per unit of the logarithm on a logarithmic axis: the mode is at the median, and the curve is symmetric."""
    fact = {"value": 5.0, "q05": 5 * np.exp(-1.645 * spread), "q95": 5 * np.exp(1.645 * spread)}
    ax = plt.subplots()[1]
    plots._density(ax, fact | {"unit": "km", "learned": True}, "Lengthscale")
    x, y = ax.lines[-1].get_data()
    mode = x[np.argmax(y)]
    if spread == 1.0:
        assert ax.get_xscale() == "log" and mode == pytest.approx(5.0, rel=0.02)
        np.testing.assert_allclose(y, y[::-1], rtol=1e-9)
        assert y[(x >= fact["q05"]) & (x <= fact["q95"])].sum() / y.sum() == pytest.approx(0.9, abs=0.01)
    else:
        assert ax.get_xscale() == "linear" and mode == pytest.approx(5 * np.exp(-(spread**2)), rel=0.02)


def test_signed_fields_have_zero_in_the_middle():
    domain = disc()
    ax = plots.show_cells(domain, domain.node_points[:, 0] - 2.5, ramp="signed", symmetric=True)
    low, high = ax.images[0].get_clim()
    assert low == -high
    with pytest.raises(DataError, match="do not fit"):
        plots.show_cells(domain, np.ones(3))


def test_holes_and_islands_in_one_path():
    land = shapely.box(0, 0, 10, 10).difference(shapely.box(4, 4, 6, 6)).union(shapely.box(12, 0, 13, 1))
    for shape in (land, shapely.reverse(land)):
        rings = land_path(shape).to_polygons()
        x, y = zip(*(np.transpose(r) for r in rings), strict=True)
        area = [(a[:-1] * b[1:] - a[1:] * b[:-1]).sum() / 2 for a, b in zip(x, y, strict=True)]
        # Outsides run one way, the hole the other.
        assert sorted(area) == [-4, 1, 100]


def test_the_scale_bar_is_of_a_round_length(posterior):
    ax = plots.plot(posterior)
    (line,) = (a for a in ax.lines if len(a.get_xdata()) == 2)
    assert np.ptp(line.get_xdata()) == 10_000
    assert any(t.get_text() == "10 km" for t in ax.texts)
    ax = plots.plot(disc())
    assert any(t.get_text() == "0.5 units" for t in ax.texts)


def test_hyperparameters_show_their_intervals(real):
    axes = plots.plot_hyperparameters(real)
    fact = real.summary()["lengthscale"]
    title = axes[0].get_title(loc="left")
    assert number(fact["value"], 3) in title
    assert "90 % interval" in title
    assert axes[0].get_xlabel() == "Lengthscale (km)"
    # The curve's own 90 % interval is the one in the title.
    line = max(axes[0].lines, key=lambda a: len(a.get_xdata()))
    x, y = line.get_xdata(), line.get_ydata()
    mass = np.cumsum(np.diff(x) * (y[1:] + y[:-1]) / 2)
    low, high = np.interp([0.05, 0.95], mass / mass[-1], x[1:])
    np.testing.assert_allclose([low, high], [fact["q05"], fact["q95"]], rtol=0.02)


def test_given_hyperparameters_are_lines(posterior):
    axes = plots.plot_hyperparameters(posterior)
    assert [ax.get_title(loc="left") for ax in axes] == ["2 km (given)", "1.1 (given)"]


def test_the_domain_and_its_pieces(posterior):
    domain = posterior.domain
    ax = plots.plot(domain)
    assert (
        ax.get_title(loc="left")
        == f"{domain.n_nodes:,} nodes in {domain.n_components} separate pieces of land, cells of 1000 m"
    )
    _, at = draw(ax)
    north, south = at(145_000, 470_000)[0], at(145_000, 455_000)[0]
    assert (north != south).any()
    barrier = shapely.LineString([(2, 3), (4, 3)])
    split = Domain.from_polygons(shapely.Point(3, 3).buffer(1), barriers=barrier, cell_size=0.1, crs="local")
    assert len(plots.plot(split).collections) == 2


def test_the_basis_starts_with_what_varies(real):
    basis = real.basis
    axes = plots.plot(basis, 3)
    first = int(np.argmax(basis.eigenvalues > 1e-9 * basis.eigenvalues[-1]))
    assert [int(a.get_title(loc="left").split(":")[0]) for a in axes.ravel()] == [first + 1, first + 2, first + 3]
    axes = plots.plot(basis, 2, constants=True)
    assert axes[0, 0].get_title(loc="left") == "1: constant"
    with pytest.raises(DataError, match="At least one"):
        plots.plot(basis, 0)


def test_mistakes_are_explained(posterior):
    with pytest.raises(DataError, match="q42"):
        plots.plot(posterior, variable="q42")
    with pytest.raises(DataError, match="Draw one map of each"):
        plots.plot(posterior, variable="sd", threshold=1.0)
    with pytest.raises(DataError, match="A str is nothing to draw"):
        plots.plot("a map")


def test_matplotlib_is_loaded_only_when_something_is_drawn():
    import subprocess
    import sys

    modules = ", ".join(f"geobgp.output.{name}" for name in ("figures", "rasters", "grids", "palette"))
    code = f"import sys, {modules}; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def ticks(ax):
    """Return the labels beside the colour bar."""
    return [t.get_text() for t in ax.figure.axes[1].get_yticklabels()]


def test_a_posterior_draws_its_uncertainty(real):
    ax = real.plot(variable="uncertainty", scale_bar=False, outline=False)
    assert ax.get_title(loc="left") == "Relative uncertainty"
    assert ax.figure.axes[1].get_ylabel() == "sd / mean, %"
    data = real.intensity()
    share = 100 * data["sd"].values / data["mean"].values
    breaks = [round(float(q)) for q in np.nanquantile(share, [0.3, 0.7])]
    ax = real.plot(variable="uncertainty", classes=breaks, cmap=["#000000", "#ffffff"], scale_bar=False)
    assert ticks(ax) == [str(b) for b in breaks]
    index = np.where(np.isnan(share), np.nan, np.searchsorted(breaks, share))
    np.testing.assert_array_equal(ax.images[0].get_array().filled(np.nan), index)


def test_a_posterior_draws_the_probability_of_a_threshold(posterior):
    ax = posterior.plot(threshold=0.2, points=posterior.domain.node_points[:5])
    assert ax.get_title(loc="left") == "Probability that the intensity exceeds 0.2 events per km²"
    assert ticks(ax) == [number(b, 6) for b in palette.PROBABILITY_BREAKS]
    assert len(ax.collections) == 1
    chance = posterior.exceedance(0.2).values
    (image,) = ax.images
    np.testing.assert_array_equal(np.isfinite(image.get_array().filled(np.nan)), np.isfinite(chance))
    assert ticks(posterior.plot(threshold=0.2, classes=[0.1, 0.5, 0.9])) == ["0.1", "0.5", "0.9"]
    with pytest.raises(DataError, match="asks for a probability") as caught:
        posterior.plot(threshold=0.2, variable="sd")
    assert caught.value.option == "variable"


def test_a_domain_draws_a_value_for_every_node(posterior):
    domain = posterior.domain
    values = domain.node_points[:, 0] - domain.node_points[:, 0].mean()
    ax = domain.plot(values=values, label="m east", title="East", scale_bar=False)
    assert ax.get_title(loc="left") == "East" and ax.figure.axes[1].get_ylabel() == "m east"
    assert not ax.texts
    (image,) = ax.images
    np.testing.assert_allclose(image.get_array().filled(np.nan), domain.to_grid(values))
    assert image.get_clim() == (values.min(), values.max())

    (image,) = domain.plot(values=values, cmap="signed").images
    assert image.get_clim() == (-abs(values).max(), abs(values).max())
    (image,) = domain.plot(values=values, cmap="signed", vmin=-10.0, vmax=30.0).images
    assert image.get_clim() == (-10.0, 30.0)
    assert ticks(domain.plot(values=values, classes=[-5000, 0, 5000])) == ["-5,000", "0", "5,000"]
    assert len(ticks(domain.plot(values=values, classes=4))) == 3
    assert len(domain.plot(values=values, colour_bar=False).figure.axes) == 1


def test_options_of_values_are_not_lost_on_bare_land(posterior):
    domain = posterior.domain
    for name, value in {"classes": 4, "cmap": "signed", "vmin": 0.0, "vmax": 1.0, "label": "km"}.items():
        with pytest.raises(DataError, match="none are given") as caught:
            domain.plot(**{name: value})
        assert caught.value.option == name
    with pytest.raises(DataError, match="without values"):
        domain.plot(values=domain.node_areas, cells=True)
    with pytest.raises(DataError, match="no finite number"):
        domain.plot(values=np.full(domain.n_nodes, np.nan))
    with pytest.raises(DataError, match="do not fit the domain"):
        domain.plot(values=np.zeros(domain.n_nodes + 1))
    assert not domain.plot(scale_bar=False).texts
