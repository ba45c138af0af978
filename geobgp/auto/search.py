"""The search for the model: cells, water, features, and what periods allow, by evidence."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from geobgp.auto.gridded import about_crs, side
from geobgp.auto.options import TimeOptions
from geobgp.errors import (
    GeobgpError,
    GeobgpWarning,
    MissedVarianceWarning,
    ResolutionWarning,
    SizeError,
    captured_warnings,
    option,
    render_text,
)
from geobgp.prior.basis import MAX_TRUNCATED_VARIANCE
from geobgp.prior.full_rank import FullRank
from geobgp.prior.harmonic import HarmonicBasis, check_features, dilution
from geobgp.prior.kernels import Kernel, Matern
from geobgp.prior.laplacian import discretise
from geobgp.summary import NO_WATER, Choice, FitRecord
from geobgp.text import count, number, percent

if TYPE_CHECKING:
    import pyproj

    from geobgp.auto.gridded import GriddedData, GriddedSeries, InTime
    from geobgp.auto.options import Features, MappingOptions
    from geobgp.auto.tasks import MapTask
    from geobgp.data.periods import Periods
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior
    from geobgp.prior.basis import Basis
    from geobgp.prior.laplacian import Boundary


# -- Candidates: fits of which one is kept, and what they took -----------------------------------------------


#: The share of the time in which all periods as one are fitted, where there are several; the rest is for all of them.
POOLED_SHARE = 0.35
#: The time of a fit grows with this power of the number of nodes; one that goes on from another takes this share.
GROWTH, GOING_ON = 1.25, 0.6


class FitError(GeobgpError):
    """A fit came to no end, for reasons of rounding."""


@dataclass(frozen=True)
class BoundaryCondition:
    """A boundary condition and how far information crosses water."""

    boundary: Boundary
    permeability: float

    @property
    def words(self) -> str:
        """Closed, open, or the permeability."""
        named = {0.0: "closed", 1.0: "open"}
        return named.get(self.permeability, f"permeability {number(self.permeability)}")


@dataclass(frozen=True, eq=False)
class Candidate:
    """A fit that may be kept, with the warnings to be given if it is, and the time it took."""

    data: GriddedData
    condition: BoundaryCondition
    posterior: Posterior
    warnings: tuple[GeobgpWarning, ...]
    record: FitRecord
    from_nothing: bool = True

    @property
    def seconds(self) -> float:
        """What the fit took."""
        return self.record.seconds

    @property
    def basis(self) -> Basis:
        """The prior that was fitted."""
        return self.posterior.basis

    @property
    def gain(self) -> float:
        """Nats over an even rate, by which candidates are compared, on cells of any size."""
        return self.record.gain

    @property
    def missed(self) -> str:
        """The share of the prior variance that its features miss, in words."""
        return percent(self.posterior.fit.truncated_variance)

    def seconds_with(self, nodes: float) -> float:
        """Return about how long the data and a fit that goes on from this one would take with so many nodes."""
        fit = self.seconds * (GOING_ON if self.from_nothing else 1.0)
        return (fit + self.data.seconds) * (nodes / self.data.domain.n_nodes) ** GROWTH

    def warned(self, warning: GeobgpWarning) -> Candidate:
        """Return the same with one more warning."""
        return dataclasses.replace(self, warnings=(*self.warnings, warning))

    def without_missed_variance(self, *instead: GeobgpWarning) -> Candidate:
        """Return the same without the fit's own warning of missed variance, which says only half of it."""
        kept = tuple(w for w in self.warnings if not isinstance(w, MissedVarianceWarning))
        return dataclasses.replace(self, warnings=(*kept, *instead))


@dataclass(eq=False)
class ClockDecisions:
    """What the clock has decided in a run, in order: whether there was time for more, and how much.

    A run that repeats another one is given that one's decisions, so that it takes the same way on any machine.

    Attributes
    ----------
    taken : list of str, bool or float
    before : sequence of the same
        Those of the run that is repeated.
    """

    taken: list[Any] = field(default_factory=list)
    before: Sequence[Any] = ()

    def __call__(self, answer: Any) -> Any:
        """Return what the clock says now, or what it said in the run that is repeated."""
        if len(self.taken) < len(self.before):
            answer = self.before[len(self.taken)]
        self.taken.append(answer)
        return answer


