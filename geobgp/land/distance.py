"""Distance over land: the shortest way from places to every node, around water and barriers.

Ways go from node to node along straight lines of up to 48 directions, the length of which is exact. Whether a line
stays on land is told by the nodes that it passes: each is joined with the next one. A line in any other direction is at
most 0.8 % shorter than the way found for it. A place itself sees all nodes around it, farther than these lines reach.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import shapely
from scipy.sparse.csgraph import dijkstra

from geobgp.errors import DataError, InputWarning, option, warn
from geobgp.files import as_frame, read_vector
from geobgp.land.crs import place_coordinates, project_shapes
from geobgp.land.regions import check_crs
from geobgp.text import count, percent

if TYPE_CHECKING:
    from geobgp.land.domain import Domain

#: The longest step of a way, and the farthest node that a place sees, in cells to one side; and how far off land a
#: place may be, in cells.
_LONGEST, _FARTHEST, _OFF_LAND = 4, 10, 2.0
#: Ways this much longer than straight ones, and a cell, lead around water; places, at most, that such ways begin at.
_DETOUR, _STARTS = 1.1, 32


def distances_over_land(domain: Domain, places: Any) -> np.ndarray:
    """Return the distance over land from the nearest of some places to each node; see `Domain.distance_to`."""
    coords, inside = _sources(domain, places)
    steps = sp.csr_array(_steps(domain))
    start = np.full(domain.n_nodes, np.inf)
    start[inside] = 0.0
    node, gap = domain.nearest(coords, _OFF_LAND * domain.cell_size)
    near = node >= 0
    off = int((~near).sum())
    if not near.any() and not len(inside):
        raise DataError(
            f"None of {count(len(coords), 'place')} is on the land.",
            option="places",
            found=len(coords),
            remedy="Check their coordinate reference system, or give the land around them.",
        )
    coords, node, gap = coords[near], node[near], gap[near]
    points = domain.node_points
    np.minimum.at(start, node, np.maximum(np.hypot(*(points[node] - coords).T), gap))
    # From a place straight to all nodes around, which its own node sees.
    at, ends = _seen(domain, node)
    np.minimum.at(start, ends, np.hypot(*(points[ends] - coords[at]).T))
    out = _shortest(steps, start)
    unreached = np.isnan(out)
    if off:
        warn(
            InputWarning(
                f"{count(off, 'place')} of {len(near):,} {'is' if off == 1 else 'are'} not on the land, and "
                f"{'was' if off == 1 else 'were'} left out.",
                option="places",
                found=off,
            )
        )
    if unreached.any():
        share = float(domain.node_areas[unreached].sum() / domain.node_areas.sum())
        parts = len(np.unique(domain.components[unreached]))
        warn(
            InputWarning(
                f"{percent(share, 1)} of the land, in {count(parts, 'part')}, cannot be reached over land from these "
                "places: the distance there is not known.",
                option="places",
                found=share,
                remedy=f"Give {option('bridges')}, places on each part, or leave these parts out.",
            )
        )
    return out


def share_apart(domain: Domain, coords: np.ndarray) -> float:
    """Return the share of ways between places that lead around water, or that there are none for.

    Parameters
    ----------
    domain : Domain
    coords : (k, 2) array
        On land, in the domain's CRS.

    Examples
    --------
    >>> from geobgp import Domain
    >>> corners = np.array([[0.5, 0.5], [9.5, 0.5], [0.5, 9.5], [9.5, 9.5]])
    >>> share_apart(Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local"), corners)
    0.0
    >>> halves = shapely.MultiPolygon([shapely.box(0, 0, 4.8, 10), shapely.box(5.2, 0, 10, 10)])
    >>> round(share_apart(Domain.from_polygons(halves, cell_size=1, crs="local"), corners), 3)
    0.667
    """
    node = np.unique(domain.node_at(coords))
    start = node[:: -(-len(node) // _STARTS)]
    ways = np.atleast_2d(dijkstra(sp.csr_array(_steps(domain)), indices=start))[:, node]
    points = domain.node_points
    straight = np.hypot(*(points[start][:, None] - points[node]).transpose(2, 0, 1))
    others = straight > 0
    return float(np.mean(ways[others] > _DETOUR * straight[others] + domain.cell_size)) if others.any() else 0.0


def _sources(domain: Domain, places: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return coordinates of places, points along those that are lines or outlines, and the nodes within polygons."""
    in_file = isinstance(places, str | os.PathLike)
    places = read_vector(os.fspath(places), "places") if in_file else as_frame(places, "places")
    if not hasattr(places, "geometry"):
        coords = place_coordinates(np.atleast_2d(np.asarray(places, float)), domain.crs, domain.grid.bounds)
        return coords[np.isfinite(coords).all(axis=1)], np.zeros(0, int)
    shapes = np.asarray(places.geometry.to_numpy(), object)
    check_crs(
        places.crs, domain.crs is None, "places", "" if domain.crs is None else f"; the domain is in {domain.crs.name}"
    )
    if domain.crs is not None:
        shapes = project_shapes(places.geometry, domain.crs)
    shapes = shapely.get_parts(shapes[~(shapely.is_missing(shapes) | shapely.is_empty(shapes))])
    if not len(shapes):
        raise DataError("There are no places to measure a distance from.", option="places", found=0)
    fine = shapely.segmentize(shapes, 0.5 * domain.cell_size)
    polygons = shapes[shapely.get_dimensions(shapes) == 2]
    tree = shapely.STRtree(shapely.points(domain.node_points))
    inside = np.unique(tree.query(polygons, predicate="contains")[1]) if len(polygons) else np.zeros(0, int)
    return shapely.get_coordinates(fine), inside


def _joined(domain: Domain) -> tuple[sp.csr_array, sp.csr_array, sp.csr_array]:
    """Return which nodes touch: the first west of the second, north of it, and others, both ways."""
    pieces, n = domain.pieces, domain.n_nodes
    pairs = np.column_stack([domain.piece_node[pieces.first], domain.piece_node[pieces.second]])
    pairs = np.unique(pairs[(pairs >= 0).all(axis=1) & (pairs[:, 0] != pairs[:, 1])], axis=0)
    right = np.diff(domain.node_cols[pairs], axis=1).ravel()
    down = np.diff(domain.node_rows[pairs], axis=1).ravel()

    def matrix(which: np.ndarray) -> sp.csr_array:
        first, second = pairs[which].T
        return sp.csr_array((np.ones(len(first)), (first, second)), shape=(n, n))

    east, south = (right == 1) & (down == 0), (right == 0) & (down == 1)
    other = matrix(~(east | south))
    return matrix(east), matrix(south), sp.csr_array(other + other.T)


def _quadrants(domain: Domain) -> Iterator[tuple[sp.csr_array, sp.csr_array, sp.csr_array]]:
    """Yield, for each quadrant, which nodes a step across, one along, and one through a corner lead to."""
    east, south, _ = _joined(domain)
    for across in (east, sp.csr_array(east.T)):
        for along in (south, sp.csr_array(south.T)):
            yield across, along, sp.csr_array((across @ along).multiply(along @ across))


def _seen(domain: Domain, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of places, by their number, and nodes that the places' own nodes see over land."""
    k, n = len(node), domain.n_nodes
    here = sp.csr_array((np.ones(k), (np.arange(k), node)), shape=(k, n))
    lines = [here @ _joined(domain)[2]]
    for steps in _quadrants(domain):
        for p in range(_FARTHEST + 1):
            for q in range(_FARTHEST + 1):
                if 0 < p * p + q * q <= _FARTHEST**2:
                    lines.append(_line(p, q, *steps, here))
    pairs = [matrix.tocoo() for matrix in lines]
    return np.concatenate([pair.row for pair in pairs]), np.concatenate([pair.col for pair in pairs])


def _steps(domain: Domain) -> sp.coo_array:
    """Return the lengths of straight lines between nodes of which each sees the other over land."""
    lines = [_joined(domain)[2]]
    for steps in _quadrants(domain):
        lines += [_line(p, q, *steps) for p, q in _directions()]
    pairs = [matrix.tocoo() for matrix in lines]
    first = np.concatenate([pair.row for pair in pairs])
    second = np.concatenate([pair.col for pair in pairs])
    length = np.hypot(*(domain.node_points[first] - domain.node_points[second]).T)
    if domain.bridges is not None:
        b = domain.bridges
        first, second = np.r_[first, b.first, b.second], np.r_[second, b.second, b.first]
        length = np.r_[length, b.length, b.length]
    key = np.unique(first * np.int64(domain.n_nodes) + second, return_index=True)[1]
    shape = (domain.n_nodes, domain.n_nodes)
    return sp.coo_array((length[key], (first[key], second[key])), shape=shape)


def _directions() -> Iterator[tuple[int, int]]:
    """Yield steps to the right and down that are not several shorter ones."""
    for p in range(_LONGEST + 1):
        for q in range(_LONGEST + 1):
            if gcd(p, q) == 1:
                yield p, q


def _line(
    p: int, q: int, across: sp.csr_array, along: sp.csr_array, corner: sp.csr_array, here: sp.csr_array | None = None
) -> sp.csr_array:
    """Return the nodes that a line to p cells across and q along joins: over every cell that it passes.

    From all nodes, or from some places, a row of `here` each.
    """
    crossings = sorted(
        [((2 * i + 1) * q, across) for i in range(p)] + [((2 * j + 1) * p, along) for j in range(q)],
        key=lambda crossing: crossing[0],
    )
    out, k = here, 0
    while k < len(crossings):
        both = p > 0 and q > 0 and k + 1 < len(crossings) and crossings[k][0] == crossings[k + 1][0]
        step = corner if both else crossings[k][1]
        out = step if out is None else out @ step
        k += 2 if both else 1
    return sp.csr_array(out)


def _shortest(steps: sp.csr_array, start: np.ndarray) -> np.ndarray:
    """Return the shortest ways from distances at some nodes; NaN where there is none."""
    n, begins = len(start), np.flatnonzero(np.isfinite(start))
    coo = steps.tocoo()
    tiny = 1e-12 * float(coo.data.max(initial=1.0))  # a length of zero would be no edge
    row, col = np.r_[coo.row, np.full(len(begins), n)], np.r_[coo.col, begins]
    # dijkstra of SciPy 1.13 takes no other integers.
    links = row.astype(np.int32), col.astype(np.int32)
    graph = sp.csr_array((np.r_[coo.data, start[begins] + tiny], links), shape=(n + 1, n + 1))
    out = np.asarray(dijkstra(graph, indices=n))[:n]
    return np.where(np.isfinite(out), np.maximum(out - tiny, 0.0), np.nan)
