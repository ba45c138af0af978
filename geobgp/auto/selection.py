"""Model search: whether water parts the events, and how many features they ask for."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from geobgp.auto.choices import (
    FIRST_FEATURES,
    features_needed,
    has_full_resolution,
    is_enough,
    round_features,
)
from geobgp.errors import (
    GeobgpError,
    GeobgpWarning,
    MissedVarianceWarning,
    SizeError,
    hearing,
    in_words,
    option,
)
from geobgp.model import LGCP
from geobgp.prior.base import MISSED_SHARE
from geobgp.prior.full_rank import FullRank
from geobgp.prior.harmonic import HarmonicBasis
from geobgp.prior.kernels import Kernel, Matern
from geobgp.prior.laplacian import Boundary
from geobgp.summary import Choice
from geobgp.text import number, percent

if TYPE_CHECKING:
    from geobgp.auto.options import Features
    from geobgp.data.counts import Counts
    from geobgp.data.effects import Effects
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior
    from geobgp.prior.base import Basis
    from geobgp.progress import Progress

#: More features than the lengthscale of a fit with few asks for: with more it turns out a little shorter.
MARGIN = 1.25
#: Permeabilities that are compared, the closed shore first; the lead in nats that one needs over that; and how near
#: closed and open water must be for one between them to be tried.
PERMEABILITIES, LEAD, NEAR = (0.0, 1.0, 0.3), 2.0, 25.0
#: Rough time of a fit at full resolution.
FULL_SECONDS_PER_NODE = 1e-3
MORE_TIME = f"Raise {option('max_seconds')} to let it go on."


class FitError(GeobgpError):
    """A fit came to no end, for reasons of rounding."""


@dataclass(frozen=True)
class Shore:
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

    posterior: Posterior
    warnings: tuple[GeobgpWarning, ...]
    seconds: float

    @property
    def basis(self) -> Basis:
        """The prior that was fitted."""
        return self.posterior.basis

    @property
    def elbo(self) -> float:
        """The evidence bound, by which candidates are compared."""
        return self.posterior.elbo

    @property
    def missed(self) -> str:
        """The share of the prior variance that its features miss, in words."""
        return percent(self.posterior.fit.missed_share)

    def without_missed_variance(self, *instead: GeobgpWarning) -> Candidate:
        """Return the same without the fit's own warning of missed variance, which says only half of it."""
        kept = tuple(w for w in self.warnings if not isinstance(w, MissedVarianceWarning))
        return Candidate(self.posterior, (*kept, *instead), self.seconds)


