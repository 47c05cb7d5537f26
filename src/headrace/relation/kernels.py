"""The compiled loops under every relation: hashing, sorting, grouping, merging and searching keys.

A key is a column of W unsigned 64-bit words; n keys are an array of shape (W, n), compared word by word. Knowing
nothing but words, the same few loops serve integers, decimals, strings, dates, timestamps and any combination.
Everything here is compiled by Numba and cached on disk; nothing here allocates per key.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numba as nb
import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint64]
Positions: TypeAlias = NDArray[np.int64]

_jit: Any = nb.njit(cache=True, nogil=True)

_P1, _P2, _P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)


@_jit
def mix(x):  # type: ignore[no-untyped-def]
    """Mix the bits of a word, so that each depends on all."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@_jit
def fold(words: Words, seed: np.uint64, out: NDArray[np.uint64]) -> None:
    """Hash each key's words into one word."""
    for i in range(words.shape[1]):
        h = seed
        for w in range(words.shape[0]):
            h = mix((h ^ words[w, i]) + _P1)
        out[i] = h


@_jit
def buckets_of(lead: NDArray[np.uint64], buckets: int, out: NDArray[np.int32]) -> None:
    """Assign keys to buckets by their lead word; a second mixing keeps ordered keys from clustering."""
    for i in range(len(lead)):
        out[i] = np.int32((mix(lead[i] + _P2) >> np.uint64(33)) % np.uint64(buckets))


@_jit
def hash_strings(offsets: NDArray[np.int64], data: NDArray[np.uint8], seed: np.uint64, out: Words) -> None:
    """Hash each string into two words (128 bits), eight bytes per round."""
    for i in range(len(offsets) - 1):
        start, stop = offsets[i], offsets[i + 1]
        length = np.uint64(stop - start)
        a, b = mix(seed + length), mix(seed ^ _P3) + length
        at = start
        while at < stop:
            word = np.uint64(0)
            for k in range(min(8, stop - at)):
                word |= np.uint64(data[at + k]) << np.uint64(8 * k)
            a = mix((a ^ word) + _P1)
            b = (b + word * _P2) ^ (b >> np.uint64(29))
            b *= _P3
            at += 8
        out[0, i] = mix(a)
        out[1, i] = mix(b ^ length)


@_jit
def chunk_strings(offsets: NDArray[np.int64], data: NDArray[np.uint8], out: Words) -> None:
    """Lay each string out as big-endian words and its length, so that words compare as the bytes do."""
    chunks = out.shape[0] - 1
    for i in range(len(offsets) - 1):
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        for c in range(chunks):
            word = np.uint64(0)
            for k in range(8):
                at = 8 * c + k
                byte = np.uint64(data[start + at]) if at < length else np.uint64(0)
                word = (word << np.uint64(8)) | byte
            out[c, i] = word
        out[chunks, i] = np.uint64(length)


@_jit
def _less(words, i, j, width):  # type: ignore[no-untyped-def]
    for w in range(width):
        if words[w, i] != words[w, j]:
            return words[w, i] < words[w, j]
    return False


@_jit
def _same(words, i, j, width):  # type: ignore[no-untyped-def]
    for w in range(width):
        if words[w, i] != words[w, j]:
            return False
    return True


@_jit
def _varying(words):  # type: ignore[no-untyped-def]
    out = np.zeros(words.shape[0], np.uint64)
    for w in range(words.shape[0]):
        varies, first = np.uint64(0), words[w, 0]
        for i in range(words.shape[1]):
            varies |= words[w, i] ^ first
        out[w] = varies
    return out


@_jit
def _pack(words, low, bits, out):  # type: ignore[no-untyped-def]
    for i in range(words.shape[1]):
        key = np.uint64(0)
        for w in range(words.shape[0]):
            if bits[w] > 0:
                kept = words[w, i] >> low[w]
                if bits[w] < 64:
                    kept &= (np.uint64(1) << np.uint64(bits[w])) - np.uint64(1)
                    key = (key << np.uint64(bits[w])) | kept
                else:
                    key = kept
        out[i] = key


@_jit
def _radix_packed(keys, bits):  # type: ignore[no-untyped-def]
    n, digit, size = len(keys), 11, 2048
    passes = (bits + digit - 1) // digit
    counts = np.zeros((max(passes, 1), size), np.int64)
    mask = np.uint64(size - 1)
    for i in range(n):
        for p in range(passes):
            counts[p, (keys[i] >> np.uint64(digit * p)) & mask] += 1
    order, other = np.arange(n), np.empty(n, np.int64)
    here, there = keys.copy(), np.empty(n, np.uint64)
    for p in range(passes):
        total = 0
        for d in range(size):
            c = counts[p, d]
            counts[p, d] = total
            total += c
        shift = np.uint64(digit * p)
        for i in range(n):
            key = here[i]
            d = (key >> shift) & mask
            at = counts[p, d]
            counts[p, d] = at + 1
            other[at] = order[i]
            there[at] = key
        order, other = other, order
        here, there = there, here
    return order


