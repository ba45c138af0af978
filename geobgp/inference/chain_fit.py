"""A fit over periods: dynamics, memory, and going on where it was cut off."""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from geobgp import store
from geobgp.data.effects import Effects
from geobgp.errors import CacheError, DataError, GeobgpWarning, SizeError, WriteError, captured_warnings, option, warn
from geobgp.inference.chain import ChainSetting, DynamicsName, check_dynamics, season_columns
from geobgp.inference.families import FAMILIES, Likelihood
from geobgp.inference.fit import Fit, Start, fit
from geobgp.inference.hyper import SPATIAL, Hyper
from geobgp.inference.problem import (
    AreaProblem,
    ChainRows,
    Observed,
    PlaceProblem,
    dynamics_of,
    hyper_for,
    moments_less_centre,
    node_chain_engine,
    place_chain_engine,
)
from geobgp.inference.relinearise import ON_APPROACH, fit_family, fit_problem
from geobgp.linalg.blas import free_memory
from geobgp.prior.cache import cache_directory
from geobgp.prior.harmonic import HarmonicBasis
from geobgp.prior.kernels import Kernel
from geobgp.progress import ProgressLike, Stage
from geobgp.text import number

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from geobgp.prior.basis import Basis, Scaling


# -- Checkpoints: where a long fit is, written down every so often, so that one that was cut off goes on from there --
# A file in the cache's folder holds the hyperparameters and the moments at the observations, under a hash of all that
# the fit depends on. It is removed when the fit ends.


#: Seconds between two writings; shorter fits leave no file.
EVERY = 20.0
#: Version: what other versions have written is not read.
_VERSION = 1


def content_key(words: str, arrays: Iterable[np.ndarray]) -> str:
    """Return a hash of words and arrays.

    Examples
    --------
    >>> content_key("a", [np.zeros(3)]) == content_key("a", [np.zeros(3)]) != content_key("b", [np.zeros(3)])
    True
    """
    digest = hashlib.blake2b(f"geobgp fit {_VERSION} {words}".encode(), digest_size=20)
    for array in arrays:
        plain = np.ascontiguousarray(array)
        digest.update(f"|{plain.dtype.str}|{plain.shape}|".encode())
        digest.update(plain.view(np.uint8).reshape(-1).data if plain.size else b"")
    return digest.hexdigest()


