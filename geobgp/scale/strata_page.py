"""The page of strata: small maps side by side under one legend, with their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from geobgp.files import replacing
from geobgp.output.grids import hatched_cells, hatched_land
from geobgp.output.palette import Classes, ratio_classes, round_classes
from geobgp.privacy import legend
from geobgp.text import count, number
from geobgp.web.embed import data_url, palette_png
from geobgp.web.maps import hatched_picture
from geobgp.web.templates import render

if TYPE_CHECKING:
    from geobgp.posterior import Posterior
    from geobgp.scale.strata_maps import Strata

#: Pixels of a small map along its longer side, at most.
SIDE = 320


def write_page(strata: Strata, path: str | Path, *, title: str = "") -> Path:
    """Write the page; see `Strata.to_index`."""
    domain = strata.everything.domain
    first = next(iter(strata.values()))
    drawn = "q50" if first.drawn == "median" else "mean"
    fields = {name: posterior.node_intensity((0.5,))[drawn].to_numpy() for name, posterior in strata.items()}
    together = np.concatenate(list(fields.values()))
    risk = first.quantity == "relative risk"
    classes = ratio_classes(first.units) if risk else round_classes(together, units=first.units)
    empty, hatched = hatched_land(first)
    cells = hatched_cells(domain, empty) if hatched else None
    scale, unit = domain.length_unit
    maps = []
    for name, posterior in strata.items():
        maps.append({
            "name": name,
            "picture": picture(domain.to_grid(fields[name]), classes, cells),
            "points": f"{count(posterior.n_points, 'point')}",
            "about": " ".join(filter(None, (
                f"lengthscale {number(posterior.lengthscale / scale)} {unit}, sd {number(posterior.sd)}",
                f"({legend(posterior)})" if posterior.protection else "",
            ))),
            "remarks": [
                *(() if posterior.converged else ("not converged",)), *_doubt(posterior),
                *strata.warnings.get(name, ()),
            ],
        })  # fmt: skip
    by, nodes = ", ".join(strata.counts.by), count(domain.n_nodes, "node")
    page = render(
        "scale/strata.html.j2",
        title=title or f"Strata by {by}",
        about=f"{count(len(strata), 'map')} by {by}, on {nodes} with {strata.everything.basis.label}",
        pooled=_pooled(strata),
        quantity=first.quantity,
        drawn=first.drawn,
        hatched=hatched,
        units=first.units,
        legend=list(zip(classes.hex, classes.labels(), strict=True)),
        maps=maps,
        failures=strata.failures,
        source=strata.everything.provenance["source"],
    )
    with replacing(path, parents=True) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return Path(path)


def _doubt(posterior: Posterior) -> tuple[str, ...]:
    """Return that a stratum's map may not vary at all."""
    found = posterior.summary().get("variation")
    return () if found is None or found["verdict"] == "varies" else (found["in_short"],)


def _pooled(strata: Strata) -> str:
    """Return what the strata share of their hyperparameters, in words."""
    if strata.prior is None:
        return "Lengthscale and sd are learned for each stratum by itself."
    scale, unit = strata.everything.domain.length_unit
    (length, by_length), (sd, by_sd) = strata.prior.log_lengthscale, strata.prior.log_sd
    return (
        f"Lengthscale and sd are partly pooled: about {number(float(np.exp(length)) / scale)} {unit} (two thirds of "
        f"the strata within a factor of {number(float(np.exp(by_length)), 3)}) and {number(float(np.exp(sd)))} (within "
        f"a factor of {number(float(np.exp(by_sd)), 3)}), learned from all of them."
    )


def picture(values: np.ndarray, classes: Classes, hatched: np.ndarray | None = None) -> str:
    """Return values on the grid as a small picture, a data URI: the colours of their classes, clear where NaN.

    `hatched` are cells that have lines across them.

    Examples
    --------
    >>> classes = round_classes(np.arange(10.0))
    >>> picture(np.arange(12.0).reshape(3, 4), classes)[:22]
    'data:image/png;base64,'
    """
    step = max(1, -(-max(values.shape) // SIDE))
    some = np.s_[step // 2 :: step, step // 2 :: step]
    lines = None if hatched is None else hatched[some]
    return data_url(palette_png(*hatched_picture(classes.index(values[some]), classes, lines)), "image/png")
