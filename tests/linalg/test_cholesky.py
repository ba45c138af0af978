import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from geobgp.linalg.sparse import Cholesky, Fronts


def lattice(mask, reach, seed=0):
    """Return a random positive definite matrix that joins cells within `reach`, and the cells."""
    rows, cols = np.nonzero(mask)
    index = np.full(mask.shape, -1)
    index[rows, cols] = np.arange(len(rows))
    rng = np.random.default_rng(seed)
    i, j = [], []
    for dr in range(-reach, reach + 1):
        for dc in range(-reach, reach + 1):
            r, c = rows + dr, cols + dc
            ok = (r >= 0) & (r < mask.shape[0]) & (c >= 0) & (c < mask.shape[1])
            other = np.where(ok, index[np.where(ok, r, 0), np.where(ok, c, 0)], -1)
            here = np.flatnonzero((other >= 0) & (other < np.arange(len(rows))))
            i.append(here)
            j.append(other[here])
    i, j = np.concatenate(i), np.concatenate(j)
    value = rng.normal(size=len(i))
    n = len(rows)
    lower = sp.coo_array((value, (i, j)), shape=(n, n)).tocsr()
    matrix = lower + lower.T
    matrix = sp.csr_array(matrix + sp.diags_array(np.asarray(abs(matrix).sum(axis=1)).ravel() + 0.5))
    matrix.sort_indices()
    return matrix, np.column_stack([rows, cols]).astype(float)


def check(matrix, cells, leaf):
    fronts = Fronts.of(matrix, cells, leaf)
    factor = Cholesky(fronts, matrix.data)
    dense = matrix.toarray()
    inverse = np.linalg.inv(dense)
    rng = np.random.default_rng(1)
    right = rng.normal(size=(len(dense), 3))
    assert np.allclose(factor.solve(right), inverse @ right, atol=1e-10)
    assert np.allclose(factor.solve(right[:, 0]), inverse @ right[:, 0], atol=1e-10)
    assert factor.log_det == pytest.approx(np.linalg.slogdet(dense)[1], abs=1e-9)
    rows, cols = matrix.tocoo().coords
    assert np.allclose(factor.selected_inverse(matrix.nnz), inverse[rows, cols], atol=1e-11)
    half = factor.half_solve(np.eye(len(dense)))
    assert np.allclose(half @ half.T, inverse, atol=1e-10)
    assert sorted(fronts.order) == list(range(len(dense)))


@pytest.mark.parametrize("leaf", [1, 7, 30, 1000])
@pytest.mark.parametrize("reach", [1, 2, 3])
def test_everything_equals_dense_algebra(reach, leaf):
    mask = np.ones((13, 19), bool)
    mask[4:9, 6:9] = False  # a lake
    mask[:, 15] = False  # a strait
    check(*lattice(mask, reach), leaf)


@given(
    rows=st.integers(1, 12),
    cols=st.integers(1, 12),
    land=st.floats(0.2, 1.0),
    reach=st.integers(1, 3),
    leaf=st.integers(1, 40),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=80, deadline=None)
def test_any_scattering_of_islands(rows, cols, land, reach, leaf, seed):
    mask = np.random.default_rng(seed).uniform(size=(rows, cols)) < land
    mask[0, 0] = True
    check(*lattice(mask, reach, seed), leaf)


def test_several_unknowns_in_one_cell():
    matrix, cells = lattice(np.ones((6, 6), bool), 1)
    check(matrix, np.floor(cells / 3), 4)
    check(matrix, np.zeros_like(cells), 4)


def test_a_matrix_that_is_not_positive_definite_is_refused():
    matrix, cells = lattice(np.ones((8, 8), bool), 1)
    with pytest.raises(np.linalg.LinAlgError):
        Cholesky(Fronts.of(matrix, cells, 10), -matrix.data)


def test_the_same_numbers_on_every_run():
    matrix, cells = lattice(np.ones((20, 20), bool), 2)
    first = Cholesky(Fronts.of(matrix, cells), matrix.data).selected_inverse(matrix.nnz)
    second = Cholesky(Fronts.of(matrix, cells), matrix.data).selected_inverse(matrix.nnz)
    assert np.array_equal(first, second)


def test_fill_grows_like_n_log_n():
    sizes, entries = [], []
    for side in (24, 48, 96):
        matrix, cells = lattice(np.ones((side, side), bool), 2)
        sizes.append(side**2)
        entries.append(Fronts.of(matrix, cells).entries)
    per_node = np.array(entries) / np.array(sizes)
    assert per_node[2] - per_node[1] < 1.4 * (per_node[1] - per_node[0]) + 40
    assert Fronts.of(matrix, cells).memory > 8 * entries[-1]


def test_two_threads_give_the_same_numbers_as_one(monkeypatch):
    matrix, cells = lattice(np.ones((90, 90), bool), 2)
    fronts = Fronts.of(matrix, cells)
    assert len(fronts.limbs) == 2
    found = []
    for threads in (1, 2):
        monkeypatch.setattr("geobgp.linalg.blas.cores", lambda threads=threads: threads)
        factor = Cholesky(fronts, matrix.data)
        found.append([factor.selected_inverse(matrix.nnz), factor.solve(np.arange(8100.0))])
        with pytest.raises(np.linalg.LinAlgError):
            Cholesky(fronts, -matrix.data)
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])
    assert np.allclose(matrix @ found[0][1], np.arange(8100.0))


def test_limbs_have_about_the_same_work_and_nothing_to_do_with_each_other():
    matrix, cells = lattice(np.ones((120, 90), bool), 2)
    fronts = Fronts.of(matrix, cells)
    limb = np.full(len(fronts.batches), 2)
    for which, batches in enumerate(fronts.limbs):
        limb[batches.start : batches.stop] = which
    unknown = np.repeat(limb, [batch.stop - batch.start for batch in fronts.batches])
    work = np.repeat(limb, [len(batch.shapes) for batch in fronts.batches])
    flops = np.array([s.k * (s.k + s.b) ** 2 for batch in fronts.batches for s in batch.shapes])
    share = np.bincount(work, flops) / flops.sum()
    assert share[2] < 0.5 and max(share[:2]) < 1.5 * min(share[:2])
    inverse = np.empty(len(unknown), int)
    inverse[fronts.order] = unknown
    i, j = matrix.tocoo().coords
    assert not ((inverse[i] == 0) & (inverse[j] == 1)).any()


def test_without_pointers_to_the_routines_of_scipy(monkeypatch):
    """Where SciPy does not offer its BLAS by pointers, its Python functions give the same."""
    from geobgp.linalg import blas

    for name in ("dpotrf", "dpotri", "dtrsm", "dsyrk", "dsymm", "dgemm", "dtrsv", "dgemv"):
        monkeypatch.setattr(blas, name, getattr(blas, f"_{name}"))
    mask = np.ones((13, 19), bool)
    mask[4:9, 6:9] = False
    check(*lattice(mask, 2), 20)
    assert blas._pointer(np.linalg, "dgemm") is None
