"""The operator, judged by eigenvalues that are known in closed form."""

import numpy as np
import pytest
import scipy.linalg
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import eigsh
from scipy.special import jn_zeros, jnp_zeros
from shapely import affinity

from geobgp import Domain, DomainError
from geobgp.prior.laplacian import correct_eigenvalues, discretise, operator


def eigenvalues(domain, m, boundary, scheme="subcell"):
    matrix = operator(domain, boundary=boundary, scheme=scheme)
    values = np.sort(eigsh(matrix, k=m, sigma=-1e-2 / domain.cell_size, which="LM", return_eigenvectors=False))
    return correct_eigenvalues(values, domain.cell_size)


def rectangle_eigenvalues(width, height, m, boundary):
    first = 0 if boundary == "neumann" else 1
    k, j = np.meshgrid(np.arange(first, 60), np.arange(first, 60))
    return np.sort(((np.pi * k / width) ** 2 + (np.pi * j / height) ** 2).ravel())[:m]


def disc_eigenvalues(m, boundary):
    zeros = jn_zeros if boundary == "dirichlet" else jnp_zeros
    values = [0.0] if boundary == "neumann" else []
    for order in range(45):
        values += list(np.repeat(zeros(order, 30) ** 2, 1 if order == 0 else 2))
    return np.sort(values)[:m]


def disc(cells, shift=(0.31, 0.17), turn=0.0):
    h = 2 / cells
    angle = np.linspace(0, 2 * np.pi, 8000, endpoint=False) + turn
    # A polygon inside the circle, widened to the circle's own area.
    radius = np.sqrt(2 * np.pi / (8000 * np.sin(2 * np.pi / 8000)))
    outline = np.c_[radius * np.cos(angle) + shift[0] * h, radius * np.sin(angle) + shift[1] * h]
    return Domain.from_polygons(shapely.Polygon(outline), cell_size=h, crs="local")


def worst(found, exact):
    positive = exact > 0
    return np.abs(found[positive] / exact[positive] - 1).max()


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
def test_rectangle(boundary):
    domain = Domain.from_polygons(shapely.box(0, 0, 1, 0.7), cell_size=1 / 60, crs="local")
    error = worst(eigenvalues(domain, 50, boundary), rectangle_eigenvalues(1, 0.7, 50, boundary))
    assert error < 1e-4, f"largest relative error {error:.2e} over 50 eigenvalues of the {boundary} rectangle"


@pytest.mark.parametrize(("boundary", "paper"), [("dirichlet", 0.018), ("neumann", 0.047)])
def test_disc_beside_the_staircase(boundary, paper):
    domain, exact = disc(100), disc_eigenvalues(100, boundary)
    error = worst(eigenvalues(domain, 100, boundary), exact)
    stairs = worst(eigenvalues(domain, 100, boundary, "staircase"), exact)
    assert error <= 5e-4, f"{boundary}: subcell {error:.3%}, staircase {stairs:.3%}"
    assert stairs == pytest.approx(paper, rel=0.1), f"{boundary}: staircase {stairs:.3%}, the paper's {paper:.1%}"


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
def test_order_of_convergence(boundary):
    exact = disc_eigenvalues(40, boundary)
    errors = [worst(eigenvalues(disc(cells), 40, boundary), exact) for cells in (50, 100, 200)]
    order = np.log2(errors[0] / errors[2]) / 2
    assert order >= 1.8, f"{boundary}: errors {errors}, observed order {order:.2f}"


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
def test_shifting_or_turning_the_grid_changes_little(boundary):
    star_angle = np.linspace(0, 2 * np.pi, 2000, endpoint=False)
    radius = 1 + 0.25 * np.cos(5 * star_angle)
    star = shapely.Polygon(np.c_[radius * np.cos(star_angle), radius * np.sin(star_angle)])
    h, found = 0.02, []
    for shift, turn in [((0, 0), 0), ((0.37, 0.71), 0), ((0, 0), 11), ((0.5, 0.25), 38)]:
        moved = affinity.translate(affinity.rotate(star, turn, origin=(0, 0)), shift[0] * h, shift[1] * h)
        found.append(eigenvalues(Domain.from_polygons(moved, cell_size=h, crs="local"), 60, boundary))
    start = 1 if boundary == "neumann" else 0
    spread = (np.ptp(found, axis=0) / found[0])[start:].max()
    assert spread < 1e-3, f"{boundary}: eigenvalues differ by up to {spread:.3%}"