@dataclass(frozen=True, eq=False)
class Fits:
    """The fits of a run, and the time that is left for them.

    Parameters
    ----------
    task : MapTask
        The kind of data, with its options.
    deadline : float
        On `time.perf_counter`: a larger model that would end after it is not begun.

    Attributes
    ----------
    decisions : ClockDecisions
        What the clock has decided.
    history : list of FitRecord
        Every fit, in order.
    begun : (float, float)
        When the run began, by the clock and by the processor's time.
    """

    task: MapTask
    deadline: float
    decisions: ClockDecisions = field(default_factory=ClockDecisions)
    history: list[FitRecord] = field(default_factory=list)
    begun: tuple[float, float] = field(default_factory=lambda: (time.perf_counter(), time.process_time()))
    _made: dict[Any, Candidate] = field(default_factory=dict, repr=False)

    def basis(self, domain: Domain, condition: BoundaryCondition, m: int | Literal["full"]) -> Basis:
        """Return the prior on a domain: m features, or full resolution."""
        if m == "full":
            return FullRank(domain, boundary=condition.boundary, permeability=condition.permeability)
        return HarmonicBasis.compute(
            domain, m, boundary=condition.boundary, permeability=condition.permeability,
            cache=self.task.options.cache, progress=self.task.progress,
        )  # fmt: skip

    def fit(
        self,
        data: GriddedData,
        condition: BoundaryCondition,
        m: int | Literal["full"],
        kernel: Kernel | None = None,
        start: Posterior | None = None,
    ) -> Candidate:
        """Compute the basis and fit it; warnings are kept until it is known which fit stays.

        Parameters
        ----------
        data : GriddedData
        condition : BoundaryCondition
        m : int or "full"
        kernel : Kernel, optional
            In place of the one of the run.
        start : Posterior, optional
            A fit with the same prior on other cells, to begin from.
        """
        kernel = kernel or self.task.kernel
        key = (id(data), condition, m, kernel, self.task.family)
        if key in self._made:
            return self._made[key]
        begin, captured = time.perf_counter(), list[GeobgpWarning]()
        with captured_warnings(captured.append):
            basis = self.basis(data.domain, condition, m)
            posterior = self._fit(data, basis, kernel, "map", "fit", start)
        record = FitRecord(
            cell_size=data.domain.cell_size,
            nodes=data.domain.n_nodes,
            prior=basis.label,
            water=condition.words,
            gain=data.gain(posterior),
            seconds=time.perf_counter() - begin,
            kernel=posterior.kernel.name,
            family=self.task.family,
            lengthscale=posterior.lengthscale,
            sd=posterior.sd,
        )
        self.history.append(record)
        self._made[key] = Candidate(data, condition, posterior, tuple(captured), record, start is None)
        return self._made[key]

    def integrate(self, best: Candidate) -> Candidate:
        """Fit once more as the best fit was, with a mixture over hyperparameters."""
        captured, kernel = list[GeobgpWarning](), best.posterior.kernel
        with captured_warnings(captured.append):
            posterior = self._fit(best.data, best.basis, kernel, "integrate", "integrate", best.posterior)
        return dataclasses.replace(best, posterior=posterior, warnings=tuple(captured))

    def _fit(
        self,
        data: GriddedData,
        basis: Basis,
        kernel: Kernel | None,
        hyper: Literal["map", "integrate"],
        name: str,
        start: Posterior | None = None,
    ) -> Posterior:
        with self.task.progress.stage(name) as stage:
            try:
                posterior = self.task.fit(data, basis, kernel, hyper, stage, start)
            except np.linalg.LinAlgError as error:
                stage.note("failed")
                raise FitError(f"The fit broke down: {error}.") from error
            stage.note(
                f"{basis.label}, {BoundaryCondition(basis.boundary, basis.permeability).words} water: "
                f"ELBO {posterior.elbo:,.1f}, lengthscale {length_of(posterior)}"
            )
        return posterior

    def fit_periods(
        self, in_time: InTime, basis: Basis, kernel: Kernel, start: Any = None, near: np.ndarray | None = None
    ) -> Posterior:
        """Fit all periods together, by the deadline; the dynamics of another fit to begin from are kept."""
        with self.task.progress.stage("periods") as stage:
            posterior = self.task.fit_periods(in_time, basis, kernel, stage, start, near, self.deadline)
            stage.note(f"{in_time.periods.words()}, {basis.label}: ELBO {posterior.elbo:,.1f}")
        return posterior

    def has(self, data: GriddedData, condition: BoundaryCondition, m: int | Literal["full"]) -> bool:
        """Return whether there is such a fit already, with the kernel of the run."""
        return (id(data), condition, m, self.task.kernel, self.task.family) in self._made

    @property
    def share_of_processor(self) -> float:
        """The share of a processor that this process has had since the run began: 1, or less on a busy machine."""
        wall, used = time.perf_counter() - self.begun[0], time.process_time() - self.begun[1]
        return min(max(used / max(wall, 1e-9), 0.05), 1.0) if wall > 1.0 else 1.0

    def too_late(self, what: str, seconds: float) -> str:
        """Return that a fit would end after the deadline, nothing if it would not.

        Fits of strata like it follow, and are to end by then too.
        """
        seconds *= 1 + self.task.fits_to_come
        left = self.deadline - time.perf_counter()
        late = f"{what} would take about {seconds:.0f} s, and {max(left, 0.0):.0f} s of those allowed are left"
        return str(self.decisions("" if seconds <= left else late))

    def records(self, kept: Candidate) -> tuple[FitRecord, ...]:
        """Return the record of every fit, with how far its map lies from that of the one that was kept."""
        by_record = {id(one.record): one for one in self._made.values()}
        domain, (mean, variance) = kept.data.domain, kept.posterior._nodes.moments()
        out = list[FitRecord]()
        for record in self.history:
            one, difference = by_record.get(id(record)), None
            if record is kept.record:
                difference = 0.0
            elif one is not None and type(one.posterior.link) is type(kept.posterior.link):
                node = one.data.domain.node_at(domain.node_points)
                there = node >= 0
                apart = (one.posterior._nodes.moments()[0][node] - mean) ** 2 / variance
                difference = math.sqrt(np.average(apart[there], weights=domain.node_areas[there]))
            out.append(dataclasses.replace(record, kept=record is kept.record, difference=difference))
        return tuple(out)


def length_of(posterior: Posterior) -> str:
    """Return the lengthscale, with its unit."""
    scale, unit = posterior.domain.length_unit
    return f"{number(posterior.lengthscale / scale)} {unit}"


# -- What `map_intensity` decides by itself, and why: cell size, number of features, boundary condition ------


#: What features miss does not matter where it changes the intensity by less than this share.
NEGLIGIBLE = 0.05
#: Features that are tried first.
FIRST_FEATURES = 128
#: Bytes that the features of one basis may take when their number is chosen.
MAX_FEATURE_BYTES = 1_500_000_000
#: Nodes aimed at: at least, at most, and where the number of points is not known.
FEWEST_NODES, MOST_NODES, DEFAULT_NODES = 2000, 16_000, 10_000
#: Nodes aimed at grow with the square root of the number of points, this many times.
NODES_PER_ROOT_POINT = 150.0
#: Cells aimed at within an area with a count, between the fewest and the most nodes.
CELLS_PER_AREA = 16
#: Cell sizes are one of these times a power of ten.
ROUND_SIZES = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0)


def round_size(size: float) -> float:
    """Return the round number nearest to `size` by ratio.

    Examples
    --------
    >>> round_size(1478.0), round_size(0.0231), round_size(9.1)
    (1500.0, 0.025, 10.0)
    """
    power = 10.0 ** math.floor(math.log10(size))
    best = min(ROUND_SIZES, key=lambda r: abs(math.log(r * power / size)))
    return float(f"{best * power:.6g}")


def cell_size_for(
    area: float, n_points: int | None, crs: pyproj.CRS | None, noun: tuple[str, str] = ("point", "points")
) -> tuple[float, str]:
    """Choose a cell size from the area of the land and the number of points; return why as well.

    Parameters
    ----------
    area : float
        In m² (square units of a local domain).
    n_points : int or None
        None where it is not known before the points are read.
    crs : pyproj.CRS or None
    noun : (str, str)
        What one and several points are.

    Examples
    --------
    >>> cell_size_for(34_961e6, 4446, None)[0]
    2000.0
    """
    if n_points is None:
        why = f"about {DEFAULT_NODES:,} cells; the number of {noun[1]} is not known beforehand"
        return round_size(math.sqrt(area / DEFAULT_NODES)), why
    nodes = min(max(NODES_PER_ROOT_POINT * math.sqrt(max(n_points, 1)), FEWEST_NODES), MOST_NODES)
    size = round_size(math.sqrt(area / nodes))
    land = f"{number(area / 1e6)} km²" if crs is not None else f"{number(area)} square units"
    return size, f"for {count(n_points, *noun)} on {land}: about {number(area / size**2, 2)} cells of land"


