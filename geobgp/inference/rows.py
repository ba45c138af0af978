"""Observations that are sums over nodes: the engine of rows, each a weighted mean of the linear predictor.

An area's expected count is W = Σ a_i exp(f_i) over its nodes. About a posterior it is as one observation with the row
r_i = w_i / W, w_i = a_i exp(mean_i + variance_i / 2): the log of the sum is Σ r_i f_i and a constant. The rows see the
features as they are made even at each lengthscale, and move with it. A row may reach over several parts of the land,
so that all features are one block here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from geobgp.inference.dense import FeatureEngine, FeatureFactor, FeaturePrior, FeatureVariance
from geobgp.inference.engine import Solution
from geobgp.inference.features import PartedFeatures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from geobgp.prior.harmonic import HarmonicBasis
    from geobgp.prior.kernels import Kernel
    from geobgp.prior.scaling import Scaling


@dataclass(frozen=True, eq=False)
class NodeFeatures:
    """Features at the nodes as one block, and what makes them even: shared by the engines of all rows.

    Parameters
    ----------
    basis : HarmonicBasis
    kernel : Kernel
    scaling : "natural" or "even"
    """

    basis: HarmonicBasis
    kernel: Kernel
    scaling: Scaling
    _kept: dict[float, tuple[np.ndarray, np.ndarray] | None] = field(default_factory=dict, repr=False)

    def even(self, log_length: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Return e = 1/√v at the nodes and ½ d log v / d log ℓ; None for a natural prior."""
        if self.scaling != "even":
            return None
        if log_length not in self._kept:
            features = PartedFeatures(*self.basis.by_part(None))
            variance = FeatureVariance(features, self.basis.eigenvalues[features.order], self.kernel)
            log_v, slope = variance.log_variance(log_length)
            self._kept.clear()
            self._kept[log_length] = np.exp(-0.5 * log_v), 0.5 * slope
        return self._kept[log_length]


def row_weights(
    exposure: sparse.csr_array, mean: np.ndarray, variance: np.ndarray
) -> tuple[sparse.csr_array, np.ndarray]:
    """Return the rows w_i / W of sums over nodes under a posterior, and log W.

    Parameters
    ----------
    exposure : (n, n_nodes) csr_array
        What exp(f) is multiplied by in each sum.
    mean, variance : (n_nodes,) arrays
        Of f.
    """
    size = mean + 0.5 * variance
    top = float(size.max(initial=-np.inf))
    expected = exposure.multiply(np.exp(size - top)).tocsr()
    total = np.asarray(expected.sum(axis=1)).ravel()
    rows = sparse.csr_array(sparse.diags_array(1.0 / np.where(total > 0, total, 1.0)) @ expected)
    with np.errstate(divide="ignore"):
        return rows, np.log(total) + top


class RowEngine(FeatureEngine):
    """Posteriors over the weights of features, for observations that are weighted sums over nodes.

    Parameters
    ----------
    nodes : NodeFeatures
    rows : (n, n_nodes) csr_array
        What each observation sees of the linear predictor at the nodes; rows add up to one.
    columns : (n_nodes, k) array
        Fixed effects at the nodes.
    fixed_sd : (k,) array
    centre : float
        Constant added to every linear predictor.
    """

    joined = True

    def __init__(
        self,
        nodes: NodeFeatures,
        rows: sparse.csr_array,
        columns: np.ndarray,
        fixed_sd: np.ndarray,
        centre: float,
    ) -> None:
        basis = nodes.basis
        nothing = PartedFeatures(0, [slice(None)], [np.zeros((0, basis.m))])
        super().__init__(
            nothing,
            basis.eigenvalues,
            nodes.kernel,
            rows @ columns,
            fixed_sd,
            basis,
            columns,
            centre,
            "natural",
        )
        self.nodes, self.rows, self._scaling = nodes, rows, nodes.scaling
        self._at: tuple[float, PartedFeatures, np.ndarray, np.ndarray | None] | None = None

    def rehearsals(self) -> Iterator[FeatureEngine]:
        """Yield nothing: rows are few."""
        return iter(())

    def rows_at(self, log_length: float) -> tuple[PartedFeatures, np.ndarray, np.ndarray | None]:
        """Return the rows of features at a lengthscale, as a matrix too, and minus their derivatives in log ℓ."""
        if self._at is None or self._at[0] != log_length:
            features, even = self._basis.features, self.nodes.even(log_length)
            weights = self.rows if even is None else self.rows.multiply(even[0]).tocsr()
            matrix = np.ascontiguousarray(weights @ features)
            slope = (
                None if even is None else np.ascontiguousarray(weights.multiply(even[1]).tocsr() @ features)
            )
            self._at = log_length, PartedFeatures(len(matrix), [slice(None)], [matrix]), matrix, slope
        return self._at[1:]

    def prior_at(self, theta: np.ndarray) -> _RowPrior:
        """Return the features' prior at θ, as the rows see it."""
        return _RowPrior(self, theta)

    def _gradient(self, s: Solution) -> np.ndarray:
        out = super()._gradient(s)
        prior: _RowPrior = s.prior  # type: ignore[assignment]
        if prior.slope is not None:
            # The rows move with ℓ: they are Σ r_i e_i φ_i, d log e_i / d log ℓ = -slope_i.
            w, mean = s.sites.precision, s.moments.mean
            moved = prior.slope * prior.scale
            tied, tied_rows = moved @ s.coupling, prior.apply(s.coupling)
            solved = s.factor.solve(np.asfortranarray((prior.matrix * prior.scale).T))
            with_f = np.einsum("ij,ji->i", moved, solved)
            with_f -= np.einsum("ij,jk,ik->i", tied, s.beta_cov, self.design - tied_rows)
            out[0] -= float(np.sum((s.sites.natural - w * mean) * (moved @ s.z) - w * with_f))
        return out


class _RowPrior(FeaturePrior):
    """The features' prior at one θ, as rows see it."""

    def __init__(self, engine: RowEngine, theta: np.ndarray) -> None:
        super().__init__(engine, theta)
        self.features, self.matrix, self.slope = engine.rows_at(float(theta[0]))

    def factorise(self, precision: np.ndarray, factor: float) -> FeatureFactor:
        return FeatureFactor(self.features, self.scale, self.features.gram(precision), factor)
