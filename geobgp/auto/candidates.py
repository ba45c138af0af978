"""Candidates: fits of which one is kept, and what they took."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from geobgp.errors import GeobgpError, GeobgpWarning, MissedVarianceWarning, hearing
from geobgp.model import LGCP
from geobgp.prior.full_rank import FullRank
from geobgp.prior.harmonic import HarmonicBasis
from geobgp.spacetime.fitting import fit_periods
from geobgp.summary import Rung
from geobgp.text import number, percent

if TYPE_CHECKING:
    from geobgp.auto.options import Options
    from geobgp.auto.scene import Scene
    from geobgp.posterior import Posterior
    from geobgp.prior.base import Basis
    from geobgp.prior.kernels import Kernel
    from geobgp.prior.laplacian import Boundary
    from geobgp.progress import Progress

#: The share of the time in which all periods as one are fitted, where there are several; the rest is for all of them.
POOLED_SHARE = 0.35
#: The time of a fit grows with this power of the number of nodes; one that goes on from another takes this share.
GROWTH, GOING_ON = 1.25, 0.6


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

    scene: Scene
    shore: Shore
    posterior: Posterior
    warnings: tuple[GeobgpWarning, ...]
    rung: Rung
    from_nothing: bool = True

    @property
    def seconds(self) -> float:
        """What the fit took."""
        return self.rung.seconds

    @property
    def basis(self) -> Basis:
        """The prior that was fitted."""
        return self.posterior.basis

    @property
    def gain(self) -> float:
        """Nats over an even rate, by which candidates are compared, on cells of any size."""
        return self.rung.gain

    @property
    def missed(self) -> str:
        """The share of the prior variance that its features miss, in words."""
        return percent(self.posterior.fit.missed_share)

    def seconds_with(self, nodes: float) -> float:
        """Return about how long the scene and a fit that goes on from this one would take with so many nodes."""
        fit = self.seconds * (GOING_ON if self.from_nothing else 1.0)
        return (fit + self.scene.seconds) * (nodes / self.scene.domain.n_nodes) ** GROWTH

    def warned(self, warning: GeobgpWarning) -> Candidate:
        """Return the same with one more warning."""
        return dataclasses.replace(self, warnings=(*self.warnings, warning))

    def without_missed_variance(self, *instead: GeobgpWarning) -> Candidate:
        """Return the same without the fit's own warning of missed variance, which says only half of it."""
        kept = tuple(w for w in self.warnings if not isinstance(w, MissedVarianceWarning))
        return dataclasses.replace(self, warnings=(*kept, *instead))


