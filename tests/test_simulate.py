"""Simulated points: Poisson numbers, evenly on each node's own land."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pyproj
import pytest
import rioxarray  # noqa: F401
import shapely
import xarray as xr
from posteriors import disc, island
from scipy import stats

from geobgp.errors import CRSError, DataError, GeobgpError, SizeError
from geobgp.land.crs import move
from geobgp.land.domain import Domain
from geobgp.output.grids import dataset
from geobgp.prior.full_rank import FullRank
from geobgp.prior.harmonic import HarmonicBasis
from geobgp.prior.kernels import Matern, SquaredExponential
from geobgp.simulate import node_intensity, points_in_nodes, simulate_points, simulate_prior

LAND = shapely.union_all([shapely.Point(0, 0).buffer(5), shapely.Point(7.5, 2).buffer(1.6)])
RIVER = shapely.LineString([(-6, 0.63), (6, -1.1)]).buffer(0.03)


@pytest.fixture(scope="module")
def domain() -> Domain:
    return Domain.from_polygons(LAND, water=RIVER, cell_size=0.5, crs="local")


def coordinates(points: gpd.GeoDataFrame) -> np.ndarray:
    return np.column_stack([points.geometry.x, points.geometry.y])


def test_counts_are_poisson_with_the_given_mean(domain):
    rate = 1 + np.exp(0.3 * domain.node_points[:, 0])
    expected = rate * domain.node_areas
    runs = 200
    counts = np.zeros((runs, domain.n_nodes))
    for seed in range(runs):
        node = domain.locate(coordinates(simulate_points(domain, rate, seed)))
        assert (node >= 0).all()
        counts[seed] = np.bincount(node, minlength=domain.n_nodes)
    z = (counts.mean(axis=0) - expected) / np.sqrt(expected / runs)
    assert abs(z.mean()) < 5 / np.sqrt(len(z)) and 0.85 < z.std() < 1.15
    dispersion = counts.sum(axis=1).var(ddof=1) / expected.sum()
    assert 0.8 < dispersion < 1.25
    assert abs(np.corrcoef(counts[:, 10], counts[:, 11])[0, 1]) < 0.2


def test_points_stay_on_their_own_side_of_the_river(domain):
    north = shapely.get_parts(LAND.difference(RIVER))
    north = north[np.argmax(shapely.get_coordinates(shapely.centroid(north))[:, 1] * (shapely.area(north) > 20))]
    side = domain.components == domain.components[domain.locate(np.array([[0.0, 3.0]]))[0]]
    points = simulate_points(domain, np.where(side, 50.0, 0.0), rng=5)
    assert len(points) > 1000
    assert shapely.covers(north, points.geometry.to_numpy()).all()
    assert not shapely.intersects(RIVER, points.geometry.to_numpy()).any()


def test_a_barrier_without_width_parts_a_cell(domain):
    line = shapely.LineString([(0, 1.25), (4, 1.35)])
    split = Domain.from_polygons(shapely.box(0, 0, 4, 4), barriers=line, cell_size=1, crs="local")
    assert split.n_components == 2
    low = split.components == split.components[split.locate(np.array([[2.0, 0.5]]))[0]]
    north = coordinates(simulate_points(split, np.where(low, 100.0, 0.0), 1))
    assert (north[:, 1] <= 1.25 + 0.1 * north[:, 0] / 4 + 1e-9).all()


def test_points_are_even_within_a_cut_node(domain):
    area = shapely.area(domain.polygon_of(np.arange(domain.n_nodes)))
    node = int(np.argmin(np.abs(area - 0.4 * domain.cell_size**2)))
    land = domain.polygon_of(np.array([node]))[0]
    got = points_in_nodes(domain, np.full(40_000, node), np.random.default_rng(0))
    west, south, east, north = land.bounds
    edges = np.linspace(west, east, 5), np.linspace(south, north, 5)
    seen = np.histogram2d(got[:, 0], got[:, 1], bins=edges)[0].ravel()
    left, low = (grid.ravel() for grid in np.meshgrid(edges[0][:-1], edges[1][:-1], indexing="ij"))
    cells = shapely.box(left, low, left + (east - west) / 4, low + (north - south) / 4)
    share = shapely.area(shapely.intersection(cells, land)) / land.area
    assert seen[share < 1e-12].sum() == 0
    fit = stats.chisquare(seen[share > 1e-12], 40_000 * share[share > 1e-12] / share.sum())
    assert fit.pvalue > 1e-3


def test_points_are_even_over_whole_cells():
    square = Domain.from_polygons(shapely.box(0, 0, 4, 4), cell_size=1, crs="local")
    got = coordinates(simulate_points(square, 5000.0, 2))
    for axis in range(2):
        assert stats.kstest(got[:, axis] / 4, "uniform").pvalue > 1e-3


def test_slivers_are_filled_too():
    sliver = shapely.Polygon([(0, 0), (10, 9.999), (10, 10), (0, 0.001)])
    thin = Domain.from_polygons(sliver, cell_size=5, crs="local", min_coverage=0.0)
    points = coordinates(simulate_points(thin, 200 / sliver.area, 3))
    assert 100 < len(points) < 300
    assert (thin.locate(points) >= 0).all()


def test_crs_units_and_seed():
    land = gpd.GeoSeries([shapely.box(100_000, 400_000, 120_000, 410_000)], crs=28992)
    place = Domain.from_polygons(land, cell_size=1000, crs=28992)
    points = simulate_points(place, 10.0, rng=7)
    assert points.crs == place.crs
    area = place.node_areas.sum() / 1e6
    assert abs(len(points) - 10 * area) < 5 * np.sqrt(10 * area)
    again = simulate_points(place, 10.0, rng=7)
    assert points.geometry.equals(again.geometry)
    other = simulate_points(place, 10.0, rng=8)
    assert len(other) != len(points) or not points.geometry.equals(other.geometry)
    order = coordinates(points)[:, 1]
    assert abs(np.corrcoef(order, np.arange(len(order)))[0, 1]) < 0.1, "rows come in random order"


def test_intensity_as_number_array_callable_raster(domain):
    rate = np.linspace(1, 2, domain.n_nodes)
    np.testing.assert_array_equal(node_intensity(domain, rate), rate)
    np.testing.assert_array_equal(node_intensity(domain, 3), 3.0)
    np.testing.assert_array_equal(node_intensity(domain, lambda c: c[:, 0] ** 2), domain.node_points[:, 0] ** 2)
    raster = dataset(domain, {"mean": domain.node_rows + 10.0 * domain.node_cols})["mean"]
    expected = raster.to_numpy()[domain.node_rows, domain.node_cols]
    np.testing.assert_allclose(node_intensity(domain, raster), expected)
    np.testing.assert_allclose(node_intensity(domain, raster.transpose()), expected)
    finer = raster.fillna(0.0).interp(
        easting=np.arange(-6, 10, 0.1), northing=np.arange(6, -6, -0.1), method="nearest",
        kwargs={"fill_value": "extrapolate"},
    )  # fmt: skip
    assert node_intensity(domain, finer).shape == (domain.n_nodes,)


def test_refusals(domain):
    with pytest.raises(DataError, match=rf"each of the domain's {domain.n_nodes} nodes; found shape \(3,\)"):
        simulate_points(domain, np.ones(3), 0)
    wrong = np.ones(domain.n_nodes)
    wrong[:2] = np.nan, -1
    with pytest.raises(DataError, match=rf"2 of {domain.n_nodes} nodes"):
        simulate_points(domain, wrong, 0)
    with pytest.raises(SizeError, match="events per unit area"):
        simulate_points(domain, 1e9, 0)
    with pytest.raises(DataError, match="northing and easting"):
        simulate_points(domain, dataset(domain, {"m": wrong})["m"].rename(northing="y"), 0)


def test_no_points(domain):
    none = simulate_points(domain, 0.0, 0)
    assert len(none) == 0 and none.geometry.name == "geometry"


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
@pytest.mark.parametrize("nu", [1.0, 1.5, 2.0])
def test_prior_draws_have_the_priors_covariance(domain, nu, boundary):
    kernel = Matern(nu, lengthscale=3.0, sd=0.8)
    if nu == 1.5:
        basis = HarmonicBasis.compute(domain, m=50, boundary=boundary, cache=False)
        values, features = basis.eigenvalues, basis.features
    else:
        basis = FullRank(domain, boundary=boundary)
        made = basis.discretisation
        values, vectors = np.linalg.eigh(made.matrix.toarray())
        values = np.maximum(values, 0.0)
        features = made.to_nodes @ (vectors / np.sqrt(made.mass)[:, None])
    exact = (features * kernel.spectral_density(np.sqrt(values))) @ features.T
    n = 6000
    draws = simulate_prior(basis, kernel, rng=1, n=n, scaling="natural")
    assert draws.shape == (n, domain.n_nodes)
    known = np.diag(exact) > 1e-6 * exact.max()
    scale = np.sqrt(np.diag(exact)[known])
    error = (np.cov(draws[:, known].T) - exact[np.ix_(known, known)]) / (scale[:, None] * scale)
    assert np.sqrt(np.mean(error**2)) < 2.5 / np.sqrt(n)
    np.testing.assert_array_equal(simulate_prior(basis, kernel, 1, 3), simulate_prior(basis, kernel, 1, 3))


def test_prior_draws_need_a_whole_kernel(domain):
    with pytest.raises(DataError, match=r"lengthscale and sd; found 3\.0 and None"):
        simulate_prior(FullRank(domain), Matern(1.0, lengthscale=3.0), 0)
    with pytest.raises(GeobgpError, match="squared exponential"):
        simulate_prior(FullRank(domain), SquaredExponential(3.0, 1.0), 0)


def test_an_intensity_raster_is_read_where_it_lies_or_refused():
    domain = island(2000.0)
    data = dataset(domain, {"rate": domain.node_points[:, 0] / 1e5})["rate"]
    here = node_intensity(domain, data)
    np.testing.assert_allclose(here, node_intensity(domain, data.isel(northing=slice(None, None, -1))))
    elsewhere = data.assign_coords(easting=data["easting"] + 1e6)
    with pytest.raises(DataError, match=r"does not reach [\d,]+ of [\d,]+ nodes of the land"):
        simulate_points(domain, elsewhere, 1)
    # A field of the same numbers in another CRS, at a finer step, is found again but for half a cell of its own.
    utm, step = pyproj.CRS(32631), 500.0
    corners = move(np.array(domain.grid.bounds).reshape(2, 2), domain.crs, utm)
    east, north = (np.arange(low - 2e4, high + 2e4, step) for low, high in corners.T)
    places = np.array(np.meshgrid(east, north)).reshape(2, -1).T
    values = move(places, utm, domain.crs)[:, 0].reshape(len(north), len(east)) / 1e5
    far = xr.DataArray(values, {"northing": north, "easting": east}, ("northing", "easting")).rio.write_crs(utm)
    easting = domain.grid.centres(domain.node_rows, domain.node_cols)[0]
    assert np.abs(node_intensity(domain, far) - easting / 1e5).max() < step / 1e5
    with pytest.raises(CRSError, match="the domain is local"):
        simulate_points(disc(), data, 1)
    bare = data.drop_vars("spatial_ref")
    np.testing.assert_allclose(node_intensity(domain, bare), here)
