"""The search for the model to keep: how many features, which boundary condition."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from geobgp.auto import choices as pick
from geobgp.errors import GeobgpError, GeobgpWarning, SizeError
from geobgp.model import LGCP
from geobgp.prior.base import MISSED_SHARE
from geobgp.prior.kernels import Kernel, Matern
from geobgp.summary import Choice
from geobgp.text import number

if TYPE_CHECKING:
    from geobgp.data.counts import Counts
    from geobgp.data.effects import FixedEffects
    from geobgp.land.domain import Domain
    from geobgp.posterior import Posterior
    from geobgp.prior.base import Basis
    from geobgp.progress import Progress

BOUNDARIES = ("neumann", "dirichlet")
Features = int | Literal["auto", "full"]

#: More features than the lengthscale of a fit with few asks for: with more it turns out a little shorter.
MARGIN = 1.25
#: A boundary condition is given up early when it lies this many nats behind, and twice what more features
#: have gained.
FAR_BEHIND = 20.0
#: Rough time of a fit at full resolution.
FULL_SECONDS_PER_NODE = 1e-3


class FitError(GeobgpError):
    """A fit came to no end, for reasons of rounding."""


def is_sparse(kernel: Kernel | None) -> bool:
    """Tell whether full resolution can have this kernel (None: the usual one)."""
    return kernel is None or kernel.sparse


@dataclass(eq=False)
class Search:
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
    """

    domain: Domain
    counts: Counts
    kernel: Kernel | None
    exposure: np.ndarray
    exposure_kind: str
    effects: FixedEffects
    cache: bool
    title: str
    progress: Progress
    deadline: float
    most: int
    _said: dict[int, list[warnings.WarningMessage]] = field(default_factory=dict)
    _took: float = 0.0

    # -- one fit

    def fit(self, boundary: str, m: int | Literal["full"]) -> Posterior:
        """Compute the basis and fit; warnings are kept until it is known which fit stays."""
        begin = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            basis: Basis
            if m == "full":
                from geobgp.prior.full_rank import FullRank

                basis = FullRank(self.domain, boundary=boundary)  # type: ignore[arg-type]
            else:
                from geobgp.prior.harmonic import HarmonicBasis

                basis = HarmonicBasis.compute(
                    self.domain,
                    m,
                    boundary=boundary,  # type: ignore[arg-type]
                    cache=self.cache,
                    progress=self.progress,
                )
            posterior = self._fit(basis, "map", "fit")
        self._said[id(posterior)] = caught
        self._took = time.perf_counter() - begin
        return posterior

    def _fit(self, basis: Basis, hyper: Literal["map", "integrate"], name: str) -> Posterior:
        model = LGCP(basis, self.kernel)
        model.exposure, model.exposure_kind, model.effects = self.exposure, self.exposure_kind, self.effects
        with self.progress.stage(name) as stage:
            try:
                posterior = model.fit(self.counts, hyper=hyper, progress=stage, title=self.title)
            except np.linalg.LinAlgError as error:
                stage.note("failed")
                raise FitError(f"The fit broke down: {error}.") from error
            stage.note(_found(posterior))
        return posterior

    def integrate(self, best: Posterior) -> Posterior:
        """Fit once more as the best fit was, with a mixture over hyperparameters."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            posterior = self._fit(best.basis, "integrate", "integrate")
        self._said[id(posterior)] = caught
        return posterior

    def repeat_warnings(self, posterior: Posterior) -> None:
        """Give the warnings of the fit that stays."""
        for w in self._said.get(id(posterior), []):
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)

    # -- the choices

    def best(self, m: Features, boundary: str, made: dict[str, Choice]) -> Posterior:
        """Return the fit to keep, and write down why."""
        if boundary == "auto":
            posterior, features, made["boundary"] = self._both(m)
        else:
            posterior, features = self._features(m, boundary)
            made["boundary"] = Choice(boundary, "given")
        made["features"] = features
        usual = f"the usual one for {posterior.basis.label}"
        made["kernel"] = Choice(posterior.kernel.name, "given" if self.kernel is not None else usual)
        return posterior

    def _both(self, m: Features) -> tuple[Posterior, Choice, Choice]:
        """Fit under both conditions and keep the one with the higher bound.

        Where the number of features is to be chosen, both are first fitted with few of them, and the one that
        is far behind is not fitted with more.
        """
        early, failed = self._try_both(self._first(m))
        if not early and m == "auto" and is_sparse(self.kernel):
            early, failed = self._try_both("full")
        if "neumann" in failed and not early:
            raise failed["neumann"]
        lead = max(early, key=lambda b: early[b].elbo)
        other = next(b for b in BOUNDARIES if b != lead)
        posterior, features = self._features(m, lead, early[lead])
        ends, note = early, f", both with {_size(early[lead])}"
        if posterior is early[lead]:
            note = ""
        elif other in failed or self._may_catch_up(early[lead], early[other], posterior):
            final, again = self._try_both(posterior.basis.resolution, (other,))
            failed = failed | again
            if final:
                ends, note = {lead: posterior, **final}, ""
                if final[other].elbo > posterior.elbo:
                    lead, other = other, lead
                    posterior, features = self._features(m, lead, ends[lead])
        if other not in ends:
            return posterior, features, Choice(lead, f"{other} cannot be fitted: {failed[other]}")
        close = "; the data hardly tell them apart" if abs(ends[lead].elbo - ends[other].elbo) < 2 else ""
        elbos = ", ".join(f"{ends[b].elbo:,.1f} ({b})" for b in BOUNDARIES)
        return posterior, features, Choice(lead, f"the higher ELBO of {elbos}{note}{close}")

    def _try_both(
        self, m: int | Literal["full"], boundaries: tuple[str, ...] = BOUNDARIES
    ) -> tuple[dict[str, Posterior], dict[str, GeobgpError]]:
        """Return the fits that succeed, and why others do not: land too thin for Dirichlet, or rounding."""
        fits: dict[str, Posterior] = {}
        failed: dict[str, GeobgpError] = {}
        for boundary in boundaries:
            try:
                fits[boundary] = self.fit(boundary, m)
            except GeobgpError as error:
                failed[boundary] = error
                if boundary == "neumann" and not isinstance(error, FitError):
                    raise
        return fits, failed

    @staticmethod
    def _may_catch_up(lead: Posterior, other: Posterior, final: Posterior) -> bool:
        """Tell whether the other condition might still win with as many features as the lead now has."""
        return lead.elbo - other.elbo < FAR_BEHIND + 2.0 * max(final.elbo - lead.elbo, 0.0)

    def _first(self, m: Features) -> int | Literal["full"]:
        """Return how many features to begin with."""
        if m != "auto":
            return m
        fixed = None if self.kernel is None else self.kernel.lengthscale
        if fixed is None:
            return min(pick.FIRST_FEATURES, self.most)
        need = MARGIN * pick.features_needed(self._kernel(), fixed, float(self.domain.node_areas.sum()))
        return "full" if need > self.most and is_sparse(self.kernel) else pick.round_features(need, self.most)

    def _features(
        self, m: Features, boundary: str, posterior: Posterior | None = None
    ) -> tuple[Posterior, Choice]:
        """Return a fit with m features; with as many as the data ask for, where they are to be chosen."""
        if posterior is None:
            posterior = self.fit(boundary, self._first(m))
        if m != "auto":
            return posterior, Choice(_size(posterior), "given")
        while not pick.is_enough(missed := posterior.fit.missed_share, posterior.sd):
            used = int(posterior.basis.m)
            area = float(self.domain.node_areas.sum())
            need = pick.features_needed(
                posterior.kernel, posterior.lengthscale, area, (used, posterior.basis.highest_eigenvalue)
            )
            if used >= self.most or need > self.most:
                return self._full(boundary, posterior, need)
            more = pick.round_features(max(MARGIN * need, MARGIN * used), self.most)
            left, needs = self.deadline - time.perf_counter(), self._took * (more / used) ** 2
            if needs > left:
                why = f"{more} would take about {needs:.0f} s, of max_seconds {max(left, 0.0):.0f} s are left"
                self._stop(posterior, why)
                return posterior, Choice(_size(posterior), f"they miss {missed:.0%}; {why}")
            try:
                posterior = self.fit(boundary, more)
            except FitError:
                return self._full(boundary, posterior, need)
        if not posterior.basis.truncated:
            return posterior, Choice("full resolution", f"{self.most:,} features would not do")
        scale, unit = self.domain.length_unit
        why = (
            f"they miss {100 * missed:.2g} % of the prior variance at a lengthscale of "
            f"{number(posterior.lengthscale / scale)} {unit}; "
        )
        if missed > MISSED_SHARE:
            self._forget(posterior)
            return posterior, Choice(
                _size(posterior), f"{why}with an sd of {posterior.sd:.2g} that is little"
            )
        return posterior, Choice(_size(posterior), f"{why}5 % is the limit")

    def _full(self, boundary: str, posterior: Posterior, need: int) -> tuple[Posterior, Choice]:
        """Go to full resolution, or say why that cannot be."""
        left, needs = self.deadline - time.perf_counter(), FULL_SECONDS_PER_NODE * self.domain.n_nodes
        if not is_sparse(self.kernel):
            reason = f"full resolution needs Matern(1.0) or Matern(2.0), not {self._kernel().name}"
        elif needs > left:
            spare = f"of max_seconds {max(left, 0.0):.0f} s are left"
            reason = f"full resolution would take about {needs:.0f} s, {spare}"
        else:
            try:
                why = f"about {need:,} features would be needed; at most {self.most:,} are tried"
                if need <= self.most:
                    why = f"the fit with more than {posterior.basis.m:,} features broke down"
                return self.fit(boundary, "full"), Choice("full resolution", why)
            except SizeError as error:
                reason = str(error)
        if int(posterior.basis.m) < self.most and left > 0:
            posterior = self.fit(boundary, self.most)
        self._stop(posterior, reason)
        missed = posterior.fit.missed_share
        return posterior, Choice(_size(posterior), f"they miss {missed:.0%}; {reason}")

    def _stop(self, posterior: Posterior, reason: str) -> None:
        """Warn that the search has ended early; the fit's own warning would say half of it again."""
        missed = posterior.fit.missed_share
        warnings.warn(
            f"The search for enough features has ended at {_size(posterior)}, which miss {missed:.0%} of the "
            f"prior variance (5 % is aimed at): {reason.rstrip('.')}. The map is smoother than the data ask "
            "for.",
            GeobgpWarning,
            stacklevel=7,
        )
        self._forget(posterior)

    def _forget(self, posterior: Posterior) -> None:
        """Drop the fit's own warning of missed variance, where more has been said of it."""
        mine = self._said.get(id(posterior), [])
        self._said[id(posterior)] = [w for w in mine if "miss" not in str(w.message)]

    def _kernel(self) -> Kernel:
        return self.kernel or Matern(1.5)


def _size(posterior: Posterior) -> str:
    return posterior.basis.label


def _found(posterior: Posterior) -> str:
    scale, unit = posterior.domain.length_unit
    length = f"lengthscale {number(posterior.lengthscale / scale)} {unit}"
    return f"{_size(posterior)}, {posterior.basis.boundary}: ELBO {posterior.elbo:,.1f}, {length}"
