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

from headrace.relation import kernels
from headrace.relation.kernels import Positions, Words

_jit: Any = nb.njit(cache=True, nogil=True)

FENCE_ROWS = 512
_LEAST_FILTERED = 32  # a smaller run is searched as fast as its filter
_DENSE = 16  # a run with up to so many times as many rows as there are probes is walked through
_STRIDES = 24  # steps from one row to the next before a walk begins to leap

# The columns of the table of places, one row per run.
WORDS, ROWS, FENCES, FENCE_COUNT, LOW, HIGH, HOME, READY, WANTED, FILTER, FILTER_WORDS = range(11)
PLACE = 11
ANYWHERE = np.uint64(0xFFFFFFFFFFFFFFFF)  # the home of a run whose keys may lie in any bucket


@_jit
def _two_bits(h):  # type: ignore[no-untyped-def]
    one = np.uint64(1)
    return (one << (h & np.uint64(63))) | (one << ((h >> np.uint64(6)) & np.uint64(63)))


@_jit
def passes(bits, h):  # type: ignore[no-untyped-def]
    """Tell whether a filter lets a hash (`kernels.mix` of the first word of a key) pass."""
    two = _two_bits(h)
    return bits[(h >> np.uint64(12)) & np.uint64(len(bits) - 1)] & two == two


def filter_of(lead: Words) -> Words:
    """A filter of the first words of a run's keys: what is not in the filter is not in the run.

    It is a Bloom filter whose two bits for a key lie in one word, so that a look at it is one access to memory. It has
    between 8 and 16 bits per row; of the keys that are not there, few pass it.
    """
    out = np.zeros(filter_words(len(lead)), np.uint64)
    if len(out):
        fill_filter(lead, out)
    return out


def filter_words(rows: int) -> int:
    """How many words the filter of a run of so many rows has: none if the run is short."""
    return 1 << max(0, (rows - 1).bit_length() - 3) if rows >= _LEAST_FILTERED else 0


@_jit
def fill_filter(lead, out):  # type: ignore[no-untyped-def]
    """Add the first words of keys to a filter, which is zeros at first."""
    mask = np.uint64(len(out) - 1)
    for i in range(len(lead)):
        if i == 0 or lead[i] != lead[i - 1]:
            h = kernels.mix(lead[i])
            out[(h >> np.uint64(12)) & mask] |= _two_bits(h)


