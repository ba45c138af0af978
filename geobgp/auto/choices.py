"""What `map_intensity` decides by itself, and why: cell size, number of features, boundary condition."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from geobgp.prior.base import MISSED_SHARE
from geobgp.prior.kernels import Kernel
from geobgp.text import number

if TYPE_CHECKING:
    import pyproj

#: What features miss does not matter where it changes the intensity by less than this share.
NEGLIGIBLE = 0.05
#: Features that are tried first.
FIRST_FEATURES = 128
#: Bytes that the features of one basis may take when their number is chosen.
MAX_FEATURE_BYTES = 1_500_000_000
#: Nodes aimed at: at least, at most, and where the number of points is not known.
FEWEST_NODES, MOST_NODES, DEFAULT_NODES = 2000, 16_000, 10_000
#: Nodes aimed at grow with the square root of the number of points, this many times.
NODES_PER_ROOT_POINT = 150.0
#: Cells aimed at within an area with a count, between the fewest and the most nodes.
CELLS_PER_AREA = 16
#: Cell sizes are one of these times a power of ten.
ROUND_SIZES = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0)


def round_size(size: float) -> float:
    """Return the round number nearest to `size` by ratio.

    Examples
    --------
    >>> round_size(1478.0), round_size(0.0231), round_size(9.1)
    (1500.0, 0.025, 10.0)
    """
    power = 10.0 ** math.floor(math.log10(size))
    best = min(ROUND_SIZES, key=lambda r: abs(math.log(r * power / size)))
    return float(f"{best * power:.6g}")


def cell_size_for(area: float, n_points: int | None, crs: pyproj.CRS | None) -> tuple[float, str]:
    """Choose a cell size from the area of the land and the number of points; return why as well.

    Parameters
    ----------
    area : float
        In m² (square units of a local domain).
    n_points : int or None
        None where it is not known before the points are read.
    crs : pyproj.CRS or None

    Examples
    --------
    >>> cell_size_for(34_961e6, 4446, None)[0]
    2000.0
    """
    if n_points is None:
        why = f"about {DEFAULT_NODES:,} cells; the number of points is not known beforehand"
        return round_size(math.sqrt(area / DEFAULT_NODES)), why
    nodes = min(max(NODES_PER_ROOT_POINT * math.sqrt(max(n_points, 1)), FEWEST_NODES), MOST_NODES)
    size = round_size(math.sqrt(area / nodes))
    land = f"{number(area / 1e6)} km²" if crs is not None else f"{number(area)} square units"
    return size, f"for {n_points:,} points on {land}: about {number(area / size**2, 2)} cells of land"


def cell_size_for_areas(area: float, n_areas: int) -> tuple[float, str]:
    """Choose a cell size from the area of the land and the number of areas with counts; return why as well.

    Examples
    --------
    >>> cell_size_for_areas(127_000e6, 100)
    (7500.0, 'about 23 cells for each of 100 areas')
    """
    nodes = min(max(CELLS_PER_AREA * n_areas, FEWEST_NODES), MOST_NODES)
    size = round_size(math.sqrt(area / nodes))
    each = area / size**2 / n_areas
    return size, f"about {number(each, 2)} cells for each of {n_areas:,} areas"


def features_needed(
    kernel: Kernel,
    lengthscale: float,
    area: float,
    known: tuple[float, float] | None = None,
    share: float = MISSED_SHARE,
) -> int:
    """Return the number of features that miss no more than `share` of the variance, by Weyl's law.

    Below the eigenvalue λ there are about λ area / 4π of them, and in proportion to √λ more (Neumann) or
    fewer (Dirichlet) the longer the shore is.

    Parameters
    ----------
    kernel : Kernel
    lengthscale, area : float
        In m and m².
    known : (m, eigenvalue), optional
        The m-th eigenvalue, from which the effect of the shore is taken.
    share : float

    Examples
    --------
    >>> from geobgp import Matern
    >>> features_needed(Matern(1.5), 20_000.0, 34_961e6)
    133
    """
    plain = area / (4.0 * math.pi)
    shore = 0.0
    if known is not None and known[1] > 0:
        shore = (known[0] - plain * known[1]) / math.sqrt(known[1])
    wanted = kernel.eigenvalue_needed(lengthscale, share)
    return math.ceil(min(max(plain * wanted + shore * math.sqrt(wanted), 1.0), 1e12))


def is_enough(missed_share: float, sd: float) -> bool:
    """Tell whether features do that miss a share of the prior variance of a log-intensity with this sd.

    Examples
    --------
    >>> is_enough(0.04, 1.0), is_enough(0.3, 1.0), is_enough(0.3, 0.05)
    (True, False, True)
    """
    return missed_share <= MISSED_SHARE or sd * math.sqrt(missed_share) <= NEGLIGIBLE


def has_full_resolution(kernel: Kernel | None) -> bool:
    """Tell whether full resolution can have this kernel (None: the usual one)."""
    return kernel is None or kernel.sparse


def practical_features(n_nodes: int, ceiling: int) -> int:
    """Return the most features that are worth while on so many nodes: beyond, full resolution is cheaper."""
    return max(1, min(ceiling, n_nodes // 3, MAX_FEATURE_BYTES // (8 * n_nodes)))


def round_features(m: float, most: int) -> int:
    """Return the next multiple of 64 (of 16 below 64), at most `most`."""
    step = 64 if m > 64 else 16
    return int(min(math.ceil(m / step) * step, most))