def cell_size_for_areas(area: float, n_areas: int) -> tuple[float, str]:
    """Choose a cell size from the area of the land and the number of areas with counts; return why as well.

    Examples
    --------
    >>> cell_size_for_areas(127_000e6, 100)
    (7500.0, 'about 23 cells for each of 100 areas')
    """
    nodes = min(max(CELLS_PER_AREA * n_areas, FEWEST_NODES), MOST_NODES)
    size = round_size(math.sqrt(area / nodes))
    each = area / size**2 / n_areas
    return size, f"about {number(each, 2)} cells for each of {n_areas:,} areas"


def features_needed(
    kernel: Kernel,
    lengthscale: float,
    area: float,
    known: tuple[float, float] | None = None,
    share: float = MAX_TRUNCATED_VARIANCE,
) -> int:
    """Return the number of features that miss no more than `share` of the variance, by Weyl's law.

    Below the eigenvalue λ there are about λ area / 4π of them, and in proportion to √λ more (Neumann) or
    fewer (Dirichlet) the longer the shore is.

    Parameters
    ----------
    kernel : Kernel
    lengthscale, area : float
        In m and m².
    known : (m, eigenvalue), optional
        The m-th eigenvalue, from which the effect of the shore is taken.
    share : float

    Examples
    --------
    >>> from geobgp import Matern
    >>> features_needed(Matern(1.5), 20_000.0, 34_961e6)
    133
    """
    plain = area / (4.0 * math.pi)
    shore = 0.0
    if known is not None and known[1] > 0:
        shore = (known[0] - plain * known[1]) / math.sqrt(known[1])
    wanted = kernel.eigenvalue_needed(lengthscale, share)
    return math.ceil(min(max(plain * wanted + shore * math.sqrt(wanted), 1.0), 1e12))


def is_enough(truncated_variance: float, sd: float) -> bool:
    """Tell whether features do that miss a share of the prior variance of a log-intensity with this sd.

    Examples
    --------
    >>> is_enough(0.04, 1.0), is_enough(0.3, 1.0), is_enough(0.3, 0.05)
    (True, False, True)
    """
    return truncated_variance <= MAX_TRUNCATED_VARIANCE or sd * math.sqrt(truncated_variance) <= NEGLIGIBLE


def has_full_resolution(kernel: Kernel | None) -> bool:
    """Tell whether full resolution can have this kernel (None: the usual one)."""
    return kernel is None or kernel.sparse


