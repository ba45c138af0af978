"""Does it vary at all? The evidence for a field on the land against the same model without one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize_scalar

from geobgp.checks.crossval import CrossValidation, too_few_to_hold_out
from geobgp.checks.samples import AreaSample, sample_of
from geobgp.checks.scoring import compared, per_event
from geobgp.data.areas import combine
from geobgp.data.effects import Linearised
from geobgp.errors import CheckWarning, DataError, GeobgpError, warn
from geobgp.inference.families import Binomial
from geobgp.inference.problem import Observed
from geobgp.inference.relinearise import EffectsFit, best_dispersion, fit_area_effects, fit_effects
from geobgp.model import fit_without_field, fixed_sds, hyper_of
from geobgp.text import html_table, number

if TYPE_CHECKING:
    from geobgp.data.measurements import Measurements
    from geobgp.inference.families import Likelihood
    from geobgp.inference.fit import Fit
    from geobgp.posterior import Posterior

#: Log Bayes factors above which a map varies, and below which nothing speaks for it.
STRONG, NONE = 3.0, 0.0
#: Nodes up to which blocks are held out in a few seconds, where nobody has done so before.
FEW_NODES = 20_000


@dataclass(frozen=True)
class Variation:
    """Whether a map varies from place to place, by two measures.

    Attributes
    ----------
    log_bayes_factor : float
        Log evidence of the model with a field, hyperparameters integrated out, less that of the same model without
        it: same covariates, exposure, effort, likelihood and priors.
    score, se : float
        How much better held-out blocks (areas, persons of blocks) are predicted than by the model without a field,
        fitted to all events, in nats per event, and the standard error; NaN where nothing was held out.
    beside : str
        What the model without a field has, in words: "the covariates"; empty where that is one level everywhere.
    level : str
        Where that level is the same: "everywhere", "everywhere in each month".
    what : str
        What varies: "rate" or "risk", "prevalence", "value".
    event : str
        "event", "case" or "site".
    parts : str
        What was held out: "blocks" or "areas".

    Examples
    --------
    >>> flat = Variation(-1.8, score=-0.0227, se=0.0053, what="risk", event="case")
    >>> flat.verdict, flat.fine
    ('no evidence', False)
    >>> print(flat)
    No evidence that the risk varies over the land: log Bayes factor -1.8 against one risk everywhere. What the map \