class Checkpoint:
    """The file of one fit.

    Parameters
    ----------
    key : str
        What the fit depends on: see `content_key`.
    every : float
        Seconds between two writings.
    """

    def __init__(self, key: str, every: float = EVERY) -> None:
        self.key, self.every = key, every
        self.facts: dict[str, Any] = {}
        self._last = time.monotonic()

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return cache_directory() / f"{self.key}.fit"

    def read(self) -> tuple[dict[str, Any], Start] | None:
        """Return the facts and the place of a fit that was cut off; None if there is none, or it cannot be used."""
        if not self.path.exists():
            return None
        try:
            header, arrays = store.read(self.path, "fit")
            if header["key"] != self.key:
                return None
            names = ("theta", "covariance", "mean", "variance")
            return header["facts"], Start(*(np.asarray(arrays[name], float) for name in names))
        except (CacheError, KeyError):  # damaged: the fit begins anew, and writes it again
            return None

    def offer(self, at: Start) -> None:
        """Write down where the fit is, if it is time; what cannot be written is left."""
        if time.monotonic() - self._last < self.every:
            return
        arrays = {"theta": at.theta, "covariance": at.covariance, "mean": at.mean, "variance": at.variance}
        with suppress(OSError, WriteError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            store.write(self.path, "fit", {"key": self.key, "facts": self.facts}, arrays)
        self._last = time.monotonic()

    def done(self) -> None:
        """Remove it."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


# -- Fits in time: all periods in one model, dynamics chosen by the bound, memory refused in time, a way to resume --


#: Years of data from which on there is a yearly cycle.
YEARS = 2.0
#: Arrays of the size of all blocks, and of all observations, that a fit holds at once; and of fixed effects.
_BLOCKS, _VECTORS, _DESIGNS = 6, 40, 6
#: Nats that a step of the hyperparameters must promise in rehearsals, and where a round takes long (so many products).
_WORTH_FEW, _WORTH_LONG, _LONG = 1.0, 0.2, 1e10
#: Share of the time that is left which a rehearsal may take.
_REHEARSAL = 0.3
#: Periods from which on hyperparameters are first sought on a stretch of them: one in so many, but at least so many.
_STRETCHED, _SHARE, _LEAST = 60, 8, 30

Chain = PlaceProblem | AreaProblem


@dataclass(frozen=True, eq=False)
class ChainFit:
    """A fit in time.

    Attributes
    ----------
    fit : Fit
        Its states are `ChainState`.
    likelihood : Likelihood
        Without data.
    dynamics : "separable" or "diffusive"
    bounds : dict
        The bound reached with each of the dynamics that were compared; empty where they were given.
    compared_with : int
        How many features they were compared with.
    """

    fit: Fit
    likelihood: Likelihood
    dynamics: DynamicsName
    bounds: dict[str, float] = field(default_factory=dict)
    compared_with: int = 0


def setting_of(
    basis: Basis,
    kernel: Kernel,
    scaling: Scaling,
    columns: np.ndarray,
    centre: float,
    steps: np.ndarray,
    per_year: float | None,
    fixed_sd: float | np.ndarray,
    reporting: np.ndarray | None = None,
) -> ChainSetting:
    """Return what a model in time is about; a full-rank basis is refused.

    A yearly cycle is there where the periods show one, and last two years or more. Columns of `reporting` have weights
    with a standard deviation of one.
    """
    if not isinstance(basis, HarmonicBasis):
        raise DataError(
            f"A model in time needs features: every period has a weight for each of them. Found {basis.label}.",
            option="m",
            found=basis.label,
            remedy=f"Use {option('m', 256, python='HarmonicBasis.compute(domain)')}.",
        )
    clock = np.concatenate([[0.0], np.cumsum(steps)])
    yearly = per_year is not None and clock[-1] + 1.0 >= YEARS * per_year
    cycle = float(per_year) if yearly and per_year is not None else float("nan")
    if not columns.shape[-1]:  # around zero there is no cycle either
        cycle = float("nan")
    season = season_columns(clock, cycle)
    own = np.broadcast_to(fixed_sd, columns.shape[-1])
    if reporting is not None and not reporting.shape[-1]:
        reporting = None
    ones = np.ones(0 if reporting is None else reporting.shape[-1])
    sds = np.concatenate([own, np.repeat(own[:1], season.shape[1]), ones])
    apart = np.asarray(steps, float)
    return ChainSetting(basis, kernel, scaling, columns, season, sds, centre, apart, cycle, reporting)


def node_chain(
    setting: ChainSetting,
    counts: np.ndarray,
    exposure: np.ndarray,
    family: Likelihood = FAMILIES["poisson"],
    *,
    level: bool | None = None,
) -> PlaceProblem:
    """Return the problem of counts at the nodes, (T, n_nodes); a single period has no level."""
    level = len(counts) > 1 if level is None else level
    check_memory(setting, counts.size, level)
    engine = node_chain_engine(setting, dynamics_of(setting, "separable", level))
    return PlaceProblem(engine, counts.ravel(), exposure.ravel(), family, setting.centre)


def place_chain(
    setting: ChainSetting,
    places: np.ndarray,
    period: np.ndarray,
    values: np.ndarray,
    size: np.ndarray,
    family: Likelihood,
    columns: np.ndarray | None = None,
) -> PlaceProblem:
    """Return the problem of observations at places, each of one period; a single period has no level.

    Parameters
    ----------
    setting : ChainSetting
    places : (n, 2) array, or (n,) int array
        Coordinates on land, or nodes.
    period : (n,) int array
        In rising order.
    values, size : (n,) arrays
    family : Likelihood
    columns : (n, k) array, optional
        Intercept and covariates at the places; by default those of the nodes.
    """
    level = setting.n_periods > 1 and setting.columns.shape[-1] > 0
    check_memory(setting, len(values), level, n_rows=len(values))
    dynamics = dynamics_of(setting, "separable", level)
    engine = place_chain_engine(setting, dynamics, places, period, columns)
    return PlaceProblem(engine, values, size, family, setting.centre, places, period)


def area_chain(
    setting: ChainSetting,
    observed: tuple[Observed, ...],
    family: Likelihood = FAMILIES["poisson"],
    *,
    level: bool | None = None,
) -> AreaProblem:
    """Return the problem of counts by area, of every period."""
    level = len(observed) > 1 if level is None else level
    n = sum(len(one.counts) for one in observed)
    check_memory(setting, n, level, n_rows=n)
    return AreaProblem(ChainRows(setting, dynamics_of(setting, "separable", level)), observed, family)


def check_memory(setting: ChainSetting, n: int, level: bool, *, n_rows: int = 0, states: int = 1) -> None:
    """Refuse a fit that would not find room.

    Parameters
    ----------
    setting : Setting
    n : int
        Observations of all periods.
    level : bool
    n_rows : int
        Rows that have features of their own.
    states : int
        Posteriors that are kept in the end.
    """
    m, k = setting.basis.m + level, len(setting.fixed_sd)
    nodes = setting.n_periods * setting.basis.domain.n_nodes
    need = 8.0 * (
        (_BLOCKS + 2 * (states - 1)) * setting.n_periods * m**2
        + _VECTORS * max(n, nodes)
        + _DESIGNS * n * k
        + 3 * n_rows * m
    )
    free = free_memory()
    if free is not None and need > free:
        raise SizeError(
            f"{setting.n_periods:,} periods with {setting.basis.m:,} features on {setting.basis.domain.n_nodes:,} "
            f"nodes need about {number(need / 1e9)} GB of memory; {number(free / 1e9)} GB are free.",
            option="m",
            found=need,
            remedy=f"Use fewer features ({option('m')}), longer periods ({option('every')}) or larger cells.",
        )


def fit_chain(
    problem: Chain,
    *,
    dynamics: Literal["auto", "separable", "diffusive"] = "auto",
    hyper: str = "map",
    progress: ProgressLike = False,
    start: Start | None = None,
    resume: bool = True,
    held: dict[str, float] | None = None,
    near: np.ndarray | None = None,
    deadline: float = np.inf,
    effects: Effects | None = None,
    spatial: Hyper | None = None,
) -> ChainFit:
    """Fit observations of every period.

    Parameters
    ----------
    problem : PlaceProblem or AreaProblem
        Over periods.
    dynamics : "auto", "separable" or "diffusive"
        Auto takes the one with the higher bound: compared with a quarter of the features where there are many.
    hyper : "map" or "integrate"
        The best hyperparameters, or a mixture over lengthscales and sds with those of time held.
    start : Start, optional
        Where to begin: θ = (log ℓ, log σ, log τ, log level sd, log level τ), moments at the nodes of all periods.
    resume : bool
        Go on from where the same fit was cut off, and write down every so often where this one is.
    held : dict, optional
        Values of `tau`, `level_sd` or `level_tau` that are not to be learned.
    near : (2,) array, optional
        Log lengthscale and log sd at which to begin without a `start`, such as those of one map for all periods.
    deadline : float
        On `time.perf_counter`: when to end, with the best that is found by then and a warning.
    effects : Effects, optional
        The fixed effects, whose columns are renewed where levels share nodes; by default the problem's are held.
    spatial : Hyper, optional
        The hyperparameters but for those of time; by default those of a kernel for a log-intensity.
    """
    check_dynamics(dynamics)
    setting = problem.setting
    spatial = spatial or hyper_for(setting.basis, setting.kernel)
    if near is not None:
        begin = np.concatenate([near, spatial.start[len(near) :]])
        spatial = replace(spatial, start=np.clip(begin, spatial.lower, spatial.upper))
    parameters = spatial.over_periods(setting.n_periods, problem.dynamics.level, **(held or {}))
    if effects is not None:
        parameters = parameters.with_effects(effects.learned, effects.rates)
    if hyper == "integrate":
        check_memory(setting, problem.at(None, None).size.size, problem.dynamics.level, states=9)
    first: list[ChainFit] = []

    def solve(
        one: Chain, parameters: Hyper, *, start: Start | None, stage: Stage, integrate: bool = False, **how: Any
    ) -> tuple[Fit, Likelihood]:
        # Dynamics are chosen once, at the first columns.
        kind = first[0].dynamics if first else dynamics
        found = _Run(one, parameters, kind, stage, resume, deadline).run(start, integrate)
        first.append(found)
        return found.fit, found.likelihood

    # Without levels that share nodes the columns are those of the problem.
    fixed = effects if effects is not None and effects.mixes else Effects(columns=setting.columns)
    result, family = fit_problem(
        problem, parameters, setting.basis, fixed, hyper=hyper, progress=progress, start=start, solve=solve, full=False
    )  # fmt: skip
    states: Any = result.states
    result = replace(result, states=tuple(state.seen_through(None) for state in states))  # as maps are
    return replace(first[0], fit=result, likelihood=family)


#: A fit, and its likelihood without data.
Found = tuple[Fit, Likelihood]


@dataclass(frozen=True)
class _DynamicsChoice:
    """What is known of the dynamics, before the fit is done: the kind once it is chosen, and bounds of those tried."""

    dynamics: DynamicsName | None = None
    bounds: dict[str, float] = field(default_factory=dict)
    compared_with: int = 0


class _Run:
    """One fit, with its checkpoint."""

    def __init__(
        self, problem: Chain, hyper: Hyper, dynamics: str, stage: Stage, resume: bool, deadline: float
    ) -> None:
        self.problem, self.hyper, self.dynamics = problem, hyper, dynamics
        self.stage, self.deadline = stage, deadline
        self.checkpoint = Checkpoint(self._key()) if resume else None

    def _key(self) -> str:
        set_, hyper = self.problem.setting, self.hyper
        arrays = [hyper.lower, hyper.upper, set_.columns, set_.season, set_.steps, set_.basis.eigenvalues]
        arrays += [] if set_.reporting is None else [set_.reporting]
        arrays += [part.vectors for part in set_.basis.parts]
        arrays += self.problem.content()
        words = f"{set_.kernel!r} {set_.scaling} {self.dynamics} {self.problem.family.name} {hyper.names}"
        return content_key(words, arrays)

    def run(self, start: Start | None, integrate: bool) -> ChainFit:
        """Return the fit."""
        kept = None if self.checkpoint is None else self.checkpoint.read()
        choice = _DynamicsChoice()
        if kept is not None:
            choice, start = _DynamicsChoice(**kept[0]), kept[1]
            self.stage.tell("going on from where it was cut off")
        elif self.dynamics != "auto":
            kind: DynamicsName = "diffusive" if self.dynamics == "diffusive" else "separable"
            choice = _DynamicsChoice(kind)
            if start is None and isinstance(self.problem, PlaceProblem):
                quick = self._rehearse(self.problem.with_dynamics(kind), None)
                start = None if quick is None else _place(quick[0], self.problem)
        elif self.problem.setting.n_periods == 1:
            choice = _DynamicsChoice("separable")
        done = None
        if not choice.dynamics:
            choice, start, done = self._choose(start, choice)
        assert choice.dynamics
        self._note(choice)
        problem = self.problem.with_dynamics(choice.dynamics)
        result, likelihood = done or self._fit(problem, self.hyper, start, integrate=False)
        if integrate and not result.ran_out and self.hyper.free[: len(SPATIAL)].any():
            again, best = self.hyper.held(result.hyper_mean, self.hyper.names[len(SPATIAL) :]), likelihood
            mixed, likelihood = self._fit(problem, again, _place(result, problem), integrate=True, best=best)
            result = replace(mixed, hyper_cov=result.hyper_cov)
        if self.checkpoint is not None:
            self.checkpoint.done()
        return ChainFit(result, likelihood, choice.dynamics, choice.bounds, choice.compared_with)

    def _note(self, told: _DynamicsChoice) -> None:
        """Have what is told so far written down with where the fit is."""
        if self.checkpoint is not None:
            self.checkpoint.facts = asdict(told)

    def _fit(self, problem: Chain, hyper: Hyper, start: Start | None, integrate: bool, **more: Any) -> Found:
        # Not in rehearsals with fewer features.
        checkpoint = self.checkpoint
        keep = None if checkpoint is None or integrate or not checkpoint.facts else checkpoint.offer
        return fit_family(
            problem,
            hyper,
            integrate=integrate,
            start=start,
            stage=self.stage,
            keep=keep,
            **{"deadline": self.deadline, **self._gain(problem), **more},
        )

    def _gain(self, problem: Chain) -> dict[str, Any]:
        """Return the nats that a step must promise, where a round takes long."""
        if isinstance(problem, AreaProblem) or len(problem.values) * problem.setting.basis.m**2 <= _LONG:
            return {}
        return {"min_gain": _WORTH_LONG}

    def _rehearse(self, problem: Chain, start: Start | None) -> tuple[Fit, int] | None:
        """Return a fit with about a quarter of the features, and their number; None if these would be too few.

        Areas have no features to spare: theirs is a whole fit whose steps must promise more.
        """
        if isinstance(problem, AreaProblem):
            if not self.hyper.free.any():
                return None
            deadline = time.perf_counter() + _REHEARSAL * max(self.deadline - time.perf_counter(), 0.0)
            plain = replace(problem, family=problem.family.limit())
            how: dict[str, Any] = {"min_gain": ON_APPROACH, "deadline": deadline}
            return self._fit(plain, self.hyper, start, integrate=False, **how)[0], problem.setting.basis.m
        few = list(problem.chain.warm_start_engines())[-1:]
        if not few:
            return None
        now = time.perf_counter()
        how = {
            "min_gain": _WORTH_FEW, "stage": self.stage, "deadline": now + _REHEARSAL * max(self.deadline - now, 0.0),
        }  # fmt: skip
        count = problem.setting.n_periods
        if count >= _STRETCHED and self.hyper.free.any():
            stretch = problem.stretch(max(count // _SHARE, _LEAST))
            engine = next(reversed(list(stretch.chain.warm_start_engines())))
            likelihood = stretch.likelihood(stretch.size, stretch.family.limit())
            begin = None if start is None else _begin(start.theta, start.covariance, len(stretch.values))
            result = fit(engine, likelihood, self.hyper, start=begin, **how)
            # What all periods say is so much surer.
            covariance = result.hyper_cov * stretch.setting.n_periods / count
            moments = None if start is None else (start.mean, start.variance)
            start = _begin(result.hyper_mean, covariance, len(problem.values), moments)
        likelihood = problem.likelihood(problem.size, problem.family.limit())
        result = fit(few[0], likelihood, self.hyper, start=start, **how)
        return result, len(few[0].order)

    def _choose(self, start: Start | None, told: _DynamicsChoice) -> tuple[_DynamicsChoice, Start | None, Found | None]:
        """Return the dynamics with the higher bound, where it was reached, and that fit if it was a whole one."""
        places: dict[str, Start] = {}
        captured: dict[str, list[GeobgpWarning]] = {"separable": [], "diffusive": []}
        whole: dict[str, Found] = {}
        first = start
        bounds, compared = dict(told.bounds), self.problem.setting.basis.m
        kinds: tuple[DynamicsName, ...] = ("separable", "diffusive")
        for kind in (kind for kind in kinds if kind not in bounds):
            problem = self.problem.with_dynamics(kind)
            self.stage.tell(f"{kind} dynamics")
            if isinstance(problem, AreaProblem):  # also where steps must promise more, it is a whole fit
                self._note(_DynamicsChoice(None, dict(bounds), compared))
            with captured_warnings(lambda warning: None):  # what matters is whether the fit itself converges
                quick = self._rehearse(problem, start)
            if quick is not None:
                result, compared = quick
            elif bounds and time.perf_counter() > self.deadline:
                break
            else:
                self._note(_DynamicsChoice(None, bounds, compared))
                with captured_warnings(captured[kind].append):  # those of the fit that is kept are told below
                    whole[kind] = self._fit(problem, self.hyper, start, integrate=False)
                result = whole[kind][0]
            start = places[kind] = _place(result, problem)
            if result.ran_out:
                break  # a bound that was cut off cannot be compared
            bounds[kind] = result.elbo
        best: DynamicsName = "separable"
        if len(bounds) == len(kinds) and bounds["diffusive"] > bounds["separable"]:
            best = "diffusive"
        for warning in captured[best]:
            warn(warning)
        return _DynamicsChoice(best, bounds, compared), places.get(best, first), whole.get(best)


def _begin(
    theta: np.ndarray, covariance: np.ndarray, n: int, moments: tuple[np.ndarray, np.ndarray] | None = None
) -> Start:
    """Return a place to begin from hyperparameters, and from moments if they are known."""
    mean, variance = (np.zeros(n), np.zeros(n)) if moments is None else moments
    return Start(theta, covariance, mean, variance)


def _place(found: Fit, problem: Chain) -> Start:
    """Return where a fit ended, as a place where another of the same observations may begin."""
    state = found.states[0]
    nodes = isinstance(problem, AreaProblem)
    moments = moments_less_centre(state, problem.centre) if nodes else problem.seen(state, None)  # type: ignore[arg-type]
    return Start(found.hyper_mean, found.hyper_cov, *moments)