@_jit
def _heads_packed(keys, order, group_of, first):  # type: ignore[no-untyped-def]
    group, before = -1, np.uint64(0)
    for k in range(len(order)):
        key = keys[order[k]]
        if k == 0 or key != before:
            group += 1
            first[group] = order[k]
            before = key
        group_of[order[k]] = group
    return group + 1


def packed(words: Words) -> tuple[NDArray[np.uint64], int] | None:
    """Put the bits of each key that vary into one word, in order, and tell how many they are; None if over 64."""
    keys, bits, used = _packed_prefix(words)
    return (keys, bits) if used == words.shape[0] else None


def _packed_prefix(words: Words) -> tuple[NDArray[np.uint64], int, int]:
    """Pack as many of the first words as fit one; gives the packed keys, their bits, and how many words they hold."""
    width, n = words.shape
    if n == 0:
        return np.zeros(0, np.uint64), 0, width
    varying = [int(mask) for mask in _varying(words)]
    low = np.array([(mask & -mask).bit_length() - 1 if mask else 0 for mask in varying], np.uint64)
    bits = np.array([mask.bit_length() - int(at) if mask else 0 for mask, at in zip(varying, low, strict=True)])
    used = int(np.searchsorted(np.cumsum(bits), 64, "right"))
    out = np.empty(n, np.uint64)
    _pack(words[:used], low[:used], bits[:used], out)
    return out, int(bits[:used].sum()), used


def group_packed(keys: NDArray[np.uint64], bits: int, group_of: Positions, first: Positions) -> int:
    """Number the groups of equal packed keys in ascending order; first[g] is the first row of group g."""
    return int(_heads_packed(keys, _radix_packed(keys, bits), group_of, first))


def sort_order(words: Words) -> Positions:
    """Return the positions of the keys in ascending order (stable)."""
    keys, bits, used = _packed_prefix(words)
    order: Positions = _radix_packed(keys, bits)
    if used < words.shape[0]:
        _sort_ties(words, keys, used, order)
    return order


@_jit
def _sort_ties(words, keys, used, order):  # type: ignore[no-untyped-def]
    # Keys whose packed beginnings are equal are ordered by the words that are left.
    width, n = words.shape
    start = 0
    while start < n:
        stop = start + 1
        while stop < n and keys[order[stop]] == keys[order[start]]:
            stop += 1
        if stop - start > 24:
            part = order[start:stop].copy()
            for w in range(width - 1, used - 1, -1):
                part = part[_radix_packed(words[w][part], 64)]
            order[start:stop] = part
        else:
            for i in range(start + 1, stop):
                row, j = order[i], i
                while j > start and _less(words, row, order[j - 1], width):
                    order[j] = order[j - 1]
                    j -= 1
                order[j] = row
        start = stop


@_jit
def merge_order(words: Words, bounds: Positions) -> Positions:
    """Return the ascending order of several sorted stretches laid end to end (bounds has their edges)."""
    n, width = words.shape[1], words.shape[0]
    order, other = np.arange(n), np.empty(n, np.int64)
    edges = bounds.copy()
    while len(edges) > 2:
        kept = [np.int64(0)]
        for s in range(0, len(edges) - 1, 2):
            start, middle = edges[s], edges[s + 1]
            stop = edges[s + 2] if s + 2 < len(edges) else middle
            i, j = start, middle
            for k in range(start, stop):
                if j >= stop or (i < middle and not _less(words, order[j], order[i], width)):
                    other[k] = order[i]
                    i += 1
                else:
                    other[k] = order[j]
                    j += 1
            kept.append(stop)
        edges = np.array(kept)
        order, other = other, order
    return order


@_jit
def group_sorted(words: Words, order: Positions, group_of: Positions) -> int:
    """Number the groups of equal keys along an order; group_of[k] is the group of the k-th key in order."""
    group, width = -1, words.shape[0]
    for k in range(len(order)):
        if k == 0 or not _same(words, order[k], order[k - 1], width):
            group += 1
        group_of[k] = group
    return group + 1


@_jit
def heads_sorted(words: Words, group_of: Positions, first: Positions) -> int:
    """Number the groups of equal keys that stand in order; first[g] is the first row of group g."""
    group, width = -1, words.shape[0]
    for k in range(words.shape[1]):
        if k == 0 or not _same(words, k, k - 1, width):
            group += 1
            first[group] = k
        group_of[k] = group
    return group + 1


@_jit
def is_identity(order: Positions) -> bool:
    """Tell whether an order leaves everything where it is."""
    for i in range(len(order)):
        if order[i] != i:
            return False
    return True


@_jit
def is_ascending(lead: NDArray[np.uint64]) -> bool:
    """Tell whether words never go down."""
    for i in range(1, len(lead)):
        if lead[i] < lead[i - 1]:
            return False
    return True


@_jit
def _hashed(words, i):  # type: ignore[no-untyped-def]
    # All words count: keys of a join begin with a variable that many of them share.
    h = words[0, i] + _P3
    for w in range(1, words.shape[0]):
        h = (h ^ (h >> np.uint64(32))) * _P1 + words[w, i]
    return mix(h)


