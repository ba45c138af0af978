"""Features by connected part of the land: the same space as the whole operator's, small, and stored exactly."""

from functools import cache

import numpy as np
import pytest
import shapely
from models import archipelago

from geobgp.errors import CacheError
from geobgp.land.domain import Domain
from geobgp.model import LGCP
from geobgp.posterior import Posterior
from geobgp.prior import harmonic
from geobgp.prior.basis import dense, first_features, from_arrays, to_arrays
from geobgp.prior.harmonic import HarmonicBasis
from geobgp.prior.kernels import Matern


@cache
def islets(count: int = 20) -> Domain:
    """Two larger islands, one of them holding a lake, and a square of equal islets of a few cells."""
    small = [shapely.box(x, y, x + 1.4, y + 0.9) for x in range(0, 2 * count, 2) for y in range(20, 20 + 2 * count, 2)]
    large = [shapely.box(0, 0, 11, 9).difference(shapely.Point(4, 5).buffer(2)), shapely.Point(18, 6).buffer(4.5)]
    return Domain.from_polygons(shapely.union_all([*small, *large]), cell_size=0.5, crs="local")


@pytest.fixture(scope="module", params=[1, 13, 60])
def basis(request) -> HarmonicBasis:
    return HarmonicBasis.compute(archipelago(), request.param, cache=False)


def test_they_span_what_those_of_the_whole_operator_do(basis):
    made = basis.discretisation
    values, vectors = np.linalg.eigh(made.matrix.toarray())
    m = basis.m
    assert values[m] - values[m - 1] > 1e-6 * values[m], "the cut is between two eigenvalues"
    root = np.sqrt(made.mass)[:, None]
    ours = root * basis.vectors
    assert np.abs(ours @ ours.T - vectors[:, :m] @ vectors[:, :m].T).max() < 1e-6
    kernel = Matern(1.5, 2.0, 1.0)
    raw = np.einsum("ij,ij->j", ours, made.matrix @ ours)
    np.testing.assert_allclose(raw, values[:m], atol=1e-9 * values[-1])
    first = vectors[:, :m] / root
    exact = (first * kernel.spectral_density(np.sqrt(np.maximum(values[:m], 0)))) @ first.T
    found = (basis.vectors * kernel.spectral_density(np.sqrt(np.maximum(raw, 0)))) @ basis.vectors.T
    assert np.abs(found - exact).max() < 1e-6 * exact.max()


def test_every_part_has_its_own(basis):
    domain = basis.domain
    label = domain.components
    assert len(basis.parts) == domain.n_components
    seen = np.concatenate([part.columns for part in basis.parts])
    assert np.array_equal(np.sort(seen), np.arange(basis.m))
    for part in basis.parts:
        assert len(np.unique(label[part.unknowns])) == 1
        assert (np.diff(part.unknowns) > 0).all() and (np.diff(part.columns) > 0).all()
        assert len(part.unknowns) == (label == label[part.unknowns[0]]).sum()
        mass = basis.mass[part.unknowns][:, None]
        off = part.vectors.T @ (mass * part.vectors) - np.eye(len(part.columns))
        assert np.abs(off).max() < 1e-9
        assert np.array_equal(basis.vectors[np.ix_(part.unknowns, part.columns)], part.vectors)
    filled = sum(part.vectors.size for part in basis.parts)
    assert np.count_nonzero(basis.vectors) <= filled, "no feature leaves its part"


def test_values_by_part_are_the_values(basis):
    rng = np.random.default_rng(0)
    coords = rng.uniform((0, 0), (16, 10), (300, 2))
    coords = coords[basis.domain.locate(coords) >= 0]
    for at, whole in ((None, basis.features), (coords, basis.evaluate(coords))):
        n, rows, matrices, columns = basis.by_part(at)
        out = np.zeros((n, basis.m))
        for r, matrix, c in zip(rows, matrices, columns, strict=True):
            out[np.ix_(np.arange(n)[r], c)] = matrix
        np.testing.assert_allclose(out, whole, atol=1e-12)


