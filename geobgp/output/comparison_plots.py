"""Figures of what is compared: a map with a threshold, a map with another map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geobgp.output import palette
from geobgp.output.plot_parts import show_cells
from geobgp.text import percent

if TYPE_CHECKING:
    import matplotlib.axes

    from geobgp.checks.excursions import Excursion


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
