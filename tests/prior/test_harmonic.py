"""The harmonic basis: modes, covariance, values anywhere, limits."""

import os
import subprocess
import sys

import numpy as np
import pytest
import shapely
from paths import ROOT

from geobgp.errors import DataError, SizeError
from geobgp.land.domain import Domain
from geobgp.prior import harmonic as module
from geobgp.prior.harmonic import HarmonicBasis

BOUNDARIES = ["neumann", "dirichlet"]


def local(geometry, cell_size, **kwargs) -> Domain:
    return Domain.from_polygons(geometry, cell_size=cell_size, crs="local", **kwargs)


def covariance(basis, first, second, lengthscale, nu=1.5):
    """sum_j s(sqrt(lambda_j)) phi_j phi_j' with the Matern spectral density in the plane, sd 1."""
    kappa2 = 2 * nu / lengthscale**2
    s = 4 * np.pi * nu * kappa2**nu * (kappa2 + basis.eigenvalues) ** -(nu + 1)
    return (first * s) @ second.T


@pytest.fixture(scope="module")
def archipelago() -> Domain:
    """A main land with a lake and a river thinner than a cell, two islands, an islet."""
    land = shapely.union_all(
        [
            shapely.Point(4.03, 4.02).buffer(3.0),
            shapely.Point(8.6, 1.55).buffer(1.2),
            shapely.box(7.43, 6.01, 9.2, 7.77),
            shapely.box(0.3, 0.2, 0.62, 0.6),
        ]
    )
    water = shapely.union_all(
        [shapely.Point(4.9, 5.4).buffer(0.8), shapely.LineString([(0, 3.2), (4, 2.93), (9, 3.41)]).buffer(0.02)]
    )
    return local(land, 0.15, water=water)


@pytest.fixture(scope="module", params=BOUNDARIES)
def basis(request, archipelago) -> HarmonicBasis:
    return HarmonicBasis.compute(archipelago, 120, boundary=request.param, cache=False)


@pytest.fixture(scope="module")
def square() -> Domain:
    return local(shapely.box(0, 0, 1, 1), 0.05)


# -- modes ---------------------------------------------------------------------------------------------------


def test_orthonormal_in_the_mass_and_residuals(basis):
    v, mass, domain = basis.vectors, basis.mass, basis.domain
    if basis.boundary == "neumann":
        assert np.array_equal(mass, domain.node_areas)
        assert np.shares_memory(basis.features, basis.vectors)
    else:
        assert np.allclose(mass, domain.cell_size**2)
        assert len(mass) == domain.holds_centre.sum()
        assert np.array_equal(basis.features[domain.holds_centre], basis.vectors)
    off = np.abs(v.T @ (mass[:, None] * v) - np.eye(basis.m)).max()
    assert off <= 1e-8, f"orthonormal only to {off:.1e}"
    matrix = basis.discretisation.matrix
    unit = v * np.sqrt(mass)[:, None]
    value = np.einsum("ij,ij->j", unit, matrix @ unit)
    residual = np.linalg.norm(matrix @ unit - unit * value, axis=0)
    moving = value > 1e-9 * value[-1]
    worst = (residual[moving] / value[moving]).max()
    assert worst <= 1e-6, f"residual {worst:.1e} of the eigenvalue"
    assert basis.features.shape == (domain.n_nodes, basis.m) and basis.features.flags.c_contiguous
    assert not basis.features.flags.writeable
    assert (np.diff(basis.eigenvalues) >= 0).all()
    constants = domain.n_components - 1 if basis.boundary == "neumann" else 0
    assert basis.m == 120 + constants, "the constants of all parts but one come on top"


def test_as_many_constants_as_pieces_of_land(archipelago):
    basis = HarmonicBasis.compute(archipelago, 40, cache=False)
    count = archipelago.n_components
    assert count == 5  # two sides of the river, two islands, an islet
    assert (basis.eigenvalues[:count] == 0).all(), basis.eigenvalues[: count + 1]
    assert basis.eigenvalues[count] > 1e-3
    area = np.bincount(archipelago.components, archipelago.node_areas)
    for j in range(count):
        value = basis.features[:, j]
        here = np.unique(archipelago.components[value != 0])
        assert len(here) == 1
        assert np.allclose(value[value != 0], 1 / np.sqrt(area[here[0]]), rtol=1e-9)
    dirichlet = HarmonicBasis.compute(archipelago, 40, boundary="dirichlet", cache=False)
    assert dirichlet.eigenvalues[0] > 0