@_jit
def group_hashed(words: Words, group_of: Positions, first: Positions) -> int:
    """Number the groups of equal keys in order of appearance; first[g] is the first row of group g."""
    width, n = words.shape
    size = 16
    while size < 2 * n:
        size *= 2
    # Few groups in many rows is the usual case: start small and grow, so that the table stays in cache.
    size = min(size, 4096)
    table = np.full(size, -1, np.int64)
    groups = 0
    for i in range(n):
        if 2 * groups >= size:
            size *= 4
            table = np.full(size, -1, np.int64)
            for g in range(groups):
                at = np.int64(_hashed(words, first[g]) & np.uint64(size - 1))
                while table[at] >= 0:
                    at = (at + 1) & (size - 1)
                table[at] = g
        at = np.int64(_hashed(words, i) & np.uint64(size - 1))
        while True:
            g = table[at]
            if g < 0:
                table[at] = groups
                first[groups] = i
                group_of[i] = groups
                groups += 1
                break
            if _same(words, i, first[g], width):
                group_of[i] = g
                break
            at = (at + 1) & (size - 1)
    return groups


@_jit
def compare(words, at, probes, j, width):  # type: ignore[no-untyped-def]
    """Tell whether a key is below (-1), above (1) or begins with (0) a probe of so many words."""
    for w in range(width):
        if words[w, at] != probes[w, j]:
            return -1 if words[w, at] < probes[w, j] else 1
    return 0


@_jit
def lower_bounds(words: Words, probes: Words, lows: Positions, highs: Positions, out: Positions) -> None:
    """Find, between lows and highs, the first key that is not below each probe (a probe may be a prefix)."""
    _bounds(words, probes, lows, highs, 0, out)


@_jit
def upper_bounds(words: Words, probes: Words, lows: Positions, highs: Positions, out: Positions) -> None:
    """Find, between lows and highs, the first key that is above each probe (a probe may be a prefix)."""
    _bounds(words, probes, lows, highs, 1, out)


@_jit
def _bounds(words, probes, lows, highs, above, out):  # type: ignore[no-untyped-def]
    width, before = probes.shape[0], np.int64(0)
    for j in range(probes.shape[1]):
        low, high = lows[j], highs[j]
        # Probes come in ascending order, so the answer is near the one before: gallop from there.
        if before > low and before <= high and compare(words, before - 1, probes, j, width) < above:
            low = before
            step = 1
            while low + step < high and compare(words, low + step, probes, j, width) < above:
                low += step
                step *= 2
            high = min(high, low + step)
        before = halve(words, probes, j, above, low, high)
        out[j] = before


@_jit
def halve(words, probes, j, above, low, high):  # type: ignore[no-untyped-def]
    """Find, from low to high, the first key that is not below a probe, or (above = 1) that is above the probe."""
    width = probes.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if compare(words, middle, probes, j, width) < above:
            low = middle + 1
        else:
            high = middle
    return low


@_jit
def split_by(codes: NDArray[np.int32], buckets: int, order: Positions, starts: Positions) -> None:
    """Order rows by a small code, keeping their order within it; starts has buckets + 1 edges."""
    starts[:] = 0
    for i in range(len(codes)):
        starts[codes[i] + 1] += 1
    for b in range(buckets):
        starts[b + 1] += starts[b]
    at = starts[:-1].copy()
    for i in range(len(codes)):
        order[at[codes[i]]] = i
        at[codes[i]] += 1


@_jit
def expand(first: Positions, last: Positions, positions: Positions, owners: Positions) -> None:
    """List the positions of the stretches [first, last), and which stretch each belongs to."""
    at = 0
    for j in range(len(first)):
        for position in range(first[j], last[j]):
            positions[at] = position
            owners[at] = j
            at += 1


@_jit
def checksums(data: NDArray[np.uint64], block: int, which: Positions, out: NDArray[np.uint64]) -> None:
    """Compute the checksum of the given blocks of words; four lanes keep the multiplier busy."""
    for k in range(len(which)):
        start = which[k] * block
        stop = min(start + block, len(data))
        a, b, c, d = _P1, _P2, _P3, np.uint64(stop - start)
        i = start
        while i + 4 <= stop:
            a = (a ^ data[i]) * _P2
            b = (b ^ data[i + 1]) * _P2
            c = (c ^ data[i + 2]) * _P2
            d = (d ^ data[i + 3]) * _P2
            # The multiplication only carries upwards; the shifts bring high bits back down.
            a ^= a >> np.uint64(32)
            b ^= b >> np.uint64(32)
            c ^= c >> np.uint64(32)
            d ^= d >> np.uint64(32)
            i += 4
        while i < stop:
            a = (a ^ data[i]) * _P2
            a ^= a >> np.uint64(32)
            i += 1
        out[k] = mix(a) ^ mix(b + _P1) ^ mix(c + _P2) ^ mix(d + _P3)