def test_joining_small_pieces_costs_no_exactness():
    exact = disc_eigenvalues(60, "neumann")
    h = 0.02
    for share in (0.0, 0.02, 0.1):
        domain = Domain.from_polygons(disc(100).geometry, cell_size=h, crs="local", min_coverage=share)
        error = worst(eigenvalues(domain, 60, "neumann"), exact)
        assert error < 5e-4, f"min_coverage {share}: {error:.3%}"


def test_thin_river_and_islands_have_a_zero_mode_each():
    square = shapely.box(0, 0, 1, 1)
    river = affinity.rotate(shapely.box(-1, 0.5, 2, 0.502), 17)
    land = shapely.union_all([square, shapely.box(1.2, 0.1, 1.45, 0.4)]).difference(shapely.box(0.2, 0.1, 0.3, 0.2))
    domain = Domain.from_polygons(land, water=river, cell_size=0.04, crs="local")
    values = scipy.linalg.eigvalsh(operator(domain).toarray())
    assert domain.n_components == 3
    assert (np.abs(values) < 1e-9 * values.max()).sum() == 3
    assert values[3] > 1e-3 * values.max() / 100


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
@pytest.mark.parametrize("scheme", ["subcell", "staircase"])
def test_symmetric_and_nonnegative(boundary, scheme):
    domain = Domain.from_polygons(
        disc(24).geometry.difference(shapely.box(-0.2, -0.3, 0.33, 0.2)),
        barriers=shapely.LineString([(-2, 0.4), (0.1, 0.5)]),
        cell_size=1 / 12,
        crs="local",
    )
    matrix = operator(domain, boundary=boundary, scheme=scheme).toarray()
    np.testing.assert_array_equal(matrix, matrix.T)
    assert scipy.linalg.eigvalsh(matrix).min() > (-1e-10 if boundary == "neumann" else 1e-3)


def loop_neumann(mask, h):
    """The operator on whole cells, one cell at a time, from the blocks of the design."""
    index = {cell: k for k, cell in enumerate(zip(*np.nonzero(mask), strict=True))}
    matrix = np.zeros((len(index), len(index)))

    def link(a, b, weight):
        if a in index and b in index:
            i, j = index[a], index[b]
            matrix[i, i] += weight
            matrix[j, j] += weight
            matrix[i, j] -= weight
            matrix[j, i] -= weight

    for r in range(-1, mask.shape[0]):
        for c in range(-1, mask.shape[1]):
            a, b, d, e = (r, c), (r, c + 1), (r + 1, c), (r + 1, c + 1)
            full = all(cell in index for cell in (a, b, d, e))
            for pair in ((a, b), (d, e), (a, d), (b, e)):
                link(*pair, 1 / 3 if full else 1 / 2)
            if full:
                link(a, e, 1 / 6)
                link(b, d, 1 / 6)
    return matrix / h**2


def loop_dirichlet(mask, h):
    """Whole cells: a shore on the cell edge is met halfway to the neighbour, in all eight directions."""
    index = {cell: k for k, cell in enumerate(zip(*np.nonzero(mask), strict=True))}
    matrix = np.zeros((len(index), len(index)))
    for (r, c), k in index.items():
        for dr in (-1, 0, 1):
            for dc in (-1, 0, 1):
                if dr == dc == 0:
                    continue
                weight = 2 / 3 if dr == 0 or dc == 0 else 1 / 6
                # The way to a diagonal neighbour runs through the corner: open only if nothing there is
                # water.
                way = {(r + dr, c + dc), (r + dr, c), (r, c + dc)}
                if way <= set(index):
                    matrix[k, k] += weight
                    matrix[k, index[(r + dr, c + dc)]] -= weight
                else:
                    matrix[k, k] += 2 * weight
    # Two neighbours before one straight shore: the diagonal ways mirror each other's values.
    for r, c in index:
        for dr, dc in ((0, 1), (1, 0)):
            for side in (1, -1):
                pair = [(r, c), (r + dr, c + dc)]
                behind = [(row + dc * side, col + dr * side) for row, col in pair]
                if pair[1] in index and not set(behind) & set(index):
                    difference = np.zeros(len(index))
                    difference[index[pair[0]]], difference[index[pair[1]]] = 1, -1
                    matrix -= np.outer(difference, difference) / 6
    return matrix / h**2


