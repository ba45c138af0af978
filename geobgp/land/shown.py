"""Shown: what a domain says of itself, in words, as a table and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from geobgp.arguments import ARRAY, AXES
from geobgp.errors import DataError, option
from geobgp.text import number
from geobgp.validate import FLAG, TEXT, door

if TYPE_CHECKING:
    import matplotlib.axes
    import numpy as np
    import pyproj

    from geobgp.land.bridges import Bridges
    from geobgp.land.domain import Domain
    from geobgp.land.grid import Grid


class Shown:
    """What `Domain` can tell and draw, using only its public names."""

    if TYPE_CHECKING:
        grid: Grid
        node_areas: np.ndarray
        bridges: Bridges | None
        notes: tuple[str, ...]

        @property
        def crs(self) -> pyproj.CRS | None: ...  # noqa: D102
        @property
        def cell_size(self) -> float: ...  # noqa: D102
        @property
        def n_nodes(self) -> int: ...  # noqa: D102
        @property
        def n_components(self) -> int: ...  # noqa: D102
        @property
        def area_unit(self) -> tuple[float, str]: ...  # noqa: D102

    def facts(self) -> dict[str, str]:
        """Return what the domain is, line by line: what each number is, and the number in words."""
        unit, name = self.area_unit
        rows, cols = self.grid.shape
        return {
            "grid": f"{rows} x {cols} cells of {self.cell_size:g} {'units' if self.crs is None else 'm'}",
            "nodes": f"{self.n_nodes:,}",
            "connected land": f"{self.n_components:,}",
            "land area": f"{number(self.node_areas.sum() / unit, 6)} {name}",
            **({} if self.bridges is None else {"bridges": f"{len(self.bridges.first):,}"}),
            "CRS": "local" if self.crs is None else ":".join(self.crs.to_authority() or (self.crs.name,)),
        }

    def report(self) -> str:
        """Return the domain's facts and notes as text."""
        return "\n".join(f"{name}: {value}" for name, value in self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        return [*self.facts().items(), *(("note", note) for note in self.notes)]

    def __repr__(self) -> str:
        return f"Domain({', '.join(f'{name}: {value}' for name, value in self.facts().items())})"

    def _repr_html_(self) -> str:
        from html import escape

        body = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in self._rows())
        return f"<table><caption>Domain</caption>{body}</table>"

    @door(ax=AXES, values=ARRAY, title=TEXT, label=TEXT, colour_bar=FLAG, scale_bar=FLAG, cells=FLAG)
    def plot(
        self,
        ax: matplotlib.axes.Axes | None = None,
        values: Any = None,
        *,
        classes: int | Sequence[float] | None = None,
        cmap: Any = None,
        vmin: float | None = None,
        vmax: float | None = None,
        label: str | None = None,
        title: str | None = None,
        colour_bar: bool = True,
        scale_bar: bool = True,
        cells: bool | None = None,
    ) -> matplotlib.axes.Axes:
        """Draw the land, the cells and the shoreline; or one value for every node, as a map cut at the shoreline.

        Parameters
        ----------
        ax : Axes, optional
            By default a new figure's.
        values : (n_nodes,) array or (rows, cols) on the grid, optional
            Numbers to be drawn; NaN is left blank. Without them the pieces of land have shades of their own.
        classes : int or sequence of float, optional
            How many classes there are, or the breaks between them. By default colours run evenly from `vmin` to `vmax`.
        cmap : optional
            "intensity", "uncertainty", "probability" or "signed"; a colour map of matplotlib; or a list of colours.
        vmin, vmax : float, optional
            Values at the ends of the colours; by default the smallest and the largest. With ``cmap="signed"`` and
            neither of them 0 is in the middle.
        label : str, optional
            Beside the colour bar: what is shown, with its unit.
        title : str, optional
        colour_bar, scale_bar : bool
            Whether to draw them.
        cells : bool, optional
            Without values: draw the edges of the cells; by default where there are at most 80 along the longer side.

        Examples
        --------
        >>> import geobgp, shapely
        >>> domain = geobgp.Domain.from_polygons(shapely.box(0, 0, 4, 3), cell_size=1, crs="local")
        >>> ax = domain.plot(values=domain.node_areas, classes=[0.5, 0.9], label="area", title="Cells")
        >>> ax.get_title(loc="left")
        'Cells'
        """
        from geobgp.output import plots

        me = cast("Domain", self)
        if values is None:
            asked = {"classes": classes, "cmap": cmap, "vmin": vmin, "vmax": vmax, "label": label}
            _refuse(asked, "is for values, and none are given", "Give a number for every node as values.")
            return plots.plot_domain(me, ax, title=title, cells=cells, scale_bar=scale_bar)
        _refuse({"cells": cells}, "is for land without values", "Leave it out, or the values.")
        return plots.plot_values(
            me,
            values,
            ax,
            classes=classes,
            cmap=cmap,
            vmin=vmin,
            vmax=vmax,
            label=label or "",
            title=title or "",
            colour_bar=colour_bar,
            scale_bar=scale_bar,
        )


def _refuse(asked: dict[str, Any], why: str, remedy: str) -> None:
    """Raise an error that names the first option that was given."""
    for name, value in asked.items():
        if value is not None:
            raise DataError(f"{option(name)} {why}.", option=name, found=value, remedy=remedy)
