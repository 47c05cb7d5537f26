"""How many tuples per second a window join takes in, on one core and on two, in large batches.

Each core joins the rows of its keys in a bucket of its own, as after an exchange by key, and the totals of windows are
added up. Cores are threads: the kernels release the interpreter lock, and processes were measured to be no faster.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from time import perf_counter
from typing import Any

import numpy as np

from headrace.bench.disorder.local_join import Bucket
from headrace.bench.disorder.workload import LENGTH, NO_CHANGE, Workload
from headrace.errors import HeadraceError
from headrace.runtime.session import usable_cores
from headrace.window.arrivals import Arrivals, bucket_of
from headrace.window.estimate import answer_of
from headrace.window.spec import WindowSpec
from headrace.window.totals import Deltas

Tell = Callable[[str], None]
Take = Callable[[Arrivals], Deltas]

_TUPLES, _BATCH = 2_000_000, 100_000
_CORES = (1, 2)
_REPEAT = 5


def ingest(spec: WindowSpec, workload: Workload, tell: Tell) -> list[dict[str, Any]]:
    """Measure a join's ingest, and its exact part alone: without counting the delays that estimators learn from."""
    if max(_CORES) > usable_cores():
        raise HeadraceError(
            f"--ingest uses {max(_CORES)} cores, and this process may use {usable_cores()}.",
            way_out="Run it without --ingest, or where there are more.",
        )
    tell(f"making {_TUPLES:,} tuples")
    arrivals, expected = _made(workload)
    given = {cores: [_batches(arrivals, bucket, cores) for bucket in range(cores)] for cores in _CORES}
    results = []
    for case, start in (("ingest", _all), ("exact part of ingest", _exact)):
        runs: dict[int, list[tuple[float, float]]] = {cores: [] for cores in _CORES}
        for number in range(_REPEAT + 1):
            tell(f"{case}: {number} of {_REPEAT}")
            for cores in _CORES:
                runs[cores].append(_timed(spec, start, given[cores]))
        for cores in _CORES:
            median = statistics.median(seconds for seconds, _ in runs[cores][1:])  # the first compiles
            row = {
                "system": "headrace",
                "case": f"{case}, {cores} core{'' if cores == 1 else 's'}",
                "rows": len(arrivals),
                "seconds": median,
                "rows_per_s": len(arrivals) / median,
                "batch": _BATCH,
            }
            wrong = [total for _, total in runs[cores] if not np.isclose(total, expected, rtol=1e-9)]
            results.append(row | ({"wrong": f"{wrong[0]:g} instead of {expected:g}"} if wrong else {}))
    return results


def _made(workload: Workload) -> tuple[Arrivals, float]:
    """Return the tuples, and the sum of the answers of all their windows."""
    windows = int(_TUPLES / (2 * workload.rate) * 1e6 / LENGTH) + 1
    sides = replace(workload, windows=windows, warm=0, change=NO_CHANGE).sides(0)
    arrivals = Arrivals.of(sides.left, sides.right)
    last = int(arrivals.arrival[min(_TUPLES, len(arrivals)) - 1])
    count = last // LENGTH + 1
    expected = replace(sides, first=0, count=count).arrived(np.full(count, last))
    return arrivals.slice(0, arrivals.until(last)), float(expected.sum())


def _batches(arrivals: Arrivals, bucket: int, buckets: int) -> list[Arrivals]:
    parts = [arrivals.slice(at, min(at + _BATCH, len(arrivals))) for at in range(0, len(arrivals), _BATCH)]
    return [part.take(np.flatnonzero(bucket_of(part, buckets) == bucket)) for part in parts]


# Windows that are complete by the last arrival leave the state, as they do in a stream that does not end.


def _all(spec: WindowSpec) -> Take:
    bucket = Bucket(spec)
    return lambda batch: bucket.add(batch).deltas


def _exact(spec: WindowSpec) -> Take:
    bucket = Bucket(spec)
    return lambda batch: bucket.match(batch, np.zeros(len(batch), np.int64), int(batch.arrival[-1]))


def _timed(
    spec: WindowSpec,
    start: Callable[[WindowSpec], Take],
    given: Sequence[list[Arrivals]],
) -> tuple[float, float]:
    """Return the seconds until all buckets are done, and the sum of the answers of all windows."""
    ready = Barrier(len(given) + 1)

    def work(batches: list[Arrivals]) -> float:
        take = start(spec)
        sums = np.zeros(4)
        ready.wait()
        for batch in batches:
            if len(batch):
                sums += take(batch).amounts.sum(axis=1)
        return answer_of(spec, float(sums[2]), float(sums[3]))

    with ThreadPoolExecutor(len(given)) as pool:
        running = [pool.submit(work, batches) for batches in given]
        ready.wait()
        began = perf_counter()
        total = sum(one.result() for one in running)
        return perf_counter() - began, total
