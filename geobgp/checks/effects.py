"""What covariates do: a table of effects on the scale people report, curves, and what the map would be under others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from geobgp.checks.variation import known_without_field
from geobgp.data.effects import Block, Effects, by_name, fixed_effects, level_word, matching_level
from geobgp.data.sources import Reading
from geobgp.errors import DataError, InputWarning, warn
from geobgp.inference.mixture import NormalMixture, quantile_name
from geobgp.summary import weights_of
from geobgp.text import listed, number

if TYPE_CHECKING:
    from geobgp.posterior import Posterior

#: Standard errors by which a coefficient without the field may differ from that with it.
CONFOUNDED = 2.0
#: Share of a covariate's range beyond its data from which a question is said to be beyond them.
_BEYOND = 0.02


def effect_table(
    posterior: Posterior, evidence: bool = False, per: str | Mapping[str, tuple[float, ...]] = "quartiles"
) -> pd.DataFrame:
    """Return what each covariate does; see `Posterior.effects`."""
    if not posterior.design.blocks:
        raise DataError(
            "This map was made without covariates.", option="covariates", remedy="Give covariates to the model."
        )
    if not isinstance(per, str):
        for name in per:
            _along(posterior, name, "per")
    rows = [row for block in posterior.design.blocks for row in _rows(posterior, block, per)]
    ratio = posterior.link.ratio
    change = np.exp if ratio is not None else lambda values: values
    low, middle, high = posterior.quantiles
    contrasts = np.array([contrast for *_, contrast in rows])
    mixture = _mixture(posterior, contrasts)
    frame = pd.DataFrame([row[:4] for row in rows], columns=["covariate", "effect", "from", "to"])
    if any(block.unit for block in posterior.design.blocks):
        frame["unit"] = [block.unit for block in _blocks_of(posterior, frame)]
    frame[_scale(posterior)] = change(mixture.quantile(middle))
    for q in (low, high):
        frame[f"{_scale(posterior)}_{quantile_name(q)}"] = change(mixture.quantile(q))
    taus = _learned(posterior)
    if taus:
        for column in ("tau", f"tau_{quantile_name(low)}", f"tau_{quantile_name(high)}"):
            frame[column] = [taus[name][column] if name in taus else np.nan for name in frame["covariate"]]
    frame.attrs["sentences"] = _add_without_field(posterior, frame, contrasts, mixture)
    if evidence:
        frame["evidence"] = [_evidence(posterior, block, straight=False) for block in _blocks_of(posterior, frame)]
        if any(block.spline is not None for block in posterior.design.blocks):
            frame["evidence_curve"] = [
                _evidence(posterior, block, straight=True) if block.spline is not None else np.nan
                for block in _blocks_of(posterior, frame)
            ]
    return frame


def _blocks_of(posterior: Posterior, frame: pd.DataFrame) -> list[Block]:
    return [posterior.design.block(name) for name in frame["covariate"]]


def _scale(posterior: Posterior) -> str:
    ratio = posterior.link.ratio
    return "difference" if ratio is None else ratio.replace(" ", "_")


def _columns_of(effects: Effects, block: Block) -> np.ndarray:
    """Return which of the columns are a block's, the intercept being the first."""
    return 1 + effects.where(block.covariate)


def _own(posterior: Posterior, block: Block) -> np.ndarray:
    """Return the block's own values at the nodes, of all periods one after the other.

    Of persons a file keeps none, nor where small numbers are hidden: then about what quartiles are of normal values.
    """
    effects = posterior.design
    which, columns = _columns_of(effects, block), effects.columns
    if not columns.shape[-2]:  # of a file
        if not _knows_columns(posterior):
            return np.asarray(block.means + ndtri(np.linspace(0.025, 0.975, 101))[:, None] * block.scales)
        columns = columns_of(posterior)
    columns = columns[..., which].reshape(-1, len(which))
    return np.asarray(columns * block.scales + block.means)


def _knows_columns(posterior: Posterior) -> bool:
    """Whether the states know the covariates at the nodes."""
    state = posterior.fit.states[0]
    return posterior.exposure_kind != "risk" and (hasattr(state, "columns") or hasattr(state, "fixed"))


