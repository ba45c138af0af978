"""Work is done, all of it, whoever does it and whoever dies on the way."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from paths import ROOT
from worker_jobs import add, die, halve, joined, named, who

from geobgp.errors import DataError, WorkerError
from geobgp.parallel import Failed, Here, Processes, open_workers


@pytest.fixture(params=["here", "processes", "cluster"])
def workers(request):
    if request.param == "here":
        yield Here()
    elif request.param == "processes":
        with Processes(2) as found:
            yield found
    else:
        with open_workers(request.getfixturevalue("client")) as found:
            yield found


def test_results_and_failures_come_with_their_numbers(workers):
    by = workers.share(2)
    assert dict(workers.run(halve, [3, 5, 8], by)) == {0: 1.5, 1: 2.5, 2: 4.0}
    none = workers.share(0)
    found = dict(workers.run(halve, [3], none))
    assert isinstance(found[0], Failed) and isinstance(found[0].error, ZeroDivisionError)
    assert dict(workers.run(halve, [], by)) == {}


def test_totals_keep_the_order(workers):
    tail, steps = workers.share("!"), []
    items = list(range(75))
    told = workers.total(named, items, joined, tail, step=lambda done, total: steps.append((done, total)))
    assert told == " ".join(f"{k}!" for k in items)
    assert steps[-1] == (75, 75)
    assert workers.total(named, [], joined, tail, step=lambda done, total: None) is None
    with pytest.raises(ZeroDivisionError):
        workers.total(halve, [1, 2], add, workers.share(0), step=lambda done, total: None)


def test_a_process_that_dies_is_replaced():
    with Processes(2) as processes:
        pause = processes.share(0.1)
        found = []
        for k, pid in processes.run(who, list(range(12)), pause):
            found.append((k, pid))
            if len(found) == 2:
                killed = processes.pids[0]
                os.kill(killed, signal.SIGKILL)
        assert sorted(k for k, _ in found) == list(range(12))
        assert killed not in processes.pids and len(processes.pids) == 2
        told = dict(processes.run(die, [0, 1, 2]))
        assert told[0] == 0 and told[2] == 2
        assert "4 processes died" in str(told[1].error) and isinstance(told[1].error, WorkerError)


def test_work_that_nobody_waits_for_is_dropped():
    with Processes(2) as processes:
        pause = processes.share(0.05)
        for _ in processes.run(who, list(range(100)), pause):
            break
        assert len(list(processes.run(who, [1, 2], pause))) == 2


def test_a_script_without_a_guard_is_not_run_again(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text(
        "print('once')\n"
        "from geobgp.parallel import open_workers\n"
        "with open_workers(n_jobs=2) as workers:\n"
        "    print(sorted(workers.run(divmod, [7, 9], workers.share(2))))\n"
    )
    told = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    ).stdout
    assert told == "once\n[(0, (3, 1)), (1, (4, 1))]\n"


def test_the_current_client_is_taken(cluster):
    from distributed import Client

    with Client(cluster), open_workers() as found:
        assert found.n == 2 and "2 workers of the cluster at tcp://" in found.where
    with open_workers(n_jobs=1) as found:
        assert isinstance(found, Here)


def test_a_scheduler_that_is_not_there(monkeypatch, cluster):
    from distributed import Client

    monkeypatch.setattr("geobgp.parallel.PATIENCE", 0.5)
    with (
        pytest.raises(WorkerError, match=r"no Dask scheduler at tcp://127.0.0.1:9.*within 0.5 s") as caught,
        open_workers("tcp://127.0.0.1:9"),
    ):
        pass
    assert caught.value.option == "client" and "leave it out" in str(caught.value)
    closed = Client(cluster, set_as_default=False)
    closed.close()
    with pytest.raises(WorkerError, match="is closed, not running"), open_workers(closed):
        pass
    with pytest.raises(DataError, match="at least 1; found 0"), open_workers(n_jobs=0):
        pass


def test_an_address_that_takes_the_connection_and_never_answers_is_given_up(monkeypatch):
    """Dask itself waits for minutes there."""
    monkeypatch.setattr("geobgp.parallel.PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(WorkerError, match=rf"no Dask scheduler at {address}.*within 0.5 s"), open_workers(address):
            pass


def test_a_cluster_without_workers(monkeypatch):
    from distributed import Client, LocalCluster

    monkeypatch.setattr("geobgp.parallel.PATIENCE", 0.5)
    with (
        LocalCluster(n_workers=0, dashboard_address=":0") as empty,
        Client(empty, set_as_default=False) as client,
        pytest.raises(WorkerError, match="has no workers"),
        open_workers(client),
    ):
        pass


def test_a_cluster_whose_workers_have_gone():
    import dask
    from distributed import Client, LocalCluster

    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        LocalCluster(n_workers=1, dashboard_address=":0", processes=False) as one,
        Client(one, set_as_default=False, timeout=1) as client,
        open_workers(client) as workers,
    ):
        one.scale(0)
        while client.nthreads():
            time.sleep(0.05)
        with pytest.raises(WorkerError, match="has no workers left"):
            workers.share(1)
