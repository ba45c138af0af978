"""States in time: a Gaussian posterior over the weights of every period, that stands by itself.

The weights of all periods are jointly Gaussian. What is kept are the pivots of their chain, from which follow the
marginal posterior of each period (`at`), joint draws over all of them, and what lies ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from geobgp.errors import DataError
from geobgp.inference.dynamics import Transition
from geobgp.inference.features import Blocks, PartedFeatures
from geobgp.inference.period_rows import NodeRows, in_threads
from geobgp.inference.states import FeatureState
from geobgp.linalg.tridiagonal import Symmetric, Tridiagonal

if TYPE_CHECKING:
    from scipy import sparse

    from geobgp.prior.harmonic import HarmonicBasis

_NUMBERS = (
    "weight", "lengthscale", "sd", "noise", "centre", "tau", "level_sd", "level_tau", "per_year"
)  # fmt: skip
_ARRAYS = ("columns", "season", "clock", "log_tau", "scale", "mean", "coupling", "beta", "beta_cov")


def season_columns(clock: np.ndarray, per_year: float | None) -> np.ndarray:
    """Return cosine and sine of the yearly cycle at times in periods, (T, 2); (T, 0) where there is none.

    Examples
    --------
    >>> season_columns(np.array([0.0, 3.0]), 12.0).round(3)
    array([[1., 0.],
           [0., 1.]])
    """
    if per_year is None or not np.isfinite(per_year):
        return np.zeros((len(clock), 0))
    angle = 2.0 * np.pi * clock / per_year
    return np.column_stack([np.cos(angle), np.sin(angle)])


@dataclass(frozen=True, eq=False)
class ChainState:
    """A Gaussian posterior over the weights of features in every period, a level of each, and fixed effects.

    Attributes
    ----------
    weight : float
        Share of this state in the mixture over hyperparameters.
    lengthscale, sd, noise, tau, level_sd, level_tau : float
        Hyperparameters; times in periods. Noise is NaN, and what is the level's where there is none.
    centre : float
        Constant added to every linear predictor.
    dynamics : "separable" or "diffusive"
    per_year : float
        Periods of a yearly cycle; NaN where there is none.
    clock : (T,) array
        When each period is, in periods since the first one.
    columns : (n_nodes, k) or (T, n_nodes, k) array
        Intercept and covariates at the nodes.
    offset : (n_nodes,) array, optional
        Added to the linear predictor at each node, where the columns of levels that share a node are linearised.
    season : (T, q) array
        Cosine and sine of the year.
    log_tau : (M,) array
        Log correlation time of each weight: the features', in the order of their parts, and the level's.
    scale : (M,) array
        Prior standard deviations of the weights.
    mean : (T, M) array
        Posterior means of the whitened weights.
    coupling : (T, M, k + q) array
        They fall by this much per unit of β.
    beta, beta_cov : (k + q,) and (k + q, k + q) arrays
        Of the fixed effects: intercept, covariates, season.
    chain : Tridiagonal
        The elimination of the whitened weights' precision, given β.
    known : (T · n_nodes,) arrays, optional
        Mean and variance of the linear predictor, less its offset, where they have been computed.
    """

    weight: float
    lengthscale: float
    sd: float
    noise: float
    centre: float
    tau: float
    level_sd: float
    level_tau: float
    per_year: float
    dynamics: str
    even: bool
    clock: np.ndarray = field(repr=False)
    columns: np.ndarray = field(repr=False)
    season: np.ndarray = field(repr=False)
    log_tau: np.ndarray = field(repr=False)
    scale: np.ndarray = field(repr=False)
    mean: np.ndarray = field(repr=False)
    coupling: np.ndarray = field(repr=False)
    beta: np.ndarray = field(repr=False)
    beta_cov: np.ndarray = field(repr=False)
    chain: Tridiagonal = field(repr=False)
    basis: HarmonicBasis = field(repr=False)
    known: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)
    offset: np.ndarray | None = field(default=None, repr=False)

    @property
    def n_periods(self) -> int:
        """T."""
        return len(self.mean)

    @property
    def has_level(self) -> bool:
        """Whether each period has a level of its own."""
        return len(self.scale) > self.basis.m

    @cached_property
    def _features(self) -> PartedFeatures:
        return PartedFeatures(*self.basis.by_part(None))

    @cached_property
    def _e(self) -> np.ndarray:
        """What the field is multiplied by at the nodes to make its prior even."""
        if not self.even:
            return np.ones(self.basis.domain.n_nodes)
        s = self.scale[: self.basis.m]
        return np.asarray(self.sd / np.sqrt(self._features.squares(s[:, None] ** 2)[:, 0]))

    @cached_property
    def _covariances(self) -> np.ndarray:
        """(T, M, M): covariances of the whitened weights of each period, given β."""
        out = np.empty_like(self.chain.inverses)
        for t, block in self.chain.inverse_blocks():
            out[t] = block
        return out

    def _columns(self, t: int) -> np.ndarray:
        return self.columns if self.columns.ndim == 2 else self.columns[t]

    def _fixed(self, t: int) -> np.ndarray:
        """Return all fixed effects of a period at the nodes."""
        own = self._columns(t)
        return np.column_stack([own, np.broadcast_to(self.season[t], (len(own), self.season.shape[1]))])

    # -- marginals -----------------------------------------------------------------------------------------

    def at(self, t: int) -> FeatureState:
        """Return the marginal posterior of period t, as a state in space.

        Its intercept holds the level of the period and the season. All features are one block: what is known of
        one part of the land and one period tells of others, through the levels.
        """
        if not -self.n_periods <= t < self.n_periods:
            raise DataError(f"There are {self.n_periods} periods; found number {t}.", found=t)
        t %= self.n_periods
        m, k = self.basis.m, self._columns(t).shape[1]
        tied = np.vstack([-self.coupling[t], np.eye(len(self.beta))])
        joint = tied @ self.beta_cov @ tied.T
        size = len(self.scale)
        joint[:size, :size] += self._covariances[t]
        turn = self._to_space(t, k)
        mean = np.concatenate([self.mean[t], self.beta])
        beta, with_beta = turn @ mean, turn @ joint
        beta_cov = with_beta @ turn.T
        falls = np.linalg.solve(beta_cov, with_beta[:, :m]) if k else np.zeros((0, m))
        # In the order of the basis, in which all features are one block.
        back = np.argsort(self._features.order)
        precision = (joint[:m, :m] - with_beta[:, :m].T @ falls)[np.ix_(back, back)]
        precision = 0.5 * (precision + precision.T)
        work = Symmetric(m)
        work.factorise(precision)
        work.invert(precision)
        work.factorise(precision)
        s = self.scale[:m]
        return FeatureState(
            weight=self.weight,
            lengthscale=self.lengthscale,
            sd=self.sd,
            noise=self.noise,
            centre=self.centre,
            beta=beta,
            beta_cov=beta_cov,
            fixed=self._columns(t),
            offset=self.offset,
            even=self.even,
            mean=(s * mean[:m])[back],
            coupling=(-s[:, None] * falls.T)[back],
            scale=s[back],
            chol=Blocks([np.asfortranarray(np.tril(precision.T))], np.zeros(0)),
            basis=self.basis,
            joined=True,
        )

    def _to_space(self, t: int, k: int) -> np.ndarray:
        """Return the matrix from weights, level and β to the k fixed effects of a period in space."""
        size = len(self.scale)
        out = np.zeros((k, size + len(self.beta)))
        out[:, size : size + k] = np.eye(k, min(k, len(self.beta)))
        if k:
            if self.has_level:
                out[0, -1 - len(self.beta)] = self.scale[-1]
            out[0, size + k :] = self.season[t]
        return out

    def node_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of the linear predictor at every node, (T, n_nodes) each."""
        mean, variance = self._moments
        return mean + self._added, variance.copy()

    @property
    def _added(self) -> np.ndarray | float:
        return 0.0 if self.offset is None else self.offset

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        shape = self.n_periods, self.basis.domain.n_nodes
        if self.known is not None:
            return self.known[0].reshape(shape), self.known[1].reshape(shape)
        m, mean, variance = self.basis.m, np.empty(shape), np.empty(shape)
        rows = NodeRows(self._features, 1, (self._e, np.zeros(shape[1])))
        covariances, e = self._covariances, self._e

        def work(mine: np.ndarray) -> None:
            for t in mine:
                fixed, u, falls, block = self._seen(int(t), covariances[t])
                own, with_level, _ = rows.spread(
                    0, block[:m, :m], block[:m, m] if self.has_level else np.zeros(m)
                )
                level = block[m, m] if self.has_level else 0.0
                rest = fixed - e[:, None] * self._features.apply(falls[:m])
                mean[t] = self.centre + e * self._features.apply(u[:m]) + fixed @ self.beta
                if self.has_level:
                    mean[t] += u[m]
                    rest -= falls[m]
                variance[t] = own + 2.0 * with_level + level
                variance[t] += np.einsum("ij,jk,ik->i", rest, self.beta_cov, rest)

        in_threads(self.n_periods, work)
        return mean, variance

    def _seen(self, t: int, block: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return fixed effects, and the weights, how they fall with β and their covariance, no longer whitened."""
        s = self.scale
        return self._fixed(t), s * self.mean[t], s[:, None] * self.coupling[t], (s[:, None] * block) * s

    def moments_of(self, rows: list[sparse.csr_array]) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of weighted sums of the nodes' linear predictor, less centre and offset, by period.

        The rows of a period add up to one.
        """
        means, variances, m = [], [], self.basis.m
        features = self.basis.features[:, self._features.order]
        for t, r in enumerate(rows):
            fixed, u, falls, block = self._seen(t, self._covariances[t])
            matrix = r.multiply(self._e).tocsr() @ features
            if self.has_level:
                matrix = np.column_stack([matrix, np.ones(len(matrix))])
            seen = r @ fixed
            rest = seen - matrix @ falls
            means.append(matrix @ u + seen @ self.beta)
            variance = np.einsum("ij,ij->i", matrix @ block[: m + 1, : m + 1], matrix)
            variances.append(variance + np.einsum("ij,jk,ik->i", rest, self.beta_cov, rest))
        return np.concatenate(means), np.concatenate(variances)

    def level(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance, (T,) each, of what is common to all places: intercept, level and season."""
        size, k = len(self.scale), self._columns(0).shape[1]
        mean, variance = np.empty(self.n_periods), np.empty(self.n_periods)
        for t in range(self.n_periods):
            row = self._to_space(t, k)[0]
            own, beta = row[:size], row[size:] - self.coupling[t].T @ row[:size]
            mean[t] = self.centre + own @ self.mean[t] + row[size:] @ self.beta
            variance[t] = own @ self._covariances[t] @ own + beta @ self.beta_cov @ beta
        return mean, variance

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of the fixed effects, on the standardised scale: intercept, covariates, season."""
        mean = self.beta.copy()
        if len(mean):
            mean[0] += self.centre
        return mean, self.beta_cov

    # -- draws ---------------------------------------------------------------------------------------------

    def sample_joint(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return joint draws of the linear predictor, (n, T, n_nodes), and of the fixed effects, (n, k + q)."""
        m, out = self.basis.m, np.empty((n, self.n_periods, self.basis.domain.n_nodes))
        root = np.linalg.cholesky(self.beta_cov) if len(self.beta) else self.beta_cov
        shift = root @ rng.standard_normal((len(self.beta), n))
        for t, noise in self.chain.draw(n, rng):
            u = self.scale[:, None] * (self.mean[t][:, None] + noise - self.coupling[t] @ shift)
            field_ = self._e[:, None] * self._features.apply(np.ascontiguousarray(u[:m]))
            field_ += self._fixed(t) @ (self.beta[:, None] + shift)
            out[:, t] = field_.T + self.centre + self._added
            if self.has_level:
                out[:, t] += u[m][:, None]
        return out, (self.coefficients()[0][:, None] + shift).T

    def sample_nodes(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (n, T, n_nodes) joint draws of the linear predictor."""
        return self.sample_joint(n, rng)[0]

    def draws(self, n: int, rng: np.random.Generator, most: int = 2**27) -> Iterator[np.ndarray]:
        """Yield n joint draws in blocks of at most `most` bytes, or one draw each."""
        block = max(most // (8 * self.n_periods * self.basis.domain.n_nodes), 1)
        for start in range(0, n, block):
            yield self.sample_nodes(min(block, n - start), rng)

    # -- what lies ahead -----------------------------------------------------------------------------------

    def ahead(self, steps: int | np.ndarray, columns: np.ndarray | None = None) -> ChainState:
        """Return the periods that follow, given all that was seen: jointly among themselves.

        Parameters
        ----------
        steps : int or array
            How many periods, or the distance of each from the one before it.
        columns : (n_nodes, k) or (K, n_nodes, k) array, optional
            Intercept and covariates then; by default those of the last period.
        """
        gaps = np.ones(steps) if isinstance(steps, (int, np.integer)) else np.asarray(steps, float)
        if not (gaps.ndim == 1 and len(gaps) and (gaps > 0).all()):
            raise DataError("Ahead are one or more periods, each after the one before it.", found=steps)
        count, size = len(gaps), len(self.scale)
        step = Transition(gaps[:, None] * np.exp(-self.log_tau), np.zeros(size), self.has_level)
        a, new = step.correlation, step.innovation
        own, between = np.zeros((count, size, size)), (-a / new)[1:]
        mean, coupling = np.empty((count, size)), np.empty((count, *self.coupling.shape[1:]))
        before, latest, tied = self._covariances[-1], self.mean[-1], self.coupling[-1]
        lapack_ = Symmetric(size)
        for k in range(count):
            before = (a[k][:, None] * before) * a[k] + np.diag(new[k])
            latest, tied = a[k] * latest, a[k][:, None] * tied
            mean[k], coupling[k] = latest, tied
            # The pivot is the precision of what is known by now, and of the step that follows.
            pivot = np.linalg.inv(before)
            if k + 1 < count:
                pivot[np.diag_indices(size)] += a[k + 1] ** 2 / new[k + 1]
            own[k] = pivot
            lapack_.factorise(own[k])
            lapack_.invert(own[k])
        clock = self.clock[-1] + np.cumsum(gaps)
        return replace(
            self,
            clock=clock,
            columns=self._columns(self.n_periods - 1) if columns is None else columns,
            season=season_columns(clock, self.per_year),
            mean=mean,
            coupling=coupling,
            chain=Tridiagonal.from_inverses(own, between),
            known=None,
        )

    # -- files ---------------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return plain arrays from which `from_arrays` rebuilds the state."""
        rows, cols = np.triu_indices(len(self.scale))
        mean, variance = self._moments
        return {
            "numbers": np.array([getattr(self, name) for name in _NUMBERS]),
            "even": np.array([self.even]),
            "diffusive": np.array([self.dynamics == "diffusive"]),
            "pivots": self.chain.inverses[:, rows, cols],
            "between": self.chain.between,
            "node_mean": mean,
            "node_variance": variance,
        } | {name: getattr(self, name) for name in (*_ARRAYS, "offset") if getattr(self, name) is not None}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], basis: HarmonicBasis) -> Self:
        """Rebuild a state from `to_arrays` and the basis it was fitted with."""
        own: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
        own |= dict(zip(_NUMBERS, (float(v) for v in arrays["numbers"]), strict=True))
        size = len(own["scale"])
        rows, cols = np.triu_indices(size)
        inverses = np.zeros((len(own["mean"]), size, size))
        inverses[:, rows, cols] = arrays["pivots"]
        return cls(
            **own,
            even=bool(arrays["even"][0]),
            dynamics="diffusive" if arrays["diffusive"][0] else "separable",
            chain=Tridiagonal.from_inverses(inverses, arrays["between"]),
            basis=basis,
            known=(arrays["node_mean"].ravel(), arrays["node_variance"].ravel()),
            offset=arrays.get("offset"),
        )
