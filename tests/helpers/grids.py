"""Masks and plain 9-point matrices on them, written without geobgp."""

from __future__ import annotations

import numpy as np
import scipy.ndimage as ndi
import scipy.sparse as sp


def irregular(n: int, seed: int = 0, connected: bool = False) -> np.ndarray:
    """A mask of about n cells: a main land with bays and islands."""
    side = int(np.sqrt(n / 0.42))
    noise = np.random.default_rng(seed).standard_normal((side, side))
    field = sum(
        weight * (f := ndi.gaussian_filter(noise, side * width)) / f.std()
        for width, weight in ((0.12, 1.0), (0.04, 0.5), (0.01, 0.25))
    )
    down, across = np.mgrid[:side, :side] / side - 0.5
    field = field - 6 * (down**2 + across**2)
    mask = field > np.quantile(field, 1 - n / side**2)
    if connected:
        labels = ndi.label(mask, np.ones((3, 3)))[0]
        mask = labels == np.argmax(np.bincount(labels[mask]))
    return mask


def grid_laplacian(mask: np.ndarray, boundary: str, shore: bool = False) -> sp.csr_array:
    """The 9-point matrix in units of cells; with `shore`, unequal masses along it (Neumann only)."""
    n = int(mask.sum())
    index = np.full(np.add(mask.shape, 2), -1)
    index[1:-1, 1:-1][mask] = np.arange(n)
    inner = index[1:-1, 1:-1]
    rows, cols, weights = [], [], []
    for dr, dc, weight in ((0, 1, 2 / 3), (1, 0, 2 / 3), (1, 1, 1 / 6), (1, -1, 1 / 6)):
        other = index[1 + dr : index.shape[0] - 1 + dr, 1 + dc : index.shape[1] - 1 + dc]
        both = (inner >= 0) & (other >= 0)
        rows.append(inner[both])
        cols.append(other[both])
        weights.append(np.full(both.sum(), weight))
    i, j, w = (np.concatenate(x) for x in (rows, cols, weights))
    mass = np.ones(n)
    if shore:
        edge = (ndi.convolve(mask.astype(int), np.ones((3, 3)), mode="constant") < 9)[mask]
        mass[edge] = np.random.default_rng(1).uniform(0.02, 1.0, edge.sum())
        w = w * np.sqrt(np.minimum(mass[i], mass[j]))
    links = sp.coo_array((np.r_[w, w], (np.r_[i, j], np.r_[j, i])), shape=(n, n)).tocsr()
    degree = np.full(n, 10 / 3) if boundary == "dirichlet" else np.asarray(links.sum(axis=1)).ravel()
    root = sp.diags_array(1 / np.sqrt(mass))
    matrix = sp.csr_array(root @ (sp.diags_array(degree) - links) @ root)
    return sp.csr_array((matrix + matrix.T) / 2)