@intrinsic
def _pointer(typing_context, address):  # type: ignore[no-untyped-def]
    """Read an address as a pointer, which `carray` makes an array of."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.uint64), generate


@_jit
def _near(words, probes, j, above, low, high):  # type: ignore[no-untyped-def]
    # As `kernels.halve`, where the answer is expected soon after low.
    step, width = 1, probes.shape[0]
    while low + step < high and kernels.compare(words, low + step, probes, j, width) < above:
        low += step
        step *= 2
    return kernels.halve(words, probes, j, above, low, min(high, low + step))


@_jit
def _are_ascending(probes):  # type: ignore[no-untyped-def]
    for j in range(1, probes.shape[1]):
        if kernels.compare(probes, j - 1, probes, j, probes.shape[0]) > 0:
            return False
    return True


@_jit
def _all_ready(ready, wanted):  # type: ignore[no-untyped-def]
    missing = 0
    for block in range(len(ready)):
        if not ready[block]:
            wanted[block] = 1
            missing += 1
    return missing == 0


@_jit
def _walked(words, probes, j, at):  # type: ignore[no-untyped-def]
    # The stretch of keys that begin with a probe, looked for from one row to the next.
    lead, rows = probes[0, j], words.shape[1]
    stop = min(at + _STRIDES, rows)
    while at < stop and words[0, at] < lead:
        at += 1
    if at < rows and words[0, at] > lead:
        return at, at
    first = _near(words, probes, j, 0, at, rows)
    last = first
    if first < rows and kernels.compare(words, first, probes, j, probes.shape[0]) == 0:
        last = _near(words, probes, j, 1, first, rows)
    return first, last


@_jit
def _fenced(fences, probes, j, at):  # type: ignore[no-untyped-def]
    # How many fences are below a probe, and how many are not above: the stretch lies between these.
    count = fences.shape[1]
    below = _near(fences, probes, j, 0, max(at - 1, 0), count)
    above = below
    while above < count and kernels.compare(fences, above, probes, j, probes.shape[0]) <= 0:
        above += 1
        if above - below > 4:  # a long stretch of equal prefixes
            return below, _near(fences, probes, j, 1, above - 1, count)
    return below, above


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
    `out` has room; returns how many there are. Blocks of rows that are read although nobody has verified them yet (they
    are not marked as ready) are marked as wanted, and `missing` of their run is not zero then: whoever calls this
    verifies them before anything that was found is believed. What is damaged can mislead the search, but not out of the
    run.

    Parameters
    ----------
    order, starts : the probes by bucket (order[starts[b] : starts[b + 1]], ascending). A run whose home is a bucket is
        searched for the probes of that bucket; with one bucket only, all runs are searched for all probes.
    """
    (width, m), count = probes.shape, 0
    hashes, everything = np.empty(m, np.uint64), np.arange(m)
    for j in range(m):
        hashes[j] = kernels.mix(probes[0, j])
    routed, ascending = len(starts) > 2, _are_ascending(probes)  # and then those of each bucket are ascending, too
    for r in range(len(places)):
        rows, fence_count = np.int64(places[r, ROWS]), np.int64(places[r, FENCE_COUNT])
        if rows == 0:
            continue
        words = nb.carray(_pointer(places[r, WORDS]), (width, rows), np.uint64)
        fences = nb.carray(_pointer(places[r, FENCES]), (width, fence_count), np.uint64)
        ready = nb.carray(_pointer(places[r, READY]), fence_count, np.uint8)
        wanted = nb.carray(_pointer(places[r, WANTED]), fence_count, np.uint8)
        keys = nb.carray(_pointer(places[r, FILTER]), np.int64(places[r, FILTER_WORDS]), np.uint64)
        least, most = places[r, LOW], places[r, HIGH]
        begin, end, which = 0, m, everything
        if routed and places[r, HOME] != ANYWHERE:
            home = np.int64(places[r, HOME])
            begin, end, which = starts[home], starts[home + 1], order
        # Many probes in a small run: walk through both, side by side. Few in a large one: by way of the fences.
        dense = ascending and _DENSE * (end - begin) >= rows
        if dense and not _all_ready(ready, wanted):
            missing[r] += 1
        at = np.int64(0)
        for k in range(begin, end):
            j = which[k]
            if probes[0, j] < least or probes[0, j] > most or (len(keys) and not passes(keys, hashes[j])):
                continue
            if dense:
                first, last = _walked(words, probes, j, at)
                at = first
            else:
                at, above = _fenced(fences, probes, j, at if ascending else np.int64(0))
                low, high = max(at - 1, 0), max(above - 1, 0)  # the blocks in which the stretch begins and ends
                if not (ready[low] and ready[high]):
                    wanted[low], wanted[high] = 1, 1
                    missing[r] += 1
                first = kernels.halve(words, probes, j, 0, low * FENCE_ROWS, min(at * FENCE_ROWS, rows))
                last = _near(words, probes, j, 1, max(first, high * FENCE_ROWS), min(above * FENCE_ROWS, rows))
            if last > first:
                if count < len(out):
                    out[count, 0], out[count, 1], out[count, 2], out[count, 3] = r, first, last, j
                count += 1
    return count


