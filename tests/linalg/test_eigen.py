"""The smallest eigenpairs: exact, complete, orthonormal, and the same on every run."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from grids import grid_laplacian, irregular
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import HELPERS
from scipy.linalg import eigvalsh
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from geobgp.errors import SizeError
from geobgp.linalg import eigen
from geobgp.linalg.eigen import BLOCK, smallest_eigenpairs
from geobgp.progress import Stage


def judge(matrix, values, vectors, reference=None):
    """Fail, with figures, unless the pairs are eigenpairs, orthonormal, ascending and the smallest."""
    m = len(values)
    assert vectors.shape == (matrix.shape[0], m)
    assert (np.diff(values) >= 0).all() and values[0] >= 0
    residual = np.linalg.norm(matrix @ vectors - vectors * values, axis=0)
    top = max(values[-1], 1e-3 * np.median(matrix.diagonal()), 1e-300)
    tiny = values < 1e-6 * top
    relative = (residual[~tiny] / values[~tiny]).max(initial=0)
    assert relative <= 1e-6, f"residual {relative:.1e} of the eigenvalue"
    assert (residual[tiny] / top).max(initial=0) <= 1e-10, f"residual {residual[tiny].max():.1e} near zero"
    off = np.abs(vectors.T @ vectors - np.eye(m)).max()
    assert off <= 1e-10, f"orthonormal only to {off:.1e}"
    if reference is None:
        reference = eigvalsh(matrix.toarray(), subset_by_index=[0, m - 1])
    error = np.abs(values - reference).max() / top
    assert error <= 1e-9, f"eigenvalues off by {error:.1e} of the largest"


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
@pytest.mark.parametrize(("m", "seed"), [(1, 1), (7, 2), (190, 3)])
def test_equals_dense(boundary, m, seed):
    matrix = grid_laplacian(irregular(2200, seed), boundary, shore=boundary == "neumann")
    judge(matrix, *smallest_eigenpairs(matrix, m))


@given(
    mask=st.integers(0, 2**32).map(lambda s: irregular(60 + s % 900, seed=s)),
    boundary=st.sampled_from(["neumann", "dirichlet"]),
    share=st.floats(0.0, 1.0),
)
@settings(max_examples=25, deadline=None)
def test_small_matrices_of_any_shape(mask, boundary, share):
    """Components are swept, not solved densely, from 40 unknowns on; any m."""
    matrix = grid_laplacian(mask, boundary)
    n = matrix.shape[0]
    before, eigen._DENSE = eigen._DENSE, 40
    try:
        judge(matrix, *smallest_eigenpairs(matrix, max(1, round(share * n))))
    finally:
        eigen._DENSE = before


@pytest.mark.slow
@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
def test_none_is_missed(boundary):
    """Sturm's count by an independent factorisation: exactly m eigenvalues lie below the next gap."""
    matrix = grid_laplacian(irregular(9000, 5), boundary, shore=boundary == "neumann")
    m = 330
    values, vectors = smallest_eigenpairs(matrix, m + 1)
    judge(matrix, values, vectors, reference=values)
    level = (values[-2] + values[-1]) / 2
    shifted = (matrix - level * sp.eye_array(matrix.shape[0])).tocsc()
    lu = splu(shifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    assert np.array_equal(lu.perm_r, lu.perm_c)
    below = int(np.sum(lu.U.diagonal() < 0))
    assert below == m, f"{below} eigenvalues below the gap, {m} found"


def test_repeated_eigenvalues_of_a_square_and_their_axes():
    """The axes of a repeated eigenvalue depend neither on the run nor on m."""
    matrix = grid_laplacian(np.ones((40, 40), bool), "neumann")
    values, vectors = smallest_eigenpairs(matrix, 120)
    judge(matrix, values, vectors)
    doubles = np.flatnonzero(np.diff(values) < 1e-9 * values[1:])
    assert len(doubles) > 20
    for m in (doubles[3] + 1, doubles[-1] + 1, 50, 119):  # the first two cut a pair
        fewer, first = smallest_eigenpairs(matrix, int(m))
        assert np.abs(fewer - values[:m]).max() < 1e-10
        gap = np.abs(first - vectors[:, :m]).max()
        assert gap < 1e-6, f"m = {m}: vectors differ by {gap:.1e}"


def test_every_island_has_its_own():
    """Equal islands: one zero each, eigenvalues as often as there are islands, no vector on two of them."""
    for side, copies in ((9, (4, 5)), (25, (2, 2))):  # below and above the size for dense algebra
        mask = np.kron(np.ones(copies, bool), np.pad(np.ones((side, side), bool), 1))
        matrix = grid_laplacian(mask, "neumann")
        count = copies[0] * copies[1]
        m = 6 * count
        values, vectors = smallest_eigenpairs(matrix, m)
        judge(matrix, values, vectors)
        assert (values[:count] == 0).all() and values[count] > 0
        by_island = values.reshape(-1, count)
        assert np.ptp(by_island, axis=1).max() <= 1e-10 * values[-1]
        labels = connected_components(matrix)[1]
        touched = [len(np.unique(labels[v != 0])) for v in vectors.T]
        assert set(touched) == {1}
        # Zero modes come in the order of the islands, positive.
        assert [int(labels[np.argmax(v)]) for v in vectors.T[:count]] == list(range(count))
        assert (vectors[:, :count] >= 0).all()


@pytest.mark.parametrize("bridge", [1e-2, 1e-5, 1e-8, 1e-12])
def test_more_equal_eigenvalues_than_a_block_holds(bridge):
    """Twenty equal rooms, barely connected: clusters of twenty, closer than a Krylov space resolves."""
    room = grid_laplacian(np.ones((10, 10), bool), "neumann")
    rooms = 20
    assert rooms > BLOCK
    matrix = sp.block_diag([room] * rooms).tolil()
    for k in range(rooms - 1):
        a, b = 100 * k + 46, 100 * (k + 1) + 5
        matrix[a, a] += bridge
        matrix[b, b] += bridge
        matrix[a, b] -= bridge
        matrix[b, a] -= bridge
    matrix = sp.csr_array(matrix)
    values, vectors = smallest_eigenpairs(matrix, 130)
    reference = eigvalsh(matrix.toarray(), subset_by_index=[0, 129])
    assert np.abs(values - reference).max() <= 1e-10
    assert np.abs(vectors.T @ vectors - np.eye(130)).max() <= 1e-10
    residual = np.linalg.norm(matrix @ vectors - vectors * values, axis=0)
    assert (residual <= 1e-6 * values + 1e-11).all(), f"residual {residual.max():.1e}"


def test_spectra_unlike_a_grid_of_the_plane():
    """A path's eigenvalues grow with the square of their number: the first guess of a shift is far off."""
    n = 4000
    path = sp.csr_array(
        sp.diags_array([-np.ones(n - 1), np.r_[1.0, np.full(n - 2, 2.0), 1.0], -np.ones(n - 1)], offsets=[-1, 0, 1])
    )
    values, vectors = smallest_eigenpairs(path, 40)
    judge(path, values, vectors, reference=4 * np.sin(np.pi * np.arange(40) / (2 * n)) ** 2)


def test_the_unit_of_the_matrix_does_not_matter():
    matrix = grid_laplacian(irregular(1500, 4), "neumann", shore=True)
    values, vectors = smallest_eigenpairs(matrix, 60)
    small, same = smallest_eigenpairs(matrix * 2.0**-40, 60)
    assert np.array_equal(small, values * 2.0**-40)
    assert np.array_equal(same, vectors)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_all_of_a_few(n):
    matrix = sp.csr_array(np.full((n, n), -1.0) + n * np.eye(n))
    judge(matrix, *smallest_eigenpairs(matrix, n))


def test_isolated_unknowns():
    matrix = sp.csr_array((30, 30))
    values, vectors = smallest_eigenpairs(matrix, 4)
    assert (values == 0).all()
    assert np.array_equal(vectors, np.eye(30)[:, :4])


@pytest.mark.parametrize("m", [0, -1, 11])
def test_numbers_that_there_are_not(m):
    with pytest.raises(SizeError, match=rf"{m} eigenpairs .* 10 unknowns has from 1 to 10"):
        smallest_eigenpairs(sp.csr_array(np.eye(10)), m)


def test_progress_is_told():
    told = []
    matrix = grid_laplacian(irregular(2500, 4), "neumann")
    stage = Stage("features", lambda *words: told.append(words))
    smallest_eigenpairs(matrix, 90, stage=stage)
    assert told.pop(0) == ("eigenpairs", None, None)
    assert len(told) > 3
    assert {(stage, total) for stage, _, total in told} == {("eigenpairs", 90)}
    done = [done for _, done, _ in told]
    assert done[-1] == 90 and min(done) >= 0


_RUN = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from grids import grid_laplacian, irregular
from geobgp.linalg.eigen import smallest_eigenpairs
values, vectors = smallest_eigenpairs(grid_laplacian(irregular(3000, 4), "neumann", shore=True), 120)
print(hashlib.sha256(values.tobytes() + vectors.tobytes(order="F")).hexdigest())
"""


@pytest.mark.slow
def test_bit_for_bit_on_every_run_and_for_any_number_of_threads():
    here = HELPERS
    found = set()
    for threads in ("1", "2", "2"):
        variables = os.environ | {"OPENBLAS_NUM_THREADS": threads, "PYTHONPATH": str(here.parent)}
        run = subprocess.run(
            [sys.executable, "-c", _RUN, str(here)], env=variables, capture_output=True, text=True, check=True
        )
        found.add(run.stdout.strip())
    matrix = grid_laplacian(irregular(3000, 4), "neumann", shore=True)
    for _ in range(2):
        values, vectors = smallest_eigenpairs(matrix, 120)
        found.add(hashlib.sha256(values.tobytes() + vectors.tobytes(order="F")).hexdigest())
    assert len(found) == 1
