"""The binomial likelihood: cases among cases and controls, whose odds are those of all times a relative risk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.special import expit, gammaln, log_expit, roots_hermitenorm

from geobgp.errors import DataError
from geobgp.inference.likelihoods import Expected, Likelihood
from geobgp.inference.mixture import NormalMixture

#: Gauss-Hermite points: their error is far below that of the bound itself.
_POINTS, _WEIGHTS = roots_hermitenorm(40)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True, eq=False)
class Binomial(Likelihood):
    """Cases among persons, with log odds offset + f, by Gauss-Hermite quadrature.

    Persons with the same f are one observation: a Bernoulli likelihood of each would say the same.

    Parameters
    ----------
    cases, persons : (n,) arrays
        How many are cases, of how many.
    offset : float
        The log odds of a case where f is zero: the log of all cases over all controls.
    """

    #: exp(f) is the relative risk.
    is_intensity = True

    cases: np.ndarray
    persons: np.ndarray
    offset: float = 0.0

    def __post_init__(self) -> None:
        bad = int((~((self.cases >= 0) & (self.cases <= self.persons))).sum())
        if bad:
            raise DataError(
                f"Cases are from 0 to the number of persons; {bad:,} of {len(self.cases):,} are not."
            )

    @property
    def size(self) -> int:
        """Number of observations."""
        return len(self.cases)

    @property
    def name(self) -> str:
        """Short name for reports."""
        return "binomial (logit)"

    @cached_property
    def _constant(self) -> np.ndarray:
        y, n = self.cases, self.persons
        return gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0) + y * self.offset

    def _at_points(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        return self.offset + mean[:, None] + np.sqrt(variance)[:, None] * _POINTS

    def expected(self, mean: np.ndarray, variance: np.ndarray) -> Expected:
        """Return E log p and its derivatives."""
        f = self._at_points(mean, variance)
        p = expit(f)
        value = self._constant + self.cases * mean + self.persons * (log_expit(-f) @ _WEIGHTS)
        bent = (p * (1.0 - p)) @ _WEIGHTS
        return Expected(value, self.cases - self.persons * (p @ _WEIGHTS), -0.5 * self.persons * bent)

    def slopes(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives of the site precision in mean and variance."""
        p = expit(self._at_points(mean, variance))
        q, lean = p * (1.0 - p), 1.0 - 2.0 * p
        by_mean, by_variance = (q * lean) @ _WEIGHTS, 0.5 * (q * (lean**2 - 2.0 * q)) @ _WEIGHTS
        return self.persons * by_mean, self.persons * by_variance

    def predicted(self, at: NormalMixture, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability p that a person there is a case, and p (1 - p)."""
        each = [expit(self._at_points(mu, var)) @ _WEIGHTS for mu, var in zip(at.mu, at.var, strict=True)]
        p = at.weight @ np.array(each)
        return p, p * (1 - p)

    def facts(self) -> dict[str, Any]:
        """Return the offset."""
        return {"offset": self.offset}

    @classmethod
    def without_data(cls, facts: dict[str, Any]) -> Self:
        """Return the likelihood of no persons."""
        return cls(np.zeros(0), np.zeros(0), **facts)
