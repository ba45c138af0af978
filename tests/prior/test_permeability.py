"""Permeable water: closed and open limits, known eigenvalues and resistances, and what changes with ρ."""

import geopandas as gpd
import numpy as np
import pytest
import scipy.sparse as sp
import shapely
from hypothesis import given, settings
from scipy.optimize import brentq
from scipy.sparse.linalg import eigsh, splu
from shapely import affinity
from strategies import island_groups

from geobgp import Domain, DomainError
from geobgp.land.water import water_around
from geobgp.prior.laplacian import discretise, operator


def ragged_coast():
    """Land with a ragged coast, a lake, a pond and a river narrower than a cell."""
    t = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    r = 13 + 2 * np.sin(5 * t) + np.sin(17 * t + 1) + 0.5 * np.sin(41 * t)
    land = shapely.Polygon(np.c_[r * np.cos(t) + 0.123, r * np.sin(t) + 0.37])
    river = shapely.LineString([(-20, 6.2), (-3, 5.7), (3, 7.2), (20, 5)]).buffer(0.15)
    lakes = [shapely.Point(3, 1.8).buffer(2.6), shapely.Point(-8, -6).buffer(0.1), river]
    return Domain.from_polygons(land, water=shapely.union_all(lakes), cell_size=1, crs="local")


def strait(width=3.4):
    land = shapely.union(shapely.box(0, 0, 6, 10), shapely.box(6 + width, 0, 12 + width, 10))
    return Domain.from_polygons(land, cell_size=1, crs="local")


def with_reach(domain, reach):
    """The same domain with the water that lies within `reach` cells of its land."""
    domain.__dict__["water"] = water_around(domain, reach)
    return domain


def stiffness(made):
    root = sp.diags_array(np.sqrt(made.mass))
    return sp.csr_array(root @ made.matrix @ root)


def correlations(made, lengthscale, unknowns=None):
    """Correlations at ν = 1 between unknowns (by default all nodes), and their prior sd."""
    unknowns = np.arange(made.n_nodes) if unknowns is None else unknowns
    matrix = made.matrix + sp.diags_array(np.full(len(made.mass), 2 / lengthscale**2))
    right = np.zeros((len(made.mass), len(unknowns)))
    right[unknowns, np.arange(len(unknowns))] = 1 / np.sqrt(made.mass[unknowns])
    half = splu(sp.csc_array(matrix)).solve(right)
    covariance = half.T @ half
    sd = np.sqrt(np.diag(covariance))
    return covariance / np.outer(sd, sd), sd


def facing_beaches(domain):
    """The two nodes in mid-height on either side of the strait."""
    middle = domain.node_rows == domain.grid.shape[0] // 2
    east = domain.components == domain.components[np.argmax(domain.node_cols)]
    west = np.flatnonzero(middle & ~east)
    return west[np.argmax(domain.node_cols[west])], np.flatnonzero(middle & east)[
        np.argmin(domain.node_cols[np.flatnonzero(middle & east)])
    ]


def test_closed_water_is_left_out():
    domain = ragged_coast()
    closed = operator(domain)
    same = operator(domain, permeability=0.0)
    assert (closed != same).nnz == 0 and closed.shape == (domain.n_nodes, domain.n_nodes)
    assert "water" not in domain.__dict__, "the water is not even looked at"
    # Next to no permeability is next to closed: the land's own part of the matrix tends to it.
    gap = [
        abs(operator(domain, permeability=rho)[: domain.n_nodes][:, : domain.n_nodes] - closed).max()
        for rho in (1e-2, 1e-3)
    ]
    assert gap[1] < 2e-3 and gap[0] / gap[1] == pytest.approx(100, rel=0.05), f"differences {gap}"


def test_open_water_is_a_grid_without_shores():
    domain = with_reach(ragged_coast(), 24)
    water = domain.water
    west, north = water.grid.from_cells(water.cols, water.rows)
    squares = shapely.box(west, north - water.side, west + water.side, north)
    plain = Domain.from_geometry(shapely.union_all([*squares, domain.geometry.buffer(1)]), water.grid)
    assert plain.node_areas.sum() == pytest.approx(water.area.sum() + domain.node_areas.sum())
    place = plain.locate(domain.node_points)
    lengthscale = 8.0
    found, sd = correlations(discretise(domain, permeability=1.0), lengthscale)
    exact, sd_exact = correlations(discretise(plain), lengthscale, place)
    xy = np.column_stack([domain.node_cols, domain.node_rows])
    near = np.hypot(*(xy[:, None] - xy).T) <= 2 * lengthscale
    error = np.abs(found - exact)[near].max()
    assert error < 0.03, f"largest difference of correlations {error:.4f}"
    whole = domain.pieces.whole[domain.node_rows, domain.node_cols]
    relative = np.abs(found / exact - 1)[near & whole[:, None] & whole].max()
    assert relative < 0.03, f"largest relative difference between whole cells {relative:.4f}"
    np.testing.assert_allclose(sd, sd_exact, rtol=0.03)


