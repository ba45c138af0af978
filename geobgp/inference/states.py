"""States: Gaussian posteriors that stand by themselves, for one value of the hyperparameters each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from scipy import sparse
from scipy.linalg import blas, lapack

from geobgp.inference.engine import FeatureBlocks, PartedFeatures
from geobgp.prior.basis import mean_rows, only_unknown

if TYPE_CHECKING:
    from geobgp.land.domain import Domain
    from geobgp.prior.full_rank import Factor, FullRank, Powers
    from geobgp.prior.harmonic import HarmonicBasis


class _Field(NamedTuple):
    """The field f at some places: its mean and its variance for given β, and how it falls with β."""

    mean: np.ndarray
    variance: np.ndarray
    tied: np.ndarray


@dataclass(frozen=True, eq=False)
class _State(ABC):
    """What states have in common: numbers, and the fixed effects.

    Attributes
    ----------
    weight : float
        Share of this state in the mixture over hyperparameters.
    lengthscale, sd, noise : float
        Hyperparameters; noise is NaN where the likelihood has none.
    centre : float
        Constant added to every linear predictor (and to the intercept that is reported).
    beta : (k,) array
        Posterior means of the fixed effects.
    beta_cov : (k, k) array
        Their posterior covariance.
    fixed : (n_nodes, k) array
        Fixed effects at the nodes, standardised; the first column is the intercept's, if there is one.
    offset : (n_nodes,) array, optional
        Added to the linear predictor at each node, where the columns of levels that share a node are linearised.
    """

    weight: float
    lengthscale: float
    sd: float
    noise: float
    centre: float
    beta: np.ndarray = field(repr=False)
    beta_cov: np.ndarray = field(repr=False)
    fixed: np.ndarray = field(repr=False)
    offset: np.ndarray | None = field(default=None, repr=False, kw_only=True)

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The land."""

    @abstractmethod
    def _field(self, coords: np.ndarray | None) -> _Field:
        """Return the field at coordinates on land, or at the nodes."""

    def _moments(self, at: _Field, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = self.centre + at.mean + fixed @ self.beta
        rest = fixed - at.tied
        return mean, at.variance + np.einsum("ij,ij->i", rest @ self.beta_cov, rest)

    def _added(self, nodes: np.ndarray | slice = slice(None)) -> np.ndarray | float:
        """Return what is added to the linear predictor of the nodes' own land."""
        return 0.0 if self.offset is None else self.offset[nodes]

    def node_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at every node."""
        mean, variance = self._moments(self._at_nodes, self.fixed)
        return mean + self._added(), variance

    def moments_at(
        self, coords: np.ndarray, fixed: np.ndarray | None = None, *, by_node: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at coordinates; NaN off land.

        Parameters
        ----------
        coords : (k, 2) array, or (k,) int array
            Coordinates, or nodes.
        fixed : (k, columns) array, optional
            Fixed effects there; by default those of the node on whose land a coordinate lies, and the mean over it.
        by_node : bool
            Take the field of that node too, whether or not the prior is smooth within it.
        """
        if np.ndim(coords) == 1 and len(coords) and np.issubdtype(np.asarray(coords).dtype, np.integer):
            node, by_node = np.asarray(coords), True
        else:
            coords = np.asarray(coords, float).reshape(-1, 2)
            node = self.domain.node_at(coords)
        land = node >= 0
        out = np.full((2, len(coords)), np.nan)
        if land.any():
            columns = self.fixed[node[land]] if fixed is None else np.asarray(fixed)[land]
            field = self._of_nodes(node[land]) if by_node else self._field(coords[land])
            out[:, land] = self._moments(field, columns)
            if fixed is None:
                out[0, land] += self._added(node[land])
        return out[0], out[1]

    def node_covariance(self, nodes: np.ndarray) -> np.ndarray:
        """Return the joint covariance of the linear predictor at some nodes."""
        covariance, tied = self._field_covariance(nodes)
        rest = self.fixed[nodes] - tied
        return covariance + rest @ self.beta_cov @ rest.T

    def joint_at(self, places: np.ndarray, columns: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and joint covariance of the linear predictor at some places, which may recur.

        Parameters
        ----------
        places : (k,) int array, or (k, 2) array
            Nodes, or coordinates on land.
        columns : (k, n_effects) array, optional
            Of the fixed effects; by default those of the nodes, whose offset is then added.
        """
        field, covariance = self._joint_field(places)
        nodes = places if np.ndim(places) == 1 else self.domain.node_at(places)
        added = self._added(nodes) if columns is None else 0.0
        columns = self.fixed[nodes] if columns is None else columns
        rest = columns - field.tied
        mean = field.mean + columns @ self.beta + self.centre + added
        return mean, covariance + rest @ self.beta_cov @ rest.T

    def _joint_field(self, places: np.ndarray) -> tuple[_Field, np.ndarray]:
        """Return the field at nodes or coordinates, and its covariance for given β."""
        nodes = places if np.ndim(places) == 1 else self.domain.node_at(places)
        once, place = np.unique(nodes, return_inverse=True)
        return self._of_nodes(nodes), self._field_covariance(once)[0][np.ix_(place, place)]

    @abstractmethod
    def _field_covariance(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the field's covariance at some nodes for given β, and how it falls with β there."""

    @cached_property
    def _at_nodes(self) -> _Field:
        return self._field(None)

    def _of_nodes(self, node: np.ndarray) -> _Field:
        return _Field(*(values[node] for values in self._at_nodes))

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the fixed effects, on the standardised scale, intercept first."""
        mean = self.beta.copy()
        if len(mean):
            mean[0] += self.centre
        return mean, self.beta_cov

    @abstractmethod
    def sample_joint(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return joint draws of the linear predictor at the nodes, (n, n_nodes), and of the fixed effects, (n, k).

        The fixed effects are on the standardised scale, as `coefficients` has them.
        """

    def sample_nodes(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (n, n_nodes) joint draws of the linear predictor at the nodes."""
        return self.sample_joint(n, rng)[0]

    def _effects(self, shift: np.ndarray) -> np.ndarray:
        """Return (n, k) fixed effects from their draws about the means."""
        return (self.coefficients()[0][:, None] + shift).T

    def _shifts(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (k, n) draws of the fixed effects about their means."""
        root = np.linalg.cholesky(self.beta_cov) if len(self.beta) else self.beta_cov
        return np.asarray(root @ rng.standard_normal((len(self.beta), n)))


def hyper_numbers(theta: np.ndarray, weight: float, noise_at: int | None) -> dict[str, Any]:
    """Return a state's share and its hyperparameters, by name, from θ."""
    noise = float("nan") if noise_at is None else float(np.exp(theta[noise_at]))
    length, sd = (float(v) for v in np.exp(theta[:2]))
    return {"weight": float(weight), "lengthscale": length, "sd": sd, "noise": noise}


@dataclass(frozen=True, eq=False)
class FeatureState(_State):
    """A Gaussian posterior over features and fixed effects.

    Attributes
    ----------
    even : bool
        Whether the prior has been made even.
    mean : (m,) array
        Posterior mean of the weights.
    coupling : (m, k) array
        The weights' mean falls by this much per unit of β.
    scale : (m,) array
        Prior standard deviations of the weights.
    chol : Blocks
        Lower factors L of the posterior precision L Lᵀ of the whitened weights (weights / scale) given β, by part of
        the land; the precision itself of those that stand alone.
    basis : HarmonicBasis
    joined : bool
        Whether all features are one block, because observations reach over several parts of the land.
    """

    even: bool
    mean: np.ndarray = field(repr=False)
    coupling: np.ndarray = field(repr=False)
    scale: np.ndarray = field(repr=False)
    chol: FeatureBlocks = field(repr=False)
    basis: HarmonicBasis = field(repr=False)
    joined: bool = False

    @property
    def domain(self) -> Domain:
        """The land."""
        return self.basis.domain

    def _features(self, coords: np.ndarray | None = None) -> PartedFeatures:
        """Return the features at the nodes, or at coordinates on land, in the blocks of this state."""
        return _layout(self.basis, coords, self.joined)

    def _half(self, features: PartedFeatures) -> FeatureBlocks:
        scale = features.split(self.scale)
        dense = [
            np.asfortranarray(lapack.dtrtri(chol, lower=1)[0] * s)
            for chol, s in zip(self.chol.dense, scale.dense, strict=True)
        ]
        return FeatureBlocks(dense, scale.alone / np.sqrt(self.chol.alone))

    def _normaliser(self, features: PartedFeatures) -> np.ndarray:
        """Return what the field is multiplied by at rows of features to make its prior even."""
        if not self.even:
            return np.ones(features.shape[0])
        return self.sd / np.sqrt(features.squares(self.scale[:, None] ** 2)[:, 0])

    def _field(self, coords: np.ndarray | None) -> _Field:
        features = self._features(coords)
        e = self._normaliser(features)
        return _Field(
            e * features.apply(self.mean),
            e**2 * features.variances(self._half(features)),
            e[:, None] * features.apply(self.coupling),
        )

    def _joint_field(self, places: np.ndarray) -> tuple[_Field, np.ndarray]:
        if np.ndim(places) == 1:
            return super()._joint_field(places)
        features, field = self._features(places), self._field(places)
        e = self._normaliser(features)
        covariance = features.covariance(self._halves[1], np.arange(len(places)))
        return field, e[:, None] * covariance * e

    @cached_property
    def _halves(self) -> tuple[PartedFeatures, FeatureBlocks, np.ndarray]:
        features = self._features()
        return features, self._half(features), self._normaliser(features)

    def _field_covariance(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        features, half, even = self._halves
        e = even[nodes]
        return e[:, None] * features.covariance(half, nodes) * e, self._at_nodes.tied[nodes]

    def sample_joint(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return joint draws of the linear predictor at the nodes, (n, n_nodes), and of the fixed effects, (n, k)."""
        features = self._features()
        noise = features.split(rng.standard_normal((len(self.mean), n)))
        dense = [
            blas.dtrsm(1.0, chol, z, lower=1, trans_a=1) for chol, z in zip(self.chol.dense, noise.dense, strict=True)
        ]
        whitened = features.join(FeatureBlocks(dense, noise.alone / np.sqrt(self.chol.alone)[:, None]))
        shift = self._shifts(n, rng)
        weights = self.mean[:, None] + self.scale[:, None] * whitened - self.coupling @ shift
        out = features.apply(weights)
        out *= self._normaliser(features)[:, None]
        out += self.fixed @ (self.beta[:, None] + shift)
        out += self.centre
        return np.ascontiguousarray(out.T + self._added()), self._effects(shift)

    def joint(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of all weights, in the order of the basis, and of the fixed effects after them."""
        features = self._features()
        m, k = len(self.mean), len(self.beta)
        covariance = np.zeros((m + k, m + k))
        half = self._half(features)
        for part, block in zip(features.parts, half.dense, strict=True):
            covariance[part.columns, part.columns] = block.T @ block
        alone = np.arange(m - len(half.alone), m)
        covariance[alone, alone] = half.alone**2
        tied = np.vstack([-self.coupling, np.eye(k)])
        covariance += tied @ self.beta_cov @ tied.T
        back = np.r_[np.argsort(features.order), m + np.arange(k)]
        return np.r_[self.mean, self.beta][back], covariance[np.ix_(back, back)]

    @classmethod
    def from_joint(cls, mean: np.ndarray, covariance: np.ndarray, scale: np.ndarray, **others: Any) -> Self:
        """Make a state from mean and covariance of all weights, in the order of the basis, and of the fixed effects.

        Parameters
        ----------
        mean, covariance : (m + k,) and (m + k, m + k) arrays
        scale : (m,) array
            Prior standard deviations of the weights.
        **others
            weight, lengthscale, sd, noise, centre, fixed, even, basis.

        Notes
        -----
        Weights of different parts of the land are independent given the fixed effects in the best posterior; what
        little else a numerical one has between them is left out.
        """
        features = PartedFeatures(*others["basis"].by_part(None))
        m = len(scale)
        scale = scale[features.order]
        there = np.r_[features.order, np.arange(m, len(mean))]
        mean, covariance = mean[there], covariance[np.ix_(there, there)]
        precision = np.linalg.inv(covariance)
        whitened = scale[:, None] * precision[:m, :m] * scale
        dense = [np.asfortranarray(np.linalg.cholesky(whitened[p.columns, p.columns])) for p in features.parts]
        first = sum(len(block) for block in dense)
        chol = FeatureBlocks(dense, np.diag(whitened)[first:].copy())
        beta_cov = covariance[m:, m:]
        coupling = -np.linalg.solve(beta_cov, covariance[m:, :m]).T
        return cls(mean=mean[:m], beta=mean[m:], beta_cov=beta_cov, coupling=coupling, scale=scale, chol=chol, **others)

    def moments_of(self, rows: sparse.csr_array) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of weighted sums (n, n_nodes) of the nodes' predictor, less centre and offset."""
        weights = rows.multiply(self._normaliser(self._features())).tocsr()
        matrix = np.ascontiguousarray(weights @ self.basis.features)
        features = PartedFeatures(len(matrix), [slice(None)], [matrix])
        fixed, tied = rows @ self.fixed, features.apply(self.coupling)
        rest = fixed - tied
        variance = features.variances(self._half(features)) + np.einsum("ij,ij->i", rest @ self.beta_cov, rest)
        return features.apply(self.mean) + fixed @ self.beta, variance


def _layout(basis: HarmonicBasis, coords: np.ndarray | None, joined: bool) -> PartedFeatures:
    if not joined:
        return PartedFeatures(*basis.by_part(coords))
    matrix = basis.features if coords is None else np.ascontiguousarray(basis.evaluate(coords))
    return PartedFeatures(len(matrix), [slice(None)], [matrix])


@dataclass(frozen=True, eq=False)
class SparseState(_State):
    """A Gaussian posterior over a weight for every unknown and the fixed effects; its places are the nodes.

    Attributes
    ----------
    nu : float
        The kernel's smoothness.
    precision : (n_nodes,) or (n,) array
        Of the sites, as the natural field at the nodes sees them; or at the places, if `observe` is given.
    z : (u,) array
        Posterior means of the unknowns z = M^½ g (in units of cells).
    coupling : (u, k) array
        They fall by this much per unit of β.
    even : (n_nodes,) array
        What the natural field g is multiplied by to be f.
    variance : (n_nodes,) array
        Of g at the nodes, given β.
    full : FullRank
    observe : (n, u) csr_array, optional
        From z to the natural field at the places that were observed, where these are not nodes. The field at any place
        is then that between the nodes around it. Or from z to what rows over many nodes see.
    by_node : bool
        Whether the field at a place is that of its node.
    """

    nu: float
    precision: np.ndarray = field(repr=False)
    z: np.ndarray = field(repr=False)
    coupling: np.ndarray = field(repr=False)
    even: np.ndarray = field(repr=False)
    variance: np.ndarray = field(repr=False)
    full: FullRank = field(repr=False)
    observe: sparse.csr_array | None = field(default=None, repr=False)
    by_node: bool = False

    @property
    def domain(self) -> Domain:
        """The land."""
        return self.full.domain

    @property
    def _smooth(self) -> bool:
        """Whether the field at a place lies between the nodes around it."""
        return self.observe is not None and not self.by_node

    @property
    def key(self) -> object:
        """What tells this state's factor from others'."""
        rows = b"" if self.observe is None else self.observe.data.tobytes()
        return (self.lengthscale, self.sd, self.nu, self.precision.tobytes(), rows)

    def _field(self, coords: np.ndarray | None) -> _Field:
        if coords is not None:
            return self._between(coords)[0] if self._smooth else self._of_nodes(self.domain.node_at(coords))
        to_nodes = self.full.field.to_nodes
        tied = self.even[:, None] * (to_nodes @ self.coupling)
        return _Field(self.even * (to_nodes @ self.z), self.even**2 * self.variance, tied)

    def _between(self, coords: np.ndarray) -> tuple[_Field, sparse.csr_array]:
        """Return the field at coordinates on land, and the matrix that takes z there."""
        rows = self.full.observe(coords)
        if (self.even != 1.0).any():
            log_even = np.zeros(rows.shape[1])
            log_even[only_unknown(self.full.field.to_nodes)] = np.log(self.even)
            rows = sparse.csr_array(sparse.diags_array(np.exp(mean_rows(rows) @ log_even)) @ rows)
        powers, inverse = self._inverse
        variance = powers.variances(self._factor(), inverse, rows)
        return _Field(rows @ self.z, variance, rows @ self.coupling), rows

    def _joint_field(self, places: np.ndarray) -> tuple[_Field, np.ndarray]:
        if np.ndim(places) == 1 or not self._smooth:
            return super()._joint_field(places)
        field, rows = self._between(places)
        return field, self._factor().inverse_block(rows)

    @cached_property
    def _inverse(self) -> tuple[Powers, np.ndarray]:
        """The parts of the posterior precision, and the entries of its inverse in their pattern."""
        from threadpoolctl import threadpool_limits

        powers = self.full.powers(self.nu, self.observe)
        with threadpool_limits(limits=1, user_api="blas"):  # fronts are small
            return powers, self._factor().selected_inverse(powers.pattern.nnz)

    def moments_of(self, rows: sparse.csr_array) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of weighted sums (n, n_nodes) of the nodes' predictor, less centre and offset."""
        weights = sparse.csr_array(rows @ sparse.diags_array(self.even) @ self.full.field.to_nodes)
        weights.sort_indices()
        powers, inverse = self._inverse
        fixed = rows @ self.fixed
        rest = fixed - weights @ self.coupling
        variance = powers.variances(self._factor(), inverse, weights)
        variance += np.einsum("ij,ij->i", rest @ self.beta_cov, rest)
        return weights @ self.z + fixed @ self.beta, variance

    def _factor(self) -> Factor:
        from threadpoolctl import threadpool_limits

        factor = self.full.keep(self.key)
        if factor is None:
            # One thread, as in the fit, so that samples of a posterior read from a file are the same.
            with threadpool_limits(limits=1, user_api="blas"):
                factor = self.full.posterior_factor(self.nu, self.lengthscale, self.sd, self.precision, self.observe)
            self.full.keep(self.key, factor)
        return factor

    def _field_covariance(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        e = self.even[nodes]
        covariance = self._factor().inverse_block(self.full.field.to_nodes[nodes])
        return e[:, None] * covariance * e, self._at_nodes.tied[nodes]

    def sample_joint(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return joint draws of the linear predictor at the nodes, (n, n_nodes), and of the fixed effects, (n, k)."""
        noise = self._factor().half_solve(rng.standard_normal((len(self.z), n)))
        shift = self._shifts(n, rng)
        z = self.z[:, None] + noise - self.coupling @ shift
        out = self.even[:, None] * (self.full.field.to_nodes @ z) + self.fixed @ (self.beta[:, None] + shift)
        return np.ascontiguousarray(self.centre + out.T + self._added()), self._effects(shift)
