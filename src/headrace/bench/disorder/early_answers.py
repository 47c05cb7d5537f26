"""Window joins over late, disordered streams (the queries of PECJ): how wrong are answers that are given early?

Every method sees the same rows in the order of their arrival and answers each window at omega, before all of its rows
are there: joins that answer by what has arrived (behind watermarks, a K-slack buffer, eagerly and lazily), and the
estimators. None is given the rate or the law of delays. NumPy counts the final answers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.bench.disorder.ingest import ingest
from headrace.bench.disorder.measures import RECOVERY, Sample, row_of
from headrace.bench.disorder.methods import METHODS, run_methods
from headrace.bench.disorder.plot import to_svg
from headrace.bench.disorder.ratios import ratios, targets
from headrace.bench.disorder.screen import table
from headrace.bench.disorder.workload import (
    CHANGES,
    DATA,
    LENGTH,
    MICRO,
    NO_CHANGE,
    QUERIES,
    Workload,
    load_recorded,
)
from headrace.errors import StorageError
from headrace.window.arrivals import Arrivals
from headrace.window.spec import Aggregate, WindowSpec

__all__ = ["run", "table"]

Tell = Callable[[str], None]

_RATE, _KEYS, _SKEW = 100_000.0, 10, 0.0
_LONGEST = 3_600_000.0  # milliseconds that omega may be
_MOST = 10_000_000  # of anything that is counted
_WARM_WINDOWS = 3


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    options = _checked(_parser(), argv)
    query = QUERIES[options.query]
    workload = Workload(
        query,
        load_recorded(options.data, options.recorded),
        windows=options.windows,
        warm=options.warm,
        longest=round(max(options.omega) * 1e3),
        rate=options.rate,
        keys=options.keys,
        skew=options.skew,
        arrivals=options.arrivals,
        change=options.change,
    )
    if options.plot is not None:
        _write(options.plot, "")  # what cannot be written is better known before the work than after it
    tell("compiling the kernels")
    _warm_up(options)
    samples: dict[tuple[float, str], list[Sample]] = {}
    for seed in range(options.seeds):
        tell(f"stream {seed + 1} of {options.seeds}: making it")
        sides = workload.sides(seed)
        arrivals = Arrivals.of(sides.left, sides.right)
        for omega in options.omega:
            tell(f"stream {seed + 1} of {options.seeds}: answers at {omega:g} ms")
            for method, answers in run_methods(options.methods, _spec(options, omega), sides, arrivals, seed).items():
                samples.setdefault((omega, method), []).append(Sample.of(sides, answers))
    results = [
        row_of(options.query, options.data, workload, method, omega, samples[omega, method])
        for omega in options.omega
        for method in options.methods
    ]
    if options.ingest:
        results += ingest(_spec(options, max(options.omega)), workload, tell)
    config = {
        **{name: value for name, value in vars(options).items() if name not in ("recorded", "plot")},
        "window_ms": LENGTH / 1e3,
        "latest_ms": query.latest / 1e3,
        "aggregate": query.aggregate,
        "usual": _is_usual(options),
    }
    result = {
        "bench": "disorder",
        "config": config,
        "results": results,
        "ratios": ratios(results),
        "targets": targets(config, results),
    }
    if options.plot is not None:
        _write(options.plot, to_svg(result))
    return result


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}.", way_out="Give another --plot.") from error


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="headrace bench disorder", description=__doc__)
    add = made.add_argument
    add(
        "--query", choices=list(QUERIES), default="q1", help="q1 counts, q2 sums, q3 counts where delays go to 1 second"
    )
    add(
        "--data",
        choices=list(DATA),
        default=MICRO,
        help=f"{MICRO} is generated, the others are recorded (default {MICRO})",
    )
    add("--recorded", type=Path, default=None, metavar="FOLDER", help="where recorded streams are, as CSV files")
    add(
        "--omega",
        default=None,
        help="when windows are answered, ms after their start, with commas (7,10,12; q3: 200,300,600)",
    )
    add("--windows", type=int, default=200, help="windows per stream that are measured (default 200)")
    add("--warm", type=int, default=None, help="windows before these (default 50; q3: 400, as they complete later)")
    add("--seeds", type=int, default=5, help="streams, each with a seed of its own (default 5)")
    add("--methods", default=",".join(METHODS), help=f"which, with commas (default all: {','.join(METHODS)})")
    add("--rate", type=float, default=_RATE, help="tuples per second of each side (default 100,000)")
    add("--keys", type=int, default=None, help=f"keys of {MICRO} (default {_KEYS})")
    add("--skew", type=float, default=None, help=f"Zipf's exponent of the keys of {MICRO} (default 0)")
    add("--arrivals", choices=["even", "poisson"], default="even", help="how events are spaced (default even)")
    add(
        "--change",
        choices=list(CHANGES),
        default=NO_CHANGE,
        help="what changes half-way: the rate, or slowly the delays",
    )
    add("--ingest", action="store_true", help="also take in 2 million tuples, on 1 core and on 2")
    add("--plot", type=Path, default=None, metavar="FILE.svg", help="draw errors over latencies")
    return made


def _checked(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    """Read the options, and refuse what cannot be run."""
    options = parser.parse_args(argv)
    query = QUERIES[options.query]
    options.omega = list(query.omegas) if options.omega is None else _omegas(parser, options.omega)
    options.methods = _methods(parser, options.methods)
    options.warm = query.warm if options.warm is None else options.warm
    if options.data == MICRO and options.recorded is not None:
        parser.error(f"--recorded is for recorded streams, and {MICRO} is generated")
    if options.data != MICRO and (options.keys is not None or options.skew is not None):
        parser.error(f"--keys and --skew are for {MICRO}: recorded streams have their own keys")
    options.keys = _KEYS if options.keys is None else options.keys
    options.skew = _SKEW if options.skew is None else options.skew
    for name, least in (("windows", 1), ("warm", 0), ("seeds", 1), ("keys", 1)):
        if not least <= getattr(options, name) <= _MOST:
            parser.error(f"--{name} {getattr(options, name)}: give a number from {least} to {_MOST:,}")
    if not 1e3 <= options.rate <= 1e7:  # with fewer, most windows would have no rows to join
        parser.error(f"--rate {options.rate:g}: give tuples per second, from 1,000 to 10 million")
    if not 0 <= options.skew <= 10:
        parser.error(f"--skew {options.skew:g}: give a number from 0 to 10")
    if options.change != NO_CHANGE:
        _check_change(parser, options)
    return options


def _check_change(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse a run with too few windows after the change to see errors fall again."""
    query, windows = QUERIES[options.query], options.windows
    shape = Workload(query, None, windows=windows, warm=0, longest=0, change=options.change)
    visible = max(shape.visible_at(round(omega * 1e3)) or 0 for omega in options.omega)
    # What comes before the change is half of the windows, so more windows move it too.
    least = 2 * (visible - windows // 2 + 2 * RECOVERY)
    if windows < least:
        parser.error(f"--change {options.change}: give --windows {least} or more, to see what comes after the change")


def _omegas(parser: argparse.ArgumentParser, text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found or not all(0.001 <= omega <= _LONGEST for omega in found):
        parser.error(f"--omega {text}: give milliseconds, with commas, as in 7,10,12")
    # Times are whole microseconds.
    return sorted({round(omega * 1e3) / 1e3 for omega in found})


def _methods(parser: argparse.ArgumentParser, text: str) -> list[str]:
    chosen = {name.strip() for name in text.split(",") if name.strip()}
    if not chosen or not chosen <= set(METHODS):
        parser.error(f"--methods {text}: use one or more of {', '.join(METHODS)}")
    return [name for name in METHODS if name in chosen]


def _spec(options: argparse.Namespace, omega: float) -> WindowSpec:
    query = QUERIES[options.query]
    return WindowSpec(LENGTH, LENGTH, round(omega * 1e3), query.latest, Aggregate.parse(query.aggregate))


def _is_usual(options: argparse.Namespace) -> bool:
    """Whether streams are those of the paper, for which there are targets of errors."""
    return (options.rate, options.keys, options.skew, options.arrivals) == (_RATE, _KEYS, _SKEW, "even")


def _warm_up(options: argparse.Namespace) -> None:
    """Run all methods over a small stream, which compiles the kernels."""
    omega = options.omega[0]
    query, length = QUERIES[options.query], round(omega * 1e3)
    small = Workload(query, None, windows=_WARM_WINDOWS, warm=_WARM_WINDOWS, longest=length, rate=20_000.0)
    sides = small.sides(0)
    run_methods(options.methods, _spec(options, omega), sides, Arrivals.of(sides.left, sides.right), 0)