def test_wide_water_may_be_merged(monkeypatch):
    land = [shapely.box(0, 0, 6, 10), shapely.box(22.3, 0, 28, 10), shapely.Point(14, 25).buffer(4)]
    wall = shapely.box(-30.5, -30.5, 58.5, 59.5).boundary
    found = []
    for grading in (1, 1000):
        monkeypatch.setattr("geobgp.land.water.GRADING", grading)
        domain = Domain.from_polygons(shapely.union_all(land), barriers=wall, cell_size=1, crs="local")
        made = discretise(with_reach(domain, 50), permeability=1.0)
        found.append((len(made.mass), correlations(made, 12.0)[0]))
    assert found[0][0] < 0.4 * found[1][0]
    np.testing.assert_allclose(found[0][1], found[1][1], atol=0.01)


@pytest.mark.parametrize("lengthscale", [3.0, 10.0])
def test_correlation_across_a_strait_grows_with_permeability(lengthscale):
    domain = strait()
    a, b = facing_beaches(domain)
    across = [
        correlations(discretise(domain, permeability=rho), lengthscale)[0][a, b]
        for rho in (0.0, 0.03, 0.1, 0.3, 0.6, 1.0)
    ]
    assert across[0] == 0.0
    assert (np.diff(across) > 0).all(), f"correlations {np.round(across, 4)}"


def test_rivers_resist_by_their_width_wherever_they_lie_in_a_cell():
    """Current from one end of a walled strip to the other meets length of land + length of water / ρ²."""
    for width in (0.01, 0.3, 1.7):
        for start in (4.0, 4.23, 4.5, 4.71, 5 - width / 2):
            land = shapely.union(shapely.box(0, 0, start, 1), shapely.box(start + width, 0, 12, 1))
            domain = Domain.from_polygons(land, barriers=shapely.box(0, 0, 12, 1).boundary, cell_size=1, crs="local")
            for rho in (0.1, 0.5, 1.0):
                made = discretise(domain, permeability=rho)
                ends = np.array([np.argmin(domain.node_cols), np.argmax(domain.node_cols)])
                matrix = stiffness(made).toarray()
                current = np.zeros(len(matrix))
                current[ends] = 1.0, -1.0
                potential = np.linalg.lstsq(matrix, current, rcond=None)[0]
                found = potential[ends[0]] - potential[ends[1]]
                exact = 11 - width + width / rho**2
                # Land and water of one cell are held some way apart, more so where one is small.
                assert found == pytest.approx(exact, rel=1e-3, abs=0.25), (width, start, rho)


def transmission_eigenvalues(land, water, rho, m):
    """Eigenvalues of -(c u')' on land + water with closed ends, c = 1 and then ρ²."""

    def crossing(p):
        return np.sin(p * land) * np.cos(p / rho * water) + rho * np.cos(p * land) * np.sin(p / rho * water)

    p = np.linspace(0.01, 40, 40_001)
    change = np.flatnonzero(np.diff(np.sign(crossing(p))))[:m]
    return np.array([brentq(crossing, p[k], p[k + 1]) for k in change]) ** 2


@pytest.mark.parametrize("turn", [0.0, 27.0, 45.0])
@pytest.mark.parametrize("rho", [0.4, 0.8])
def test_eigenvalues_of_a_strip_half_under_water_converge(turn, rho):
    exact = transmission_eigenvalues(0.43, 0.57, rho, 3)
    errors = []
    for cells in (24, 48, 96):
        shape = shapely.box(0, 0, 1, 0.04), shapely.box(0, 0, 0.43, 0.04)
        box, land = (affinity.translate(affinity.rotate(s, turn, (0, 0)), 0.0031, 0.0017) for s in shape)
        domain = Domain.from_polygons(land, barriers=box.boundary, cell_size=1 / cells, crs="local")
        matrix = operator(with_reach(domain, cells), permeability=rho)
        found = np.sort(eigsh(matrix, k=4, sigma=-1.0, return_eigenvectors=False))
        assert abs(found[0]) < 1e-8
        errors.append(np.abs(found[1:] / exact - 1).max())
    order = np.log2(errors[0] / errors[2]) / 2
    assert errors[2] < 0.004 and order > 1.3, f"errors {errors}, observed order {order:.2f}"


