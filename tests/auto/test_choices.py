import math

import numpy as np
import pytest

from geobgp.auto.search import cell_size_for, features_needed, practical_features, round_features, round_size
from geobgp.prior.basis import MAX_TRUNCATED_VARIANCE
from geobgp.prior.kernels import Matern
from geobgp.summary import Choice


@pytest.mark.parametrize("size", np.geomspace(1e-3, 1e6, 61))
def test_round_sizes_are_near_and_round(size):
    found = round_size(size)
    assert 0.8 < found / size < 1.25
    digits = f"{found:e}".split("e")[0].rstrip("0").rstrip(".")
    assert digits in ("1", "1.5", "2", "2.5", "3", "4", "5", "7.5")


def test_more_points_mean_smaller_cells_within_bounds():
    area = 1e10
    sizes = [cell_size_for(area, n, None)[0] for n in (0, 1, 30, 300, 3000, 30_000, 3_000_000)]
    assert sizes == sorted(sizes, reverse=True)
    nodes = [area / h**2 for h in sizes]
    assert min(nodes) > 1200 and max(nodes) < 26_000
    assert cell_size_for(area, None, None)[0] == 1000.0


def test_the_reference_case_gets_its_cells_and_says_why():
    size, why = cell_size_for(34_961e6, 4446, None)
    assert size == 2000.0
    assert "4,446 points" in why and "8,700 cells" in why


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet"])
def test_features_needed_on_a_square_from_its_first_eigenvalues(boundary):
    # The unit square has eigenvalues π²(i² + j²), i, j >= 0 (Neumann) or >= 1 (Dirichlet).
    first = 0 if boundary == "neumann" else 1
    i, j = np.meshgrid(np.arange(first, 200), np.arange(first, 200))
    values = np.sort((np.pi**2 * (i**2 + j**2)).ravel())
    kernel, length = Matern(1.5), 0.05
    wanted = kernel.eigenvalue_needed(length, MAX_TRUNCATED_VARIANCE)
    exact = int(np.searchsorted(values, wanted))
    plain = features_needed(kernel, length, 1.0)
    told = features_needed(kernel, length, 1.0, (128, float(values[127])))
    assert abs(told - exact) / exact < 0.03, (exact, plain, told)
    assert abs(told - exact) < abs(plain - exact)


def test_practical_features_stay_within_nodes_and_memory():
    assert practical_features(300, 1024) == 100
    assert practical_features(15_000, 1024) == 1024
    assert practical_features(1_000_000, 1024) == 1_500_000_000 // 8_000_000
    assert round_features(100.1, 1024) == 128
    assert round_features(17, 1024) == 32
    assert round_features(2000, 1024) == 1024


def test_a_choice_prints_its_reason():
    assert str(Choice("neumann", "given")) == "neumann (given)"
    assert math.isfinite(features_needed(Matern(1.5), 1e-9, 1e12))
