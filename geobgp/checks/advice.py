"""Advice: what to try where left-out blocks are predicted badly, in the order that the fit's own evidence suggests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtri

from geobgp.errors import CheckWarning, option
from geobgp.prior.base import MISSED_SHARE
from geobgp.text import number, percent

if TYPE_CHECKING:
    from geobgp.checks.crossval import CrossValidation
    from geobgp.posterior import Posterior


class Advice(NamedTuple):
    """Something to try, and how strongly the fit speaks for it: 0 is not at all, 1 strongly."""

    evidence: float
    words: str


def what_to_try(posterior: Posterior, checked: CrossValidation) -> list[Advice]:
    """Return what might mend a map, what its own numbers speak for first.

    Options are named with `geobgp.errors.option`, to be said in the words of whoever shows them.
    """
    risk = posterior.exposure_kind == "risk"
    found = [
        *_resolution(posterior),
        *_water(posterior, checked),
        *_crowds(posterior),
        *_pattern(checked, risk),
    ]
    return sorted(found, key=lambda one: -one.evidence)


def check_warning(posterior: Posterior, checked: CrossValidation) -> CheckWarning | None:
    """Return the warning of a map whose checks fail, in one sentence and what to try first; None if they hold."""
    failures = checked.failures()
    if not failures:
        return None
    first = what_to_try(posterior, checked)[0].words
    return CheckWarning(failures[0], found=checked.coverage, remedy=f"Try {first}.")


def _resolution(posterior: Posterior) -> Iterator[Advice]:
    if posterior.basis.truncated and posterior.areas is None:
        missed = posterior.fit.missed_share
        why = f"the {posterior.basis.label} miss {percent(missed, 1)} of the prior variance"
        full = option("m", "full", python="FullRank, or m='full'")
        yield Advice(0.2 + missed / MISSED_SHARE, f"full resolution ({full}): {why}")


def _water(posterior: Posterior, checked: CrossValidation) -> Iterator[Advice]:
    """Speak for permeable water where blocks at the shore are worse than others."""
    basis, domain = posterior.basis, posterior.domain
    shore = domain.node_areas < 0.999 * np.median(domain.node_areas)
    if basis.boundary != "neumann" or basis.permeability > 0 or not shore.any():
        return
    inside = checked.block_of >= 0
    n = len(checked.blocks)
    wet = np.bincount(checked.block_of[inside], shore[inside], n) > 0
    strays = _normal_scores(checked) ** 2
    ratio, why = 1.0, "it is closed here, and nothing is known across it"
    if 3 <= wet.sum() <= n - 3:
        ratio = float(np.sqrt(strays[wet].mean() / max(strays[~wet].mean(), 1e-12)))
    if ratio > 1.1:
        why = f"blocks at the shore stray {number(ratio, 2)} times as far as those inland"
    elif domain.water_geometry is None and domain.n_components == 1:
        return
    told = option("permeability", "auto", python="permeability=0.3 or 1")
    yield Advice(float(np.clip(ratio - 1.0, 0.05, 2.0)), f"water that information may cross ({told}): {why}")


def _crowds(posterior: Posterior) -> Iterator[Advice]:
    """Speak for smaller cells where more events share a node than the posterior expects."""
    y = posterior.observed
    if y is None:
        return
    mean, variance = posterior._nodes.exp_moments()
    expected = float(np.sum(posterior.seen_exposure**2 * (mean**2 + variance)))
    pairs = float(np.sum(np.maximum(y * (y - 1.0), 0.0)))
    ratio = pairs / expected if expected > 0 else 1.0
    if ratio > 1.1:
        yield Advice(
            min(ratio - 1.0, 2.0),
            f"smaller cells ({option('cell_size')}), and a look at places with many events on one spot: pairs of "
            f"events within a cell are {number(ratio, 2)} times as many as the map expects",
        )


def _pattern(checked: CrossValidation, risk: bool) -> Iterator[Advice]:
    """Speak for covariates where neighbouring blocks err alike."""
    centre = np.array([[p.x, p.y] for p in checked.blocks.geometry.representative_point()])
    score = _normal_scores(checked)
    gap = np.hypot(*(centre[:, None] - centre).transpose(2, 0, 1))
    np.fill_diagonal(gap, np.inf)
    near = gap < 1.25 * np.median(gap.min(axis=1))
    deviation = score - score.mean()
    products = deviation[:, None] * deviation
    alike = float(products[near].mean() / max(float(np.mean(deviation**2)), 1e-12)) if near.any() else 0.0
    what = f"covariates that explain where events happen ({option('covariates')})"
    why = ", or an exposure"
    if risk:
        what, why = f"what else may explain who falls ill ({option('confounders')})", ""
    if alike > 0.1:
        why = f": neighbouring blocks err alike (correlation {number(alike, 2)})"
    yield Advice(
        0.1 + 2.0 * max(alike, 0.0),
        f"{what}{why}",
    )


def _normal_scores(checked: CrossValidation) -> np.ndarray:
    return np.asarray(ndtri(np.clip(checked.pit, 1e-4, 1.0 - 1e-4)))
