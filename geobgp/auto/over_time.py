"""Over time: how many cells and features a model of all periods can have, and the fit of it."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import TYPE_CHECKING

from geobgp.auto.candidates import Candidate, Fits, Shore, length_of
from geobgp.auto.choices import (
    FIRST_FEATURES,
    features_needed,
    is_enough,
    practical_features,
    round_features,
    round_size,
)
from geobgp.auto.selection import MARGIN
from geobgp.errors import GeobgpWarning, MissedVarianceWarning, hearing, option
from geobgp.prior.base import MISSED_SHARE
from geobgp.prior.harmonic import HarmonicBasis, dilution
from geobgp.prior.laplacian import discretise
from geobgp.spacetime.posterior import SpaceTimePosterior
from geobgp.summary import Choice
from geobgp.text import number, percent

if TYPE_CHECKING:
    from geobgp.auto.options import Options
    from geobgp.auto.scene import Scene
    from geobgp.data.periods import Periods
    from geobgp.prior.kernels import Kernel

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


def affordable_shore(
    options: Options,
    shores: list[Candidate | Shore],
    scene: Scene,
    cell_size: float,
    choices: dict[str, Choice],
) -> Shore:
    """Return the shore that events ask for, or closed water where a model of all periods cannot have it.

    Features of permeable water come on top of the land's, and much water around little land makes them too many.

    Parameters
    ----------
    options : Options
    shores : list of Candidate or Shore
        Those that may be right, the best first.
    scene : Scene
        On the cells that these were compared on.
    cell_size : float
        Of the cells that will be fitted.
    choices : dict of str to Choice
        Is told where water is closed for want of time.
    """
    best = shores[0]
    shore = best if isinstance(best, Shore) else best.shore
    if options.permeability != "auto" or shore.permeability == 0 or options.m != "auto":
        return shore
    assert scene.in_time is not None
    domain, periods = scene.domain, scene.in_time.periods.n
    nodes = round(domain.n_nodes * (domain.cell_size / cell_size) ** 2)
    most = most_features(nodes, periods, options.max_seconds, options.max_features)
    each = dilution(discretise(domain, boundary=shore.boundary, permeability=shore.permeability))
    if FIRST_FEATURES * each <= most:
        return shore
    told = choices["water"]
    need = f"{shore.words} water asks for {number(each, 2)} features for each one of the land"
    choices["water"] = Choice("closed", f"{told.why}; {need}, too many for {periods:,} periods")
    return Shore("neumann", 0.0)


def fit_over_time(options: Options, fits: Fits, pooled: Candidate, choices: dict[str, Choice]) -> Candidate:
    """Fit all periods together on the cells, the water and the features that suit their sum; more of these if needed.

    Parameters
    ----------
    options : Options
    fits : Fits
    pooled : Candidate
        The fit of all periods as one.
    choices : dict of str to Choice
        Is told of what is chosen here.
    """
    scene, o = pooled.scene, options
    assert scene.in_time is not None
    periods = scene.in_time.periods
    domain, m = scene.domain, round(pooled.basis.land_features)
    area = float(domain.node_areas.sum())
    left = max(fits.deadline - time.perf_counter(), LEAST_SHARE * o.max_seconds)
    fits = dataclasses.replace(fits, deadline=time.perf_counter() + left)
    each = pooled.basis.m / pooled.basis.land_features
    n_areas = 0 if o.areas is None else scene.in_time.counts.values.shape[1]
    ours = left * fits.share_of_processor  # of a busy machine
    most = max(int(most_features(domain.n_nodes, periods.n, ours, o.max_features, n_areas) / each), 1)
    why = choices["features"].why
    if o.m == "auto" and m > most:
        m = round_features(most, most)
        room = f"{periods.n:,} periods leave time for {round(m * each):,}"
        if n_areas and m >= AREA_FEATURES * n_areas:
            room = f"{n_areas:,} areas tell no more than {round(m * each):,} apart"
        why = f"{pooled.basis.label} suit the sum of all periods; {room}"
    found = _fit(o, fits, pooled, m, None)
    dynamics = found.posterior.choices.get("dynamics")
    while o.m == "auto" and not is_enough(found.posterior.fit.missed_share, found.posterior.sd):
        posterior = found.posterior
        need = features_needed(
            posterior.kernel, posterior.lengthscale, area, (m, found.basis.highest_eigenvalue)
        )
        more = round_features(MARGIN * max(need, m), most)
        expected = max(
            seconds_of(domain.n_nodes, each * more, periods.n) / fits.share_of_processor,
            posterior.fit.seconds.get("total", 0.0) * (more / m) ** 2,
        )
        if more <= m or not posterior.converged or fits.deadline - time.perf_counter() < expected:
            why = (
                f"they miss {percent(posterior.fit.missed_share)} of the prior variance; time ends the search"
            )
            few = n_areas and m >= min(AREA_FEATURES * n_areas, most)  # what is missed lies within areas
            found = found.without_missed_variance(*(() if few else (_too_few(found, need),)))
            break
        larger = _fit(o, fits, pooled, more, posterior)
        if not larger.posterior.converged:  # time has ended it: the smaller one is known to its end
            why = f"{more:,} of them could not be fitted in time"
            found = found.without_missed_variance(_too_few(found, need))
            break
        m, why = more, f"the lengthscale of single periods, {length_of(posterior)}, asks for about {need:,}"
        found = larger
    choices["features"] = Choice(found.basis.label, why if o.m == "auto" else "given")
    choices["periods"] = Choice(periods.words(), _about(periods, o))
    kind, _, reason = (dynamics or _posterior(found).dynamics).partition(" (")
    otherwise = "given" if o.dynamics != "auto" else "there was no time to compare them with diffusive ones"
    if periods.n == 1:
        otherwise = "there is a single period"
    choices["dynamics"] = Choice(kind, reason.rstrip(")") or otherwise)
    return found


def _posterior(found: Candidate) -> SpaceTimePosterior:
    assert isinstance(found.posterior, SpaceTimePosterior)
    return found.posterior


def _fit(
    o: Options, fits: Fits, pooled: Candidate, m: int, start: SpaceTimePosterior | object | None
) -> Candidate:
    """Fit all periods with m features; warnings are kept."""
    scene, heard = pooled.scene, list[GeobgpWarning]()
    kernel: Kernel = pooled.posterior.kernel if o.kernel is None else o.kernel
    with hearing(heard.append):
        basis = pooled.basis
        if m != round(basis.land_features):
            basis = HarmonicBasis.compute(
                scene.domain,
                m,
                boundary=pooled.shore.boundary,
                permeability=pooled.shore.permeability,
                cache=o.cache,
                progress=fits.progress,
            )
        posterior = fits.fit_periods(scene, basis, kernel, o, start, pooled.posterior.fit.hyper_mean[:2])
    return Candidate(scene, pooled.shore, posterior, tuple(heard), pooled.rung)


def _about(periods: Periods, o: Options) -> str:
    if o.between is not None or periods.every == "edges":
        return "given"
    return "from the first event to the last; the first and the last may be seen in part only"


def _too_few(found: Candidate, need: int) -> MissedVarianceWarning:
    return MissedVarianceWarning(
        f"The {found.basis.label} miss {found.missed} of the prior variance ({percent(MISSED_SHARE)} is aimed at); "
        f"about {need:,} would be needed, which is more than the time allows. The maps are smoother than the data ask "
        "for.",
        option="max_seconds",
        found=found.posterior.fit.missed_share,
        remedy=f"Raise {option('max_seconds')}, or use longer periods ({option('every')}).",
    )
