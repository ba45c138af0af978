"""Time to the same bound: geobgp's own engine, and GPflow's ways of training the same model.

The reference case is the sample of the Netherlands: 4,446 (simulated) tick bites, cells of 1.5 km, 256
features, Matern 3/2. Lengthscale, standard deviation and intercept are learned, and every way climbs the
same objective from the same start: the variational bound plus the log prior of the hyperparameters. A way
ends when it stops by itself or has used up its seconds. Times include TensorFlow's tracing, not its import;
what it costs to look at the objective meanwhile is taken out. On a busy machine use --clock cpu, one thread.

    python benchmarks/gpflow.py [--quick] [--limit 600] [--clock wall|cpu] [--output FILE]
"""

from __future__ import annotations

import sys
from pathlib import Path

# This file is called as the package that it measures: out of the way with its folder.
HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]

import argparse  # noqa: E402
import os  # noqa: E402
import platform  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import scipy  # noqa: E402

import geobgp  # noqa: E402
from geobgp import LGCP, Domain, HarmonicBasis, Matern, bin_points  # noqa: E402
from geobgp.gpflow.fit import GPflowProfile, lgcp_svgp  # noqa: E402
from geobgp.inference.hyper import Hyper  # noqa: E402

import gpflow  # noqa: E402, isort: skip
import tensorflow as tf  # noqa: E402, isort: skip

SAMPLE = HERE.parent / "sample_data"
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
#: Nats below geobgp's own objective that count as the same.
GAPS = (10.0, 1.0, 0.1, 0.01)


class OutOfTimeError(Exception):
    """A way has used up its seconds."""


@dataclass
class Trace:
    """The objective over time, and a clock that stands still while the objective is looked at."""

    limit: float
    clock: Callable[[], float]
    points: list[tuple[float, float]] = field(default_factory=list)
    steps: int = 0
    _begin: float = 0.0

    def __post_init__(self) -> None:
        self._begin = self.clock()

    def look(self, score: Callable[[], float]) -> None:
        """Take down the objective."""
        now = self.clock()
        self.points.append((now - self._begin, score()))
        self.steps += 1
        self._begin += self.clock() - now
        if self.points[-1][0] > self.limit:
            raise OutOfTimeError

    def reached(self, target: float) -> float | None:
        """Return the seconds after which the objective was there."""
        return next((t for t, value in self.points if value >= target), None)


@dataclass(frozen=True)
class Case:
    """A model, its counts, and the hyperparameters that every way learns."""

    model: LGCP
    counts: np.ndarray
    hyper: Hyper

    def svgp(self) -> tuple[Any, Any, Callable[[], float], Callable[[], Any]]:
        """Return GPflow's model at the common start, its data, the objective, and the loss for TensorFlow."""
        svgp, data = lgcp_svgp(self.model, self.counts)
        base = svgp.kernel.base
        base.lengthscales.assign(np.exp(self.hyper.start[0]))
        base.variance.assign(np.exp(2.0 * self.hyper.start[1]))
        inputs = tuple(tf.constant(part, tf.float64) for part in data)
        a, b = self.hyper.prior.rates()

        def objective() -> Any:
            log_l, log_sd = tf.math.log(base.lengthscales), 0.5 * tf.math.log(base.variance)
            prior = np.log(a) - log_l - a * tf.exp(-log_l) + np.log(b) + log_sd - b * tf.exp(log_sd)
            return svgp.elbo(inputs) + prior

        def loss() -> Any:
            return -objective()

        compiled = tf.function(objective)
        return svgp, data, lambda: float(compiled()), loss


def make_case(cell_size: float, m: int) -> tuple[Case, float]:
    """Return the case, and the seconds that its features took."""
    domain = Domain.from_polygons(
        SAMPLE / "netherlands_land.gpkg", water=SAMPLE / "netherlands_water.gpkg", cell_size=cell_size
    )
    begin = time.perf_counter()
    basis = HarmonicBasis.compute(domain, m, cache=False)
    seconds = time.perf_counter() - begin
    counts = bin_points(SAMPLE / "tick_bites_simulated.gpkg", domain)
    model = LGCP(basis, Matern(1.5))
    size = float(np.sqrt(domain.node_areas.sum()))
    return Case(model, counts.values, Hyper.for_domain(model.kernel, size, cell_size)), seconds


def own_engine(case: Case, clock: Callable[[], float], repeats: int = 3) -> tuple[float, float, list[float], int]:
    """Return what geobgp's own engine reaches, in how many seconds, those to within each gap, and its rounds.

    The best of a few runs. A round that was refused would have no entry in the trace; then the gaps are held
    to be closed at the end only.
    """

    def once() -> tuple[float, list[float], Any]:
        rounds: list[float] = []
        begin = clock()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", geobgp.GeobgpWarning)  # 256 features miss some of the variance
            fit = case.model.fit(case.counts, progress=lambda _: rounds.append(clock() - begin)).fit
        return clock() - begin, rounds, fit

    seconds, rounds, fit = min((once() for _ in range(repeats)), key=lambda run: run[0])
    trace = fit.elbo_trace[1:]
    if len(trace) != len(rounds):
        return float(trace[-1]), seconds, [seconds for _ in GAPS], fit.rounds
    reached = [rounds[int(np.argmax(trace >= trace[-1] - gap))] for gap in GAPS]
    return float(trace[-1]), seconds, reached, fit.rounds


