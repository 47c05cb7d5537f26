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
_LEAST_FILTERED = 32  # a smaller run is searched as fast as its filter
DENSE = 16  # a run with up to so many times as many rows as there are probes is walked through
STRIDES = 24  # steps from one row to the next before a walk begins to leap

# The columns of the table of places, one row per run.
WORDS, ROWS, FENCES, FENCE_COUNT, LOW, HIGH, HOME, READY, WANTED, FILTER, FILTER_MASK = range(11)
PLACE = 11
ANYWHERE = np.uint64(0xFFFFFFFFFFFFFFFF)  # the home of a run whose keys may lie in any bucket


@_jit
def _hash(word):  # type: ignore[no-untyped-def]
    x = (word ^ (word >> np.uint64(32))) * np.uint64(0x9E3779B185EBCA87)
    x = (x ^ (x >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return x ^ (x >> np.uint64(32))


@_jit
def _two_bits(h):  # type: ignore[no-untyped-def]
    one = np.uint64(1)
    return (one << (h & np.uint64(63))) | (one << ((h >> np.uint64(6)) & np.uint64(63)))


def filter_of(lead: Words) -> Words:
    """A filter of the first words of a run's keys: what is not in the filter is not in the run.

    It is a Bloom filter whose two bits for a key lie in one word, so that a look at it is one access to memory. It has
    between 8 and 16 bits per row; some 3% of the keys that are not there pass it.
    """
    if len(lead) < _LEAST_FILTERED:
        return np.zeros(0, np.uint64)
    out = np.zeros(1 << max(0, (len(lead) - 1).bit_length() - 3), np.uint64)
    _fill_filter(lead, out)
    return out


@_jit
def _fill_filter(lead, out):  # type: ignore[no-untyped-def]
    mask = np.uint64(len(out) - 1)
    for i in range(len(lead)):
        if i == 0 or lead[i] != lead[i - 1]:
            h = _hash(lead[i])
            out[(h >> np.uint64(12)) & mask] |= _two_bits(h)


@_jit
def _passes(bits: Words, word: np.uint64) -> bool:
    h = _hash(word)
    two: np.uint64 = _two_bits(h)
    return bool(bits[(h >> np.uint64(12)) & np.uint64(len(bits) - 1)] & two == two)


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
def _is_ascending(probes, order, begin, end):  # type: ignore[no-untyped-def]
    for k in range(begin + 1, end):
        i, j = order[k - 1], order[k]
        for w in range(probes.shape[0]):
            if probes[w, i] != probes[w, j]:
                if probes[w, i] > probes[w, j]:
                    return False
                break
    return True


@_jit
def _all_ready(ready, wanted, blocks):  # type: ignore[no-untyped-def]
    missing = 0
    for block in range(blocks):
        if not ready[block]:
            wanted[block] = 1
            missing += 1
    return missing == 0


@_jit
def find(
    places: NDArray[np.uint64],
    probes: Words,
    order: Positions,
    starts: Positions,
    missing: NDArray[np.int64],
    out: NDArray[np.int64],
) -> int:
    """Find the stretches of keys that begin with a probe, in all runs.

    Writes rows (run, first, last, probe) to `out`, ordered by run and then by probe, without empty stretches, as far as
    `out` has room; returns how many there are. Only blocks of rows that are marked as ready are read; the others are
    marked as wanted, and `missing` counts the probes that need some of them.

    Parameters
    ----------
    order, starts : the probes by bucket (order[starts[b] : starts[b + 1]], ascending). A run whose home is a bucket is
        searched for the probes of that bucket; with one bucket only, all runs are searched for all probes.
    """
    width, count = probes.shape[0], 0
    hashes = np.empty(probes.shape[1], np.uint64)
    for j in range(probes.shape[1]):
        hashes[j] = _hash(probes[0, j])
    routed, everything = len(starts) > 2, np.arange(probes.shape[1])
    for r in range(len(places)):
        rows = np.int64(places[r, ROWS])
        if rows == 0:
            continue
        words, fences = _words_at(places[r, WORDS]), _words_at(places[r, FENCES])
        ready, wanted = _bytes_at(places[r, READY]), _bytes_at(places[r, WANTED])
        fence_count = np.int64(places[r, FENCE_COUNT])
        keys, mask, filtered = _words_at(places[r, FILTER]), places[r, FILTER_MASK], places[r, FILTER] != np.uint64(0)
        least, most = places[r, LOW], places[r, HIGH]
        begin, end, which = 0, probes.shape[1], everything
        if routed and places[r, HOME] != ANYWHERE:
            which = order
            begin, end = starts[np.int64(places[r, HOME])], starts[np.int64(places[r, HOME]) + 1]
        # Many probes in a small run: walk through both, side by side. Few in a large one: by way of the fences.
        dense = DENSE * (end - begin) >= rows and _is_ascending(probes, which, begin, end)
        if dense and not _all_ready(ready, wanted, fence_count):
            missing[0] += 1
            continue
        below, before = np.int64(0), np.int64(-1)
        for k in range(begin, end):
            j = which[k]
            if probes[0, j] < least or probes[0, j] > most:
                continue
            if filtered:
                bits = _two_bits(hashes[j])
                if keys[(hashes[j] >> np.uint64(12)) & mask] & bits != bits:
                    continue
            if dense:
                lead = probes[0, j]
                stop = min(below + STRIDES, rows)
                while below < stop and words[below] < lead:
                    below += 1
                if below < rows and words[below] > lead:
                    continue
                first = _near(words, rows, probes, j, width, 0, below, rows)
                below, last = first, first
                if first < rows and _compare(words, rows, first, probes, j, width) == 0:
                    last = first + 1
                    if last < rows and _compare(words, rows, last, probes, j, width) == 0:
                        last = _near(words, rows, probes, j, width, 1, last, rows)
            else:
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
                start, stop = max(first, high_block * FENCE_ROWS), min(above * FENCE_ROWS, rows)
                last = _near(words, rows, probes, j, width, 1, start, stop)
            if last > first:
                if count < len(out):
                    out[count, 0], out[count, 1], out[count, 2], out[count, 3] = r, first, last, j
                count += 1
    return count


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