def test_thousands_of_islets_cost_no_more_than_their_nodes():
    domain = islets(40)
    assert domain.n_components == 1602
    basis = HarmonicBasis.compute(domain, 50, cache=False)
    assert basis.m == 50 + 1601
    held = sum(part.vectors.size for part in basis.parts)
    assert held < 60 * domain.n_nodes < 0.05 * domain.n_nodes * basis.m
    assert (basis.eigenvalues[:1602] == 0).all() and (basis.eigenvalues[1602:] > 0).all()


def test_plain_arrays_give_the_parts_back(basis):
    n, m = len(basis.mass), basis.m
    again = from_arrays(to_arrays(basis.parts), n, m)
    assert np.array_equal(dense(again, n, m), basis.vectors)
    few = first_features(basis.parts, 4)
    assert np.array_equal(dense(few, n, 4), basis.vectors[:, :4])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda a: a | {"sizes": a["sizes"][:-1]},
        lambda a: a | {"sizes": a["sizes"].ravel()},
        lambda a: a | {"sizes": -a["sizes"]},
        lambda a: a | {"unknowns": a["unknowns"] + 10_000},
        lambda a: a | {"unknowns": np.zeros_like(a["unknowns"])},
        lambda a: a | {"unknowns": a["unknowns"] - 1},
        lambda a: a | {"columns": np.zeros_like(a["columns"])},
        lambda a: a | {"columns": a["columns"][:-1]},
        lambda a: a | {"vectors": a["vectors"][:-1]},
        lambda a: a | {"vectors": a["vectors"][None]},
    ],
)
def test_arrays_that_do_not_fit_are_refused(spoil):
    basis = HarmonicBasis.compute(archipelago(), 13, cache=False)
    with pytest.raises(CacheError, match="These are not"):
        from_arrays(spoil(to_arrays(basis.parts)), len(basis.mass), basis.m)


def test_the_cache_gives_parts_back_and_serves_fewer(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOBGP_CACHE_DIR", str(tmp_path))
    domain = islets(5)
    cases = ((30, 0.0), (12, 0.0), (4, 1.0))
    made = {(m, rho): HarmonicBasis.compute(domain, m, permeability=rho) for m, rho in cases}
    assert len(list(tmp_path.iterdir())) == 2, "one for each permeability; fewer features are read from more"
    monkeypatch.setattr(harmonic, "eigenpairs_by_part", lambda *a, **k: pytest.fail("computed again"))
    for (m, rho), first in made.items():
        again = HarmonicBasis.compute(domain, m, permeability=rho)
        assert np.array_equal(again.eigenvalues, first.eigenvalues)
        for a, b in zip(again.parts, first.parts, strict=True):
            assert np.array_equal(a.unknowns, b.unknowns) and np.array_equal(a.columns, b.columns)
            assert np.array_equal(a.vectors, b.vectors)
    assert made[12, 0.0].m == 12 + domain.n_components - 1
    assert np.array_equal(made[30, 0.0].truncate(12).vectors, made[12, 0.0].vectors)


@pytest.mark.parametrize(("m", "permeability"), [(3, 0.0), (40, 0.0), (6, 1.0)])
@pytest.mark.filterwarnings("ignore::geobgp.errors.MissedVarianceWarning")
def test_a_posterior_on_parted_land_is_read_as_it_was(m, permeability, tmp_path):
    domain = islets(5)
    basis = HarmonicBasis.compute(domain, m, permeability=permeability, cache=False)
    counts = np.random.default_rng(3).poisson(2.0 * domain.node_areas)
    posterior = LGCP(basis, Matern(1.5, 4.0, 0.8)).fit(counts)
    back = Posterior.load(posterior.save(tmp_path / "fit.geobgp"))
    assert back.basis_info == posterior.basis_info and back.scaling == posterior.scaling
    np.testing.assert_array_equal(back.node_intensity(), posterior.node_intensity())
    np.testing.assert_array_equal(back.sample(3, rng=1), posterior.sample(3, rng=1))
    places = domain.node_points[::5] + 0.03
    np.testing.assert_array_equal(back.intensity_at(places), posterior.intensity_at(places))
    for a, b in zip(back.fit.states[0].joint(), posterior.fit.states[0].joint(), strict=True):
        np.testing.assert_array_equal(a, b)