@settings(max_examples=15, deadline=None)
@given(island_groups(2))
def test_the_matrix_is_a_laplacian(land):
    domain = with_reach(Domain.from_polygons(land, cell_size=0.8, crs="local"), 8)
    for rho in (0.05, 0.7, 1.0):
        made = discretise(domain, permeability=rho)
        matrix = stiffness(made)
        assert abs(made.matrix - made.matrix.T).max() == 0
        np.testing.assert_allclose(matrix.sum(axis=1), 0.0, atol=1e-9)
        off = matrix - sp.diags_array(matrix.diagonal())
        assert off.max() <= 1e-12, "no negative conductance"
        values = np.linalg.eigvalsh(made.matrix.toarray())
        assert values[0] > -1e-9 and values[0] < 1e-9 < values[1], "everything is connected: one constant"


def test_places_take_their_values_from_land():
    domain = strait()
    closed, permeable = discretise(domain), discretise(domain, permeability=0.5)
    n, u = permeable.to_nodes.shape
    assert n == permeable.n_nodes == domain.n_nodes < u == len(permeable.mass)
    assert abs(permeable.to_nodes[:, :n] - sp.eye_array(n)).max() == 0 and permeable.to_nodes.nnz == n
    np.testing.assert_array_equal(permeable.mass[:n], domain.node_areas)
    coords = np.array([[0.7, 3.2], [5.9, 0.1], [7.0, 5.0]])
    (plain, inside), (rows, inside_too) = closed.at(coords), permeable.at(coords)
    np.testing.assert_array_equal(inside, inside_too)
    np.testing.assert_array_equal(rows.toarray()[:, :n], plain.toarray())
    assert not rows.toarray()[:, n:].any()
    offset = permeable.cells[:n] - np.column_stack([domain.node_rows, domain.node_cols])
    assert (offset == offset[0, 0]).all() and offset[0, 0] % 2 == 0
    assert len(permeable.cells) == len(permeable.sides) == u


@pytest.mark.parametrize("kind", [{"boundary": "dirichlet"}, {"scheme": "staircase"}])
def test_only_neumann_and_subcell_know_water(kind):
    with pytest.raises(DomainError, match=r"only under Neumann.*permeability = 0\.5"):
        discretise(strait(), permeability=0.5, **kind)


@pytest.mark.parametrize("rho", [-0.1, 1.2, float("nan")])
def test_permeability_is_a_share(rho):
    with pytest.raises(DomainError, match=r"from 0 \(closed\) to 1 \(as land\)"):
        discretise(strait(), permeability=rho)


def with_bridge(width=None, length=3.0, gap=3.0):
    """Two islands and a bridge as long as wanted: it runs to the south and back."""
    land = shapely.union(shapely.box(0, 0, 6, 10), shapely.box(6 + gap, 0, 12 + gap, 10))
    detour = (length - gap) / 2
    line = shapely.LineString([(5, 5.5), (6.5, 5.5), (6.5, 5.5 - detour), (8.5, 5.5 - detour), (8.5, 5.5), (10, 5.5)])
    columns = {} if width is None else {"width": [width]}
    bridges = gpd.GeoDataFrame(columns, geometry=[line])
    return Domain.from_polygons(land, bridges=bridges, cell_size=1, crs="local")


@pytest.mark.parametrize("rho", [0.0, 0.2])
def test_a_bridge_raises_the_covariance_of_its_ends_by_its_width_and_length(rho):
    domain = with_bridge()
    a, b = domain.bridges.first[0], domain.bridges.second[0]

    def across(domain):
        return correlations(discretise(domain, permeability=rho), 6.0)[0][a, b]

    none = across(strait(3.0))
    widths = [across(with_bridge(width)) for width in (0.2, 1.0, 3.0)]
    assert none < widths[0] < widths[1] < widths[2]
    assert across(with_bridge(1.0)) == pytest.approx(across(domain), rel=1e-12), "one cell unless given"
    assert across(with_bridge(1.0, 6.0)) < across(with_bridge(1.0, 3.0))
    assert across(with_bridge(2.0, 6.0)) == pytest.approx(across(with_bridge(1.0, 3.0)), rel=1e-9)


def test_a_bridge_changes_nothing_but_the_link_of_its_two_nodes():
    domain = with_bridge(2.0)
    a, b = domain.bridges.first[0], domain.bridges.second[0]
    more = (stiffness(discretise(domain)) - stiffness(discretise(strait(3.0)))).toarray()
    expected = np.zeros_like(more)
    expected[[a, b], [a, b]], expected[[a, b], [b, a]] = 2 / 3, -2 / 3
    np.testing.assert_allclose(more, expected, atol=1e-12)


@pytest.mark.parametrize("kind", [{"boundary": "dirichlet"}, {"scheme": "staircase"}])
def test_bridges_only_with_neumann_and_subcell(kind):
    with pytest.raises(DomainError, match="Bridges join land only under Neumann"):
        discretise(with_bridge(), **kind)


def test_water_that_lets_next_to_nothing_through_is_closed():
    closed, nearly = (discretise(strait(), permeability=rho) for rho in (0.0, 1e-288))
    assert nearly.permeability == 0.0 and (closed.matrix != nearly.matrix).nnz == 0