@dataclass(frozen=True, eq=False)
class Fits:
    """The fits of a run, and the time that is left for them.

    Parameters
    ----------
    kernel : Kernel or None
        None: the usual one of each prior.
    cache : bool
    title : str
    progress : Progress
    deadline : float
        On `time.perf_counter`: a larger model that would end after it is not begun.
    likelihood : "poisson" or "negative-binomial"
    client : distributed.Client or str, optional
        Who shares a mixture over hyperparameters.

    Attributes
    ----------
    tried : list of Rung
        Every fit, in order.
    begun : (float, float)
        When the run began, by the clock and by the processor's time.
    """

    kernel: Kernel | None
    cache: bool
    title: str
    progress: Progress
    deadline: float
    likelihood: Literal["poisson", "negative-binomial"] = "poisson"
    client: Any = None
    tried: list[Rung] = field(default_factory=list)
    begun: tuple[float, float] = field(default_factory=lambda: (time.perf_counter(), time.process_time()))
    _made: dict[Any, Candidate] = field(default_factory=dict, repr=False)

    def fit(
        self,
        scene: Scene,
        shore: Shore,
        m: int | Literal["full"],
        kernel: Kernel | None = None,
        start: Posterior | None = None,
    ) -> Candidate:
        """Compute the basis and fit it; warnings are kept until it is known which fit stays.

        Parameters
        ----------
        scene : Scene
        shore : Shore
        m : int or "full"
        kernel : Kernel, optional
            In place of the one of the run.
        start : Posterior, optional
            A fit with the same prior on other cells, to begin from.
        """
        key = (id(scene), shore, m, kernel or self.kernel)
        if key in self._made:
            return self._made[key]
        begin, heard = time.perf_counter(), list[GeobgpWarning]()
        with hearing(heard.append):
            basis: Basis
            if m == "full":
                basis = FullRank(scene.domain, boundary=shore.boundary, permeability=shore.permeability)
            else:
                basis = HarmonicBasis.compute(
                    scene.domain,
                    m,
                    boundary=shore.boundary,
                    permeability=shore.permeability,
                    cache=self.cache,
                    progress=self.progress,
                )
            posterior = self._fit(scene, basis, kernel or self.kernel, "map", "fit", start)
        rung = Rung(
            cell_size=scene.domain.cell_size,
            nodes=scene.domain.n_nodes,
            prior=basis.label,
            water=shore.words,
            gain=scene.gain(posterior),
            seconds=time.perf_counter() - begin,
        )
        self.tried.append(rung)
        self._made[key] = Candidate(scene, shore, posterior, tuple(heard), rung, start is None)
        return self._made[key]

    def integrate(self, best: Candidate) -> Candidate:
        """Fit once more as the best fit was, with a mixture over hyperparameters."""
        heard = list[GeobgpWarning]()
        with hearing(heard.append):
            posterior = self._fit(
                best.scene, best.basis, self.kernel, "integrate", "integrate", best.posterior
            )
        return Candidate(best.scene, best.shore, posterior, tuple(heard), best.rung)

    def _fit(
        self,
        scene: Scene,
        basis: Basis,
        kernel: Kernel | None,
        hyper: Literal["map", "integrate"],
        name: str,
        start: Posterior | None = None,
    ) -> Posterior:
        model = LGCP(basis, kernel, likelihood=self.likelihood)
        model.exposure, model.exposure_kind, model.given = scene.exposure, scene.exposure_kind, scene.given
        model.effort, model.given_effort, model.effects = scene.effort, scene.given_effort, scene.effects
        with self.progress.stage(name) as stage:
            try:
                posterior = model.fit(
                    scene.counts,
                    hyper=hyper,
                    progress=stage,
                    title=self.title,
                    start=start,
                    client=self.client,
                )
            except np.linalg.LinAlgError as error:
                stage.note("failed")
                raise FitError(f"The fit broke down: {error}.") from error
            stage.note(
                f"{basis.label}, {Shore(basis.boundary, basis.permeability).words} water: "
                f"ELBO {posterior.elbo:,.1f}, lengthscale {length_of(posterior)}"
            )
        return posterior

    def fit_periods(
        self,
        scene: Scene,
        basis: Basis,
        kernel: Kernel,
        options: Options,
        start: Any = None,
        near: np.ndarray | None = None,
    ) -> Posterior:
        """Fit all periods of a scene together, by the deadline; the dynamics of another fit to begin from are kept."""
        known = scene.in_time
        assert known is not None
        dynamics = options.dynamics if start is None else start.dynamics
        model = LGCP(basis, kernel, likelihood=self.likelihood, dynamics=dynamics)
        model.exposure, model.exposure_kind, model.given = known.exposure, scene.exposure_kind, known.given
        model.effort, model.given_effort, model.effects = scene.effort, scene.given_effort, known.effects
        with self.progress.stage("periods") as stage:
            posterior = fit_periods(
                model,
                known.counts,
                hyper=options.hyper,
                progress=stage,
                title=self.title,
                start=start,
                resume=self.cache,
                near=near,
                deadline=self.deadline,
            )
            stage.note(f"{known.periods.words()}, {basis.label}: ELBO {posterior.elbo:,.1f}")
        return posterior

    @property
    def share_of_processor(self) -> float:
        """The share of a processor that this process has had since the run began: 1, or less on a busy machine."""
        wall, used = time.perf_counter() - self.begun[0], time.process_time() - self.begun[1]
        return min(max(used / max(wall, 1e-9), 0.05), 1.0) if wall > 1.0 else 1.0

    def too_late(self, what: str, seconds: float) -> str:
        """Return that a fit would end after the deadline, nothing if it would not."""
        left = self.deadline - time.perf_counter()
        if seconds <= left:
            return ""
        return (
            f"{what} would take about {seconds:.0f} s, and {max(left, 0.0):.0f} s of those allowed are left"
        )


def length_of(posterior: Posterior) -> str:
    """Return the lengthscale, with its unit."""
    scale, unit = posterior.domain.length_unit
    return f"{number(posterior.lengthscale / scale)} {unit}"