def columns_of(posterior: Posterior) -> np.ndarray:
    """Return the columns at the nodes that the states know, the intercept's first."""
    state: Any = posterior.fit.states[0]
    columns = np.asarray(state.columns if hasattr(state, "columns") else state.fixed)
    missing = 1 + len(posterior.design.terms) - columns.shape[-1]
    if missing > 0:  # of a model around zero: no intercept
        columns = np.concatenate([np.ones((*columns.shape[:-1], missing)), columns], axis=-1)
    return columns[..., : 1 + len(posterior.design.terms)]


def _rows(
    posterior: Posterior, block: Block, per: str | Mapping[str, tuple[float, ...]]
) -> list[tuple[str, str, Any, Any, np.ndarray]]:
    """Return covariate, effect, from, to, and the contrast of standardised columns, of each row."""
    effects = posterior.design
    which, size = _columns_of(effects, block), 1 + len(effects.terms)

    def contrast(change: np.ndarray) -> np.ndarray:
        out = np.zeros(size)
        out[which] = change
        return out

    eye = np.eye(len(which))
    if block.parents and block.sd == "learned":
        crossed = " x ".join(block.parents)
        return [(block.covariate, f"interaction: {crossed}", None, None, np.full(size, np.nan))]
    if block.parents:
        sizes = [_parent_steps(posterior, effects.block(name), per) for name in block.parents]
        steps = np.outer(*sizes).ravel() / block.scales
        crossed = " x ".join(block.parents)
        return [
            (block.covariate, f"interaction: {term.part or crossed}", None, None, contrast(step * eye[j]))
            for j, (term, step) in enumerate(zip(block.terms, steps, strict=True))
        ]
    if block.kind == "group":
        mean = _moments(posterior)[0][which]
        low, high = int(np.argmin(mean)), int(np.argmax(mean))
        lowest, highest = (str(block.terms[j].part) for j in (low, high))
        return [(block.covariate, "groups: lowest to highest", lowest, highest, contrast(eye[high] - eye[low]))]
    if block.terms[0].level is not None:
        return [
            (block.covariate, "level", term.reference, term.level, contrast(eye[j] / block.scales[j]))
            for j, term in enumerate(block.terms)
        ]
    ends, how = _ends(posterior, block, per)
    between = np.diff(block_columns(block, ends), axis=0)[0]
    kind = "line" if block.spline is None else "curve"
    return [(block.covariate, f"{kind}: {how}", float(ends[0]), float(ends[1]), contrast(between))]


def _ends(posterior: Posterior, block: Block, per: str | Mapping[str, tuple[float, ...]]) -> tuple[np.ndarray, str]:
    """Return the values of a number that its effect is between, and what they are."""
    own = _own(posterior, block)[:, 0]
    middle = float(np.median(own))
    if not isinstance(per, str) and block.covariate in per:
        step = per[block.covariate]
        if len(step) == 2:
            return np.array(step), "between two values"
        return np.array([middle, middle + step[0]]), f"per {number(step[0])}"
    if per == "unit":
        return np.array([middle, middle + 1.0]), "per unit"
    ends = np.quantile(own, [0.25, 0.75])
    if ends[0] == ends[1]:
        return np.array([ends[0], ends[0] + block.scales[0]]), "per standard deviation"
    return ends, "between quartiles"


def _parent_steps(posterior: Posterior, block: Block, per: str | Mapping[str, tuple[float, ...]]) -> np.ndarray:
    """Return the steps of a covariate's standardised terms that an interaction is reported for."""
    if block.terms[0].level is not None:
        return np.asarray(1.0 / block.scales)
    return np.asarray(np.diff(_ends(posterior, block, per)[0]) / block.scales)


def block_columns(block: Block, values: np.ndarray) -> np.ndarray:
    """Return the standardised columns of a slope or a curve at values of its covariate."""
    own = np.asarray(values, float)[:, None]
    if block.spline is not None:
        own = np.column_stack([own, block.spline.values(np.asarray(values, float))])
    return np.asarray((own - block.means) / block.scales)


