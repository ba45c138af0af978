"""Figures of what is compared: a map with a threshold, a map with another map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geobgp.errors import DataError, option
from geobgp.output import palette
from geobgp.output.plot_parts import hatch_cells, show_cells
from geobgp.text import percent

if TYPE_CHECKING:
    import matplotlib.axes

    from geobgp.checks.excursions import Excursion
    from geobgp.checks.versus import Versus


def plot_excursion(
    found: Excursion, ax: matplotlib.axes.Axes | None = None, *, title: str | None = None, **kwargs: Any
) -> matplotlib.axes.Axes:
    """Draw the regions that surely lie above and below a threshold, and what is between.

    Parameters
    ----------
    found : Excursion
    ax : Axes, optional
        By default a new figure's.
    title : str, optional
        By default what is shown.
    **kwargs
        Passed to `show_cells`.
    """
    data = found.to_dataset()
    options: dict[str, Any] = {
        "classes": palette.excursion_classes(),
        "label": f"all of it at once, {percent(found.probability)}",
        "title": data.attrs["title"] if title is None else title,
    }
    return show_cells(found.domain, data["excursion"].values, ax, **options | kwargs)


def plot_versus(
    compared: Versus,
    ax: matplotlib.axes.Axes | None = None,
    *,
    variable: str = "ratio",
    title: str | None = None,
    **kwargs: Any,
) -> matplotlib.axes.Axes:
    """Draw one map against another, in the same classes and colours as the rasters.

    Parameters
    ----------
    compared : Versus
    ax : Axes, optional
        By default a new figure's.
    variable : {"ratio", "difference", "increase"}
        The median of the ratio, the mean of the difference (of rates and relative risks its median), or the probability
        of an increase.
    title : str, optional
        By default what is compared.
    **kwargs
        Passed to `show_cells`.
    """
    if variable == "increase":
        values, label = compared.increase(), "probability of an increase"
        classes = palette.classes_for("probability", values.values)
    elif variable == "difference":
        values, label = compared.drawn_difference(), f"{compared.drawn} difference, {compared.units}"
        classes = palette.signed_classes(values.values)
    elif variable == "ratio":
        values, label = compared.ratio((0.5,))["q50"], "ratio, median"
        classes = palette.ratio_classes()
    else:
        raise DataError(
            f'{option("variable")} is "ratio", "difference" or "increase"; found {variable!r}.',
            option="variable",
            found=variable,
        )
    heading = compared.title if title is None else title
    options: dict[str, Any] = {"classes": classes, "label": label, "title": heading}
    ax = show_cells(compared.domain, values.values, ax, **options | kwargs)
    nodes, words = compared.hatched
    hatch_cells(ax, compared.domain, nodes, f"hatched: {words}")
    return ax
