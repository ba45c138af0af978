"""Blocks: how the land is divided to hold parts of it out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely
from scipy.spatial import cKDTree

from geobgp.errors import DataError, InputWarning, SizeError, option, warn
from geobgp.land.regions import area_shares, read_regions
from geobgp.text import count, number

if TYPE_CHECKING:
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior

#: Squares are two lengthscales wide, but so that there are at least, and at most, about so many of them.
FEWEST, MOST = 30, 120
#: Observations that can be held out at once: the algebra on them is dense.
MOST_NODES = 6000
#: Observations that automatic blocks hold at most: the time of all blocks grows with the square of it.
AUTO_NODES = 2500
#: Neighbours of a block whose sites are renewed: at least so many, or half as many as the block has.
NEIGHBOURS = 200


@dataclass(frozen=True, eq=False)
class Blocks:
    """Parts of the land that are held out in turn.

    Attributes
    ----------
    labels : sequence
        What the blocks are called: (column, row) of a square, a region's number or name, a fold.
    of : (n_nodes,) int array
        The block of every node; -1 for those that are never held out.
    geometry : (n_blocks,) array of polygons
        In the domain's CRS.
    side : float, optional
        Side of the squares, in the domain's unit.
    wanted : float, optional
        The side that would suit the fit, where these squares are narrower so that they can be held out at once.
    """

    labels: pd.Index
    of: np.ndarray
    geometry: np.ndarray
    side: float | None = None
    wanted: float | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def holding(self, nodes: np.ndarray, what: str) -> Blocks:
        """Return the blocks in which observations lie, given the node of each; at least two."""
        block = self.of[nodes]
        held = np.unique(block[block >= 0])
        if len(held) < 2:
            raise DataError(
                f"{option('blocks')}: {len(held)} of them hold {what}; at least two are needed.",
                option="blocks",
                found=len(held),
                remedy="Make them smaller.",
            )
        place = np.full(len(self) + 1, -1)
        place[held] = np.arange(len(held))
        return replace(self, labels=self.labels[held], of=place[self.of], geometry=self.geometry[held])

    def land(self, domain: Domain) -> np.ndarray:
        """Return the land of each block, in the domain's unit of area."""
        inside = self.of >= 0
        return np.bincount(self.of[inside], domain.node_areas[inside], len(self)) / domain.area_unit[0]

    def neighbourhoods(
        self, domain: Domain, buffer: float, neighbours: bool
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the nodes of every block, of the strip around it, and of its neighbours, the nearest first."""
        points = domain.node_points
        tree = cKDTree(points)
        for block in range(len(self)):
            inside = np.flatnonzero(self.of == block)
            taken = np.zeros(len(points), bool)
            taken[inside] = True
            strip = near = inside[:0]
            if buffer > 0:
                around = tree.query_ball_point(points[inside], buffer)
                strip = np.setdiff1d(np.concatenate([np.asarray(nodes, int) for nodes in around]), inside)
                taken[strip] = True
            n_near = min(max(NEIGHBOURS, int(taken.sum()) // 2), int((~taken).sum()))
            if neighbours and n_near:
                distance = cKDTree(points[taken]).query(points)[0]
                distance[taken] = np.inf
                near = np.argpartition(distance, n_near - 1)[:n_near]
                near = near[np.argsort(distance[near], kind="stable")]
            yield inside, strip, near


def check_size(n: int, what: str = "nodes") -> None:
    """Check that the dense algebra on what is held out at once can hold it."""
    if n > MOST_NODES:
        raise SizeError(
            f"A block of {n:,} {what} cannot be held out at once; the most is {MOST_NODES:,}.",
            option="blocks",
            found=n,
            remedy=f"Use smaller {option('blocks')}.",
        )


def most_at_once() -> int:
    """Return how many observations automatic blocks hold at most."""
    return min(AUTO_NODES, MOST_NODES)


def auto_side(posterior: Posterior, cell_size: float | None = None) -> float:
    """Return the side of squares that suit a fit: two lengthscales, rounded to whole cells.

    There are some dozens of squares at least, however long the lengthscale.
    """
    area = float(posterior.domain.node_areas.sum())
    cell = posterior.domain.cell_size if cell_size is None else cell_size
    wanted = np.clip(2.0 * posterior.lengthscale, np.sqrt(area / MOST), np.sqrt(area / FEWEST))
    return cell * max(1, round(float(wanted) / cell))


def narrowed(
    domain: Domain, side: float, most: int, buffer: float = 0.0, nodes: Any = None, cell_size: float | None = None
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
    while side > cell and (fullest := _fullest(domain, squares(domain, side), buffer, nodes)) > most:
        side = cell * max(1, int(side / cell * min(np.sqrt(most / fullest), 0.95)))
    return side


def _fullest(domain: Domain, blocks: Blocks, buffer: float, nodes: Any) -> int:
    """Return how many nodes, or observations, the fullest of some squares holds, with the strip around it."""
    each = np.ones(domain.n_nodes) if nodes is None else np.bincount(nodes, minlength=domain.n_nodes)
    if not buffer:
        return int(np.bincount(blocks.of, each).max())
    x, y = domain.node_points.T
    boxes = shapely.bounds(blocks.geometry) + buffer * np.array([-1, -1, 1, 1])
    return int(max(each[(x >= w) & (x <= e) & (y >= s) & (y <= n)].sum() for w, s, e, n in boxes))


def make_blocks(
    blocks: Any, posterior: Posterior, most: int | None = None, buffer: float = 0.0, nodes: Any = None
) -> Blocks:
    """Return blocks as `Posterior.cross_validate` takes them, or say what is wrong with them.

    Parameters
    ----------
    blocks : "auto", float, regions or folds
    posterior : Posterior
    most, buffer, nodes
        Automatic squares are made narrower until they can be held out at once; see `narrowed`.
    """
    domain = posterior.domain
    if isinstance(blocks, str) and blocks == "auto":
        wanted = auto_side(posterior)
        side = wanted if most is None else narrowed(domain, wanted, most, buffer, nodes)
        divided = replace(squares(domain, side), wanted=wanted if side < wanted else None)
    elif isinstance(blocks, bool) or blocks is None:
        raise DataError(f"{option('blocks')} is 'auto', a size, regions or folds; found {blocks!r}.", option="blocks")
    elif isinstance(blocks, (int, float, np.integer, np.floating)):
        divided = squares(domain, float(blocks))
    else:
        divided = by_folds(domain, blocks) if are_folds(blocks) else by_regions(domain, blocks)
    if len(divided) < 2:
        raise DataError(
            f"{option('blocks')}: one block holds all that would be held out; at least two are needed.",
            option="blocks",
            found=len(divided),
            remedy="Make them smaller.",
        )
    return divided


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
    # By the centres of cells: nodes of one cell stay together.
    east = np.floor((west + (domain.node_cols + 0.5) * h) / side).astype(np.int64)
    up = np.floor((north - (domain.node_rows + 0.5) * h) / side).astype(np.int64)
    places, of = np.unique(np.column_stack([east, up]), axis=0, return_inverse=True)
    corners = places * side
    boxes = shapely.box(corners[:, 0], corners[:, 1], corners[:, 0] + side, corners[:, 1] + side)
    labels = pd.Index([tuple(int(v) for v in pair) for pair in places], tupleize_cols=False)
    return Blocks(labels, of.ravel(), np.atleast_1d(boxes), side)


def by_regions(domain: Domain, regions: Any) -> Blocks:
    """Return regions as blocks; a node belongs to the one that holds the most of its land."""
    frame = read_regions(regions, domain, "blocks")
    shares = area_shares(domain, frame).toarray()
    of = np.where(shares.sum(axis=0) >= 0.5, shares.argmax(axis=0), -1)
    held = np.unique(of[of >= 0])
    n_empty = len(frame) - len(held)
    if not len(held):
        raise DataError(
            f"{option('blocks')}: none of {count(len(frame), 'region')} holds any land of the domain.",
            option="blocks",
            found=0,
            remedy="Check where they lie, and their CRS.",
        )
    if n_empty:
        text = f"{count(n_empty, 'region')} of {len(frame):,} hold no land of the domain, and are no blocks."
        warn(InputWarning(text, option="blocks", found=n_empty))
    place = np.full(len(frame) + 1, -1)
    place[held] = np.arange(len(held))
    shapes = frame.geometry if domain.crs is None else frame.geometry.to_crs(domain.crs)
    return Blocks(pd.Index(frame.index[held]), place[of], shapes.to_numpy()[held])


def by_folds(domain: Domain, folds: Any) -> Blocks:
    """Return nodes with the same label as one block; those without a label are never held out."""
    labels = np.asarray(folds)
    if labels.shape != (domain.n_nodes,):
        raise DataError(
            f"Folds have one label for each of the domain's {domain.n_nodes:,} nodes; found "
            f"{'the shape ' + str(labels.shape) if labels.ndim != 1 else count(len(labels), 'label')}.",
            option="blocks",
            found=labels.shape,
            remedy="Label the rows of domain.node_points.",
        )
    of, names = pd.factorize(labels, sort=True)
    if not len(names):
        raise DataError(f"{option('blocks')}: no node has a fold.", option="blocks", found=0)
    cells = _cells(domain)
    shapes = np.array([shapely.union_all(cells[of == k]) for k in range(len(names))], dtype=object)
    return Blocks(pd.Index(names), of, shapes)


def by_nodes(domain: Domain, nodes: np.ndarray) -> Blocks:
    """Return the cells of some nodes, each a block by itself."""
    held = np.unique(nodes)
    of = np.full(domain.n_nodes, -1)
    of[held] = np.arange(len(held))
    return Blocks(pd.Index(held), of, _cells(domain)[held])


def _cells(domain: Domain) -> np.ndarray:
    """Return the square of every node's cell."""
    h = domain.cell_size
    west, _, _, north = domain.grid.bounds
    left, top = west + domain.node_cols * h, north - domain.node_rows * h
    return np.asarray(shapely.box(left, top - h, left + h, top))


def are_folds(blocks: Any) -> bool:
    """Whether blocks are given as labels: neither by size nor by shapes."""
    shapes = (str, Path, gpd.GeoDataFrame, gpd.GeoSeries, shapely.Geometry)
    if isinstance(blocks, shapes) or np.ndim(blocks) == 0:
        return False
    return not any(isinstance(one, shapely.Geometry) for one in blocks)