shows may be chance. Held-out blocks are predicted worse than by one risk everywhere, by 0.0227 ± 0.0053 nats per case.
    """

    log_bayes_factor: float
    score: float = math.nan
    se: float = math.nan
    beside: str = ""
    level: str = "everywhere"
    what: str = "rate"
    event: str = "event"
    parts: str = "blocks"

    @property
    def verdict(self) -> str:
        """The answer in a word or two: "varies" (log Bayes factor above 3), "no evidence" (below 0), "may vary"."""
        if self.log_bayes_factor > STRONG:
            return "varies"
        return "no evidence" if self.log_bayes_factor < NONE else "may vary"

    @property
    def against(self) -> str:
        """What the model without a field says, in words."""
        return f"{self.beside} alone" if self.beside else f"one {self.what} {self.level}"

    @property
    def fine(self) -> bool:
        """Whether it varies, and held-out blocks are not predicted better without the field."""
        return self.verdict == "varies" and not self.score < 0

    @property
    def in_short(self) -> str:
        """The verdict in words without its numbers, for a subtitle."""
        beyond = f" beyond what {self.beside} explain" if self.beside else ""
        if self.verdict == "may vary":
            return f"the {self.what} may vary over the land{beyond}, but the evidence is weak"
        varies = f"the {self.what} varies over the land{beyond}"
        return varies if self.verdict == "varies" else f"no evidence that {varies}"

    @property
    def numbers(self) -> str:
        """The log Bayes factor and the held-out score in words."""
        text = f"log Bayes factor {number(self.log_bayes_factor, 3)} against {self.against}"
        if self.verdict == "may vary":
            text += f", where {number(STRONG)} would be strong"
        elif self.verdict == "no evidence":
            text += ". What the map shows may be chance"
        return " ".join(filter(None, (f"{text}.", self._about_score())))

    @property
    def sentence(self) -> str:
        """The verdict and its numbers in a sentence or two."""
        return f"{self.in_short[0].upper()}{self.in_short[1:]}: {self.numbers}"

    def _about_score(self) -> str:
        if math.isnan(self.score):
            return ""
        text = f"Held-out {self.parts} are predicted {compared(self.score, self.se, self.against, self.event)}."
        if self.verdict == "varies" and not self.fine:
            text += " What varies is local: away from the data the map knows no more than an average."
        return text

    @property
    def tone(self) -> str:
        """How to mark it: "good" where it is fine, "bad" where there is no evidence, else "doubt"."""
        return "good" if self.fine else "bad" if self.verdict == "no evidence" else "doubt"

    def facts(self) -> dict[str, Any]:
        """Return the numbers and the verdict, as JSON can hold them; what is not known is None."""
        return {
            "verdict": self.verdict, "log_bayes_factor": self.log_bayes_factor,
            "score_per_event": None if math.isnan(self.score) else self.score,
            "score_se": None if math.isnan(self.se) else self.se,
            "against": self.against, "fine": self.fine, "tone": self.tone, "in_short": self.in_short,
            "numbers": self.numbers, "sentence": self.sentence,
        }  # fmt: skip

    def __str__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        rows = [("verdict", self.verdict), ("log Bayes factor", number(self.log_bayes_factor, 3))]
        if not math.isnan(self.score):
            held_out = f"{number(self.score, 3)} ± {number(self.se, 2)} nats per {self.event}"
            rows.append(("held-out score", f"{held_out}, above {self.against}"))
        return html_table([*rows, ("", self.sentence)])


def variation(posterior: Posterior, held_out: bool | None = None) -> Variation:
    """Return whether a map varies; see `Posterior.variation`."""
    evidence, checked = _by_evidence(posterior), posterior.fit.notes.get("cross_validation")
    if held_out is False:
        return replace(evidence, score=math.nan, se=math.nan)
    if checked is None and math.isnan(evidence.score) and posterior.periods is None:
        few = posterior.areas is not None or posterior.domain.n_nodes <= FEW_NODES
        if held_out or (few and _observations(posterior) is not None and not too_few_to_hold_out(posterior)):
            # Neighbours of blocks are left as they are: quick, and near enough.
            checked = posterior.cross_validate(rounds=0)
    if checked is None:
        return evidence
    score, se = _score(posterior, _without_field(posterior), checked)
    return replace(evidence, score=score, se=se, parts=checked.what)


def known_variation(posterior: Posterior) -> Variation | None:
    """Return whether a map varies, with what was held out so far and no more; None where it cannot be told."""
    try:
        evidence = _by_evidence(posterior)
        return variation(posterior) if "cross_validation" in posterior.fit.notes else evidence
    except (GeobgpError, np.linalg.LinAlgError):
        return None
    except Exception as error:  # summary, report and file are worth having without it
        text = f"Whether the map varies could not be worked out: {type(error).__name__}: {error}."
        warn(CheckWarning(text))
        return None


def _by_evidence(posterior: Posterior) -> Variation:
    """Return the evidence, worked out once for each fit."""
    notes = posterior.fit.notes
    if "variation" not in notes:
        if posterior.periods is not None:
            _check_known(posterior)
            without = fit_without_field(posterior)
            bound = without.elbo + _of_hyperparameters(posterior, without)
        else:
            bound = _without_field(posterior).bound
        evidence = posterior.elbo + _of_hyperparameters(posterior, posterior.fit)
        notes["variation"] = Variation(evidence - bound, **_words(posterior))
    found: Variation = notes["variation"]
    return found


def _words(posterior: Posterior) -> dict[str, Any]:
    """Return what is compared with what."""
    risk = posterior.exposure_kind == "risk"
    what, event = ("risk" if risk or posterior.exposure_kind == "expected" else "rate"), "case" if risk else "event"
    if posterior.sites is not None:
        what, event = ("rate" if posterior.quantity == "intensity" else posterior.quantity), "site"
    beside, level = "", "everywhere"
    if posterior.design.names:
        confounders = set() if posterior.persons is None else set(posterior.persons.effects.names)
        words = {"covariates": set(posterior.design.names) - confounders, "confounders": confounders}
        beside = f"the {' and '.join(word for word, names in words.items() if names)}"
    if posterior.periods is not None:
        noun = posterior.periods.noun
        level = f"everywhere in each {noun}"
        beside = f"the covariates and a level of each {noun}" if beside else ""
    return {"beside": beside, "level": level, "what": what, "event": event}


def _of_hyperparameters(posterior: Posterior, fit: Fit) -> float:
    """Return what the log evidence is above the bound at the best hyperparameters, by Laplace's approximation."""
    hyper, theta = hyper_of(posterior), fit.hyper_mean
    if posterior.periods is not None:
        hyper = hyper.over_periods(posterior.n_periods, len(theta) > len(hyper.names) + 1)
    learned = np.diag(fit.hyper_cov) > 0
    hyper = hyper.held(theta, tuple(np.array(hyper.names)[~learned]))
    covariance = fit.hyper_cov[np.ix_(learned, learned)]
    return hyper.log_prior(theta)[0] + 0.5 * float(np.linalg.slogdet(2.0 * np.pi * covariance)[1])


# -- the model without a field


def _observations(posterior: Posterior) -> Any:
    """Return what a posterior was fitted to; None where it does not know."""
    if posterior.exposure_kind == "risk":
        return posterior.persons
    if posterior.sites is not None or not posterior.is_summed:
        return posterior.sites
    return posterior.observed if posterior.areas is None else posterior.areas


def _check_known(posterior: Posterior) -> None:
    """Refuse a posterior that does not know what it was fitted to."""
    if _observations(posterior) is None:
        what = "counts" if posterior.is_summed else "values"
        if posterior.exposure_kind == "risk":
            what = "persons (files keep none with confounders)"
        raise DataError(
            f"Whether this map varies cannot be determined: it does not have the {what} that it was made of.",
            remedy="Call variation() on the fit itself, before it is saved: the file then keeps the answer.",
        )
    if posterior.periods is None and len(posterior.fit.hyper_mean) > len(hyper_of(posterior).names):
        raise DataError(
            "Whether a map over time varies is asked of all periods together, not of one.",
            remedy="Call variation() on the posterior that this period was taken from.",
        )


