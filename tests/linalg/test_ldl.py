"""The factor counts eigenvalues below its shift and solves; both against dense algebra."""

import numpy as np
import pytest
import scipy.sparse as sp
from grids import grid_laplacian, irregular
from scipy.linalg import eigvalsh

from geobgp.linalg.sparse import LDL, Fronts


@pytest.fixture(scope="module")
def matrix() -> sp.csr_array:
    return grid_laplacian(irregular(2600, seed=3, connected=True), "neumann", shore=True)


@pytest.fixture(scope="module")
def fronts(matrix) -> Fronts:
    return Fronts.of(matrix)


def test_order_is_a_permutation_and_blocks_cover_it(matrix, fronts):
    n = matrix.shape[0]
    assert np.array_equal(np.sort(fronts.order), np.arange(n))
    assert sorted((f.start, f.stop) for f in fronts.fronts)[0][0] == 0
    assert sum(f.stop - f.start for f in fronts.fronts) == n
    # The halves of every cut are not linked: the factor of a grid stays sparse.
    entries = sum((f.stop - f.start) * (f.stop - f.start + len(f.border)) for f in fronts.fronts)
    assert entries < 0.15 * n**2, f"{entries / n**2:.3f} of a dense factor"


@pytest.fixture(scope="module")
def spectrum(matrix) -> np.ndarray:
    return eigvalsh(matrix.toarray())


@pytest.mark.parametrize("shift", [-0.3, 1e-4, 0.05, 0.4, 1.1, 3.0, 6.0, 100.0])
def test_counts_and_solves(matrix, fronts, spectrum, shift):
    factor = LDL(fronts, matrix.data, shift)
    below = int(np.sum(spectrum < shift))
    assert factor.negative == below, f"{factor.negative} counted, {below} below {shift}"
    right = np.random.default_rng(1).standard_normal((matrix.shape[0], 5))
    x = factor.solve(right)
    error = np.abs(matrix @ x - shift * x - right).max() / np.abs(x).max()
    assert error < 1e-11, f"residual {error:.1e}"


def test_right_hand_side_is_left_alone_in_either_order(matrix, fronts):
    factor = LDL(fronts, matrix.data, 0.3)
    right = np.random.default_rng(1).standard_normal((matrix.shape[0], 3))
    kept = right.copy()
    first = factor.solve(right)
    second = factor.solve(np.asfortranarray(right))
    assert np.array_equal(right, kept)
    assert np.array_equal(first, second)


def test_graphs_that_no_cut_divides():
    n = 400
    star = sp.lil_array((n, n))
    star[0, 1:] = star[1:, 0] = -1.0
    star.setdiag(1.0)
    star[0, 0] = n - 1.0
    star = sp.csr_array(star)
    factor = LDL(Fronts.of(star), star.data, 0.5)
    assert factor.negative == 1
    x = factor.solve(np.eye(n)[:, :2])
    assert np.allclose(star @ x - 0.5 * x, np.eye(n)[:, :2], atol=1e-10)


def test_one_unknown():
    one = sp.csr_array(np.array([[2.0]]))
    factor = LDL(Fronts.of(one), one.data, 3.0)
    assert factor.negative == 1
    assert factor.solve(np.array([[1.0]])).tolist() == [[-1.0]]
