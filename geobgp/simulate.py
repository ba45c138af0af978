"""From a known intensity to points, and from a kernel to draws of the prior."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import shapely

from geobgp.errors import CRSError, DataError, GeobgpError, SizeError
from geobgp.land.crs import as_crs, move
from geobgp.prior.basis import SCALING, Scaling, resolve
from geobgp.text import number
from geobgp.validation import BASIS, DOMAIN, GENERATOR, KERNEL, as_floats, validated, whole

if TYPE_CHECKING:
    import xarray as xr

    from geobgp.land.domain import Domain
    from geobgp.prior.basis import Basis
    from geobgp.prior.kernels import Kernel

#: More points than this are refused: an intensity in the wrong unit is the likeliest reason.
MAX_POINTS = 50_000_000
_MAX_TRIES = 1 << 22
_ROUND = 1 << 21


@validated(domain=DOMAIN, rng=GENERATOR)
def simulate_points(
    domain: Domain,
    intensity: float | np.ndarray | xr.DataArray | Callable[[np.ndarray], np.ndarray],
    rng: int | np.random.Generator,
) -> gpd.GeoDataFrame:
    """Draw points from a Poisson process on the land of a domain.

    Each node gets a Poisson number of points with mean intensity x node area, spread evenly over its own
    land: on its own side of every river, never in the water.

    Parameters
    ----------
    domain : Domain
    intensity : float, (n_nodes,) array, DataArray or callable
        Events per km² (per unit area where the domain is local). A number holds everywhere; a DataArray with
        coordinates northing and easting, such as a variable of `Posterior.intensity()`, is read at each node: the
        cell that it lies in, in the raster's own CRS, or the domain's where it has none. A callable gets (n_nodes,
        2) eastings and northings of the nodes and returns one value for each.
    rng : int or Generator
        The same number gives the same points.

    Returns
    -------
    GeoDataFrame
        One point a row in the domain's CRS, in random order.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
    >>> points = simulate_points(domain, 5.0, rng=1)
    >>> 400 < len(points) < 600
    True
    """
    rng = np.random.default_rng(rng)
    rate = node_intensity(domain, intensity)
    expected = rate * (domain.node_areas / domain.area_unit[0])
    if not expected.sum() <= MAX_POINTS:
        raise SizeError(
            f"This intensity gives {number(expected.sum(), 3)} points; the limit is {number(MAX_POINTS)}.",
            option="intensity",
            found=expected.sum(),
            remedy=f"Is it in events per {domain.area_unit[1]}?",
        )
    node = np.repeat(np.arange(domain.n_nodes), rng.poisson(expected))
    coords = points_in_nodes(domain, node, rng)
    coords = coords[rng.permutation(len(coords))]
    return gpd.GeoDataFrame(geometry=gpd.points_from_xy(coords[:, 0], coords[:, 1]), crs=domain.crs)


def node_intensity(domain: Domain, intensity: Any) -> np.ndarray:
    """Return one intensity per node from anything `simulate_points` takes, or say what is wrong with it."""
    if hasattr(intensity, "dims"):
        values = _of_raster(domain, intensity)
    elif callable(intensity):
        values = as_floats("intensity", intensity(domain.node_points))
    else:
        values = as_floats("intensity", intensity)
    if values.ndim == 0:
        values = np.full(domain.n_nodes, float(values))
    if values.shape != (domain.n_nodes,):
        raise DataError(
            f"The intensity must have one value for each of the domain's {domain.n_nodes} nodes; "
            f"found shape {values.shape}.",
            option="intensity",
            found=values.shape,
        )
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        raise DataError(
            f"An intensity is finite and not negative; {int(wrong.sum())} of {values.size} nodes have "
            f"another value (the first: {values[wrong][0]}).",
            option="intensity",
            found=int(wrong.sum()),
            remedy="Fill or clip them first.",
        )
    return values


def _of_raster(domain: Domain, intensity: Any) -> np.ndarray:
    """Return the value of the cell of a raster that each node's own cell lies on, in any CRS; NaN beyond it."""
    import rioxarray  # noqa: F401

    missing = {"northing", "easting"} - set(intensity.dims)
    if missing or len(intensity.dims) != 2:
        raise DataError(
            f"An intensity raster has the dimensions northing and easting; found {tuple(intensity.dims)}.",
            option="intensity",
            found=tuple(intensity.dims),
        )
    array = intensity.transpose("northing", "easting")
    theirs = None if array.rio.crs is None else as_crs(array.rio.crs, "intensity")
    if theirs is not None and domain.crs is None:
        raise CRSError(
            f"The intensity is in {theirs.name}, but the domain is local, with no place on Earth.",
            option="intensity",
            found=theirs.name,
            remedy="Make the domain with a CRS, or the raster without one.",
        )
    easting, northing = domain.grid.centres(domain.node_rows, domain.node_cols)
    coords = np.column_stack([easting, northing])
    if theirs is not None and domain.crs is not None and not theirs.equals(domain.crs, ignore_axis_order=True):
        coords = move(coords, domain.crs, theirs)
    col, row = _nearest(array["easting"], coords[:, 0]), _nearest(array["northing"], coords[:, 1])
    off = (row < 0) | (col < 0)
    if off.any():
        raise DataError(
            f"The intensity raster does not reach {int(off.sum()):,} of {domain.n_nodes:,} nodes of the land.",
            option="intensity",
            found=int(off.sum()),
            remedy="Check its place and its CRS, or give values for all of the land.",
        )
    return np.asarray(array.to_numpy(), float)[row, col]