@dataclass(frozen=True, eq=False)
class ModelSearch:
    """Fits of one set of counts with different numbers of features and boundary conditions.

    Parameters
    ----------
    domain : Domain
    counts : Counts
    kernel : Kernel or None
        None: the usual one of each prior.
    exposure, exposure_kind, effects
        As `LGCP` holds them; they are read once for all fits.
    cache : bool
    title : str
    progress : Progress
    deadline : float
        On `time.perf_counter`: a larger model that would end after it is not begun.
    most : int
        Features at most; beyond that, full resolution.

    Attributes
    ----------
    choices : dict of str to Choice
        What `best` has taken, and why.
    """

    domain: Domain
    counts: Counts
    kernel: Kernel | None
    exposure: np.ndarray
    exposure_kind: str
    effects: Effects
    cache: bool
    title: str
    progress: Progress
    deadline: float
    most: int
    choices: dict[str, Choice] = field(default_factory=dict)

    # -- one fit

    def fit(self, shore: Shore, m: int | Literal["full"]) -> Candidate:
        """Compute the basis and fit it; warnings are kept until it is known which fit stays."""
        begin, heard = time.perf_counter(), list[GeobgpWarning]()
        with hearing(heard.append):
            basis: Basis
            if m == "full":
                basis = FullRank(self.domain, boundary=shore.boundary, permeability=shore.permeability)
            else:
                basis = HarmonicBasis.compute(
                    self.domain,
                    m,
                    boundary=shore.boundary,
                    permeability=shore.permeability,
                    cache=self.cache,
                    progress=self.progress,
                )
            posterior = self._fit(basis, "map", "fit")
        return Candidate(posterior, tuple(heard), time.perf_counter() - begin)

    def integrate(self, best: Candidate) -> Candidate:
        """Fit once more as the best fit was, with a mixture over hyperparameters."""
        begin, heard = time.perf_counter(), list[GeobgpWarning]()
        with hearing(heard.append):
            posterior = self._fit(best.basis, "integrate", "integrate")
        return Candidate(posterior, tuple(heard), time.perf_counter() - begin)

    def _fit(self, basis: Basis, hyper: Literal["map", "integrate"], name: str) -> Posterior:
        model = self._model(basis, self.kernel)
        with self.progress.stage(name) as stage:
            try:
                posterior = model.fit(self.counts, hyper=hyper, progress=stage, title=self.title)
            except np.linalg.LinAlgError as error:
                stage.note("failed")
                raise FitError(f"The fit broke down: {error}.") from error
            stage.note(
                f"{basis.label}, {Shore(basis.boundary, basis.permeability).words} water: "
                f"ELBO {posterior.elbo:,.1f}, lengthscale {self._length(posterior)}"
            )
        return posterior

    def _model(self, basis: Basis, kernel: Kernel | None) -> LGCP:
        model = LGCP(basis, kernel)
        model.exposure, model.exposure_kind, model.effects = self.exposure, self.exposure_kind, self.effects
        return model

    def _length(self, posterior: Posterior) -> str:
        scale, unit = self.domain.length_unit
        return f"{number(posterior.lengthscale / scale)} {unit}"

    # -- the choices

    def best(self, m: Features, boundary: Boundary, permeability: float | Literal["auto"]) -> Candidate:
        """Return the fit to keep, and write down why."""
        self.choices["boundary"] = Choice(
            boundary, "given" if boundary == "dirichlet" else "levels off freely"
        )
        if boundary == "dirichlet":
            shore = Shore(boundary, 0.0)
            self.choices["water"] = Choice("closed", "a Dirichlet condition holds the shore")
        elif permeability == "auto":
            shore, self.choices["water"] = self._choose_permeability()
        else:
            shore = Shore(boundary, float(permeability))
            self.choices["water"] = Choice(shore.words, "given")
        kept, self.choices["features"] = self._with_enough_features(m, shore)
        usual = f"the usual one for {kept.basis.label}"
        self.choices["kernel"] = Choice(
            kept.posterior.kernel.name, "given" if self.kernel is not None else usual
        )
        return kept

    def _choose_permeability(self) -> tuple[Shore, Choice]:
        """Compare closed, open and half-open water by quick fits; closed water stays unless another leads clearly."""
        kernel = None
        if self.kernel is not None:
            kernel = Matern(1.0, self.kernel.lengthscale, self.kernel.sd, self.kernel.prior)
        bounds: dict[float, float] = {}
        begin = time.perf_counter()
        with self.progress.stage("water") as stage:
            for rho in PERMEABILITIES:
                took = (time.perf_counter() - begin) / max(len(bounds), 1)
                if {0.0, 1.0} <= bounds.keys() and abs(bounds[0.0] - bounds[1.0]) > NEAR:
                    break
                if len(bounds) > 1 and (late := self._too_late("another", took)):
                    stage.tell(late)
                    break
                shore = Shore("neumann", rho)
                stage.tell(shore.words)
                with hearing(lambda warning: None):  # a quick fit is not kept, nor are its warnings
                    try:
                        basis = FullRank(self.domain, permeability=rho)
                        bounds[rho] = self._model(basis, kernel).quick_bound(self.counts)
                    except (GeobgpError, np.linalg.LinAlgError) as error:
                        stage.tell(f"{shore.words} cannot be fitted: {error}")
            question = "Does water part these events? " + ", ".join(
                f"{Shore('neumann', rho).words} {bounds[rho]:,.1f}" for rho in sorted(bounds)
            )
            stage.note(question[0].upper() + question[1:])
        best = max(bounds, key=lambda rho: bounds[rho], default=0.0)
        if bounds and bounds[best] - bounds.get(0.0, -np.inf) < LEAD:
            best = 0.0
        return Shore("neumann", best), Choice(
            Shore("neumann", best).words, f"{question} (bounds of quick fits)"
        )

    def _first_m(self, m: Features) -> int | Literal["full"]:
        """Return how many features to begin with."""
        if m != "auto":
            return m
        if self.kernel is None or self.kernel.lengthscale is None:
            return min(FIRST_FEATURES, self.most)
        area = float(self.domain.node_areas.sum())
        need = MARGIN * features_needed(self.kernel, self.kernel.lengthscale, area)
        if need > self.most and has_full_resolution(self.kernel):
            return "full"
        return round_features(need, self.most)

    def _with_enough_features(self, m: Features, shore: Shore) -> tuple[Candidate, Choice]:
        """Return a fit with m features; with as many as the data ask for, where they are to be chosen."""
        if m == "auto" and shore.permeability > 0 and has_full_resolution(self.kernel):
            return self.fit(shore, "full"), Choice("full resolution", "features would be spent on the water")
        first = self._first_m(m)
        try:
            found = self.fit(shore, first)
        except FitError:
            if m != "auto" or first == "full" or not has_full_resolution(self.kernel):
                raise
            return self.fit(shore, "full"), Choice(
                "full resolution", f"the fit with {first} features broke down"
            )
        if m != "auto":
            return found, Choice(found.basis.label, "given")
        area = float(self.domain.node_areas.sum())
        while not is_enough(found.posterior.fit.missed_share, found.posterior.sd):
            fit, used = found.posterior, found.basis.m
            known = (used, found.basis.highest_eigenvalue)
            need = features_needed(fit.kernel, fit.lengthscale, area, known)
            if used >= self.most or need > self.most:
                return self._at_full_resolution(shore, found, need)
            more = round_features(max(MARGIN * need, MARGIN * used), self.most)
            if late := self._too_late(f"{more} features", found.seconds * (more / used) ** 2):
                return _ended(found, late, MORE_TIME)
            try:
                found = self.fit(shore, more)
            except FitError:
                return self._at_full_resolution(shore, found, need)
        if not found.basis.truncated:
            return found, Choice("full resolution", f"{self.most:,} features would not do")
        missed = found.posterior.fit.missed_share
        why = (
            f"they miss {100 * missed:.2g} % of the prior variance at a lengthscale of "
            f"{self._length(found.posterior)}; "
        )
        if missed > MISSED_SHARE:
            little = f"{why}with an sd of {found.posterior.sd:.2g} that is little"
            return found.without_missed_variance(), Choice(found.basis.label, little)
        return found, Choice(found.basis.label, f"{why}{percent(MISSED_SHARE)} is the limit")

    def _at_full_resolution(self, shore: Shore, found: Candidate, need: int) -> tuple[Candidate, Choice]:
        """Go to full resolution, or say why that cannot be."""
        remedy = ""
        if self.kernel is not None and not has_full_resolution(self.kernel):
            reason = f"full resolution needs Matern(1.0) or Matern(2.0), not {self.kernel.name}"
        elif late := self._too_late("full resolution", FULL_SECONDS_PER_NODE * self.domain.n_nodes):
            reason, remedy = late, MORE_TIME
        else:
            try:
                why = f"about {need:,} features would be needed; at most {self.most:,} are tried"
                if need <= self.most:
                    why = f"the fit with more than {found.basis.m:,} features broke down"
                return self.fit(shore, "full"), Choice("full resolution", why)
            except SizeError as error:
                reason, remedy = error.message.rstrip("."), error.remedy
        if found.basis.m < self.most and time.perf_counter() < self.deadline:
            found = self.fit(shore, self.most)
        return _ended(found, reason, remedy)

    def _too_late(self, what: str, seconds: float) -> str:
        """Return that a fit would end after the deadline, nothing if it would not."""
        left = self.deadline - time.perf_counter()
        if seconds <= left:
            return ""
        return (
            f"{what} would take about {seconds:.0f} s, and {max(left, 0.0):.0f} s of those allowed are left"
        )


def _ended(found: Candidate, reason: str, remedy: str) -> tuple[Candidate, Choice]:
    """Return a fit with too few features, with a warning in place of its own, which would say half of it."""
    warning = MissedVarianceWarning(
        f"The search for enough features has ended at {found.basis.label}, which miss {found.missed} of the "
        f"prior variance ({percent(MISSED_SHARE)} is aimed at): {reason}. The map is smoother than "
        "the data ask for.",
        option="m",
        found=found.posterior.fit.missed_share,
        remedy=remedy,
    )
    return found.without_missed_variance(warning), Choice(
        found.basis.label, f"they miss {found.missed}; {in_words(reason)}"
    )
