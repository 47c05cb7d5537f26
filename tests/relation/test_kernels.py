"""Every compiled loop against a few lines of Python over tuples."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.relation import kernels

SIZES = [0, 1, 2, 24, 25, 26, 300, 3000]
SHAPES = [(width, spread) for width in (1, 2, 3) for spread in (1, 2, 5, 2**64 - 1)]


def random_words(rng: np.random.Generator, width: int, n: int, spread: int) -> np.ndarray:
    """Keys whose words take few or many values; few make many ties in the lead word."""
    return rng.integers(0, spread, (width, n), dtype=np.uint64, endpoint=True)


def tuples(words: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(map(int, column)) for column in words.T]


@pytest.mark.parametrize(("width", "spread"), SHAPES)
@pytest.mark.parametrize("n", SIZES)
def test_sort_order_is_a_stable_sort(width, spread, n):
    words = random_words(np.random.default_rng(n), width, n, spread)
    keys = tuples(words)
    assert list(kernels.sort_order(words)) == sorted(range(n), key=keys.__getitem__)


@pytest.mark.parametrize("n", [30, 300])
def test_sorting_orders_long_ties_of_the_lead_word_by_all_other_words(n):
    words = random_words(np.random.default_rng(n), 4, n, 2)
    words[0] = 7
    words[3] = np.arange(n, 0, -1)
    assert list(kernels.sort_order(words)) == sorted(range(n), key=tuples(words).__getitem__)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12), min_size=1, max_size=9))
def test_merge_order_is_a_stable_sort_of_sorted_stretches(stretches):
    stretches = [sorted(stretch) for stretch in stretches]
    keys = [key for stretch in stretches for key in stretch]
    words = np.array(keys, np.uint64).reshape(len(keys), 2).T.copy()
    bounds = np.cumsum([0] + [len(stretch) for stretch in stretches])
    assert list(kernels.merge_order(words, bounds)) == sorted(range(len(keys)), key=keys.__getitem__)


@pytest.mark.parametrize(("width", "spread"), SHAPES)
@pytest.mark.parametrize("n", SIZES)
def test_group_sorted_numbers_equal_keys_along_the_order(width, spread, n):
    words = random_words(np.random.default_rng(n), width, n, spread)
    order, group_of = kernels.sort_order(words), np.empty(n, np.int64)
    groups = kernels.group_sorted(words, order, group_of)
    distinct = sorted(set(tuples(words)))
    assert groups == len(distinct)
    assert [distinct[g] for g in group_of] == sorted(tuples(words))


@pytest.mark.parametrize(("width", "spread"), SHAPES)
@pytest.mark.parametrize("n", [*SIZES, 20_000])
def test_group_hashed_numbers_equal_keys_in_order_of_appearance(width, spread, n):
    words = random_words(np.random.default_rng(n), width, n, spread)
    group_of, first = np.empty(n, np.int64), np.empty(n, np.int64)
    groups = kernels.group_hashed(words, group_of, first)
    appeared: dict[tuple[int, ...], int] = {}
    expected = [appeared.setdefault(key, len(appeared)) for key in tuples(words)]
    assert groups == len(appeared)
    assert list(group_of) == expected
    assert list(first[:groups]) == list(np.unique(expected, return_index=True)[1])


def bounds_by_hand(keys, probe, low, high, side):
    prefixes = [key[: len(probe)] for key in keys]
    return side(prefixes, probe, low, high)


KEYS = st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 2))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(KEYS, max_size=40, unique=True), st.integers(1, 3), st.lists(KEYS, max_size=20), st.booleans(), st.data()
)
def test_bounds_are_those_of_bisect_between_any_lows_and_highs(keys, prefix, probes, ordered, data):
    keys, probes = sorted(keys), [probe[:prefix] for probe in (sorted(probes) if ordered else probes)]
    n, m = len(keys), len(probes)
    words = np.array(keys, np.uint64).reshape(n, 3).T.copy()
    wanted = np.array(probes, np.uint64).reshape(m, prefix).T.copy()
    ranges = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for _ in probes]
    lows, highs = np.array([r[0] for r in ranges], np.int64), np.array([r[1] for r in ranges], np.int64)
    out = np.empty(m, np.int64)
    for kernel, side in ((kernels.lower_bounds, bisect_left), (kernels.upper_bounds, bisect_right)):
        kernel(words, wanted, lows, highs, out)
        assert list(out) == [bounds_by_hand(keys, p, *r, side) for p, r in zip(probes, ranges, strict=True)]


def test_a_bound_that_its_low_cut_off_does_not_mislead_the_next_probe():
    words, probes = np.arange(20, dtype=np.uint64)[None, :], np.array([[3, 4]], np.uint64)
    out = np.empty(2, np.int64)
    kernels.lower_bounds(words, probes, np.array([7, 0]), np.array([20, 20]), out)
    assert list(out) == [7, 4]


@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
@pytest.mark.parametrize("kernel", [kernels.lower_bounds, kernels.upper_bounds])
def test_bounds_over_many_keys_are_those_of_searchsorted(kernel, order):
    rng = np.random.default_rng(3)
    keys, probes = np.sort(rng.integers(0, 5000, 10_000)), rng.integers(0, 5200, 3000)
    probes = {"ascending": np.sort(probes), "descending": np.sort(probes)[::-1], "random": probes}[order]
    out, zeros = np.empty(3000, np.int64), np.zeros(3000, np.int64)
    kernel(keys.astype(np.uint64)[None, :], probes.astype(np.uint64)[None, :], zeros, zeros + 10_000, out)
    side = "left" if kernel is kernels.lower_bounds else "right"
    assert (out == np.searchsorted(keys, probes, side)).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=60), st.integers(5, 9))
@example([], 1)
def test_split_by_keeps_the_order_within_a_bucket(codes, buckets):
    order, starts = np.empty(len(codes), np.int64), np.empty(buckets + 1, np.int64)
    kernels.split_by(np.array(codes, np.int32), buckets, order, starts)
    parts = [list(order[starts[b] : starts[b + 1]]) for b in range(buckets)]
    assert parts == [[i for i, code in enumerate(codes) if code == b] for b in range(buckets)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=20))
def test_expand_lists_every_position_of_every_stretch(stretches):
    first = np.array([start for start, _ in stretches], np.int64)
    last = first + np.array([size for _, size in stretches], np.int64)
    total = sum(size for _, size in stretches)
    positions, owners = np.empty(total, np.int64), np.empty(total, np.int64)
    kernels.expand(first, last, positions, owners)
    expected = [(start + k, j) for j, (start, size) in enumerate(stretches) for k in range(size)]
    assert list(zip(positions, owners, strict=True)) == expected


@pytest.mark.parametrize("n", [0, 1, 5])
def test_is_identity_tells_an_order_that_moves_nothing(n):
    assert kernels.is_identity(np.arange(n))
    assert n < 2 or not kernels.is_identity(np.arange(n)[::-1].copy())


@pytest.mark.parametrize("buckets", [1, 2, 7, 64])
def test_keys_that_count_up_spread_evenly_over_the_buckets(buckets):
    codes = np.empty(64_000, np.int32)
    kernels.buckets_of(np.arange(64_000, dtype=np.uint64) ^ np.uint64(1 << 63), buckets, codes)
    counts = np.bincount(codes, minlength=buckets)
    assert len(counts) == buckets
    assert counts.min() > 0.8 * 64_000 / buckets
    assert counts.max() < 1.2 * 64_000 / buckets


def test_every_flipped_bit_of_a_block_changes_its_checksum():
    rng = np.random.default_rng(0)
    for size in (1, 3, 4, 7, 64):
        data = rng.integers(0, 2**63, size, dtype=np.uint64)
        which, clean, found = np.zeros(1, np.int64), np.empty(1, np.uint64), np.empty(1, np.uint64)
        kernels.checksums(data, size, which, clean)
        for word in range(size):
            for bit in range(64):
                data[word] ^= np.uint64(1 << bit)
                kernels.checksums(data, size, which, found)
                assert found[0] != clean[0]
                data[word] ^= np.uint64(1 << bit)


def test_a_checksum_knows_the_order_and_the_number_of_the_words():
    sums = defaultdict(set)
    for words in ([1, 2, 3, 4, 5], [2, 1, 3, 4, 5], [5, 2, 3, 4, 1], [1, 2, 3, 4], [1, 2, 3, 4, 5, 0], [0, 0], [0]):
        out = np.empty(1, np.uint64)
        kernels.checksums(np.array(words, np.uint64), 8, np.zeros(1, np.int64), out)
        sums[int(out[0])].add(tuple(words))
    assert len(sums) == 7


def test_strings_that_differ_only_in_length_or_padding_have_different_hashes():
    texts = [b"", b"\0", b"\0\0", b"\0" * 8, b"\0" * 9, b"a", b"a\0", b"\0a", b"a" * 8, b"a" * 9, b"a" * 8 + b"\0"]
    offsets = np.cumsum([0] + [len(text) for text in texts])
    out = np.empty((2, len(texts)), np.uint64)
    kernels.hash_strings(offsets, np.frombuffer(b"".join(texts), np.uint8), np.uint64(5), out)
    assert len(set(out[0])) == len(set(out[1])) == len(texts)