def test_no_covariance_across_a_river(basis):
    """Not even between the banks of a river of a quarter of a cell, within one cell."""
    domain = basis.domain
    cov = covariance(basis, basis.features, basis.features, 2.0)
    different = domain.components[:, None] != domain.components[None, :]
    if basis.boundary == "neumann":
        assert np.abs(cov[different]).max() == 0.0
    else:  # an unknown of either side never reaches the other
        assert np.abs(cov[different]).max() <= 1e-12 * np.abs(cov).max()
    x = np.linspace(1.6, 6.4, 60)
    y = np.interp(x, [0, 4, 9], [3.2, 2.93, 3.41])
    north, south = (basis.evaluate(np.column_stack([x, y + d])) for d in (0.025, -0.025))
    assert np.isfinite(north).all() and np.isfinite(south).all()
    across = covariance(basis, north, south, 2.0)
    along = covariance(basis, north, north, 2.0)
    assert np.abs(across).max() <= 1e-12 * np.abs(along).max()
    if basis.boundary == "neumann":
        assert np.diagonal(along).min() > 0.1


def test_holes_do_not_add_constants():
    ring = shapely.Point(0, 0).buffer(1).difference(shapely.Point(0.1, 0).buffer(0.5))
    values = HarmonicBasis.compute(local(ring, 0.06), 10, cache=False).eigenvalues
    assert values[0] == 0 and values[1] > 0.1


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.slow
def test_covariance_is_matern_far_from_the_shore(boundary):
    """At a lengthscale well resolved, and many of them from the shore."""
    domain = local(shapely.box(0, 0, 12, 12), 0.2)
    basis = HarmonicBasis.compute(domain, 800, boundary=boundary, cache=False)
    lengthscale = 1.0
    missed = (1 + basis.eigenvalues[-1] * lengthscale**2 / 3) ** -1.5
    assert missed < 0.01
    distance = np.linspace(0, 3, 25)
    middle = np.array([[6.1, 6.1]])
    for direction in ([1, 0], [0, 1], [0.6, 0.8]):
        places = middle + distance[:, None] * np.array(direction)
        found = covariance(basis, basis.evaluate(middle), basis.evaluate(places), lengthscale)[0]
        r = np.sqrt(3) * distance / lengthscale
        error = np.abs(found - (1 + r) * np.exp(-r)).max()
        assert error < 0.03, f"{boundary}, direction {direction}: off by {error:.3f} of the variance"


def test_variance_vanishes_on_a_dirichlet_shore():
    domain = local(shapely.Point(0, 0).buffer(1, quad_segs=64), 0.06)
    basis = HarmonicBasis.compute(domain, 150, boundary="dirichlet", cache=False)
    angle = np.linspace(0, 2 * np.pi, 40)[:-1] + 0.01
    ray = np.column_stack([np.cos(angle), np.sin(angle)])

    def variance(radius):
        values = basis.evaluate(radius * ray)
        assert np.isfinite(values).all()
        return np.einsum("ij,ij->i", covariance(basis, values, np.eye(150), 0.5), values)

    inside, near, shore = variance(0.5).mean(), variance(0.98).max(), variance(0.9985).max()
    assert inside > 0.6
    assert near < 0.05 * inside, f"{near:.3f} two hundredths from the shore, {inside:.3f} inland"
    assert shore < 1e-3 * inside, f"{shore:.1e} at the shore"


# -- evaluate ------------------------------------------------------------------------------------------------


def test_at_centres_the_features_come_back(basis):
    domain = basis.domain
    whole = domain.holds_centre
    found = basis.evaluate(domain.node_points)
    assert found.shape == (domain.n_nodes, basis.m)
    gap = np.abs(found[whole] - basis.features[whole]).max()
    assert gap <= 1e-9 * np.abs(basis.features).max(), f"{gap:.1e}"
    assert np.isfinite(found).all()


def test_off_land_there_is_nothing(basis):
    off = [
        [4.9, 5.4],  # the lake
        [4.0, 2.93],  # the river
        [0.05, 8.9],  # the sea
        [-100, 3],  # beyond the grid
        [np.nan, 4],
        [4, np.inf],
    ]
    assert np.isnan(basis.evaluate(off)).all()
    assert basis.evaluate(np.empty((0, 2))).shape == (0, basis.m)
    mixed = basis.evaluate([[4.9, 5.4], [3.0, 4.0]])
    assert np.isnan(mixed[0]).all() and np.isfinite(mixed[1]).all()