def run_profile(case: Case, trace: Trace) -> None:
    """engine="gpflow": natural gradients within, hyperparameters on the bound so reached."""

    class Watched(GPflowProfile):
        def at(self, *arguments: Any, **options: Any) -> Any:
            point = super().at(*arguments, **options)
            trace.look(lambda: point.score)
            return point

    svgp, data, _, _ = case.svgp()
    Watched(svgp, data, case.hyper, None).climb()


def run_natural(case: Case, trace: Trace) -> None:
    """Natural gradients for the posterior, Adam for the hyperparameters, in turns."""
    svgp, _, score, loss = case.svgp()
    pair = [(svgp.q_mu, svgp.q_sqrt)]
    variables = list(svgp.kernel.trainable_variables)
    share = tf.Variable(0.0, dtype=tf.float64, trainable=False)
    natural, adam = gpflow.optimizers.NaturalGradient(gamma=share), tf.optimizers.Adam(0.05)

    @tf.function
    def step() -> None:
        natural.minimize(loss, pair)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = loss()
        adam.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))

    for number in range(100_000):
        share.assign(0.01 * 1.5 ** min(number, 11))  # to 0.86
        step()
        trace.look(score)
        values = [value for _, value in trace.points]
        if number > 50 and max(values[-25:]) < max(values[:-25]) + 1e-5:  # it has no rule of its own to stop
            break


def run_lbfgs(case: Case, trace: Trace) -> None:
    """L-BFGS over posterior and hyperparameters together, as the paper did with GPflow 1."""
    svgp, _, score, loss = case.svgp()
    gpflow.optimizers.Scipy().minimize(
        loss,
        svgp.trainable_variables,
        step_callback=lambda *_: trace.look(score),
        options={"maxiter": 100_000, "maxfun": 1_000_000, "ftol": 1e-12, "gtol": 1e-4},
    )


WAYS: dict[str, Callable[[Case, Trace], None]] = {
    "GPflow, engine='gpflow'": run_profile,
    "GPflow SVGP, natural gradients + Adam": run_natural,
    "GPflow SVGP, L-BFGS": run_lbfgs,
}


def table(case: Case, limit: float, clock: Callable[[], float], say: Callable[[str], None]) -> None:
    """Run every way and print the table."""
    target, seconds, reached, rounds = own_engine(case, clock)
    ours = reached[GAPS.index(0.1)]
    columns = "".join(f"{f'within {gap:g}':>13}" for gap in GAPS)
    say(f"{'seconds to the objective':<40}{columns}{'steps':>8}{'end, s':>9}{'nats below':>12}{'ratio':>9}")
    say(f"{'geobgp':<40}{''.join(f'{t:13.2f}' for t in reached)}{rounds:>8}{seconds:9.2f}{0.0:12.4f}{'1 x':>9}")
    for name, run in WAYS.items():
        trace = Trace(limit, clock)
        ended = ""
        try:
            run(case, trace)
        except OutOfTimeError:
            ended = " (out of time)"
        except tf.errors.InvalidArgumentError:
            ended = " (diverged)"
        times = [trace.reached(target - gap) for gap in GAPS]
        cells = "".join(f"{'-' if t is None else f'{t:.1f}':>13}" for t in times)
        last, best = trace.points[-1][0], max(value for _, value in trace.points)
        same = trace.reached(target - 0.1)
        ratio = f"> {last / ours:.0f} x" if same is None else f"{same / ours:.0f} x"
        say(f"{name:<40}{cells}{trace.steps:>8}{last:9.1f}{target - best:12.4f}{ratio:>9}{ended}")
    say("ratio: seconds to within 0.1 nats, against geobgp's.")
    say("steps: rounds, L-BFGS iterations, natural gradients, or (engine='gpflow') values of the hyperparameters.")


def threads() -> str:
    """Return how many threads BLAS and TensorFlow may use."""
    names = ("OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
    return ", ".join(f"{name.split('_')[0]} {os.environ.get(name, 'all')}" for name in names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="cells of 6 km, 64 features, 30 s for each way")
    parser.add_argument("--limit", type=float, help="seconds for each of GPflow's ways (600)")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--output", type=Path, help="benchmarks/results/gpflow.txt; with --quick nowhere")
    given = parser.parse_args()
    lines: list[str] = []

    def say(text: str) -> None:
        print(text, flush=True)
        lines.append(text)

    limit = given.limit or (30.0 if given.quick else 600.0)
    case, seconds = make_case(*((6000.0, 64) if given.quick else (1500.0, 256)))
    domain, m = case.model.basis.domain, case.model.basis.m
    say(
        f"{domain.n_nodes:,} nodes of {domain.cell_size / 1000:g} km, {case.counts.sum():,.0f} points, "
        f"{m} features (computed in {seconds:.1f} s), Matern 3/2, hyperparameters learned"
    )
    say(f"{given.clock} seconds, at most {limit:g} for each of GPflow's ways")
    table(case, limit, CLOCKS[given.clock], say)
    packages = {"geobgp": geobgp, "NumPy": np, "SciPy": scipy, "GPflow": gpflow, "TensorFlow": tf}
    versions = ", ".join(f"{name} {package.__version__}" for name, package in packages.items())
    say(f"{time.strftime('%Y-%m-%d')}; {os.cpu_count()} cores ({platform.machine()}), threads: {threads()}")
    say(f"Python {platform.python_version()}, {versions}")
    output = given.output or (None if given.quick else HERE / "results" / "gpflow.txt")
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
