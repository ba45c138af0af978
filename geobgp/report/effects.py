"""What covariates do, as the report shows it: a table of effects, and all curves in one picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from geobgp.checks.effects import covariate_values, curves_of, effect_curve, effect_levels, levels_of
from geobgp.inference.mixture import interval_in
from geobgp.output.figures import plot_effect, plot_levels
from geobgp.report.figures import done, new_figure
from geobgp.text import number, ratio_text

if TYPE_CHECKING:
    import pandas as pd

    from geobgp.posterior import Posterior

#: Curves beside each other, and at most in all.
_BESIDE, _MOST_CURVES = 2, 12


def effect_facts(posterior: Posterior) -> dict[str, Any]:
    """Return head, rows and sentences of the table of effects, and the picture of their curves."""
    frame = posterior.effects(evidence=True)
    curves = [*curves_of(posterior), *levels_of(posterior)]
    return {
        "effect_table": table_of(frame),
        "effect_sentences": frame.attrs["sentences"],
        "effect_curves": _picture(posterior, curves[:_MOST_CURVES]) if curves else None,
        "more_curves": max(len(curves) - _MOST_CURVES, 0),
    }


def table_of(frame: pd.DataFrame) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return head and rows of a table of effects, in words.

    Examples
    --------
    >>> import pandas as pd
    >>> row = {"covariate": "rain", "effect": "line: per unit", "from": 3.0, "to": 4.0, "unit": "mm", "rate_ratio": 1.5}
    >>> table_of(pd.DataFrame([row | {"rate_ratio_q05": 1.25, "rate_ratio_q95": 1.75}]))[1]
    [('rain', 'line: per unit', '3 to 4 mm', '1.5', '1.25 to 1.75')]
    """
    scale = next(name for name in ("rate_ratio", "odds_ratio", "risk_ratio", "difference") if name in frame)
    ends, show = interval_in(frame.columns, scale), _three if scale == "difference" else ratio_text
    head = ["Covariate", "Effect", "From, to", scale.replace("_", " ").capitalize()]
    columns = [
        frame["covariate"].tolist(),
        frame["effect"].tolist(),
        [_ends(row) for row in frame.to_dict("records")],
        [_told(value, show) for value in frame[scale]],
    ]
    if ends is not None:
        head.append(f"{ends.words} interval")
        columns.append([_between(low, high, show) for low, high in zip(frame[ends.low], frame[ends.high], strict=True)])
    if "without_field" in frame:
        head.append("Without the field")
        columns.append([_told(value, show) for value in frame["without_field"]])
    if "tau" in frame:
        head.append("sd of the effects")
        columns.append([_told(value) for value in frame["tau"]])
    for name, words in (("evidence", "Evidence, nats"), ("evidence_curve", "for the curve")):
        if name in frame:
            head.append(words)
            columns.append([_told(value) for value in frame[name]])
    return tuple(head), list(zip(*columns, strict=True))


def _three(value: float) -> str:
    return number(value, 3)


def _told(value: float, show: Callable[[float], str] = _three) -> str:
    return "" if value is None or math.isnan(value) else show(float(value))


def _between(low: float, high: float, show: Callable[[float], str]) -> str:
    return "" if math.isnan(low) else f"{show(float(low))} to {show(float(high))}"


def _ends(row: dict[str, Any]) -> str:
    """Return what an effect is between, with its unit."""
    one, two = row["from"], row["to"]
    if one is None or (isinstance(one, float) and math.isnan(one)):
        return ""
    if isinstance(one, int | float | np.number):
        return f"{number(float(one), 3)} to {number(float(two), 3)} {row.get('unit') or ''}".strip()
    return f"{one} to {two}"


def _picture(posterior: Posterior, names: list[str]) -> str:
    """Return the effects of covariates in one picture: curves, and levels below each other."""
    down = math.ceil(len(names) / _BESIDE)
    figure = new_figure((4.6 * min(_BESIDE, len(names)), 3.4 * down))
    axes = np.ravel(figure.subplots(down, min(_BESIDE, len(names)), squeeze=False))
    curves = curves_of(posterior)
    for name, ax in zip(names, axes, strict=False):
        if name not in curves:
            plot_levels(effect_levels(posterior, name), name, posterior.link.ratio, ax)
            continue
        unit = posterior.design.block(name).unit
        label = f"{name}, {unit}" if unit else name
        plot_effect(effect_curve(posterior, name), covariate_values(posterior, name), label, posterior.link.ratio, ax)
    for ax in axes[len(names) :]:
        ax.set_axis_off()
    return done(figure)
