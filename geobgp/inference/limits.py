"""Fits within the limits of their basis: the longest lengthscale that it can hold, the variance that features miss."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.errors import ConvergenceWarning, DataError, MissedVarianceWarning, option, warn
from geobgp.inference.fit import Fit, Start, fit
from geobgp.prior.base import MISSED_SHARE
from geobgp.progress import ProgressLike, Stage, as_progress
from geobgp.text import number, percent

if TYPE_CHECKING:
    from geobgp.inference.engine import Engine
    from geobgp.inference.hyper import Hyper
    from geobgp.inference.likelihoods import Likelihood
    from geobgp.prior.base import Basis


def run_one(
    engine: Engine,
    likelihood: Likelihood,
    parameters: Hyper,
    basis: Basis,
    hyper: str,
    progress: ProgressLike,
    start: Start | None = None,
    measure: bool = False,
    client: Any = None,
) -> Fit:
    """Fit observations with one engine, and warn where the basis is too narrow."""

    def call(stage: Stage, capped: Hyper) -> tuple[Fit, Likelihood]:
        found = fit(
            engine, likelihood, capped, integrate=hyper == "integrate", start=start, measure=measure, client=client,
            stage=stage,
        )  # fmt: skip
        return found, likelihood

    return run(call, parameters, basis, hyper, progress)[0]


def run(
    call: Callable[[Stage, Hyper], tuple[Fit, Likelihood]],
    parameters: Hyper,
    basis: Basis,
    hyper: str,
    progress: ProgressLike,
    *,
    full: bool = True,
) -> tuple[Fit, Likelihood]:
    """Call for a fit with hyperparameters that the basis can hold, and warn where it is too narrow.

    Parameters
    ----------
    call : callable
        From a stage and hyperparameters to a fit and its likelihood.
    parameters : Hyper
    basis : Basis
    hyper : "map" or "integrate"
    progress : bool, Progress, Stage or callable
    full : bool
        Whether full resolution could fit the same observations.
    """
    if hyper not in ("map", "integrate"):
        raise DataError(f"hyper is 'map' or 'integrate'; found {hyper!r}.")
    parameters = _capped(parameters, basis)
    with as_progress(progress).stage("fit") as stage:
        result, likelihood = call(stage, parameters)
        stage.note(f"ELBO {result.elbo:,.1f}")
    if result.missed_share > MISSED_SHARE:
        or_full = f", or {option('m', 'full', python='FullRank')}" if full else ""
        missed, lengthscale = percent(result.missed_share, 1), _length(np.exp(result.hyper_mean[0]), basis)
        warn(
            MissedVarianceWarning(
                f"The {basis.label} miss {missed} of the prior variance at the lengthscale of {lengthscale}: "
                "the map is smoother than the data ask for.",
                option="m",
                found=result.missed_share,
                remedy=f"Use more features ({option('m')}){or_full}.",
            )
        )
    return result, likelihood


def _capped(parameters: Hyper, basis: Basis) -> Hyper:
    """Return the hyperparameters within what the basis can hold."""
    longest, given = basis.longest_lengthscale(parameters.kernel), parameters.kernel.lengthscale
    if given is not None and given > longest:
        warn(
            ConvergenceWarning(
                f"A lengthscale of {_length(given, basis)} is more than {basis.label} can hold at this cell "
                f"size; {_length(longest, basis)} was used.",
                found=given,
                remedy="Use a HarmonicBasis, or larger cells.",
            )
        )
    return parameters.capped(longest)


def _length(value: float, basis: Basis) -> str:
    scale, unit = basis.domain.length_unit
    return f"{number(value / scale, 3)} {unit}"