def _nearest(axis: xr.DataArray, at: np.ndarray) -> np.ndarray:
    """Return the place along an axis of cells' centres of the cell that each coordinate lies in, -1 beyond them."""
    centres = as_floats("intensity", axis.to_numpy())
    if not (len(centres) > 1 and np.isfinite(centres).all() and len(np.unique(centres)) == len(centres)):
        raise DataError(
            "An intensity raster has two or more rows and columns, each with a coordinate of its own.",
            option="intensity",
        )
    order = np.argsort(centres)
    middle = centres[order]
    steps = np.diff(middle)
    edges = np.r_[middle[0] - steps[0] / 2, middle[:-1] + steps / 2, middle[-1] + steps[-1] / 2]
    slack = 1e-6 * steps.min()
    with np.errstate(invalid="ignore"):
        inside = (at >= edges[0] - slack) & (at <= edges[-1] + slack)
    place = np.clip(np.searchsorted(edges, np.where(inside, at, edges[0]), "right") - 1, 0, len(middle) - 1)
    return np.where(inside, order[place], -1)


def points_in_nodes(domain: Domain, node: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one point in the land of each of `node`, evenly: (k, 2) eastings and northings.

    Whole cells directly; pieces of cells by trying places within the piece's bounds, ever more at a time,
    until each point has one on land.
    """
    h = domain.cell_size
    left = domain.grid.west + domain.node_cols[node] * h
    low = domain.grid.north - (domain.node_rows[node] + 1) * h
    coords = np.c_[left, low] + h * rng.random((len(node), 2))
    whole = _whole(domain)[node]
    pieces, owner = np.unique(node[~whole], return_inverse=True)
    land = np.asarray(domain.polygon_of(pieces), dtype=object)
    shapely.prepare(land)
    bounds = shapely.bounds(land).reshape(-1, 4)
    wanting = np.flatnonzero(~whole)
    tries = 2
    while len(wanting):
        if tries > _MAX_TRIES:
            raise GeobgpError(f"{len(wanting)} points lie in nodes too thin to place them; raise min_coverage.")
        # Few wanting points get many tries each, so that a round's memory stays bounded.
        found = np.zeros(len(wanting), bool)
        for start in range(0, len(wanting), max(1, _ROUND // tries)):
            part = slice(start, start + max(1, _ROUND // tries))
            box = bounds[owner[part], None, :]
            place = box[..., :2] + (box[..., 2:] - box[..., :2]) * rng.random((len(box), tries, 2))
            inside = shapely.contains_xy(land[owner[part], None], place[..., 0], place[..., 1])
            found[part] = inside.any(axis=1)
            hit = np.flatnonzero(found[part])
            coords[wanting[part][hit]] = place[hit, inside[hit].argmax(axis=1)]
        wanting, owner = wanting[~found], owner[~found]
        tries *= 2
    return coords


def _whole(domain: Domain) -> np.ndarray:
    """Whether each node is exactly its cell: no shore or barrier in it, and no small piece has joined it."""
    alone = np.bincount(domain.piece_node[domain.piece_node >= 0], minlength=domain.n_nodes) == 1
    return alone & domain.pieces.whole[domain.node_rows, domain.node_cols]


@validated(basis=BASIS, kernel=KERNEL, rng=GENERATOR, n=whole(), scaling=SCALING)
def simulate_prior(
    basis: Basis, kernel: Kernel, rng: int | np.random.Generator, n: int = 1, *, scaling: Scaling | None = None
) -> np.ndarray:
    """Draw the field f of the prior at the nodes of a basis.

    Parameters
    ----------
    basis : HarmonicBasis or FullRank
    kernel : Kernel
        With its lengthscale and sd given.
    rng : int or Generator
    n : int
        Number of draws.
    scaling : "even" or "natural", optional
        As for `LGCP`: by default even under Neumann and natural under Dirichlet conditions.

    Returns
    -------
    (n, n_nodes) array
        On the log scale, around zero: exp(intercept + f) is an intensity.

    Examples
    --------
    >>> import shapely
    >>> from geobgp import Domain, HarmonicBasis, Matern
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
    >>> basis = HarmonicBasis.compute(domain, m=16, cache=False)
    >>> simulate_prior(basis, Matern(1.5, lengthscale=5.0, sd=1.0), rng=1, n=3).shape
    (3, 100)
    """
    if kernel.lengthscale is None or kernel.sd is None:
        raise DataError(
            "A draw from the prior needs the kernel's lengthscale and sd; "
            f"found {kernel.lengthscale} and {kernel.sd}. "
            "Give both, for example with_parameters(lengthscale, sd)."
        )
    return basis.sample_prior(kernel, n, np.random.default_rng(rng), resolve(scaling, basis))
