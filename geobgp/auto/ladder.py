"""The ladder: from coarse cells to fine ones, for as long as the points themselves gain by it and time allows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import shapely

from geobgp.auto.candidates import Candidate, FitError, Fits, Shore
from geobgp.auto.choices import cell_size_for, cell_size_for_areas, round_size
from geobgp.auto.domain import about_crs, side
from geobgp.auto.over_time import affordable_shore, moderate_cells
from geobgp.auto.selection import LEAD, ModelSearch
from geobgp.errors import GeobgpError, ResolutionWarning, in_words, option
from geobgp.prior.harmonic import check_features
from geobgp.summary import Choice
from geobgp.text import count, number

if TYPE_CHECKING:
    from geobgp.auto.options import Options
    from geobgp.auto.scene import Scenes

#: Cells on which water and prior are chosen: a quarter of the usual ones, within these limits.
COARSE_SHARE, FEWEST_COARSE, MOST_COARSE = 4.0, 1000.0, 4000.0
#: Cells this much wider than others, or less, are taken to be as fine.
AS_FINE = 1.3
#: The gain of a doubling of the cells' number is about this share of the one before.
FADE = 0.7
#: Nats per point that finer cells must promise.
WORTH_PER_POINT = 0.005
#: Nats per point that time must have cost for a warning.
LOSS_PER_POINT = 0.02
#: How much narrower the next cells are; the second, about, where the first would take too long.
STEPS = (2.0, 1.5)


@dataclass(frozen=True, eq=False)
class Ladder:
    """The way from the first fit on coarse cells to the one that is kept.

    Parameters
    ----------
    options : Options
    scenes : Scenes
    fits : Fits
    """

    options: Options
    scenes: Scenes
    fits: Fits

    def climb(self) -> tuple[Candidate, dict[str, Choice]]:
        """Return the fit to keep, and every choice with its reason."""
        o, search = self.options, ModelSearch(self.options, self.fits)
        usual, why = self._usual_cell_size()
        in_time = o.time is not None
        if in_time and o.cell_size is None and not self.scenes.one_size:
            usual, why = self._moderate(usual, why)
        settled = o.m != "auto" and (o.boundary == "dirichlet" or o.permeability != "auto")
        first = usual if settled and (o.cell_size is not None or o.m != "full") else self._coarse(usual)
        reach = self.reach
        counted = not isinstance(o.m, str)
        if first != usual and (o.cell_size is not None or counted):
            # What cannot be is told before anything is fitted.
            given = self.scenes.at(usual, reach)
            if not isinstance(o.m, str):
                check_features(given.domain, o.m, o.boundary)
        scene = self.scenes.at(first, reach)
        shores = search.shores(scene)
        if counted and first != usual:
            scene = self.scenes.at(usual, reach)
            first, shores = usual, [s if isinstance(s, Shore) else s.shore for s in shores]
        if o.areas is not None or in_time:
            shore = shores[0] if isinstance(shores[0], Shore) else shores[0].shore
            if in_time:
                shore = affordable_shore(o, shores, scene, usual, search.choices)
            found, search.choices["features"] = search.with_enough_features(scene, shore)
        else:
            found = search.prior(scene, shores[0])
        warning: ResolutionWarning | None = None
        if first != usual:
            before = found
            reason = self._late(found, usual) if o.cell_size is None else ""
            if not reason:
                found = self._on_usual(search, found, shores, usual, reach)
                if o.cell_size is None and not counted and not in_time:
                    found, why, warning = self._refine(search, before, found, why, reach)
            else:
                why, warning = self._ended(found, f"cells of {self._side(usual)}: {reason}", math.inf)
        domain = found.scene.domain
        cells = Choice(side(domain), "given" if o.cell_size is not None else why)
        choices = {"CRS": about_crs(domain, o.crs), "cell size": cells, **search.choices}
        usual_kernel = f"the usual one {'for features' if found.basis.truncated else 'at full resolution'}"
        choices["kernel"] = Choice(
            found.posterior.kernel.name, "given" if o.kernel is not None else usual_kernel
        )
        if warning is not None:
            found = found.warned(warning)
        return found, choices

    # -- sizes

    @property
    def reach(self) -> float:
        """How far points are moved to land, on all cells that are compared, where no distance was given."""
        return 2.0 * self._usual_cell_size()[0]

    @property
    def _area(self) -> float:
        return float(shapely.area(self.scenes.land.geometry))

    def _usual_cell_size(self) -> tuple[float, str]:
        if self.options.cell_size is not None:
            return float(self.options.cell_size), "given"
        if self.options.areas is not None:
            return cell_size_for_areas(self._area, self.scenes.n_areas)
        return cell_size_for(self._area, self.scenes.n_points, self.scenes.land.crs)

    def _moderate(self, usual: float, why: str) -> tuple[float, str]:
        """Return cells that a model of all periods can have; the first ones tell how many periods there are."""
        known = self.scenes.at(self._coarse(usual), 2.0 * usual).in_time
        assert known is not None
        return moderate_cells(self._area, usual, why, known.periods.n, self.options.max_seconds)

    def _coarse(self, usual: float) -> float:
        """Return the size of the cells on which water and prior are chosen."""
        if self.scenes.one_size:
            return usual
        cells = min(max(self._area / usual**2 / COARSE_SHARE, FEWEST_COARSE), MOST_COARSE)
        size = round_size(math.sqrt(self._area / cells))
        return usual if size < AS_FINE * usual else size

    def _side(self, size: float) -> str:
        return f"{number(size)} {'m' if self.scenes.land.crs is not None else 'units'}"

    def _late(self, like: Candidate, size: float, what: str = "they") -> str:
        """Return that a fit on cells of this size would be too late, nothing if not."""
        nodes = like.scene.domain.n_nodes * (like.scene.domain.cell_size / size) ** 2
        return self.fits.too_late(what, like.seconds_with(nodes))

    # -- steps

    def _on_usual(
        self,
        search: ModelSearch,
        found: Candidate,
        shores: list[Candidate | Shore],
        size: float,
        reach: float,
    ) -> Candidate:
        """Return the fit on the usual cells; shores that were near to each other are compared again there."""
        scene = self.scenes.at(size, reach)
        fine = search.again(scene, found)
        if found.basis.truncated or self.options.permeability != "auto":
            return fine
        rivals = [fine]
        for other in shores[1:]:
            if isinstance(other, Candidate) and not self.fits.too_late("another", 1.5 * fine.seconds):
                rivals.append(search.again(scene, other))
        return search.settle_water(rivals)

    def _refine(
        self, search: ModelSearch, before: Candidate, now: Candidate, why: str, reach: float
    ) -> tuple[Candidate, str, ResolutionWarning | None]:
        """Halve the cells while the points gain by it; return the last fit that did, why, and what is to be said."""
        n_points = now.scene.counts.total_weight
        worth = max(LEAD, WORTH_PER_POINT * n_points)
        finest = 0.5 * now.scene.spacing
        while True:
            gain = now.gain - before.gain
            rate = gain / math.log2(now.scene.domain.n_nodes / before.scene.domain.n_nodes)
            here = now.scene.domain.cell_size
            promise = 2.0 * FADE * rate * math.log2(STEPS[0])
            if promise < worth:
                little = f"only about {number(max(promise, 0.0), 2)} nats, and must gain {number(worth, 2)}"
                return now, f"{why}; cells half as wide would gain {little}", None
            if here / STEPS[0] < finest:
                shared = f"{why}; many points share their places, and these are about {self._side(2 * finest)} apart"
                return now, shared, None
            late = ""
            for size in (here / STEPS[0], round_size(here / STEPS[1])):
                if not (late := self._late(now, size)):
                    break
            if late:
                more = f"cells of {self._side(here / STEPS[0])} would gain about {number(promise, 2)} nats"
                return now, *self._ended(now, f"{why}; {more}, but {late}", promise)
            try:
                scene = self.scenes.at(size, reach)
                finer = search.again(scene, now)
            except (GeobgpError, FitError) as error:
                text = f"{why}; cells of {self._side(size)} cannot be had: {in_words(error.message)}"
                return now, *self._ended(now, text, promise)
            lead = finer.gain - now.gain
            asked = worth * math.log(here / size) / math.log(STEPS[0])
            if lead < asked:
                told = (
                    f"only {number(lead, 2)} nats, and must gain {number(asked, 2)}"
                    if lead > 0
                    else "nothing"
                )
                return now, f"{why}; cells of {self._side(size)} gain {told}", None
            why = (
                f"{number(lead)} nats above cells of {self._side(here)}, for {count(round(n_points), 'point')} on "
                f"{count(scene.domain.n_nodes, 'node')}"
            )
            before, now = now, finer

    def _ended(self, found: Candidate, why: str, promise: float) -> tuple[str, ResolutionWarning | None]:
        """Return why the ladder has ended, and the warning if that costs much."""
        if promise < LOSS_PER_POINT * found.scene.counts.total_weight:
            return why, None
        finer = f"{found.scene.domain.cell_size / STEPS[0]:g}"
        return why, ResolutionWarning(
            f"The map could be sharper. It has cells of {side(found.scene.domain)}: {in_words(why)}.",
            option="max_seconds",
            found=found.scene.domain.cell_size,
            remedy=f"Raise {option('max_seconds')}, or give {option('cell_size', finer, python=f'cell_size={finer}')}.",
        )