def test_smooth_on_its_own_side(basis):
    """Along a way over land a step of a hundredth of a cell changes little: no jumps at cell edges."""
    domain = basis.domain
    step = domain.cell_size / 100
    way = np.column_stack([np.arange(2.0, 6.0, step), np.arange(2.0, 6.0, step) * 0 + 4.1])
    few = basis.evaluate(way)[:, :30]
    jump = np.abs(np.diff(few, axis=0)).max()
    steepest = np.sqrt(basis.eigenvalues[29]) * np.abs(basis.features[:, :30]).max()
    assert jump <= 3 * steepest * step, f"a jump of {jump:.2e} in a step of {step:.2e}"


@pytest.mark.parametrize("coords", [[1.0, 2.0], np.zeros((3, 3)), np.zeros((2, 2, 2))])
def test_coordinates_of_a_wrong_shape(basis, coords):
    with pytest.raises(DataError, match=r"\(k, 2\).*found the shape"):
        basis.evaluate(coords)


# -- limits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "words"),
    [
        (0, "at least 1; found 0"),
        (-3, "at least 1; found -3"),
        (2.5, "whole number of at least 1; found 2.5"),
        ("ten", "whole number of at least 1; found 'ten'"),
        (399, "399 .*400 unknowns give at most 398. Use m <= 398"),
        (100_000, "100,000 .* at most 398"),
    ],
)
def test_numbers_of_features_that_make_no_sense(square, m, words):
    with pytest.raises(SizeError, match=words):
        HarmonicBasis.compute(square, m, cache=False)


def test_as_many_features_as_there_can_be(square):
    basis = HarmonicBasis.compute(square, 398, cache=False)
    off = np.abs(basis.vectors.T @ (basis.mass[:, None] * basis.vectors) - np.eye(398)).max()
    assert off < 1e-8
    assert np.isfinite(basis.eigenvalues).all() and (np.diff(basis.eigenvalues) >= 0).all()


def test_very_few_nodes():
    two = local(shapely.box(0, 0, 2, 1), 1.0)
    with pytest.raises(SizeError, match=r"2 unknowns give at most 0\. Use a cell_size below 1"):
        HarmonicBasis.compute(two, 1, cache=False)
    four = local(shapely.box(0, 0, 2, 2), 1.0)
    basis = HarmonicBasis.compute(four, 2, cache=False)
    assert basis.eigenvalues[0] == 0
    assert np.allclose(basis.features[:, 0], 0.5)


def test_what_does_not_fit_into_memory_is_refused_first(square, monkeypatch):
    monkeypatch.setattr(module, "free_memory", lambda: 1_000_000)
    monkeypatch.setattr(module, "eigenpairs_by_part", lambda *a, **k: pytest.fail("should not start"))
    with pytest.raises(SizeError, match=r"90 features of 400 unknowns need about 0\.00\d+ GB .* 0\.001 GB are free"):
        HarmonicBasis.compute(square, 90, cache=False)


def test_free_memory_is_plausible():
    free = module.free_memory()
    assert free is None or 10_000_000 < free < 10**14


# -- truncate, plots, progress -------------------------------------------------------------------------------


def test_truncate(basis):
    few = basis.truncate(7)
    m = 7 + basis.m - 120  # and the constants
    assert few.m == m and few.features.flags.c_contiguous
    assert np.array_equal(few.features, basis.features[:, :m])
    assert np.array_equal(few.eigenvalues, basis.eigenvalues[:m])
    at = basis.domain.node_points[:5]
    assert np.allclose(few.evaluate(at), basis.evaluate(at)[:, :m], atol=1e-12)
    with pytest.raises(SizeError, match=f"{basis.m} features, fewer than m = 121"):
        basis.truncate(121)


def test_figures(basis):
    import matplotlib.pyplot as plt

    assert np.size(basis.plot(k=4)) >= 4
    plt.close("all")


def test_progress(square, capfd):
    told = []
    HarmonicBasis.compute(square, 10, cache=False, progress=told.append)
    assert told[0] == "operator" and told[-1] == "eigenpairs, 10 of 10"
    HarmonicBasis.compute(square, 10, cache=False, progress=True)
    shown = capfd.readouterr()
    assert shown.out == "" and "features" in shown.err and "10, neumann" in shown.err


def test_repr(square):
    text = repr(HarmonicBasis.compute(square, 5, cache=False))
    assert text.startswith("HarmonicBasis(m=5, neumann, subcell, 400 unknowns, eigenvalues 0 to")


def test_import_is_light():
    heavy = "{'matplotlib', 'rich', 'tensorflow'}"
    code = f"import sys, geobgp.prior.harmonic; print(sorted({heavy} & set(sys.modules)))"
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
