"""Profile: the bound at rows that have settled, as a function of the hyperparameters, and where it is highest.

At rows that are held, the bound's slope in θ lacks what θ does through the rows. That matters over many periods: a wide
field that never changes, seen through rows that differ from period to period, imitates every change. So the bound is
climbed where rows have settled. The pull of the rows, which the slope at held rows lacks, is measured by differences;
it varies slowly, so that it is measured at few places.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from geobgp.errors import DataError, GeobgpWarning, hearing
from geobgp.inference.count_likelihoods import LARGEST_K, SMALLEST_K
from geobgp.inference.fit import Start, fit
from geobgp.inference.hyper import Hyper, bfgs, negative, newton_step
from geobgp.inference.renewal import MOST_PASSES, SETTLED, Problem, Settled, settle
from geobgp.inference.solver import RAN_OUT, Solver
from geobgp.progress import Stage
from geobgp.text import number

#: Nats that a step must promise to be taken; change of rows that is small enough on the way, and passes for it.
WORTH, ON_THE_WAY, _PASSES = 0.1, 0.03, 12
#: The pull of the rows is measured over half a standard deviation of θ, within these bounds.
_STEPS = 0.15, 0.6
#: How often it is measured at the most, and steps that are taken with each.
_PULLS, _TRIES = 6, 8
#: Shares of a step that are tried, and nats that rows not fully settled may cost or feign.
_SHARES, _NOISE = (1.0, 0.4, 0.1), 0.05
#: The least curvature that is believed: differences of rows not fully settled are worth no less.
_FLATTEST = 0.3
#: How often the standard deviation is halved where rows do not settle.
_ATTEMPTS = 6
#: Places that are remembered.
_KEPT = 4


@dataclass(frozen=True, eq=False)
class Best:
    """Where the bound is highest.

    Attributes
    ----------
    found : Settled
    k : float
        Size of a negative binomial; infinite for Poisson counts.
    held_at : float or None
        Standard deviation beyond which rows no longer settle, if that has ended the search.
    """

    found: Settled
    k: float
    held_at: float | None = None


@dataclass(frozen=True, eq=False)
class _Place:
    """Settled rows at x, and the bound there with the prior of the hyperparameters."""

    x: np.ndarray
    settled: Settled = field(repr=False)
    score: float


class Profile:
    """The bound at settled rows.

    Parameters
    ----------
    problem : Problem
        One whose rows are renewed.
    hyper : Hyper
    stage : Stage
    keep : callable, optional
        Given a place from which such a search could go on, after every pass.
    deadline : float
        On `time.perf_counter`: after it no step of the hyperparameters begins.
    """

    def __init__(
        self,
        problem: Problem,
        hyper: Hyper,
        stage: Stage,
        keep: Callable[[Start], None] | None = None,
        deadline: float = math.inf,
    ) -> None:
        self._deadline = deadline
        self.problem, self.hyper, self.stage, self._keep = problem, hyper, stage, keep
        self._lower, self._upper = hyper.lower, hyper.upper
        self._sized = False
        self._covariance = np.zeros((len(hyper.start),) * 2)
        self._places: list[_Place] = []
        #: The lowest standard deviation at which rows were seen not to settle.
        self._too_wide = math.inf
        self._rounds, self._settlings, self._seconds = 0, 0, dict[str, float]()

    def search(self, start: Start | None = None) -> Best:
        """Return where the bound of Poisson counts is highest, from a place to start at if there is one."""
        error: DataError | None = None
        unsettled: Settled | None = None
        theta, curvature = self._first(start)
        for _ in range(_ATTEMPTS):
            try:
                found = self._settle(theta, None, start, final=True)
            except DataError as failed:
                if failed.option != "scaling":
                    raise
                error = error or failed
            else:
                if found.settled:
                    return self._climb(self._place(theta, found), curvature)
                unsettled = unsettled or found
            if start is not None:  # rows from elsewhere may lead astray
                start = None
                theta, curvature = self._first(None)
                continue
            if not self.hyper.free[1]:
                break
            self._too_wide = min(self._too_wide, float(np.exp(theta[1])))
            theta = theta.copy()
            theta[1] = max(theta[1] - math.log(2.0), self._lower[1])
        if unsettled is None:
            assert error is not None
            raise error
        return Best(unsettled, math.inf)

    def with_size(self, plain: Best, log_k: float) -> Best:
        """Return where the bound of negative binomial counts is highest, from the Poisson's best and a size."""
        out = Profile(self.problem, self.hyper, self.stage, self._keep, self._deadline)
        out._sized = True
        out._lower = np.append(self._lower, math.log(SMALLEST_K))
        out._upper = np.append(self._upper, math.log(LARGEST_K))
        x = np.append(plain.found.fit.hyper_mean, log_k)
        covariance = plain.found.fit.hyper_cov
        curvature = -np.eye(len(x))
        free = np.flatnonzero(self.hyper.free)
        if len(free):
            curvature[np.ix_(free, free)] = -np.linalg.inv(covariance[np.ix_(free, free)])
        found = out._settle(x, plain.found)
        if not found.settled:
            return Best(found, out._size(x))
        return out._climb(out._place(x, found), curvature)

    # -- places

    def _size(self, x: np.ndarray) -> float:
        return math.exp(x[-1]) if self._sized else math.inf

    def _theta(self, x: np.ndarray) -> np.ndarray:
        return x[:-1] if self._sized else x

    def _first(self, start: Start | None) -> tuple[np.ndarray, np.ndarray | None]:
        """Return θ to begin with and the curvature there: what areas say whose land is all alike."""
        hyper = self.hyper
        if start is not None:
            theta = np.clip(start.theta, hyper.lower, hyper.upper)
            known = start.curvature(hyper.free)
            if known is not None or not hyper.free.any():
                return theta, known
        at = self.problem.at(None, None)
        heard: list[GeobgpWarning] = []
        with hearing(heard.append):
            first = fit(at.engine, self.problem.likelihood(at.exposure, math.inf), hyper, stage=self.stage)
        covariance = first.hyper_cov
        known = Start(first.hyper_mean, covariance, *at.start).curvature(hyper.free)
        return first.hyper_mean if start is None else theta, known

    def _settle(
        self, x: np.ndarray, before: Settled | None, known: Start | None = None, *, final: bool = False
    ) -> Settled:
        theta = self._theta(x)
        held = dataclasses.replace(self.hyper, start=theta, lower=theta, upper=theta)
        found = settle(
            self.problem, held, self._size(x), before=before, known=known, stage=self.stage, keep=self._offer,
            tolerance=SETTLED if final else ON_THE_WAY, most=MOST_PASSES if final else _PASSES,
        )  # fmt: skip
        self._rounds += found.fit.rounds
        self._settlings += 1
        for name, spent in found.fit.seconds.items():
            self._seconds[name] = self._seconds.get(name, 0.0) + spent
        return found

    def _offer(self, at: Start) -> None:
        """Hand on where a pass has ended, with what is known of θ."""
        if self._keep is not None:
            self._keep(dataclasses.replace(at, covariance=self._covariance))

    def _place(self, x: np.ndarray, found: Settled) -> _Place:
        place = _Place(x, found, found.fit.elbo + self.hyper.log_prior(self._theta(x))[0])
        self._places = [*self._places, place][-_KEPT:]
        return place

    def _at(self, x: np.ndarray, near: _Place) -> _Place | None:
        """Return the place at x, None if rows do not settle there."""
        for place in self._places:
            if np.array_equal(place.x, x):
                return place
        try:
            found = self._settle(x, near.settled)
        except DataError as failed:
            if failed.option != "scaling":
                raise
            found = None
        if found is None or not found.settled:
            self._too_wide = min(self._too_wide, float(np.exp(x[1])))
            return None
        return self._place(x, found)

    # -- the climb

    def _climb(self, place: _Place, curvature: np.ndarray | None) -> Best:
        free = self._upper > self._lower
        if curvature is None:
            curvature = -4.0 * np.eye(len(place.x))
        self._know(curvature)
        ended = not free.any()
        for _ in range(0 if ended else _PULLS):
            if self._late():
                break
            pull, curvature = self._pull(place, curvature)
            slope = self._slope(place) + pull
            promise = self._promise(place.x, slope, curvature)
            said = ", ".join(number(v) for v in np.exp(place.x))
            self.stage.tell(f"settled at {said}: ELBO {place.settled.fit.elbo:,.2f}, promised {promise:.2g}")
            self._too_wide = math.inf
            reached, curvature = self._steps(place, slope, pull, curvature)
            self._know(curvature)
            # Where a fresh pull promises nothing, or steps by it gain nothing, there is nothing more to gain;
            # unless rows do not settle where it leads.
            little = reached.score < place.score + WORTH
            ended = promise < WORTH or (little and (reached is not place or math.isinf(self._too_wide)))
            place = reached
            if ended or little:
                break
        return self._best(place, curvature, ended)

    def _steps(
        self, place: _Place, slope: np.ndarray, pull: np.ndarray, curvature: np.ndarray
    ) -> tuple[_Place, np.ndarray]:
        """Return where quasi-Newton steps lead while the pull of the rows is held, and the curvature there."""
        for _ in range(_TRIES):
            free = self._movable(place.x, slope)
            if self._promise(place.x, slope, curvature) < WORTH or self._late():
                break
            step = np.zeros_like(place.x)
            step[free] = newton_step(slope[free], curvature[np.ix_(free, free)])
            for share in _SHARES:
                x = np.clip(place.x + share * step, self._lower, self._upper)
                trial = self._at(x, place)
                if trial is None:
                    continue
                new = self._slope(trial) + pull
                curvature = bfgs(curvature, trial.x - place.x, new - slope, free)
                if trial.score > place.score - _NOISE:
                    break
            else:
                break
            if trial is None or trial.score < place.score + _NOISE:
                place = trial if trial is not None and trial.score > place.score else place
                break
            place, slope = trial, new
        return place, curvature

    def _late(self) -> bool:
        """Tell whether time is up for as much as the last place took: two passes or three, and the final ones."""
        spent = self._seconds.get("total", 0.0) / max(self._settlings, 1)
        return time.perf_counter() + 2.0 * spent > self._deadline

    def _know(self, curvature: np.ndarray) -> None:
        """Keep the covariance of θ that a curvature of the bound tells of."""
        free = self.hyper.free
        size = len(free)
        if free.any():
            values, vectors = np.linalg.eigh(negative(curvature[:size, :size][np.ix_(free, free)]))
            # Directions in which the data say nothing are held at a standard deviation of 3 (a factor of 20).
            inner = (vectors / np.maximum(-values, 1.0 / 9.0)) @ vectors.T
            self._covariance = np.zeros((size, size))
            self._covariance[np.ix_(free, free)] = inner

    def _best(self, place: _Place, curvature: np.ndarray, ended: bool) -> Best:
        found = self._settle(place.x, place.settled, final=True)
        self._know(curvature)
        held_at = None if ended or not math.isfinite(self._too_wide) else float(np.exp(place.x[1]))
        fitted, message = found.fit, found.fit.message
        converged = fitted.converged and (ended or held_at is not None)
        if fitted.converged and not converged:
            message = f"the hyperparameters still rise after {_PULLS} searches"
            if self._late():
                message = f"{RAN_OUT} before the hyperparameters were learned"
        fitted = dataclasses.replace(
            fitted, hyper_cov=self._covariance, converged=converged, message=message, rounds=self._rounds,
            seconds=self._seconds,
        )  # fmt: skip
        settled = dataclasses.replace(found, fit=fitted, settled=found.settled and converged)
        return Best(settled, self._size(place.x), held_at)

    def _slope(self, place: _Place) -> np.ndarray:
        """Return the slope of the bound and the prior at held rows."""
        settled, theta = place.settled, self._theta(place.x)
        solver = Solver(settled.last.engine, settled.likelihood, self.hyper, None)
        slope = solver.penalised(theta, solver.sites_at(*settled.seen))[1]
        return np.append(slope, settled.likelihood.by_log_k(*settled.seen)) if self._sized else slope

    def _pull(self, place: _Place, curvature: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what the slope at held rows lacks, and the curvature, both by differences.

        The pull is how the bound changes as rows settle anew; the curvature how the slope does, where it is known
        already in a direction in which rows do not settle.
        """
        out, slope, bent = np.zeros(len(place.x)), self._slope(place), curvature.copy()
        sds = 0.5 * np.sqrt(np.append(np.diag(self._covariance), 0.0))
        free = self._upper > self._lower
        for i in np.flatnonzero(free):
            size = float(np.clip(sds[min(i, len(sds) - 1)], *_STEPS))
            for step in (size, -size):
                x = place.x.copy()
                x[i] += step
                if self._lower[i] <= x[i] <= self._upper[i]:
                    self.stage.tell(f"pull of the areas, parameter {i + 1} of {len(out)}")
                    there = self._at(x, place)
                    if there is not None:
                        out[i] = (there.settled.fit.elbo - there.settled.first) / step
                        bent[i] = np.where(free, (self._slope(there) - slope) / step, 0.0)
                        break
        values, vectors = np.linalg.eigh(0.5 * (bent + bent.T))
        return out, -(vectors * np.maximum(np.abs(values), _FLATTEST)) @ vectors.T

    def _movable(self, x: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Return what can move: is not fixed, and not held by a bound."""
        low, high = self._lower, self._upper
        return (high > low) & ~((x <= low) & (slope < 0)) & ~((x >= high) & (slope > 0))

    def _promise(self, x: np.ndarray, slope: np.ndarray, curvature: np.ndarray) -> float:
        """Return the nats that a step would gain."""
        free = self._movable(x, slope)
        if not free.any():
            return 0.0
        step = newton_step(slope[free], curvature[np.ix_(free, free)], np.inf)
        return 0.5 * float(step @ slope[free])
