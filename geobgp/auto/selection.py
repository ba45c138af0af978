"""Model search: how many features and which boundary condition the points ask for."""

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
from geobgp.prior.kernels import Kernel
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

BOUNDARIES: tuple[Boundary, ...] = ("neumann", "dirichlet")

#: More features than the lengthscale of a fit with few asks for: with more it turns out a little shorter.
MARGIN = 1.25
#: A boundary condition is given up early when it lies this many nats behind, and twice what more features
#: have gained.
FAR_BEHIND = 20.0
#: Rough time of a fit at full resolution.
FULL_SECONDS_PER_NODE = 1e-3
MORE_TIME = f"Raise {option('max_seconds')} to let it go on."


class FitError(GeobgpError):
    """A fit came to no end, for reasons of rounding."""


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

    def fit(self, boundary: Boundary, m: int | Literal["full"]) -> Candidate:
        """Compute the basis and fit it; warnings are kept until it is known which fit stays."""
        begin, heard = time.perf_counter(), list[GeobgpWarning]()
        with hearing(heard.append):
            basis: Basis
            if m == "full":
                basis = FullRank(self.domain, boundary=boundary)
            else:
                basis = HarmonicBasis.compute(
                    self.domain, m, boundary=boundary, cache=self.cache, progress=self.progress
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
        model = LGCP(basis, self.kernel)
        model.exposure, model.exposure_kind, model.effects = self.exposure, self.exposure_kind, self.effects
        with self.progress.stage(name) as stage:
            try:
                posterior = model.fit(self.counts, hyper=hyper, progress=stage, title=self.title)
            except np.linalg.LinAlgError as error:
                stage.note("failed")
                raise FitError(f"The fit broke down: {error}.") from error
            stage.note(
                f"{basis.label}, {basis.boundary}: ELBO {posterior.elbo:,.1f}, lengthscale "
                f"{self._length(posterior)}"
            )
        return posterior

    def _length(self, posterior: Posterior) -> str:
        scale, unit = self.domain.length_unit
        return f"{number(posterior.lengthscale / scale)} {unit}"

    # -- the choices

    def best(self, m: Features, boundary: Boundary | Literal["auto"]) -> Candidate:
        """Return the fit to keep, and write down why."""
        if boundary == "auto":
            kept, features, self.choices["boundary"] = self._compare_boundaries(m)
        else:
            kept, features = self._with_enough_features(m, boundary)
            self.choices["boundary"] = Choice(boundary, "given")
        self.choices["features"] = features
        usual = f"the usual one for {kept.basis.label}"
        self.choices["kernel"] = Choice(
            kept.posterior.kernel.name, "given" if self.kernel is not None else usual
        )
        return kept

    def _compare_boundaries(self, m: Features) -> tuple[Candidate, Choice, Choice]:
        """Fit under both conditions and keep the one with the higher bound.

        Where the number of features is to be chosen, both are first fitted with few of them, and the one that
        is far behind is not fitted with more.
        """
        early, failed = self._try(self._first_m(m))
        if not early and m == "auto" and has_full_resolution(self.kernel):
            early, failed = self._try("full")
        if "neumann" in failed and not early:
            raise failed["neumann"]
        lead = max(early, key=lambda b: early[b].elbo)
        other = next(b for b in BOUNDARIES if b != lead)
        kept, features = self._with_enough_features(m, lead, early[lead])
        ends, note = early, f", both with {early[lead].basis.label}"
        if kept.posterior is early[lead].posterior:
            note = ""
        elif other in failed or _may_catch_up(early[lead], early[other], kept):
            final, again = self._try(kept.basis.resolution, (other,))
            failed = failed | again
            if final:
                ends, note = {lead: kept, **final}, ""
                if final[other].elbo > kept.elbo:
                    lead, other = other, lead
                    kept, features = self._with_enough_features(m, lead, ends[lead])
        if other not in ends:
            return kept, features, Choice(lead, f"{other} cannot be fitted: {failed[other]}")
        close = "; the data hardly tell them apart" if abs(ends[lead].elbo - ends[other].elbo) < 2 else ""
        elbos = ", ".join(f"{ends[b].elbo:,.1f} ({b})" for b in BOUNDARIES)
        return kept, features, Choice(lead, f"the higher ELBO of {elbos}{note}{close}")

    def _try(
        self, m: int | Literal["full"], boundaries: tuple[Boundary, ...] = BOUNDARIES
    ) -> tuple[dict[Boundary, Candidate], dict[Boundary, GeobgpError]]:
        """Return the fits that succeed, and why others do not: land too thin for Dirichlet, or rounding."""
        fits: dict[Boundary, Candidate] = {}
        failed: dict[Boundary, GeobgpError] = {}
        for boundary in boundaries:
            try:
                fits[boundary] = self.fit(boundary, m)
            except GeobgpError as error:
                failed[boundary] = error
                if boundary == "neumann" and not isinstance(error, FitError):
                    raise
        return fits, failed

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

    def _with_enough_features(
        self, m: Features, boundary: Boundary, found: Candidate | None = None
    ) -> tuple[Candidate, Choice]:
        """Return a fit with m features; with as many as the data ask for, where they are to be chosen."""
        found = found or self.fit(boundary, self._first_m(m))
        if m != "auto":
            return found, Choice(found.basis.label, "given")
        area = float(self.domain.node_areas.sum())
        while not is_enough(found.posterior.fit.missed_share, found.posterior.sd):
            fit, used = found.posterior, found.basis.m
            known = (used, found.basis.highest_eigenvalue)
            need = features_needed(fit.kernel, fit.lengthscale, area, known)
            if used >= self.most or need > self.most:
                return self._at_full_resolution(boundary, found, need)
            more = round_features(max(MARGIN * need, MARGIN * used), self.most)
            if late := self._too_late(f"{more} features", found.seconds * (more / used) ** 2):
                return _ended(found, late, MORE_TIME)
            try:
                found = self.fit(boundary, more)
            except FitError:
                return self._at_full_resolution(boundary, found, need)
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

    def _at_full_resolution(
        self, boundary: Boundary, found: Candidate, need: int
    ) -> tuple[Candidate, Choice]:
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
                return self.fit(boundary, "full"), Choice("full resolution", why)
            except SizeError as error:
                reason, remedy = error.message.rstrip("."), error.remedy
        if found.basis.m < self.most and time.perf_counter() < self.deadline:
            found = self.fit(boundary, self.most)
        return _ended(found, reason, remedy)

    def _too_late(self, what: str, seconds: float) -> str:
        """Return that a fit would end after the deadline, nothing if it would not."""
        left = self.deadline - time.perf_counter()
        if seconds <= left:
            return ""
        return (
            f"{what} would take about {seconds:.0f} s, and {max(left, 0.0):.0f} s of those allowed are left"
        )


def _may_catch_up(lead: Candidate, other: Candidate, final: Candidate) -> bool:
    """Tell whether the other condition might still win with as many features as the lead now has."""
    return lead.elbo - other.elbo < FAR_BEHIND + 2.0 * max(final.elbo - lead.elbo, 0.0)


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
