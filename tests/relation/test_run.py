"""Runs and their sums against a dictionary."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.relation.keys import ordered_string_words, strings_of_words
from headrace.relation.run import Run, concatenate_words, consolidate, merge, refit
from headrace.rings import Integer

COUNT = Integer(1)
ENTRIES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(-2, 2)), max_size=25)


def entry_columns(entries):
    words = np.array([(a, b) for a, b, _ in entries], np.uint64).reshape(len(entries), 2).T.copy()
    # What a key carries along depends on the key alone.
    values = {"name": pa.array([f"{a}-{b}" if b else None for a, b, _ in entries], pa.large_string())}
    return words, (np.array([count for *_, count in entries], np.int64),), values


def run_of(entries) -> Run:
    return consolidate(COUNT, *entry_columns(entries))


def content(run: Run) -> dict[tuple[int, ...], int]:
    keys = [tuple(key) for key in run.words.T.tolist()]
    assert keys == sorted(set(keys)), "keys are unique and ascend"
    assert run.values["name"].to_pylist() == [f"{a}-{b}" if b else None for a, b in keys]
    return dict(zip(keys, run.payload[0].tolist(), strict=True))


def summed(entries) -> dict[tuple[int, int], int]:
    total: dict[tuple[int, int], int] = defaultdict(int)
    for a, b, count in entries:
        total[a, b] += count
    return dict(total)


@settings(max_examples=60, deadline=None)
@given(ENTRIES)
def test_consolidating_sums_equal_keys_and_drops_zeros(entries):
    assert content(run_of(entries)) == {key: count for key, count in summed(entries).items() if count}


@settings(max_examples=60, deadline=None)
@given(st.lists(ENTRIES, min_size=1, max_size=6))
def test_merging_runs_is_summing_dictionaries(parts):
    everything = summed(entry for part in parts for entry in part)
    assert content(merge(COUNT, [run_of(part) for part in parts])) == {k: n for k, n in everything.items() if n}


@settings(max_examples=60, deadline=None)
@given(st.lists(ENTRIES, min_size=2, max_size=5))
def test_merging_can_keep_what_was_touched_and_cancelled(parts):
    touched = {key for part in parts for key, count in summed(part).items() if count}
    everything = summed(entry for part in parts for entry in part)
    merged = merge(COUNT, [run_of(part) for part in parts], keep_zeros=True)
    assert content(merged) == {key: everything[key] for key in touched}


def run_with_zeros() -> Run:
    words, _, values = entry_columns([(0, 1, 0), (0, 2, 0), (1, 1, 0)])
    return Run(words, (np.array([0, 3, 0]),), values)


@pytest.mark.parametrize("others", [0, 1, 2])
def test_zeros_disappear_however_many_runs_are_merged(others):
    runs = [run_with_zeros()] + [run_of([(2, i + 1, 1)]) for i in range(others)]
    assert content(merge(COUNT, runs)) == {(0, 2): 3} | {(2, i + 1): 1 for i in range(others)}
    kept = merge(COUNT, runs, keep_zeros=True)
    assert kept.rows == 3 + others


def test_runs_that_lie_end_to_end_are_merged_without_moving():
    low, high = run_of([(0, 1, 1), (0, 2, 5)]), run_of([(1, 1, -1)])
    assert content(merge(COUNT, [low, high])) == {(0, 1): 1, (0, 2): 5, (1, 1): -1}
    assert content(merge(COUNT, [high, low])) == {(0, 1): 1, (0, 2): 5, (1, 1): -1}


def string_run(entries: list[tuple[str, int]]) -> Run:
    words = ordered_string_words(pa.array([text for text, _ in entries], pa.large_string()))
    return consolidate(COUNT, words, (np.array([count for _, count in entries], np.int64),), {})


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.text("ab\0", max_size=20), st.integers(-2, 2)), max_size=8), min_size=1, max_size=5)
)
def test_ordered_strings_of_different_widths_merge_in_the_order_of_their_bytes(parts):
    total: dict[str, int] = defaultdict(int)
    for text, count in (entry for part in parts for entry in part):
        total[text] += count
    merged = merge(COUNT, [string_run(part) for part in parts])
    texts = strings_of_words(merged.words, None).to_pylist()
    assert texts == sorted((text for text, count in total.items() if count), key=str.encode)
    assert merged.payload[0].tolist() == [total[text] for text in texts]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text("ab\0", max_size=20), min_size=1, max_size=10), st.lists(st.text("ab\0", max_size=20), min_size=1)
)
def test_a_refitted_string_is_found_exactly_where_it_is(probes, stored):
    run = string_run([(text, 1) for text in stored])
    words, possible = refit(ordered_string_words(pa.array(probes, pa.large_string())), run.words.shape[0])
    order = np.lexsort(words[::-1])
    first, last = run.find(np.ascontiguousarray(words[:, order]))
    found = {probes[possible[order[j]]] for j in range(len(order)) if last[j] > first[j]}
    assert found == set(probes) & set(stored)


def test_words_of_one_width_are_put_behind_one_another_unchanged():
    parts = [np.ones((2, 2), np.uint64), np.zeros((2, 1), np.uint64)]
    assert (concatenate_words(parts) == np.array([[1, 1, 0], [1, 1, 0]])).all()


def test_taking_by_mask_and_by_position_is_the_same():
    run = run_of([(0, b, 1) for b in range(1, 5)])
    assert content(run.take(np.array([True, False, False, True]))) == content(run.take(np.array([0, 3])))
