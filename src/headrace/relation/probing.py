"""Compiled searches through several runs at once: one pass finds keys in all runs of an arrangement.

A small step looks for few keys in many small runs, so what costs is not the search but calling it once per run. Here
the runs are rows of a table of addresses (`Place`), and one compiled loop goes through all of them. Addresses are valid
as long as somebody holds the runs; `relation.runset` does, and is the only caller.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from headrace.relation.kernels import Positions, Words

_jit: Any = nb.njit(cache=True, nogil=True)

FENCE_ROWS = 512

# The columns of the table of places, one row per run.
WORDS, ROWS, FENCES, FENCE_COUNT, LOW, HIGH, HOME, READY, WANTED = range(9)
PLACE = 9
ANYWHERE = np.uint64(0xFFFFFFFFFFFFFFFF)  # the home of a run whose keys may lie in any bucket


@intrinsic
def _words_at(typing_context, address):  # type: ignore[no-untyped-def]
    """Read an address as a pointer to words."""
    pointer = types.CPointer(types.uint64)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], context.get_value_type(pointer))

    return pointer(types.uint64), generate


@intrinsic
def _bytes_at(typing_context, address):  # type: ignore[no-untyped-def]
    """Read an address as a pointer to bytes."""
    pointer = types.CPointer(types.uint8)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], context.get_value_type(pointer))

    return pointer(types.uint64), generate


@_jit
def _compare(words, rows, at, probes, j, width):  # type: ignore[no-untyped-def]
    for w in range(width):
        word = words[w * rows + at]
        if word != probes[w, j]:
            return -1 if word < probes[w, j] else 1
    return 0


@_jit
def _bound(words, rows, probes, j, width, above, low, high):  # type: ignore[no-untyped-def]
    # The first of the keys from low to high that is not below the probe, or (above = 1) that is above the probe.
    while low < high:
        middle = (low + high) >> 1
        if _compare(words, rows, middle, probes, j, width) < above:
            low = middle + 1
        else:
            high = middle
    return low


@_jit
def _near(words, rows, probes, j, width, above, low, high):  # type: ignore[no-untyped-def]
    # The same, where the answer is expected soon after low.
    step = 1
    while low + step < high and _compare(words, rows, low + step, probes, j, width) < above:
        low += step
        step *= 2
    return _bound(words, rows, probes, j, width, above, low, min(high, low + step))


@_jit
def find(
    places: NDArray[np.uint64], probes: Words, order: Positions, starts: Positions, missing: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Find the stretches of keys that begin with a probe, in all runs.

    Gives columns (run, first, last, probe), ordered by run and then by probe, without empty stretches. Only blocks of
    rows that are marked as ready are read; the others are marked as wanted, and `missing` counts the probes that need
    some of them.

    Parameters
    ----------
    order, starts : the probes by bucket (order[starts[b] : starts[b + 1]], ascending). A run whose home is a bucket is
        searched for the probes of that bucket; with one bucket only, all runs are searched for all probes.
    """
    width, count = probes.shape[0], 0
    out = np.empty((4, max(16, 2 * probes.shape[1])), np.int64)
    routed = len(starts) > 2
    for r in range(len(places)):
        rows = np.int64(places[r, ROWS])
        if rows == 0:
            continue
        words, fences = _words_at(places[r, WORDS]), _words_at(places[r, FENCES])
        ready, wanted = _bytes_at(places[r, READY]), _bytes_at(places[r, WANTED])
        fence_count = np.int64(places[r, FENCE_COUNT])
        least, most = places[r, LOW], places[r, HIGH]
        begin, end = 0, probes.shape[1]
        if routed and places[r, HOME] != ANYWHERE:
            begin, end = starts[np.int64(places[r, HOME])], starts[np.int64(places[r, HOME]) + 1]
        below, before = np.int64(0), np.int64(-1)
        for k in range(begin, end):
            j = order[k]
            if probes[0, j] < least or probes[0, j] > most:
                continue
            ascends = before >= 0
            if ascends:
                for w in range(width):
                    if probes[w, j] != probes[w, before]:
                        ascends = probes[w, j] > probes[w, before]
                        break
            before = j
            if not ascends:
                below = np.int64(0)
            below = _near(fences, fence_count, probes, j, width, 0, max(below - 1, 0), fence_count)
            above = below
            while above < fence_count and _compare(fences, fence_count, above, probes, j, width) <= 0:
                above += 1
                if above - below > 4:  # a long stretch of equal prefixes
                    above = _near(fences, fence_count, probes, j, width, 1, above - 1, fence_count)
                    break
            low_block, high_block = max(below - 1, 0), max(above - 1, 0)
            if not (ready[low_block] and ready[high_block]):
                wanted[low_block] = 1
                wanted[high_block] = 1
                missing[0] += 1
                continue
            first = _bound(words, rows, probes, j, width, 0, low_block * FENCE_ROWS, min(below * FENCE_ROWS, rows))
            last = _near(
                words, rows, probes, j, width, 1, max(first, high_block * FENCE_ROWS), min(above * FENCE_ROWS, rows)
            )
            if last > first:
                if count == out.shape[1]:
                    wider = np.empty((4, 2 * count), np.int64)
                    wider[:, :count] = out
                    out = wider
                out[0, count], out[1, count], out[2, count], out[3, count] = r, first, last, j
                count += 1
    return out[:, :count]


@_jit
def expand(stretches: NDArray[np.int64]) -> tuple[Positions, Positions, Positions]:
    """List all entries of stretches: the run of each, its position in that run, and the probe that it belongs to."""
    total = 0
    for s in range(stretches.shape[1]):
        total += stretches[2, s] - stretches[1, s]
    runs, positions, owners = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    at = 0
    for s in range(stretches.shape[1]):
        for position in range(stretches[1, s], stretches[2, s]):
            runs[at], positions[at], owners[at] = stretches[0, s], position, stretches[3, s]
            at += 1
    return runs, positions, owners


@_jit
def mark(ready_at: NDArray[np.uint64], wanted_at: NDArray[np.uint64], runs: Positions, positions: Positions) -> int:
    """Mark the blocks of rows that hold some entries as wanted, unless they are ready; returns how many are not."""
    missing = 0
    for k in range(len(runs)):
        block = positions[k] // FENCE_ROWS
        if not _bytes_at(ready_at[runs[k]])[block]:
            _bytes_at(wanted_at[runs[k]])[block] = 1
            missing += 1
    return missing


@_jit
def gather(at: NDArray[np.uint64], size: int, runs: Positions, positions: Positions, out: Words) -> None:
    """Copy elements of `size` words each out of runs; `at` has the address of the first element per run."""
    for k in range(len(runs)):
        source, start = _words_at(at[runs[k]]), positions[k] * size
        for w in range(size):
            out[k * size + w] = source[start + w]


@_jit
def gather_keys(places: NDArray[np.uint64], runs: Positions, positions: Positions, begin: int, out: Words) -> None:
    """Copy words of keys out of runs, from word number `begin` on."""
    for k in range(len(runs)):
        source, rows = _words_at(places[runs[k], WORDS]), np.int64(places[runs[k], ROWS])
        for w in range(out.shape[0]):
            out[w, k] = source[(begin + w) * rows + positions[k]]
