"""Inputs one by one, as tests of each ask for them."""

from geobgp.data.inputs import Inputs


def node_exposure(exposure, domain, column=None, **when):
    """Return the exposure of every node, and what it is."""
    found = Inputs.read(domain, exposure=exposure, exposure_column=column, **when)
    return found.exposure, found.exposure_kind


def node_effort(effort, domain, column=None, **when):
    """Return the effort at every node."""
    return Inputs.read(domain, effort=effort, effort_column=column, **when).effort


def fixed_effects(covariates, domain, fill_missing=None, periods=None):
    """Return the fixed effects."""
    return Inputs.read(domain, covariates=covariates, fill_missing=fill_missing, periods=periods).effects
