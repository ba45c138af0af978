"""What the learned numbers mean: lengthscale, standard deviation and permeability in sentences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scipy.optimize import brentq
from scipy.special import gamma, kv

from geobgp.prior.kernels import Matern, SquaredExponential
from geobgp.text import number, percent

if TYPE_CHECKING:
    from geobgp.posterior import Posterior
    from geobgp.prior.kernels import Kernel

#: The correlation beyond which places are told to be on their own.
_LITTLE = 0.1


def in_sentences(posterior: Posterior) -> list[str]:
    """Return what lengthscale, sd and permeability say, a sentence each."""
    found = [_reach(posterior), _spread(posterior), water(posterior)]
    return [sentence for sentence in found if sentence]


def correlation(kernel: Kernel, distance: float) -> float | None:
    """Return the correlation at a distance in lengthscales, far from any shore; None of a kernel that is not ours.

    Examples
    --------
    >>> round(correlation(Matern(0.5), 1.0), 4), round(correlation(Matern(1.5), 0.0), 4)
    (0.3679, 1.0)
    """
    if isinstance(kernel, SquaredExponential):
        return math.exp(-0.5 * distance**2)
    if not isinstance(kernel, Matern):
        return None
    nu, x = kernel.nu, math.sqrt(2 * kernel.nu) * distance
    return 1.0 if x < 1e-9 else float(2 ** (1 - nu) / gamma(nu) * x**nu * kv(nu, x))


def _reach(posterior: Posterior) -> str:
    near = correlation(posterior.kernel, 1.0)
    if near is None:
        return ""
    far = float(brentq(lambda d: (correlation(posterior.kernel, d) or 0.0) - _LITTLE, 0.01, 50.0))
    scale, unit = posterior.domain.length_unit
    one, two = (number(d * posterior.lengthscale / scale, 2) for d in (1.0, far))
    return (
        f"Places {one} {unit} apart over land (a lengthscale) share {percent(near)} of what sets them off from the "
        f"average, places {two} {unit} apart {percent(_LITTLE)}."
    )


def _spread(posterior: Posterior) -> str:
    factor = math.exp(posterior.sd)
    what = "risks" if posterior.quantity == "relative risk" else "rates"
    return (
        f"Local {what} typically vary by a factor of {number(factor, 2)} around the average: two places in three lie "
        f"between {number(1 / factor, 2)} and {number(factor, 2)} times it."
    )


def water(posterior: Posterior) -> str:
    """Return how far information crosses water, in a sentence."""
    share = posterior.basis.permeability
    if share == 0:
        return "Nothing passes across water."
    if share == 1:
        return "Information crosses water as far as land."
    return f"Information crosses water {percent(share)} as far as land."
