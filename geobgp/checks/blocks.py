"""Blocks: how the land is parted for leaving parts of it out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely

from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.land.regions import area_shares, read_regions
from geobgp.text import count, number

if TYPE_CHECKING:
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior

#: Squares are two lengthscales wide, but so that there are at least, and at most, about so many of them.
FEWEST, MOST = 30, 120


@dataclass(frozen=True, eq=False)
class Blocks:
    """Parts of the land that are left out in turn.

    Attributes
    ----------
    labels : sequence
        What the blocks are called: (column, row) of a square, a region's number or name, a fold.
    of : (n_nodes,) int array
        The block of every node; -1 for those that are never left out.
    geometry : (n_blocks,) array of polygons
        In the domain's CRS.
    side : float, optional
        Side of the squares, in the domain's unit.
    wanted : float, optional
        The side that would suit the fit, where these squares are narrower so that they can be left out at once.
    """

    labels: pd.Index
    of: np.ndarray
    geometry: np.ndarray
    side: float | None = None
    wanted: float | None = None

    def __len__(self) -> int:
        return len(self.labels)


def auto_side(posterior: Posterior, cell_size: float | None = None) -> float:
    """Return the side of squares that suit a fit: two lengthscales, rounded to whole cells.

    There are some dozens of squares at least, however long the lengthscale.
    """
    area = float(posterior.domain.node_areas.sum())
    cell = posterior.domain.cell_size if cell_size is None else cell_size
    wanted = np.clip(2.0 * posterior.lengthscale, np.sqrt(area / MOST), np.sqrt(area / FEWEST))
    return cell * max(1, round(float(wanted) / cell))


def narrowed(
    domain: Domain,
    side: float,
    most: int,
    buffer: float = 0.0,
    nodes: Any = None,
    cell_size: float | None = None,
) -> float:
    """Return the side of squares of which none, with its buffer, holds more than so many nodes: `side`, or less.

    Parameters
    ----------
    domain : Domain
    side : float
    most : int
    buffer : float
    nodes : int array, optional
        The node of every observation, where these and not all nodes are counted.
    cell_size : float, optional
        What the side is a multiple of; by default the domain's.

    Examples
    --------
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 12, 12), cell_size=1, crs="local")
    >>> narrowed(domain, 6.0, most=36), narrowed(domain, 6.0, most=20), narrowed(domain, 6.0, most=36, buffer=1.0)
    (6.0, 4.0, 4.0)
    """
    cell = domain.cell_size if cell_size is None else cell_size
    while side > cell and (found := _most_held(domain, squares(domain, side), buffer, nodes)) > most:
        side = cell * max(1, int(side / cell * min(np.sqrt(most / found), 0.95)))
    return side


def _most_held(domain: Domain, blocks: Blocks, buffer: float, nodes: Any) -> int:
    """Return how many nodes, or observations, the fullest of some squares holds, with the strip around it."""
    each = np.ones(domain.n_nodes) if nodes is None else np.bincount(nodes, minlength=domain.n_nodes)
    if not buffer:
        return int(np.bincount(blocks.of, each).max())
    x, y = domain.node_points.T
    boxes = shapely.bounds(blocks.geometry) + buffer * np.array([-1, -1, 1, 1])
    held = (each[(x >= w) & (x <= e) & (y >= s) & (y <= n)].sum() for w, s, e, n in boxes)
    return int(max(held))


def make_blocks(
    blocks: Any, posterior: Posterior, most: int | None = None, buffer: float = 0.0, nodes: Any = None
) -> Blocks:
    """Return blocks as `Posterior.cross_validate` takes them, or say what is wrong with them.

    Parameters
    ----------
    blocks : "auto", float, regions or folds
    posterior : Posterior
    most, buffer, nodes
        Squares of our own choice are made narrower until they can be left out at once; see `narrowed`.
    """
    domain = posterior.domain
    if isinstance(blocks, str) and blocks == "auto":
        wanted = auto_side(posterior)
        side = wanted if most is None else narrowed(domain, wanted, most, buffer, nodes)
        made = replace(squares(domain, side), wanted=wanted if side < wanted else None)
    elif isinstance(blocks, bool) or blocks is None:
        raise DataError(
            f"{option('blocks')} is 'auto', a size, regions or folds; found {blocks!r}.", option="blocks"
        )
    elif isinstance(blocks, (int, float, np.integer, np.floating)):
        made = squares(domain, float(blocks))
    elif are_folds(blocks):
        made = by_folds(domain, blocks)
    else:
        made = by_regions(domain, blocks)
    if len(made) < 2:
        raise DataError(
            f"{option('blocks')}: one block holds all that would be left out; at least two are needed.",
            option="blocks",
            found=len(made),
            remedy="Make them smaller.",
        )
    return made


def squares(domain: Domain, side: float) -> Blocks:
    """Return squares of a side, on a lattice through the origin of the CRS: the same for every grid.

    Examples
    --------
    >>> from geobgp import Domain
    >>> domain = Domain.from_polygons(shapely.box(0, 0, 4, 2), cell_size=1, crs="local")
    >>> squares(domain, 2.0).of.tolist()
    [0, 0, 1, 1, 0, 0, 1, 1]
    """
    h = domain.cell_size
    scale, unit = domain.length_unit
    if not np.isfinite(side) or side < h * (1 - 1e-9):
        raise DataError(
            f"A size of {option('blocks')} is at least that of a cell, {number(h / scale)} {unit}; found "
            f"{number(side / scale) if np.isfinite(side) else side} {unit}.",
            option="blocks",
            found=side,
            remedy="It is given in the domain's own unit, metres unless it is local.",
        )
    west, _, _, north = domain.grid.bounds
    # By the centres of cells: nodes of one cell are never parted.
    east = np.floor((west + (domain.node_cols + 0.5) * h) / side).astype(np.int64)
    up = np.floor((north - (domain.node_rows + 0.5) * h) / side).astype(np.int64)
    found, of = np.unique(np.column_stack([east, up]), axis=0, return_inverse=True)
    corners = found * side
    boxes = shapely.box(corners[:, 0], corners[:, 1], corners[:, 0] + side, corners[:, 1] + side)
    labels = pd.Index([tuple(int(v) for v in pair) for pair in found], tupleize_cols=False)
    return Blocks(labels, of.ravel(), np.atleast_1d(boxes), side)


def by_regions(domain: Domain, regions: Any) -> Blocks:
    """Return regions as blocks; a node belongs to the one that holds the most of its land."""
    frame = read_regions(regions, domain, "blocks")
    shares = area_shares(domain, frame).toarray()
    of = np.where(shares.sum(axis=0) >= 0.5, shares.argmax(axis=0), -1)
    held = np.unique(of[of >= 0])
    if not len(held):
        raise DataError(
            f"{option('blocks')}: none of {count(len(frame), 'region')} holds any land of the domain.",
            option="blocks",
            found=0,
            remedy="Check where they lie, and their CRS.",
        )
    if len(held) < len(frame):
        warn(
            InputWarning(
                f"{count(len(frame) - len(held), 'region')} of {len(frame):,} hold no land of the domain, and "
                "are no blocks.",
                option="blocks",
                found=len(frame) - len(held),
            )
        )
    place = np.full(len(frame) + 1, -1)
    place[held] = np.arange(len(held))
    shapes = frame.geometry if domain.crs is None else frame.geometry.to_crs(domain.crs)
    return Blocks(pd.Index(frame.index[held]), place[of], shapes.to_numpy()[held])


def by_folds(domain: Domain, folds: Any) -> Blocks:
    """Return nodes with the same label as one block; those without a label are never left out."""
    labels = np.asarray(folds)
    if labels.shape != (domain.n_nodes,):
        raise DataError(
            f"Folds have one label for each of the domain's {domain.n_nodes:,} nodes; found "
            f"{'the shape ' + str(labels.shape) if labels.ndim != 1 else count(len(labels), 'label')}.",
            option="blocks",
            found=labels.shape,
            remedy="Label the rows of domain.node_points.",
        )
    of, found = pd.factorize(labels, sort=True)
    if not len(found):
        raise DataError(f"{option('blocks')}: no node has a fold.", option="blocks", found=0)
    h = domain.cell_size
    west, _, _, north = domain.grid.bounds
    left, top = west + domain.node_cols * h, north - domain.node_rows * h
    cells = shapely.box(left, top - h, left + h, top)
    shapes = np.array([shapely.union_all(cells[of == k]) for k in range(len(found))], dtype=object)
    return Blocks(pd.Index(found), of, shapes)


def are_folds(blocks: Any) -> bool:
    """Whether blocks are given as labels: neither by size nor by shapes."""
    if (
        isinstance(blocks, (str, Path, gpd.GeoDataFrame, gpd.GeoSeries, shapely.Geometry))
        or np.ndim(blocks) == 0
    ):
        return False
    return not any(isinstance(one, shapely.Geometry) for one in blocks)
