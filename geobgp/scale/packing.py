"""Packing: posteriors without the basis that they share, light enough to be sent between processes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from geobgp.inference.engine import state_from_arrays

if TYPE_CHECKING:
    import numpy as np

    from geobgp.inference.fit import Fit
    from geobgp.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Packed:
    """What a posterior has of its own.

    Attributes
    ----------
    fit : Fit
        Without states.
    states : tuple of dict
        Their arrays.
    own : dict
        Fields of the posterior that differ from one to the other on the same basis.
    """

    fit: Fit
    states: tuple[dict[str, np.ndarray], ...]
    own: dict[str, Any]

    @classmethod
    def of(cls, posterior: Posterior) -> Packed:
        """Pack a posterior."""
        names = (
            "kernel",
            "likelihood",
            "points",
            "title",
            "observed",
            "places",
            "choices",
            "tried",
            "protection",
        )
        return cls(
            dataclasses.replace(posterior.fit, states=()),
            tuple(state.to_arrays() for state in posterior.fit.states),
            {name: getattr(posterior, name) for name in names},
        )

    def on(self, template: Posterior, **changed: Any) -> Posterior:
        """Unpack it, on the basis of another posterior with the same exposure and covariates."""
        states = tuple(state_from_arrays(template.basis, arrays) for arrays in self.states)
        fit = dataclasses.replace(self.fit, states=states)
        return dataclasses.replace(template, fit=fit, **(self.own | changed))