def _without_field(posterior: Posterior) -> EffectsFit:
    """Return the fit of the same model without a field, made once for each fit."""
    notes = posterior.fit.notes
    if "without_field" not in notes:
        _check_known(posterior)
        notes["without_field"] = _fit_without_field(posterior)
    effects_fit: EffectsFit = notes["without_field"]
    return effects_fit


def known_without_field(posterior: Posterior) -> np.ndarray | None:
    """Return the means of intercept and effects without a field, worked out once; None where that cannot be told."""
    notes = posterior.fit.notes
    if "means_without_field" not in notes:
        try:
            if posterior.periods is None:
                mean = _without_field(posterior).mean
            else:
                _check_known(posterior)
                mean = fit_without_field(posterior).states[0].coefficients()[0]
        except (GeobgpError, np.linalg.LinAlgError):
            return None
        notes["means_without_field"] = mean
    found: np.ndarray = notes["means_without_field"]
    return found


def _fit_without_field(posterior: Posterior) -> EffectsFit:
    if posterior.exposure_kind == "risk":
        groups, state = posterior.persons, posterior.fit.states[0]
        assert groups is not None
        design = groups.design(state.fixed)  # type: ignore[attr-defined]
        binomial: Any = Binomial.without_data({"offset": groups.offset + groups.log_effort, "link": "exp"})
        binomial = binomial.of(groups.cases, groups.telling)
        return fit_effects(binomial, design, posterior._fixed_sd)
    if posterior.sites is not None:
        return _sites_without_field(posterior, posterior.sites)
    own: Any = posterior.fit.states[0]
    # Columns of levels that share nodes are held, as they were linearised with the field.
    at, centre = Linearised(own.fixed, own.offset), own.centre
    columns, sds = at.columns, posterior._fixed_sd
    seen, values = (posterior.seen_exposure * (1.0 if at.offset is None else np.exp(at.offset)), posterior.observed)

    def fit(family: Likelihood) -> EffectsFit:
        if posterior.areas is None:
            assert values is not None
            return fit_effects(family.of(values, seen, centre), columns, sds)
        rows = combine(posterior.areas, posterior.exposure, posterior.effort)
        observed = Observed(rows.counts, rows.exposure, rows.hidden, rows.interval).about(at)
        return fit_area_effects(
            lambda exposure: observed.likelihood(exposure, family, centre), observed, columns, sds, centre
        )

    return best_dispersion(fit, posterior.likelihood)


def _sites_without_field(posterior: Posterior, sites: Measurements) -> EffectsFit:
    state: Any = posterior.fit.states[0]
    design = state.fixed[posterior.domain.node_at(sites.coords)] if sites.columns is None else sites.columns
    sds = fixed_sds(posterior)

    def fit(family: Likelihood) -> EffectsFit:
        return fit_effects(family.of(sites.values, sites.size, state.centre), design, sds)

    hyper, theta = hyper_of(posterior), posterior.fit.hyper_mean
    at = hyper.noise_at
    if at is None or not posterior.fit.hyper_cov[at, at] > 0:
        return best_dispersion(fit, posterior.likelihood)
    # The noise is integrated out as it is with a field.
    only = hyper.held(theta, (*hyper.names[:at], *hyper.names[at + 1 :]))

    def value(log_noise: float) -> float:
        prior = only.log_prior(np.where(np.arange(len(theta)) == at, log_noise, theta))[0]
        return fit(posterior.likelihood.with_dispersion(math.exp(log_noise))).bound + prior

    ends = hyper.lower[at], hyper.upper[at]
    best = float(minimize_scalar(lambda x: -value(x), bounds=ends, method="bounded", options={"xatol": 1e-4}).x)
    highest, step = value(best), 0.05
    bend = (2.0 * highest - value(best + step) - value(best - step)) / step**2
    without = fit(posterior.likelihood.with_dispersion(math.exp(best)))
    return replace(without, bound=highest + 0.5 * math.log(2.0 * math.pi / bend))


def _score(posterior: Posterior, without: EffectsFit, checked: CrossValidation) -> tuple[float, float]:
    """Return how far held-out blocks are predicted above the model without a field, per event, and its error."""
    if not posterior.design.names and posterior.likelihood.dispersion is None:
        return checked.score, checked.se  # above one rate everywhere
    sample = sample_of(posterior)
    log_p = without.log_p[sample.rows] if isinstance(sample, AreaSample) else without.log_p
    owner = np.arange(len(log_p)) if isinstance(sample, AreaSample) else checked.block_of[sample.node]
    inside = owner >= 0
    each = np.bincount(owner[inside], (log_p + sample.constant)[inside], len(checked.scored))
    return per_event(checked.scored["log_density"].to_numpy() - each, checked.weights.to_numpy())
