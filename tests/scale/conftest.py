"""A real cluster: a scheduler and two worker processes of one thread each."""

from __future__ import annotations

import warnings

import pytest


@pytest.fixture(scope="session")
def cluster():
    from distributed import LocalCluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ports in use, and of proxies
        made = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0)
    with made:
        yield made


@pytest.fixture(scope="session")
def client(cluster):
    """A client that is not the current one: what shall use it must be told."""
    from distributed import Client

    with Client(cluster, set_as_default=False) as found:
        yield found
