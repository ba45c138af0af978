"""Model search: whether water parts the events, and how many features they ask for."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from geobgp.auto.candidates import Candidate, FitError, Fits, Shore, length_of
from geobgp.auto.choices import (
    FIRST_FEATURES,
    features_needed,
    has_full_resolution,
    is_enough,
    practical_features,
    round_features,
)
from geobgp.errors import GeobgpError, MissedVarianceWarning, SizeError, hearing, in_words, option
from geobgp.prior.base import MISSED_SHARE
from geobgp.prior.kernels import Matern
from geobgp.summary import Choice
from geobgp.text import number, percent

if TYPE_CHECKING:
    from geobgp.auto.options import Features, Options
    from geobgp.auto.scene import Scene
    from geobgp.prior.kernels import Kernel

#: More features than the lengthscale of a fit with few asks for: with more it turns out a little shorter.
MARGIN = 1.25
#: Permeabilities that are compared, the closed shore first; how near closed and open water must be for one between
#: them to be tried; and how near the next must be to the best one on coarse cells to be tried again on finer ones.
PERMEABILITIES, NEAR, RIVAL = (0.0, 1.0, 0.3), 25.0, 10.0
#: Nats by which anything must lead over what is simpler: closed water, features.
LEAD = 2.0
MORE_TIME = f"Raise {option('max_seconds')} to let it go on."


@dataclass(frozen=True, eq=False)
class ModelSearch:
    """The choice of a shore and of a prior for a scene.

    Parameters
    ----------
    options : Options
    fits : Fits

    Attributes
    ----------
    choices : dict of str to Choice
        What has been taken, and why.
    """

    options: Options
    fits: Fits
    choices: dict[str, Choice] = field(default_factory=dict)

    # -- water

    def shores(self, scene: Scene) -> list[Candidate | Shore]:
        """Return the shores that may be right, the best first, as they were fitted where they had to be compared."""
        o = self.options
        self.choices["boundary"] = Choice(
            o.boundary, "given" if o.boundary == "dirichlet" else "levels off freely"
        )
        if o.boundary == "dirichlet":
            self.choices["water"] = Choice("closed", "a Dirichlet condition holds the shore")
            return [Shore("dirichlet", 0.0)]
        if o.permeability != "auto":
            shore = Shore("neumann", float(o.permeability))
            self.choices["water"] = Choice(shore.words, "given")
            return [shore]
        if o.areas is not None:
            shore = Shore("neumann", 0.0)
            self.choices["water"] = Choice(shore.words, "counts by area say little of it")
            return [shore]
        return self._compare_shores(scene)

    def _compare_shores(self, scene: Scene) -> list[Candidate | Shore]:
        """Compare closed, open and half-open water; closed water stays unless another leads clearly."""
        kernel = self.options.kernel
        if kernel is not None and not has_full_resolution(kernel):
            kernel = Matern(1.0, kernel.lengthscale, kernel.sd, kernel.prior)
        found: dict[float, Candidate] = {}
        broken: GeobgpError | None = None
        for rho in PERMEABILITIES:
            shore = Shore("neumann", rho)
            both = {0.0, 1.0} <= found.keys()
            if both and abs(found[0.0].gain - found[1.0].gain) > NEAR:
                break
            took = max((c.seconds for c in found.values()), default=0.0)
            if both and self.fits.too_late("another", took):
                break
            with hearing(lambda warning: None):  # an input's fault is told with the fit that is kept
                try:
                    found[rho] = self.fits.fit(scene, shore, "full", kernel)
                except (SizeError, FitError) as error:
                    broken = error
        if not found and broken is not None:
            raise broken
        question = "Does water part these events? " + ", ".join(
            f"{found[rho].shore.words} {found[rho].posterior.elbo:,.1f}" for rho in sorted(found)
        )
        order = ranked(list(found.values()))
        cells = number(scene.domain.cell_size)
        unit = "m" if scene.domain.crs is not None else "units"
        self.choices["water"] = Choice(
            order[0].shore.words,
            f"{question[:30]}{question[30].upper()}{question[31:]} (bounds with cells of {cells} {unit})",
        )
        rivals = [c for c in order[:2] if order[0].gain - c.gain < RIVAL]
        return list(rivals if self.options.kernel == kernel else [c.shore for c in rivals])

    def settle_water(self, rivals: list[Candidate]) -> Candidate:
        """Return the best of fits on finer cells with shores that were near to each other, and say so."""
        order = ranked(rivals)
        if len(order) > 1:
            told = ", ".join(f"{c.shore.words} {c.posterior.elbo:,.1f}" for c in order)
            before = self.choices["water"].why
            self.choices["water"] = Choice(order[0].shore.words, f"{before}; on finer cells {told}")
        return order[0]

    # -- features, or full resolution

    def prior(self, scene: Scene, best: Candidate | Shore) -> Candidate:
        """Return a fit with the prior that the data ask for, and write down why."""
        m, kernel = self.options.m, self.options.kernel
        shore = best if isinstance(best, Shore) else best.shore
        if m == "auto" and has_full_resolution(kernel) and shore.permeability > 0:
            found, why = (
                self._full(scene, best),
                "information crosses the water, which features would have to cover",
            )
            self.choices["features"] = Choice("full resolution", why)
        elif m == "full":
            found = self._full(scene, best)
            self.choices["features"] = Choice("full resolution", "given")
        else:
            found, self.choices["features"] = self.with_enough_features(scene, shore)
            if m == "auto" and found.basis.truncated and has_full_resolution(kernel):
                found = self._or_full(found, best)
        return found

    def _full(self, scene: Scene, best: Candidate | Shore) -> Candidate:
        return self.fits.fit(scene, best, "full") if isinstance(best, Shore) else best

    def _or_full(self, features: Candidate, best: Candidate | Shore) -> Candidate:
        """Return full resolution instead of features where it gains more than the lead."""
        if isinstance(best, Shore) and self.fits.too_late(
            "full resolution", 3.0 * features.seconds_with(features.scene.domain.n_nodes)
        ):
            return features
        try:
            full = self._full(features.scene, best)
        except (SizeError, FitError):
            return features
        lead = full.gain - features.gain
        label, why = features.basis.label, self.choices["features"].why
        if lead > LEAD:
            why = f"{number(lead)} nats above {label}"
            self.choices["features"] = Choice("full resolution", why)
            return full
        self.choices["features"] = Choice(label, f"{why}; full resolution would gain {number(lead)} nats")
        return features

    def again(self, scene: Scene, like: Candidate) -> Candidate:
        """Return a fit to another scene with the prior and the shore of a fit."""
        if not like.basis.truncated:
            return self.fits.fit(scene, like.shore, "full", start=like.posterior)
        found, choice = self.with_enough_features(scene, like.shore)
        why = self.choices["features"].why
        if "; full resolution" in why:
            choice = Choice(choice.value, choice.why + why[why.index("; full resolution") :])
        self.choices["features"] = choice
        return found

    def _has_full(self, kernel: Kernel | None) -> bool:
        """Tell whether full resolution is possible: not with counts by area, nor over time."""
        return has_full_resolution(kernel) and self.options.areas is None and self.options.time is None

    def _first_m(self, scene: Scene, most: int) -> int | Literal["full"]:
        """Return how many features to begin with."""
        m: Features = self.options.m
        if m != "auto":
            return m
        kernel = self.options.kernel
        if kernel is None or kernel.lengthscale is None:
            return min(FIRST_FEATURES, most)
        area = float(scene.domain.node_areas.sum())
        need = MARGIN * features_needed(kernel, kernel.lengthscale, area)
        if need > most and self._has_full(kernel):
            return "full"
        return round_features(need, most)

    def with_enough_features(self, scene: Scene, shore: Shore) -> tuple[Candidate, Choice]:
        """Return a fit with m features; with as many as the data ask for, where they are to be chosen."""
        o = self.options
        most = practical_features(scene.domain.n_nodes, o.max_features)
        first = self._first_m(scene, most)
        try:
            found = self.fits.fit(scene, shore, first)
        except FitError:
            if o.m != "auto" or first == "full" or not self._has_full(o.kernel):
                raise
            return self.fits.fit(scene, shore, "full"), Choice(
                "full resolution", f"the fit with {first} features broke down"
            )
        if o.m != "auto":
            return found, Choice(found.basis.label, "given")
        area = float(scene.domain.node_areas.sum())
        while not is_enough(found.posterior.fit.missed_share, found.posterior.sd):
            fit, used = found.posterior, found.basis.land_features
            known = (used, found.basis.highest_eigenvalue)
            need = features_needed(fit.kernel, fit.lengthscale, area, known)
            if used >= most or need > most:
                return self._at_full_resolution(found, need, most)
            more = round_features(max(MARGIN * need, MARGIN * used), most)
            if late := self.fits.too_late(f"{more} features", found.seconds * (more / used) ** 2):
                return _ended(found, late, MORE_TIME)
            try:
                found = self.fits.fit(scene, shore, more)
            except FitError:
                return self._at_full_resolution(found, need, most)
        if not found.basis.truncated:
            return found, Choice("full resolution", f"{most:,} features would not do")
        missed = found.posterior.fit.missed_share
        why = (
            f"they miss {100 * missed:.2g} % of the prior variance at a lengthscale of "
            f"{length_of(found.posterior)}; "
        )
        if missed > MISSED_SHARE:
            little = f"{why}with an sd of {found.posterior.sd:.2g} that is little"
            return found.without_missed_variance(), Choice(found.basis.label, little)
        return found, Choice(found.basis.label, f"{why}{percent(MISSED_SHARE)} is the limit")

    def _at_full_resolution(self, found: Candidate, need: int, most: int) -> tuple[Candidate, Choice]:
        """Go to full resolution, or say why that cannot be."""
        kernel, scene = self.options.kernel, found.scene
        remedy = ""
        if self.options.areas is not None or self.options.time is not None:
            what = "counts by area" if self.options.areas is not None else "maps over time"
            reason = f"{what} need features, about {need:,} of them"
        elif kernel is not None and not has_full_resolution(kernel):
            reason = f"full resolution needs Matern(1.0) or Matern(2.0), not {kernel.name}"
        elif late := self.fits.too_late("full resolution", 3.0 * found.seconds):
            reason, remedy = late, MORE_TIME
        else:
            try:
                why = f"about {need:,} features would be needed; at most {most:,} are tried"
                if need <= most:
                    why = f"the fit with more than {found.basis.m:,} features broke down"
                return self.fits.fit(scene, found.shore, "full"), Choice("full resolution", why)
            except SizeError as error:
                reason, remedy = error.message.rstrip("."), error.remedy
        if found.basis.m < most and time.perf_counter() < self.fits.deadline:
            found = self.fits.fit(scene, found.shore, most)
        return _ended(found, reason, remedy)


def ranked(candidates: list[Candidate]) -> list[Candidate]:
    """Return fits with different shores, the best first; closed water is best unless another leads clearly."""

    def worth(c: Candidate) -> float:
        return c.gain + (LEAD if c.shore.permeability == 0 else 0.0)

    return sorted(candidates, key=worth, reverse=True)


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
