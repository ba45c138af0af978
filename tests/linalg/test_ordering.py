"""Nested dissection: a valid order of elimination for any graph, and a sparse one for graphs like a grid."""

import numpy as np
import pytest
import scipy.sparse as sp
from grids import grid_laplacian, irregular
from hypothesis import given, settings
from hypothesis import strategies as st

from geobgp.linalg.sparse import Cholesky, Fronts, nested_dissection


def judge(pattern, ordering):
    """Fail unless all unknowns are ordered, and links lead only to fronts below or above one's own."""
    n, count = pattern.shape[0], len(ordering.parents)
    assert sorted(ordering.order) == list(range(n))
    size = np.diff(ordering.starts)
    assert len(size) == count and (size > 0).all() and ordering.starts[-1] == n
    above = np.zeros((count, count), bool)
    for k in reversed(range(count)):
        above[k, k] = True
        if ordering.parents[k] >= 0:
            assert ordering.parents[k] > k
            above[k] |= above[ordering.parents[k]]
    front = np.empty(n, int)
    front[ordering.order] = np.repeat(np.arange(count), size)
    i, j = (front[c] for c in pattern.tocoo().coords)
    assert (above[i, j] | above[j, i]).all()


@given(
    rows=st.integers(1, 25),
    cols=st.integers(1, 25),
    land=st.floats(0.1, 1.0),
    reach=st.integers(1, 2),
    leaf=st.integers(1, 40),
    with_coords=st.booleans(),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=60, deadline=None)
def test_links_lead_only_up_and_down(rows, cols, land, reach, leaf, with_coords, seed):
    mask = np.random.default_rng(seed).uniform(size=(rows, cols)) < land
    mask[0, 0] = True
    pattern = grid_laplacian(mask, "dirichlet")
    if reach == 2:
        pattern = sp.csr_array(pattern @ pattern)
    judge(pattern, nested_dissection(pattern, np.argwhere(mask) if with_coords else None, leaf))


@pytest.mark.parametrize("with_coords", [True, False])
def test_narrow_places_are_found(with_coords):
    """Two squares of unequal size, joined by a bridge one cell wide: a cell of it is eliminated last."""
    mask = np.zeros((30, 60), bool)
    mask[:30, :30] = mask[:24, 36:] = mask[10, 30:36] = True
    pattern = grid_laplacian(mask, "neumann")
    found = nested_dissection(pattern, np.argwhere(mask) if with_coords else None)
    judge(pattern, found)
    last = np.argwhere(mask)[found.order[found.starts[-2] :]]
    on_bridge = (last[:, 0] == 10) & (last[:, 1] >= 30) & (last[:, 1] < 36)
    assert on_bridge.sum() == 1 and len(last) < 50, last


@pytest.mark.parametrize("with_coords", [True, False])
def test_the_factor_of_a_grid_is_sparse(with_coords):
    """Entries of a factor per unknown grow like the logarithm of their number."""
    per_unknown = []
    for side in (32, 64, 128):
        mask = np.ones((side, side), bool)
        fronts = Fronts.of(grid_laplacian(mask, "neumann"), np.argwhere(mask) if with_coords else None)
        per_unknown.append(fronts.entries / side**2)
    steps = np.diff(per_unknown)
    assert per_unknown[-1] < 100 and steps[1] < 1.5 * steps[0] + 5, per_unknown


@pytest.mark.parametrize("with_coords", [True, False])
def test_an_archipelago_of_thousands_of_islets(with_coords):
    """Islets share fronts, so that there are not more of them than on one land of as many cells."""
    rng = np.random.default_rng(3)
    islets = np.pad(rng.uniform(size=(3000, 4, 4)) < 0.7, ((0, 0), (0, 1), (0, 1)))
    islets[:, 1:3, 1:3] = True
    mask = islets.reshape(50, 60, 5, 5).transpose(0, 2, 1, 3).reshape(250, 300)
    matrix = grid_laplacian(mask, "neumann") + 0.1 * sp.eye_array(int(mask.sum()))
    matrix = sp.csr_array(matrix)
    n = matrix.shape[0]
    fronts = Fronts.of(matrix, np.argwhere(mask) if with_coords else None)
    assert len(fronts.fronts) < 2 * n / 64, f"{len(fronts.fronts)} fronts for {n} cells on 3,000 islets"
    factor = Cholesky(fronts, matrix.data)
    x = rng.normal(size=n)
    assert np.abs(factor.solve(matrix @ x) - x).max() < 1e-10
    # The diagonal of the inverse, islet by islet.
    found = factor.selected_inverse(matrix.nnz)
    rows = np.repeat(np.arange(n), np.diff(matrix.indptr))
    diagonal = found[matrix.indices == rows]
    place = np.full(mask.shape, -1)
    place[mask] = np.arange(n)
    for r, c in ((0, 0), (120, 145), (245, 295)):
        here = place[r : r + 5, c : c + 5]
        here = here[here >= 0]
        inverse = np.linalg.inv(matrix[here][:, here].toarray())
        assert np.abs(diagonal[here] - np.diagonal(inverse)).max() < 1e-10


def test_large_land_and_islets_together():
    mask = irregular(4000, seed=2)
    pattern = grid_laplacian(mask, "neumann")
    judge(pattern, nested_dissection(pattern, np.argwhere(mask), 32))