@given(st.integers(0, 10_000), st.integers(2, 7), st.integers(2, 7))
@settings(max_examples=40, deadline=None)
def test_loop_written_reference(seed, rows, cols):
    mask = np.random.default_rng(seed).random((rows, cols)) < 0.7
    mask[0, 0] = mask[-1, -1] = True
    h = 0.5
    r, c = np.nonzero(mask)
    top = rows * h
    land = shapely.union_all(shapely.box(c * h, top - (r + 1) * h, (c + 1) * h, top - r * h))
    domain = Domain.from_polygons(land, cell_size=h, crs="local")
    np.testing.assert_allclose(operator(domain).toarray(), loop_neumann(mask, h), atol=1e-10)
    np.testing.assert_allclose(operator(domain, boundary="dirichlet").toarray(), loop_dirichlet(mask, h), atol=1e-6)


def test_dirichlet_values_fall_to_zero_at_the_shore():
    domain = disc(40)
    made = discretise(domain, boundary="dirichlet")
    vectors = eigsh(made.matrix, k=1, sigma=0)[1]
    feature = vectors[:, 0] / np.sqrt(made.mass)
    centre = np.array([0.31, 0.17]) * domain.cell_size
    angle = np.linspace(0, 2 * np.pi, 200)
    ring = np.c_[np.cos(angle), np.sin(angle)]
    inner = np.abs(made.at(centre + 0.02 * ring)[0] @ feature).mean()
    for distance in (0.03, 0.01, 1e-3, 1e-5):
        matrix, inside = made.at(centre + (1 - distance) * ring)
        assert inside.all()
        # J0 falls by 1.249 times the distance, against 1 in the middle.
        ratio = np.abs(matrix @ feature) / inner
        assert ratio.mean() == pytest.approx(1.249 * distance, rel=0.03), f"{distance}: {ratio.mean()}"
        assert ratio.max() < 1.06 * 1.249 * distance, f"{distance}: {ratio.max()}"
    off = made.at(centre + 1.01 * ring)
    assert not off[1].any() and off[0].nnz == 0


def test_correction_undoes_the_dispersion_of_plane_waves():
    h = 0.1
    a, b = np.meshgrid(np.linspace(0.01, 0.8, 30), np.linspace(0.01, 0.8, 30))
    symbol = (10 / 3 - 4 / 3 * (np.cos(a) + np.cos(b)) - 2 / 3 * np.cos(a) * np.cos(b)) / h**2
    true = (a**2 + b**2) / h**2
    error = np.abs(correct_eigenvalues(symbol, h) / true - 1)
    paper = np.abs(2 * symbol / (1 + np.sqrt(1 - symbol * h**2 / 3)) / true - 1)
    assert error.max() < 1.6e-3 and error.max() < paper.max() / 3
    # Every value the operator can have, up to 16/3 h⁻², has a correction, and their order stays.
    values = correct_eigenvalues(np.linspace(0, 16 / 3, 200) / h**2, h)
    assert values[0] == 0 and (np.diff(values) > 0).all()
    # Neighbours that differ in their last bits keep their order too.
    for value in (0.3, 1.7, 4.9):
        close = value / h**2 * (1 + np.finfo(float).eps * np.arange(300))
        assert (np.diff(correct_eigenvalues(close, h)) >= 0).all()


def test_unknown_names_are_refused():
    with pytest.raises(DomainError, match=r"boundary must be .*; found 'robin'"):
        operator(disc(10), boundary="robin")


def test_dirichlet_without_a_centre_on_land():
    thin = shapely.box(0.0, 0.1, 5.0, 0.3)
    domain = Domain.from_polygons(thin, cell_size=1.0, crs="local")
    with pytest.raises(DomainError, match="No cell of 1 has its centre on land"):
        operator(domain, boundary="dirichlet")