@_jit
def bounds(
    places: NDArray[np.uint64], probes: Words, above: int, missing: NDArray[np.int64], out: NDArray[np.int64]
) -> None:
    """Find, per run and probe, the first key that is not below it, or (above = 1) above all that begin with it.

    Blocks that nobody has verified yet are marked as `find` marks them.
    """
    width, m = probes.shape
    for r in range(len(places)):
        rows, fence_count = np.int64(places[r, ROWS]), np.int64(places[r, FENCE_COUNT])
        out[r] = 0
        if rows == 0:
            continue
        words = nb.carray(_pointer(places[r, WORDS]), (width, rows), np.uint64)
        fences = nb.carray(_pointer(places[r, FENCES]), (width, fence_count), np.uint64)
        ready = nb.carray(_pointer(places[r, READY]), fence_count, np.uint8)
        wanted = nb.carray(_pointer(places[r, WANTED]), fence_count, np.uint8)
        for j in range(m):
            at = kernels.halve(fences, probes, j, above, 0, fence_count)
            block = max(at - 1, 0)
            if not ready[block]:
                wanted[block] = 1
                missing[r] += 1
            out[r, j] = kernels.halve(words, probes, j, above, block * FENCE_ROWS, min(at * FENCE_ROWS, rows))


@_jit
def starts(
    places: NDArray[np.uint64], stretches: NDArray[np.int64], probes: Words, missing: NDArray[np.int64], out: Positions
) -> None:
    """Find, per stretch (run, first, last, probe), the first key of the run that is not below the probe.

    Blocks that nobody has verified yet are marked as `find` marks them.
    """
    width = probes.shape[0]
    for s in range(stretches.shape[1]):
        r, j = stretches[0, s], stretches[3, s]
        rows, fence_count = np.int64(places[r, ROWS]), np.int64(places[r, FENCE_COUNT])
        words = nb.carray(_pointer(places[r, WORDS]), (width, rows), np.uint64)
        fences = nb.carray(_pointer(places[r, FENCES]), (width, fence_count), np.uint64)
        at = kernels.halve(fences, probes, j, 0, 0, fence_count)
        block = max(at - 1, 0)
        if not nb.carray(_pointer(places[r, READY]), fence_count, np.uint8)[block]:
            nb.carray(_pointer(places[r, WANTED]), fence_count, np.uint8)[block] = 1
            missing[r] += 1
        out[s] = kernels.halve(words, probes, j, 0, block * FENCE_ROWS, min(at * FENCE_ROWS, rows))


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
def mark(
    ready_at: NDArray[np.uint64],
    wanted_at: NDArray[np.uint64],
    runs: Positions,
    positions: Positions,
    missing: NDArray[np.int64],
) -> None:
    """Mark the blocks of rows that hold some entries as wanted, unless they are ready; counts those in each run."""
    for k in range(len(runs)):
        block = positions[k] // FENCE_ROWS
        if not nb.carray(_pointer(ready_at[runs[k]]), block + 1, np.uint8)[block]:
            nb.carray(_pointer(wanted_at[runs[k]]), block + 1, np.uint8)[block] = 1
            missing[runs[k]] += 1


@_jit
def gather(at: NDArray[np.uint64], size: int, runs: Positions, positions: Positions, out: Words) -> None:
    """Copy elements of `size` words each out of runs; `at` has the address of the first element per run."""
    for k in range(len(runs)):
        start = positions[k] * size
        source = nb.carray(_pointer(at[runs[k]]), start + size, np.uint64)
        for w in range(size):
            out[k * size + w] = source[start + w]


@_jit
def gather_keys(places: NDArray[np.uint64], runs: Positions, positions: Positions, begin: int, out: Words) -> None:
    """Copy words of keys out of runs, from word number `begin` on."""
    for k in range(len(runs)):
        place = places[runs[k]]
        source = nb.carray(_pointer(place[WORDS]), (begin + out.shape[0], np.int64(place[ROWS])), np.uint64)
        for w in range(out.shape[0]):
            out[w, k] = source[begin + w, positions[k]]