def _coefficients(posterior: Posterior) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return mean and covariance of intercept and effects of each state; those of a season are left out."""
    size, out = 1 + len(posterior.design.terms), []
    for state in posterior.fit.states:
        mean, covariance = state.coefficients()
        missing = size - len(mean)
        if missing > 0:  # of a model around zero: no intercept
            mean = np.concatenate([np.zeros(missing), mean])
            covariance = np.pad(covariance, ((missing, 0), (missing, 0)))
        out.append((mean[:size], covariance[:size, :size]))
    if len(out) == 1 and (columns := posterior.design.learned):
        # Standard deviations that are learned are not certain: d mean / d log τ = 2 V Λ mean, Λ the prior precision.
        ((mean, covariance),) = out
        moved = np.array(
            [2.0 * covariance[:, at] @ (mean[at] / posterior._fixed_sd[at] ** 2) for at in columns.values()]
        )
        uncertain = posterior.fit.hyper_cov[-len(columns) :, -len(columns) :]
        out = [(mean, covariance + moved.T @ uncertain @ moved)]
    return out


def _moments(posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
    weights, pairs = weights_of(posterior.fit.states), _coefficients(posterior)
    mean = np.einsum("s,sk->k", weights, np.array([m for m, _ in pairs]))
    spread = [v + np.outer(m - mean, m - mean) for m, v in pairs]
    return mean, np.einsum("s,sij->ij", weights, np.array(spread))


def _mixture(posterior: Posterior, contrasts: np.ndarray) -> NormalMixture:
    """Return the posterior of contrasts of the coefficients, a row each."""
    pairs = _coefficients(posterior)
    return NormalMixture(
        weights_of(posterior.fit.states),
        np.array([contrasts @ mean for mean, _ in pairs]),
        np.array([np.einsum("ij,jk,ik->i", contrasts, v, contrasts) for _, v in pairs]),
    )


def _learned(posterior: Posterior) -> dict[str, dict[str, float]]:
    """Return the standard deviation of the effects of each covariate that is learned, with its interval."""
    fit, names = posterior.fit, list(posterior.design.learned)
    first, out = len(fit.hyper_mean) - len(names), {}
    for i, name in enumerate(names, start=first):
        mean, sd = float(fit.hyper_mean[i]), math.sqrt(float(fit.hyper_cov[i, i]))
        low, _, high = posterior.quantiles
        out[name] = {"tau": math.exp(mean)} | {
            f"tau_{quantile_name(q)}": math.exp(mean + float(ndtri(q)) * sd) if sd > 0.0 else math.nan
            for q in (low, high)
        }
    return out


def _add_without_field(
    posterior: Posterior, frame: pd.DataFrame, contrasts: np.ndarray, mixture: NormalMixture
) -> list[str]:
    """Add what the covariates do in a model without a field, and say where it differs much."""
    mean = known_without_field(posterior)
    if mean is None:
        return []
    size = contrasts.shape[1]
    change = np.exp if posterior.link.ratio is not None else lambda values: values
    without, sd = contrasts @ mean[:size], np.sqrt(mixture.moments()[1])
    frame["without_field"] = change(without)
    frame["differs_by_se"] = (without - mixture.moments()[0]) / np.maximum(sd, 1e-300)
    far = frame[np.abs(frame["differs_by_se"]) > CONFOUNDED]
    sentences = []
    for row in far.itertuples():
        estimate = getattr(row, _scale(posterior))
        sentences.append(
            f"The effect of {row.covariate} is {number(estimate)} with the field and {number(row.without_field)} "
            "without it: the field and the covariate explain the same variation, and neither number should be reported "
            "without the other."
        )
    return sentences


def _evidence(posterior: Posterior, block: Block, *, straight: bool) -> float:
    """Return the log evidence for an effect, or for a curve against a line: prior over posterior density at no effect.

    The standard deviation of a curve or a group is integrated out by Laplace's approximation; NaN where its own
    uncertainty is not known.
    """
    effects = posterior.design
    which = _columns_of(effects, block)
    if straight:
        which = which[block.learned]
    best = posterior.fit.states[0]
    mean, covariance = best.coefficients()
    shift = 1 + len(effects.terms) - len(mean)
    at = which - max(shift, 0)
    prior = posterior._fixed_sd[which] ** 2
    own = covariance[np.ix_(at, at)]
    log_posterior = -0.5 * float(mean[at] @ np.linalg.solve(own, mean[at])) - 0.5 * float(np.linalg.slogdet(own)[1])
    out = -0.5 * float(np.log(prior).sum()) - log_posterior
    names = list(effects.learned)
    if block.covariate in names:
        fit = posterior.fit
        i = len(fit.hyper_mean) - len(names) + names.index(block.covariate)
        log_tau, variance = float(fit.hyper_mean[i]), float(fit.hyper_cov[i, i])
        if not variance > 0.0:  # held, or of a fit that ended before its curvature was known
            return math.nan
        log_prior = math.log(block.rate) + log_tau - block.rate * math.exp(log_tau)
        out += log_prior + 0.5 * math.log(2.0 * math.pi * variance)
    return out


def effect_curve(posterior: Posterior, name: str, n: int = 101) -> pd.DataFrame:
    """Return the effect of a covariate along its values; see `Posterior.effect_curve`."""
    block = _along(posterior, name, "name")
    own = _own(posterior, block)[:, 0]
    values = np.linspace(float(own.min()), float(own.max()), n)
    contrasts = np.zeros((n, 1 + len(posterior.design.terms)))
    contrasts[:, _columns_of(posterior.design, block)] = block_columns(block, values)
    mixture = _mixture(posterior, contrasts)
    change = np.exp if posterior.link.ratio is not None else lambda values: values
    frame = pd.DataFrame({"value": values})
    for q in posterior.quantiles:
        frame[quantile_name(q)] = change(mixture.quantile(q))
    return frame


def effect_levels(posterior: Posterior, name: str) -> pd.DataFrame:
    """Return the effect of each level against the reference, or of each group against their average, the lowest first.

    The reference is among the levels, without an interval.
    """
    block = _known_block(posterior, name)
    if block.parents:
        raise DataError(
            f"{name!r} is an interaction, of which there is no figure.",
            option="name",
            found=name,
            remedy="Its effects are in effects().",
        )
    which = _columns_of(posterior.design, block)
    contrasts = np.zeros((len(which), 1 + len(posterior.design.terms)))
    grouped = block.kind == "group"
    contrasts[np.arange(len(which)), which] = 1.0 if grouped else 1.0 / block.scales
    mixture, ratio = _mixture(posterior, contrasts), posterior.link.ratio is not None
    change, same = (np.exp, 1.0) if ratio else (lambda values: values, 0.0)
    named = [str(term.part if grouped else term.level) for term in block.terms]
    values = {quantile_name(q): change(mixture.quantile(q)) for q in posterior.quantiles}
    frame = pd.DataFrame({"level": named} | values)
    if not grouped:
        frame.loc[len(frame)] = [str(block.terms[0].reference), np.nan, same, np.nan]
    out = frame.sort_values(frame.columns[2], kind="stable", ignore_index=True)
    out.attrs["against"] = "the average of the groups" if grouped else str(block.terms[0].reference)
    return out


def curves_of(posterior: Posterior) -> list[str]:
    """Return which covariates are numbers, with an effect along their values."""
    return [block.covariate for block in posterior.design.blocks if not (block.parents or _has_levels(block))]


def levels_of(posterior: Posterior) -> list[str]:
    """Return which covariates are levels or groups."""
    return [block.covariate for block in posterior.design.blocks if not block.parents and _has_levels(block)]


def _has_levels(block: Block) -> bool:
    return block.kind == "group" or block.terms[0].level is not None


def _along(posterior: Posterior, name: str, what: str) -> Block:
    """Return the block of a number; refuse what has no effect along its values."""
    block = _known_block(posterior, name, what)
    if name not in curves_of(posterior):
        raise DataError(
            f"The covariate {name!r} has no curve: it is {_what(block)}.",
            option=what,
            found=name,
            remedy="Its effects are in effects().",
        )
    return block


def _what(block: Block) -> str:
    return "an interaction" if block.parents else f"of {'groups' if block.kind == 'group' else 'levels'}"


def _known_block(posterior: Posterior, name: str, what: str = "name") -> Block:
    if name not in posterior.design.covariates:
        raise DataError(
            f"The model has no covariate {name!r}; it has {listed(posterior.design.covariates) or 'none'}.",
            option=what,
            found=name,
        )
    return posterior.design.block(name)


def covariate_values(posterior: Posterior, name: str, n: int = 101) -> np.ndarray:
    """Return quantiles of a covariate over the nodes."""
    return np.asarray(np.quantile(_own(posterior, _known_block(posterior, name))[:, 0], np.linspace(0, 1, n)))


def what_if(posterior: Posterior, covariates: Mapping[str, Any]) -> Posterior:
    """Return the map under other covariates; see `Posterior.what_if`."""
    effects, domain = posterior.design, posterior.domain
    if effects.blocks and not effects.columns.shape[-2] and _knows_columns(posterior):
        best: Any = posterior.fit.states[0]
        if best.offset is None:  # else levels that share nodes have been linearised
            effects = replace(effects, columns=columns_of(posterior))
            posterior = replace(posterior, design=effects)
    if not effects.blocks or effects.columns.shape[-2] != domain.n_nodes:
        raise DataError(
            "This map does not know its covariates at the nodes.",
            option="covariates",
            remedy="Ask the fit itself, of a model with covariates.",
        )
    words = [f"{name} {number(v) if isinstance(v, int | float) else v}" for name, v in covariates.items()
             if isinstance(v, int | float | str)]  # fmt: skip
    own = effects.columns[..., 1:] * effects.scales + effects.means
    given = by_name(effects, own) | {name: _given(posterior, str(name), value) for name, value in covariates.items()}
    periods = posterior.periods
    changed = fixed_effects(given, Reading(domain, periods=periods, time=None if periods is None else ""), effects)
    for name in covariates:
        _tell_beyond(posterior, changed, str(name))
    states: list[Any] = list(posterior.fit.states)
    for i, state in enumerate(states):
        mean, covariance = state.coefficients()
        size = 1 + len(effects.terms)
        missing = max(size - len(mean), 0)
        at = changed.linearised(
            np.pad(mean, (missing, 0))[:size], np.pad(covariance, ((missing, 0), (missing, 0)))[:size, :size]
        )
        columns = at.columns[..., missing:]
        known = {"columns": columns, "known": None} if hasattr(state, "clock") else {"fixed": columns}
        states[i] = replace(state, offset=at.offset, **known)
    title = ", ".join([posterior.title or posterior.default_title, *([f"if {'; '.join(words)}"] if words else [])])
    return replace(
        posterior,
        fit=replace(posterior.fit, states=tuple(states)),
        design=changed,
        title=title,
        observed=None,
        areas=None,
        places=None,
        persons=None,
    )


def _given(posterior: Posterior, name: str, value: Any) -> Any:
    """Return a covariate at the nodes that is the same everywhere as an array; anything else as it is."""
    block = _known_block(posterior, name, "covariates")
    if block.parents:
        raise DataError(
            f"{name!r} is an interaction, which follows from {listed(block.parents)}.",
            option="covariates",
            found=name,
            remedy="Give these.",
        )
    n, levels = posterior.domain.n_nodes, posterior.design.levels(name)
    if levels and isinstance(value, str | int | float | np.generic | np.ndarray | list):
        given = np.ravel(np.asarray(value, dtype=object))
        for one in given.tolist():
            if matching_level(one, levels) is None:
                raise DataError(
                    f"The covariate {name!r} has no level {level_word(one)!r}; its levels are {listed(levels, 50)}.",
                    option="covariates",
                    found=one,
                    remedy="Give one of these.",
                )
        words = np.array([matching_level(one, levels) for one in given.tolist()], dtype=object)
        return words if len(words) == n else np.full(n, words[0], dtype=object)
    if isinstance(value, int | float | np.integer | np.floating):
        return np.full(n, float(value))
    return value


def _tell_beyond(posterior: Posterior, changed: Effects, name: str) -> None:
    """Tell how far numbers lie outside those that the effect was learned from."""
    block = posterior.design.block(name)
    if _has_levels(block):
        return
    which = _columns_of(posterior.design, block)[0]
    before = _own(posterior, block)[:, 0]
    after = changed.columns[..., which] * block.scales[0] + block.means[0]
    low, high = float(before.min()), float(before.max())
    beyond = max(low - float(after.min()), float(after.max()) - high)
    if beyond > _BEYOND * (high - low):
        share, unit = float(((after < low) | (after > high)).mean()), f" {block.unit}" if block.unit else ""
        warn(
            InputWarning(
                f"{name} reaches {number(beyond)}{unit} beyond the {number(low)} to {number(high)}{unit} that its "
                f"effect was learned from, on {number(100 * share, 3)} % of the nodes: the map there goes on along a "
                "straight line.",
                option="covariates",
                found=beyond,
            )
        )