def practical_features(n_nodes: int, ceiling: int) -> int:
    """Return the most features that are worth while on so many nodes: beyond, full resolution is cheaper."""
    return max(1, min(ceiling, n_nodes // 3, MAX_FEATURE_BYTES // (8 * n_nodes)))


def round_features(m: float, most: int) -> int:
    """Return the next multiple of 64 (of 16 below 64), at most `most`."""
    step = 64 if m > 64 else 16
    return int(min(math.ceil(m / step) * step, most))


# -- Model search: whether water parts the events, and how many features they ask for ------------------------


#: More features than the lengthscale of a fit with few asks for: with more it turns out a little shorter.
MARGIN = 1.25
#: Permeabilities that are compared, closed water first; how near closed and open water must be for one between
#: them to be tried; and how near the next must be to the best one on coarse cells to be tried again on finer ones.
PERMEABILITIES, NEAR, RIVAL = (0.0, 1.0, 0.3), 25.0, 10.0
#: Nats by which anything must lead over what is simpler: closed water, features.
LEAD = 2.0
#: Smoothness of the prior that is compared for observations at places: of features, and at full resolution.
SMOOTHNESS, SPARSE_SMOOTHNESS = (1.5, 0.5, 2.5), (1.0, 2.0)
MORE_TIME = f"Raise {option('max_seconds')} to let it go on."


@dataclass(eq=False)
class ModelSearch:
    """The choice of a boundary condition and of a prior.

    Parameters
    ----------
    fits : Fits

    Attributes
    ----------
    choices : dict of str to Choice
        What has been taken, and why.
    full_lead : float or None
        Nats by which full resolution led over features where both were fitted, if features were kept.
    usual_water : float
        The permeability that is kept unless another leads clearly.
    """

    fits: Fits
    choices: dict[str, Choice] = field(default_factory=dict)
    full_lead: float | None = None
    usual_water: float = 0.0

    @property
    def options(self) -> MappingOptions:
        """The options of the run."""
        return self.fits.task.options

    # -- the family of observations

    def family(self, data: GriddedData) -> None:
        """Choose the distribution of the observations: the simplest, or one that leads clearly."""
        task, o = self.fits.task, self.options
        what, words = task.families(data)
        if not words:
            return
        simplest = next(iter(words))
        if len(words) == 1:
            task.family = simplest
            self.choices[what] = Choice(simplest, words[simplest])
            return
        rho = 0.0 if o.permeability == "auto" or o.boundary == "dirichlet" else float(o.permeability)
        condition = BoundaryCondition(o.boundary, rho)
        most = practical_features(data.domain.n_nodes, o.max_features)
        m = "full" if self.has_full else self._first_m(data, most)
        gains: dict[str, float] = {}
        for name in words:
            task.family = name
            with captured_warnings(lambda warning: None):
                try:
                    gains[name] = self.fits.fit(data, condition, m, _at_full_resolution(task.kernel)).gain
                except (SizeError, FitError):
                    continue
        task.family = simplest
        if gains:
            handicap = {name: gain - (0.0 if name == simplest else LEAD) for name, gain in gains.items()}
            task.family = max(handicap, key=lambda name: handicap[name])
        least = min(gains.values(), default=0.0)
        gains_text = ", ".join(f"{name} {number(gain - least)}" for name, gain in gains.items())
        self.choices[what] = Choice(task.family, f"nats above the least: {gains_text}")

    # -- water

    def conditions(self, data: GriddedData) -> list[BoundaryCondition]:
        """Return the boundary conditions that may be right, the best first; they are compared where they have to be."""
        o = self.options
        self.choices["boundary"] = Choice(o.boundary, "given" if o.boundary == "dirichlet" else "levels off freely")
        if o.boundary == "dirichlet":
            condition, why = BoundaryCondition("dirichlet", 0.0), "a Dirichlet condition holds the shore"
        elif o.permeability != "auto":
            condition, why = BoundaryCondition("neumann", float(o.permeability)), "given"
        elif self.fits.task.n_areas is not None:
            condition, why = BoundaryCondition("neumann", 0.0), "counts by area say little of it"
        elif o.quick:
            self._find_usual_water(data)
            usual = NO_WATER if self.usual_water else "the usual"
            condition, why = BoundaryCondition("neumann", self.usual_water), f"{usual}; a quick map tries no other"
        else:
            return self._compare_water(data)
        self.choices["water"] = Choice(condition.words, why)
        return [condition]

    def _find_usual_water(self, data: GriddedData) -> None:
        """Find what water is where nothing else is known: closed, or open where none lies between the places.

        There the field goes on beyond the land: a shore would have it level off, which makes it too sure of itself
        along the edge.
        """
        if self.has_full and isinstance(self.options.m, str) and self.fits.task.is_open(data):
            self.usual_water = 1.0

    def _compare_water(self, data: GriddedData) -> list[BoundaryCondition]:
        """Compare closed, open and half-open water; the usual one stays unless another leads clearly."""
        self._find_usual_water(data)
        kernel = _at_full_resolution(self.fits.task.kernel)
        fitted: dict[float, Candidate] = {}
        broken: GeobgpError | None = None
        for rho in PERMEABILITIES:
            both = {0.0, 1.0} <= fitted.keys()
            if both and abs(fitted[0.0].gain - fitted[1.0].gain) > NEAR:
                break
            took = max((c.seconds for c in fitted.values()), default=0.0)
            if both and self.fits.too_late("another", took):
                break
            # What is wrong with an input is said with the fit that is kept.
            with captured_warnings(lambda warning: None):
                try:
                    fitted[rho] = self.fits.fit(data, BoundaryCondition("neumann", rho), "full", kernel)
                except (SizeError, FitError) as error:
                    broken = error
        if not fitted and broken is not None:
            raise broken
        order = ranked(list(fitted.values()), self.usual_water)
        bounds = _bounds([fitted[rho] for rho in sorted(fitted)])
        noun = self.fits.task.plural
        self.choices["water"] = Choice(
            order[0].condition.words,
            f"Does water separate the {noun}? {bounds[:1].upper()}{bounds[1:]} "
            f"(bounds with cells of {side(data.domain)})" + (f"; {NO_WATER}" if self.usual_water else ""),
        )
        return [c.condition for c in order[:2] if order[0].gain - c.gain < RIVAL]

    def settle_water(self, rivals: list[Candidate]) -> Candidate:
        """Return the best of fits on finer cells with conditions that were near to each other, and say so."""
        order = ranked(rivals, self.usual_water)
        if len(order) > 1:
            before = self.choices["water"].why
            self.choices["water"] = Choice(order[0].condition.words, f"{before}; on finer cells {_bounds(order)}")
        return order[0]

    # -- features, or full resolution

    def prior(self, data: GriddedData, condition: BoundaryCondition) -> Candidate:
        """Return a fit with the prior that the data ask for, and write down why."""
        m, why = self.options.m, ""
        if m == "full":
            why = "given"
        elif m == "auto" and self.has_full and condition.permeability > 0:
            across = "goes on beyond the land" if self.usual_water else "crosses the water"
            why = f"information {across}, which features would have to cover"
        elif m == "auto" and self.has_full and self.options.quick:
            why = "a quick map does not compare it with features"
        if why:
            self.choices["features"] = Choice("full resolution", why)
            return self._smoothest(self.fits.fit(data, condition, "full"))
        kept, self.choices["features"] = self.with_enough_features(data, condition)
        kept = self._smoothest(kept)
        if m == "auto" and kept.basis.truncated and self.has_full:
            kept = self._or_full(kept)
        return kept

    def _smoothest(self, kept: Candidate) -> Candidate:
        """Return the fit with the smoothness that has the most evidence: none is simpler than another."""
        task, features = self.fits.task, kept.basis.truncated
        if not task.any_smoothness or self.options.kernel is not None or self.options.quick:
            return kept
        usual = kept.posterior.kernel
        best, chosen, gains = kept, self.choices["features"], {usual.name: kept.gain}
        for nu in SMOOTHNESS if features else SPARSE_SMOOTHNESS:
            kernel = Matern(nu)
            if kernel == usual or self.fits.too_late("another", 2.0 * kept.seconds):
                continue
            task.kernel = kernel
            with captured_warnings(lambda warning: None):
                try:
                    if features:
                        other, why = self.with_enough_features(kept.data, kept.condition)
                        other = other.without_missed_variance()
                    else:
                        other, why = self.fits.fit(kept.data, kept.condition, "full"), chosen
                except (SizeError, FitError):
                    continue
            gains[kernel.name] = other.gain
            if other.gain > best.gain:
                best, self.choices["features"] = other, why
        task.kernel = None if best is kept else best.posterior.kernel
        if len(gains) > 1:
            least = min(gains.values())
            gains_text = ", ".join(f"{name} {number(gain - least)}" for name, gain in gains.items())
            self.choices["kernel"] = Choice(best.posterior.kernel.name, f"nats above the least: {gains_text}")
        return best

    def _or_full(self, features: Candidate) -> Candidate:
        """Return full resolution instead of features where it gains more than the lead."""
        data, condition = features.data, features.condition
        chosen = self.fits.task.kernel
        if self.options.kernel is None:
            self.fits.task.kernel = None
        full = self._full_if_better(features, data, condition)
        if full is features:
            self.fits.task.kernel = chosen
        return full

    def _full_if_better(self, features: Candidate, data: GriddedData, condition: BoundaryCondition) -> Candidate:
        seconds = 3.0 * features.seconds_with(data.domain.n_nodes)
        if not self.fits.has(data, condition, "full") and self.fits.too_late("full resolution", seconds):
            return features
        try:
            full = self.fits.fit(data, condition, "full")
        except (SizeError, FitError):
            return features
        lead, choice = full.gain - features.gain, self.choices["features"]
        if lead > LEAD:
            self.choices.pop("kernel", None)
            full = self._smoothest(full)
            lead = full.gain - features.gain
            why = f"{number(lead)} nats above {features.basis.label}"
            self.choices["features"] = Choice("full resolution", why)
            return full
        self.full_lead = lead
        self.choices["features"] = self._with_lead(choice)
        return features

    def _with_lead(self, choice: Choice) -> Choice:
        """Return why features were kept, with what full resolution would have gained."""
        if self.full_lead is None:
            return choice
        would = f"full resolution would gain {number(self.full_lead)} nats"
        return Choice(choice.value, f"{choice.why}; {would}")

    def again(self, data: GriddedData, like: Candidate) -> Candidate:
        """Return a fit on other cells with the prior and the condition of a fit."""
        if not like.basis.truncated:
            return self.fits.fit(data, like.condition, "full", start=like.posterior)
        kept, choice = self.with_enough_features(data, like.condition)
        self.choices["features"] = self._with_lead(choice)
        return kept

    @property
    def has_full(self) -> bool:
        """Whether full resolution is possible: for this kernel, and this kind of data."""
        return has_full_resolution(self.options.kernel) and not self.fits.task.features_alone

    def _first_m(self, data: GriddedData, most: int) -> int | Literal["full"]:
        """Return how many features to begin with."""
        m: Features = self.options.m
        if m != "auto":
            return m
        kernel = self.fits.task.kernel
        if kernel is None or kernel.lengthscale is None:
            return min(FIRST_FEATURES, most)
        area = float(data.domain.node_areas.sum())
        need = MARGIN * features_needed(kernel, kernel.lengthscale, area)
        if need > most and self.has_full:
            return "full"
        return round_features(need, most)

    def with_enough_features(self, data: GriddedData, condition: BoundaryCondition) -> tuple[Candidate, Choice]:
        """Return a fit with m features; with as many as the data ask for, where they are to be chosen."""
        o = self.options
        most = practical_features(data.domain.n_nodes, o.max_features)
        first = self._first_m(data, most)
        try:
            kept = self.fits.fit(data, condition, first)
        except FitError:
            if o.m != "auto" or first == "full" or not self.has_full:
                raise
            return self.fits.fit(data, condition, "full"), Choice(
                "full resolution", f"the fit with {first} features broke down"
            )
        if o.m != "auto":
            return kept, Choice(kept.basis.label, "given")
        area = float(data.domain.node_areas.sum())
        while not is_enough(kept.posterior.fit.truncated_variance, kept.posterior.sd):
            fit, used = kept.posterior, kept.basis.land_features
            known = (used, kept.basis.highest_eigenvalue)
            need = features_needed(fit.kernel, fit.lengthscale, area, known)
            if used >= most or need > most:
                return self._full_or_most(kept, need, most)
            more = round_features(max(MARGIN * need, MARGIN * used), most)
            if late := self.fits.too_late(f"{more} features", kept.seconds * (more / used) ** 2):
                return _ended(kept, late, MORE_TIME)
            try:
                kept = self.fits.fit(data, condition, more)
            except FitError:
                return self._full_or_most(kept, need, most)
        if not kept.basis.truncated:
            return kept, Choice("full resolution", f"{most:,} features would not do")
        missed = kept.posterior.fit.truncated_variance
        why = f"they miss {100 * missed:.2g} % of the prior variance at a lengthscale of {length_of(kept.posterior)}; "
        if missed > MAX_TRUNCATED_VARIANCE:
            little = f"{why}with an sd of {kept.posterior.sd:.2g} that is little"
            return kept.without_missed_variance(), Choice(kept.basis.label, little)
        return kept, Choice(kept.basis.label, f"{why}{percent(MAX_TRUNCATED_VARIANCE)} is the limit")

    def _full_or_most(self, features: Candidate, need: int, most: int) -> tuple[Candidate, Choice]:
        """Go to full resolution, or say why that cannot be, with as many features as there may be."""
        kernel, data, remedy = self.fits.task.kernel, features.data, ""
        if self.fits.task.features_alone:
            reason, remedy = self._ended_early(features, need, most)
        elif kernel is not None and not has_full_resolution(kernel):
            reason = f"full resolution needs Matern(1.0) or Matern(2.0), not {kernel.name}"
        elif late := self.fits.too_late("full resolution", 3.0 * features.seconds):
            reason, remedy = late, MORE_TIME
        else:
            try:
                why = f"about {need:,} features would be needed; at most {most:,} are tried"
                if need <= most:
                    why = f"the fit with more than {features.basis.m:,} features broke down"
                return self.fits.fit(data, features.condition, "full"), Choice("full resolution", why)
            except SizeError as error:
                reason, remedy = error.message.rstrip("."), error.remedy
        if features.basis.m < most and self.fits.decisions(time.perf_counter() < self.fits.deadline):
            features = self.fits.fit(data, features.condition, most)
        return _ended(features, reason, remedy)

    def _ended_early(self, features: Candidate, need: int, most: int) -> tuple[str, str]:
        """Return why what has features alone has too few of them, and what to do."""
        nodes, task, ways = features.data.domain.n_nodes, self.fits.task, list[str]()
        reason = f"about {need:,} features would be needed; at most {most:,} are tried"
        if need <= most:
            reason = f"the fit with more than {features.basis.m:,} features broke down"
        elif most == self.options.max_features:
            ways.append(f"raise {option('max_features')}")
        elif most == nodes // 3:
            reason += f", a third of the {nodes:,} cells"
            ways += [f"give a smaller {option('cell_size')}"]
        if task.n_areas is not None and not task.in_time and has_full_resolution(task.kernel):
            ways.append(f"give {option('m', 'full')}, which is practical for some 2,000 areas")
        text = ", or ".join(ways)
        return reason, f"{text[:1].upper()}{text[1:]}." if text else ""


def _at_full_resolution(kernel: Kernel | None) -> Kernel | None:
    """Return a kernel that full resolution can have, like one that was given."""
    if kernel is None or has_full_resolution(kernel):
        return kernel
    return Matern(1.0, kernel.lengthscale, kernel.sd, kernel.prior)


def _bounds(candidates: list[Candidate]) -> str:
    """Return the bounds of fits with different water, in words."""
    return ", ".join(f"{c.condition.words} {c.posterior.elbo:,.1f}" for c in candidates)


def ranked(candidates: list[Candidate], usual: float = 0.0) -> list[Candidate]:
    """Return fits with different conditions, the best first; the usual water is best unless another leads clearly."""

    def min_gain(c: Candidate) -> float:
        return c.gain + (LEAD if c.condition.permeability == usual else 0.0)

    return sorted(candidates, key=min_gain, reverse=True)


def _ended(kept: Candidate, reason: str, remedy: str) -> tuple[Candidate, Choice]:
    """Return a fit with too few features, with a warning in place of its own, which would say half of it."""
    warning = MissedVarianceWarning(
        f"The search for enough features has ended at {kept.basis.label}, which miss {kept.missed} of the "
        f"prior variance ({percent(MAX_TRUNCATED_VARIANCE)} is aimed at): {reason}. The map is smoother than "
        "the data ask for.",
        option="m",
        found=kept.posterior.fit.truncated_variance,
        remedy=remedy,
    )
    return kept.without_missed_variance(warning), Choice(
        kept.basis.label, f"they miss {kept.missed}; {render_text(reason)}"
    )


# -- Over time: how many cells and features a model of all periods can have, and the fit of it ---------------


#: Seconds of a fit per node, period and squared number of features; features that cells are chosen for.
SECONDS, USUAL_FEATURES = 7e-10, 256
#: Of areas: seconds of a fit per period and cubed number of features; features for each area, as more tell nothing.
AREA_SECONDS, AREA_FEATURES = 1.2e-7, 8
#: The share of the time that all periods get at least, whatever came before.
LEAST_SHARE = 0.25
#: Fewer cells than these are not asked for, however many periods there are, nor fewer features.
FEWEST_CELLS, FEWEST_FEATURES = 1000, 64


def seconds_of(n_nodes: float, m: float, n_periods: int) -> float:
    """Return about how long a fit takes.

    Examples
    --------
    >>> round(seconds_of(10_000, 256, 120))
    55
    """
    return SECONDS * n_nodes * m**2 * n_periods


def moderate_cells(area: float, size: float, why: str, n_periods: int, seconds: float) -> tuple[float, str]:
    """Return cells that a model of so many periods can have in the time that is allowed, and why.

    Examples
    --------
    >>> moderate_cells(1e10, 1000.0, "usual", 12, 60.0)
    (1000.0, 'usual')
    >>> moderate_cells(1e10, 1000.0, "usual", 520, 60.0)[0]
    2000.0
    """
    most = max(seconds / seconds_of(1.0, USUAL_FEATURES, n_periods), FEWEST_CELLS)
    if area / size**2 <= 1.2 * most:
        return size, why
    wider = round_size(math.sqrt(area / most))
    return (
        wider,
        f"about {number(area / wider**2, 2)} cells, so that {n_periods:,} periods take no longer than allowed",
    )


def most_features(n_nodes: int, n_periods: int, seconds: float, ceiling: int, n_areas: int = 0) -> int:
    """Return the most features that a fit may have: within the time that is allowed, and 64 at least.

    Examples
    --------
    >>> most_features(3000, 52, 60.0, 1024), most_features(3000, 52, 60.0, 1024, n_areas=12)
    (741, 96)
    """
    within = math.sqrt(max(seconds, 1.0) / seconds_of(n_nodes, 1.0, n_periods))
    if n_areas:  # their rows are few, and change: what costs is the chain of blocks, many times
        within = min(math.cbrt(max(seconds, 1.0) / (AREA_SECONDS * n_periods)), AREA_FEATURES * n_areas)
    return max(min(practical_features(n_nodes, ceiling), int(within)), min(FEWEST_FEATURES, n_nodes // 3))


def affordable_condition(
    fits: Fits, condition: BoundaryCondition, data: GriddedData, cell_size: float, choices: dict[str, Choice]
) -> BoundaryCondition:
    """Return the condition that events ask for, or closed water where a model of all periods cannot have it.

    Features of permeable water come on top of the land's, and much water around little land makes them too many.

    Parameters
    ----------
    fits : Fits
    condition : BoundaryCondition
        The best one.
    data : GriddedData
        On the cells that it was found on.
    cell_size : float
        Of the cells that will be fitted.
    choices : dict of str to Choice
        Is told where water is closed for want of time.
    """
    o = fits.task.options
    if o.permeability != "auto" or condition.permeability == 0 or o.m != "auto":
        return condition
    assert data.in_time is not None
    domain, periods = data.domain, data.in_time.periods.n
    nodes = round(domain.n_nodes * (domain.cell_size / cell_size) ** 2)
    most = most_features(nodes, periods, o.max_seconds, o.max_features)
    each = dilution(discretise(domain, boundary=condition.boundary, permeability=condition.permeability))
    if FIRST_FEATURES * each <= most:
        return condition
    need = f"{condition.words} water asks for {number(each, 2)} features for each one of the land"
    why = f"{choices['water'].why}; {need}, too many for {periods:,} periods"
    choices["water"] = Choice("closed", why)
    return BoundaryCondition("neumann", 0.0)


def fit_over_time(fits: Fits, pooled: Candidate, choices: dict[str, Choice]) -> Candidate:
    """Fit all periods together on the cells, the water and the features that suit their sum; more of these if needed.

    Parameters
    ----------
    fits : Fits
    pooled : Candidate
        The fit of all periods as one.
    choices : dict of str to Choice
        Is told of what is chosen here.
    """
    data, o = pooled.data, fits.task.options
    assert data.in_time is not None and isinstance(o, TimeOptions)
    periods = data.in_time.periods
    domain, m = data.domain, round(pooled.basis.land_features)
    area = float(domain.node_areas.sum())
    left = max(fits.deadline - time.perf_counter(), LEAST_SHARE * o.max_seconds)
    fits = dataclasses.replace(fits, deadline=time.perf_counter() + left)
    each = pooled.basis.m / pooled.basis.land_features
    n_areas = fits.task.n_areas or 0
    ours = fits.decisions(left * fits.share_of_processor)  # of a busy machine
    most = max(int(most_features(domain.n_nodes, periods.n, ours, o.max_features, n_areas) / each), 1)
    why = choices["features"].why
    if o.m == "auto" and m > most:
        m = round_features(most, most)
        room = f"{periods.n:,} periods leave time for {round(m * each):,}"
        if n_areas and m >= AREA_FEATURES * n_areas:
            room = f"{n_areas:,} areas tell no more than {round(m * each):,} apart"
        why = f"{pooled.basis.label} suit the sum of all periods; {room}"
    kept = _fit_periods(fits, pooled, m, None)
    dynamics: Choice | None = kept.posterior.fit.notes.get("dynamics")
    while o.m == "auto" and not is_enough(kept.posterior.fit.truncated_variance, kept.posterior.sd):
        posterior = kept.posterior
        need = features_needed(posterior.kernel, posterior.lengthscale, area, (m, kept.basis.highest_eigenvalue))
        more = round_features(MARGIN * max(need, m), most)
        expected = max(
            seconds_of(domain.n_nodes, each * more, periods.n) / fits.share_of_processor,
            posterior.fit.seconds.get("total", 0.0) * (more / m) ** 2,
        )
        late = fits.decisions(o.quick or fits.deadline - time.perf_counter() < expected)
        if more <= m or not posterior.converged or late:
            ended = "a quick map tries no more" if o.quick else "time ends the search"
            why = f"they miss {percent(posterior.fit.truncated_variance)} of the prior variance; {ended}"
            few = n_areas and m >= min(AREA_FEATURES * n_areas, most)  # what is missed lies within areas
            kept = kept.without_missed_variance(*(() if few else (_too_few(kept, need, o.quick),)))
            break
        larger = _fit_periods(fits, pooled, more, posterior)
        if not larger.posterior.converged:  # time has ended it: the smaller one is known to its end
            why = f"{more:,} of them could not be fitted in time"
            kept = kept.without_missed_variance(_too_few(kept, need, o.quick))
            break
        m, why = more, f"the lengthscale of single periods, {length_of(posterior)}, asks for about {need:,}"
        kept = larger
    choices["features"] = Choice(kept.basis.label, why if o.m == "auto" else "given")
    choices["periods"] = Choice(periods.words(), _about(periods, o))
    otherwise = "given" if o.dynamics != "auto" else "there was no time to compare them with diffusive ones"
    if periods.n == 1:
        otherwise = "there is a single period"
    choices["dynamics"] = dynamics or Choice(kept.posterior.dynamics, otherwise)
    return kept


def _fit_periods(fits: Fits, pooled: Candidate, m: int, start: Posterior | None) -> Candidate:
    """Fit all periods with m features; warnings are kept."""
    data, captured = pooled.data, list[GeobgpWarning]()
    assert data.in_time is not None
    kernel: Kernel = fits.task.options.kernel or pooled.posterior.kernel
    with captured_warnings(captured.append):
        basis = pooled.basis
        if m != round(basis.land_features):
            basis = fits.basis(data.domain, pooled.condition, m)
        near = pooled.posterior.fit.hyper_mean[:2]
        posterior = fits.fit_periods(data.in_time, basis, kernel, start, near)
    return dataclasses.replace(pooled, posterior=posterior, warnings=tuple(captured))


def _about(periods: Periods, o: TimeOptions) -> str:
    if o.between is not None or periods.every == "edges":
        return "given"
    if getattr(o, "reported", None) is not None:
        return "from the first event to the last day that is known"
    return "from the first date to the last; the first and the last period may be seen in part only"


def _too_few(kept: Candidate, need: int, quick: bool) -> MissedVarianceWarning:
    limit, name = ("a quick map tries", "quick") if quick else ("the time allows", "max_seconds")
    more = f"Leave {option('quick')} out" if quick else f"Raise {option('max_seconds')}"
    return MissedVarianceWarning(
        f"The {kept.basis.label} miss {kept.missed} of the prior variance "
        f"({percent(MAX_TRUNCATED_VARIANCE)} is aimed at); "
        f"about {need:,} would be needed, which is more than {limit}. The maps are smoother than the data ask for.",
        option=name,
        found=kept.posterior.fit.truncated_variance,
        remedy=f"{more}, or use longer periods ({option('every')}).",
    )


# -- Grid refinement: from coarse cells to fine ones, for as long as the points themselves gain by it and time allows --


#: Cells on which water and prior are chosen: a quarter of the usual ones, within these limits.
COARSE_SHARE, FEWEST_COARSE, MOST_COARSE = 4.0, 1000.0, 4000.0
#: Cells this much wider than others, or less, are taken to be as fine.
AS_FINE = 1.3
#: The gain of a doubling of the cells' number is about this share of the one before.
FADE = 0.7
#: Nats per point that finer cells must promise.
WORTH_PER_POINT = 0.005
#: Nats per point that time must have cost for a warning.
LOSS_PER_POINT = 0.02
#: How much narrower the next cells are; the second, about, where the first would take too long.
STEPS = (2.0, 1.5)


@dataclass(frozen=True, eq=False)
class GridRefinement:
    """The way from the first fit on coarse cells to the one that is kept.

    Parameters
    ----------
    series : GriddedSeries
    fits : Fits
    """

    series: GriddedSeries
    fits: Fits

    @property
    def options(self) -> MappingOptions:
        """The options of the run."""
        return self.fits.task.options

    def climb(self) -> tuple[Candidate, dict[str, Choice]]:
        """Return the fit to keep, and every choice with its reason."""
        o, task, search = self.options, self.fits.task, ModelSearch(self.fits)
        usual, why = self.aimed_at()
        settled = o.m != "auto" and (o.boundary == "dirichlet" or o.permeability != "auto")
        first = usual if settled and (o.cell_size is not None or o.m != "full") else self._coarse(usual)
        reach = self.reach
        counted = not isinstance(o.m, str)
        if first != usual and (o.cell_size is not None or counted):
            # What cannot be is told before anything is fitted.
            given = self.series.at(usual, reach)
            if not isinstance(o.m, str):
                check_features(given.domain, o.m, o.boundary)
        data = self.series.at(first, reach)
        search.family(data)
        conditions = search.conditions(data)
        if counted and first != usual:
            data, first = self.series.at(usual, reach), usual
        if task.features_alone:
            condition = conditions[0]
            if task.in_time:
                condition = affordable_condition(self.fits, condition, data, usual, search.choices)
            kept, search.choices["features"] = search.with_enough_features(data, condition)
        else:
            kept = search.prior(data, conditions[0])
        warning: ResolutionWarning | None = None
        if first != usual:
            before = kept
            reason = self._late(kept, usual) if o.cell_size is None else ""
            if not reason:
                kept = self._on_usual(search, kept, conditions, usual, reach)
                if o.cell_size is None and not counted and not task.in_time:
                    kept, why, warning = self._refine(search, before, kept, why, reach)
            else:
                why, warning = self._ended(kept, f"cells of {self._side(usual)}: {reason}", math.inf)
        domain = kept.data.domain
        cells = Choice(side(domain), "given" if o.cell_size is not None else why)
        choices = {"CRS": about_crs(self.series.land, o.crs), "cell size": cells, **search.choices}
        usual_kernel = f"the default {'for features' if kept.basis.truncated else 'at full resolution'}"
        if "kernel" not in choices:
            reason = "given" if o.kernel is not None else usual_kernel
            choices["kernel"] = Choice(kept.posterior.kernel.name, reason)
        return (kept if warning is None else kept.warned(warning)), choices

    # -- sizes

    def aimed_at(self) -> tuple[float, str]:
        """Return the cells that are aimed at first, and why."""
        task, (usual, why) = self.fits.task, self._usual_cell_size()
        if task.in_time and self.options.cell_size is None and not task.one_size:
            return self._moderate(usual, why)
        return usual, why

    @property
    def reach(self) -> float:
        """How far points are moved to land, on all cells that are compared, where no distance was given."""
        return 2.0 * self._usual_cell_size()[0]

    def _usual_cell_size(self) -> tuple[float, str]:
        task = self.fits.task
        if self.options.cell_size is not None:
            return float(self.options.cell_size), "given"
        if task.n_areas is not None:
            return cell_size_for_areas(self.series.area, task.n_areas)
        return cell_size_for(self.series.area, task.n_observed, self.series.land.crs, task.noun)

    def _moderate(self, usual: float, why: str) -> tuple[float, str]:
        """Return cells that a model of all periods can have; the first ones tell how many periods there are."""
        in_time = self.series.at(self._coarse(usual), 2.0 * usual).in_time
        assert in_time is not None
        seconds = self.options.max_seconds
        return moderate_cells(self.series.area, usual, why, in_time.periods.n, seconds)

    def _coarse(self, usual: float) -> float:
        """Return the size of the cells on which water and prior are chosen."""
        if self.fits.task.one_size:
            return usual
        area = self.series.area
        if not 1e-9 < usual / math.sqrt(area) < 1e9:
            return usual  # refused where the grid is made
        cells = min(max(area / usual**2 / COARSE_SHARE, FEWEST_COARSE), MOST_COARSE)
        size = round_size(math.sqrt(area / cells))
        return usual if size < AS_FINE * usual else size

    def _side(self, size: float) -> str:
        return f"{number(size)} {'m' if self.series.land.crs is not None else 'units'}"

    def _late(self, like: Candidate, size: float, what: str = "they") -> str:
        """Return that a fit on cells of this size would be too late, nothing if not."""
        nodes = like.data.domain.n_nodes * (like.data.domain.cell_size / size) ** 2
        return self.fits.too_late(what, like.seconds_with(nodes))

    # -- steps

    def _on_usual(
        self, search: ModelSearch, coarse: Candidate, conditions: list[BoundaryCondition], size: float, reach: float
    ) -> Candidate:
        """Return the fit on the usual cells; conditions that were near to each other are compared again there."""
        data = self.series.at(size, reach)
        fine = search.again(data, coarse)
        if coarse.basis.truncated or self.options.permeability != "auto":
            return fine
        rivals = [fine]
        for condition in conditions[1:]:
            if not self.fits.has(coarse.data, condition, "full") or self.fits.too_late("another", 1.5 * fine.seconds):
                continue
            rivals.append(search.again(data, self.fits.fit(coarse.data, condition, "full")))
        return search.settle_water(rivals)

    def _refine(
        self, search: ModelSearch, before: Candidate, now: Candidate, why: str, reach: float
    ) -> tuple[Candidate, str, ResolutionWarning | None]:
        """Halve the cells while the points gain by it; return the last fit that did, why, and what is to be said."""
        if self.options.quick:
            return now, f"{why}; a quick map tries no finer ones", None
        nouns, n_observed = self.fits.task.noun, now.data.n_observed
        # What all strata together gain, each of them has its part of.
        min_gain = max(LEAD * self.fits.task.n_strata, WORTH_PER_POINT * n_observed)
        finest = 0.5 * now.data.spacing
        while True:
            gain = now.gain - before.gain
            rate = gain / math.log2(now.data.domain.n_nodes / before.data.domain.n_nodes)
            here = now.data.domain.cell_size
            predicted_gain = 2.0 * FADE * rate * math.log2(STEPS[0])
            if predicted_gain < min_gain:
                little = f"only about {number(max(predicted_gain, 0.0), 2)} nats, and must gain {number(min_gain, 2)}"
                return now, f"{why}; cells half as wide would gain {little}", None
            if here / STEPS[0] < finest:
                apart = f"these are about {self._side(2 * finest)} apart"
                shared = f"{why}; many {nouns[1]} share their places, and {apart}"
                return now, shared, None
            late = ""
            for size in (here / STEPS[0], round_size(here / STEPS[1])):
                if not (late := self._late(now, size)):
                    break
            if late:
                more = f"cells of {self._side(here / STEPS[0])} would gain about {number(predicted_gain, 2)} nats"
                return now, *self._ended(now, f"{why}; {more}, but {late}", predicted_gain)
            try:
                data = self.series.at(size, reach)
                finer = search.again(data, now)
            except (GeobgpError, FitError) as error:
                text = f"{why}; cells of {self._side(size)} cannot be had: {render_text(error.message)}"
                return now, *self._ended(now, text, predicted_gain)
            lead = finer.gain - now.gain
            asked = min_gain * math.log(here / size) / math.log(STEPS[0])
            if lead < asked:
                gained = f"only {number(lead, 2)} nats, and must gain {number(asked, 2)}" if lead > 0 else "nothing"
                return now, f"{why}; cells of {self._side(size)} gain {gained}", None
            why = (
                f"{number(lead)} nats above cells of {self._side(here)}, for {count(round(n_observed), *nouns)} on "
                f"{count(data.domain.n_nodes, 'node')}"
            )
            before, now = now, finer

    def _ended(self, kept: Candidate, why: str, predicted_gain: float) -> tuple[str, ResolutionWarning | None]:
        """Return why the ladder has ended, and the warning if that costs much."""
        if predicted_gain < LOSS_PER_POINT * kept.data.n_observed:
            return why, None
        finer = f"{kept.data.domain.cell_size / STEPS[0]:g}"
        return why, ResolutionWarning(
            f"The map could be sharper. It has cells of {side(kept.data.domain)}: {render_text(why)}.",
            option="max_seconds",
            found=kept.data.domain.cell_size,
            remedy=f"Raise {option('max_seconds')}, or give {option('cell_size', finer, python=f'cell_size={finer}')}.",
        )
