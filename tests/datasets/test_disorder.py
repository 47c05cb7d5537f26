"""Disordered streams: laws of delay against their formulas, rates and keys against plain loops, order and refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from headrace.datasets.delays import (
    LONGEST,
    Bursts,
    ByKey,
    Constant,
    DelayLaw,
    Drift,
    Exponential,
    Numbers,
    Pareto,
    Step,
    Uniform,
)
from headrace.datasets.disorder import (
    Rate,
    Stream,
    evenly,
    generate,
    normal,
    poisson,
    read_recorded,
    restamp,
    uniform,
    uniform_keys,
    zipf_keys,
)
from headrace.errors import SchemaError, StorageError

MANY = 200_000
# Kolmogorov and Smirnov: a right law is refused once in a million draws, and the seeds are fixed besides.
APART = math.sqrt(-math.log(0.5e-6) / 2 / MANY)

LAWS = [
    Constant(3),
    Uniform(5_000),
    Exponential(2_000.0, most=9_000),
    Pareto(100, 1.5),
    Bursts(Uniform(50), every=1_000, lasts=200),
    Drift(Uniform(10), Exponential(500), begin=2_000, end=8_000),
    ByKey(Uniform(10), Pareto(1_000, 3.0), share=0.3),
    Step(Constant(0), Uniform(70), at=5_000),
]


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def drawn(law: DelayLaw, event: Numbers | None = None, key: Numbers | None = None, seed: int = 0) -> Numbers:
    event = np.arange(MANY) if event is None else event
    return law.draw(random(seed), event, np.zeros(len(event), np.int64) if key is None else key)


def same(one: Stream, other: Stream) -> bool:
    pairs = ((one.key, other.key), (one.value, other.value), (one.event, other.event), (one.arrival, other.arrival))
    return all(np.array_equal(left, right) for left, right in pairs)


def in_order(stream: Stream) -> bool:
    pairs = list(zip(stream.arrival.tolist(), stream.event.tolist(), strict=True))
    return pairs == sorted(pairs)


# Streams


def test_a_stream_is_sorted_by_arrival_then_event_then_place() -> None:
    stream = Stream.of(key=[1, 2, 3, 4, 5], value=[1, 2, 3, 4, 5], event=[5, 0, 9, 5, 8], arrival=[9, 20, 9, 9, 8])
    assert stream.key.tolist() == [5, 1, 4, 3, 2]
    assert stream.value.tolist() == [5, 1, 4, 3, 2]
    assert stream.delays.tolist() == [0, 4, 4, 0, 20]
    assert [column.dtype for column in (stream.key, stream.value, stream.event, stream.arrival)] == [
        np.int64,
        np.float64,
        np.int64,
        np.int64,
    ]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10)), max_size=30), st.integers(0, 31), st.integers(0, 31))
def test_between_is_what_arrives_in_a_half_open_span(times: list[tuple[int, int]], first: int, last: int) -> None:
    event = [happens for happens, _ in times]
    arrival = [happens + delay for happens, delay in times]
    stream = Stream.of(range(len(times)), np.ones(len(times)), event, arrival)
    assert in_order(stream)
    wanted = [number for number in stream.key.tolist() if first <= arrival[number] < last]
    assert stream.between(first, last).key.tolist() == wanted


def test_rows_that_are_taken_stay_in_order() -> None:
    stream = generate(1_000, rate=10_000, delays=Uniform(500))
    assert len(stream) == 10
    assert same(stream.take([7, 2, 2, -1]), stream.take([2, 2, 7, 9]))
    assert same(stream.take(stream.delays > 200), stream.take(np.flatnonzero(stream.delays > 200)))
    assert in_order(stream.take([7, 2, 2, -1]))
    assert len(stream.take([])) == 0
    with pytest.raises(IndexError):
        stream.take([10])
    with pytest.raises(IndexError):
        stream.take([True, False])


def test_nothing_makes_an_empty_stream() -> None:
    stream = Stream.of([], [], [], [])
    assert len(stream) == 0
    assert len(stream.between(0, 5)) == len(stream.take([])) == stream.to_arrow().num_rows == 0


def test_arrow_has_the_same_rows_and_times() -> None:
    stream = generate(2_000, rate=50_000, keys=5, seed=3)
    start = datetime(2030, 5, 6, 7, 8, 9, 10, tzinfo=UTC)
    for table, begin in ((stream.to_arrow(), datetime(2026, 1, 1, tzinfo=UTC)), (stream.to_arrow(start), start)):
        time = pa.timestamp("us", "UTC")
        assert table.schema == pa.schema(
            [("key", pa.int64()), ("value", pa.float64()), ("event_time", time), ("arrival_time", time)]
        )
        rows = table.to_pydict()
        assert rows["key"] == stream.key.tolist()
        assert rows["value"] == stream.value.tolist()
        for name, times in (("event_time", stream.event), ("arrival_time", stream.arrival)):
            assert rows[name] == [begin + timedelta(microseconds=each) for each in times.tolist()]
            epoch = table[name].cast(pa.int64()).to_numpy()
            back = epoch - round(begin.timestamp()) * 1_000_000 - begin.microsecond
            np.testing.assert_array_equal(back, times)


def test_arrow_starts_at_a_moment() -> None:
    with pytest.raises(SchemaError, match="no time zone"):
        generate(0).to_arrow(datetime(2026, 1, 1))


# Laws of delay


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_every_law_draws_whole_delays_of_0_or_more_from_its_seed_alone(law: DelayLaw) -> None:
    event, key = np.arange(10_000), np.arange(10_000) % 17
    delay = drawn(law, event, key)
    assert delay.dtype == np.int64
    assert delay.shape == event.shape
    assert (delay >= 0).all()
    np.testing.assert_array_equal(delay, drawn(law, event, key))
    assert len(drawn(law, event[:0], key[:0])) == 0


Share = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def exponential(mean: float) -> Share:
    return lambda delay: 1 - np.exp(-delay / mean)


def pareto(least: float, shape: float) -> Share:
    return lambda delay: np.where(delay < least, 0, 1 - (least / np.maximum(delay, least)) ** shape)


def cut(share: Share, most: float) -> Share:
    return lambda delay: np.where(delay >= most, 1, share(delay) / share(np.array([most])))


@pytest.mark.parametrize(
    ("law", "share"),
    [
        (Uniform(5_000), lambda delay: np.minimum((delay + 0.5) / 5_001, 1)),
        (Exponential(2_000), exponential(2_000)),
        (Exponential(2_000, most=3_000), cut(exponential(2_000), 3_000)),
        (Pareto(500, 1.2), pareto(500, 1.2)),
        (Pareto(500, 0.4, most=20_000), cut(pareto(500, 0.4), 20_000)),
    ],
    ids=lambda each: "formula" if callable(each) else repr(each),
)
def test_shares_of_delays_are_those_of_the_formula(law: DelayLaw, share: Share) -> None:
    delay = np.sort(drawn(law))
    points = np.unique(delay)
    found = np.searchsorted(delay, points, side="right") / MANY
    # A delay of d stands for all that are rounded to it: those up to d + 1/2.
    assert np.abs(found - share(points + 0.5)).max() < APART


@pytest.mark.parametrize(
    ("law", "mean", "deviation"),
    [
        (Uniform(5_000), 2_500, math.sqrt(5_000 * 5_002 / 12)),
        (Exponential(2_000), 2_000, 2_000),
        (Exponential(2_000, most=2_000), 2_000 * (math.e - 2) / (math.e - 1), 2_000),
        (Pareto(500, 3), 750, 500 * math.sqrt(3) / 2),
    ],
    ids=repr,
)
def test_means_are_those_of_the_formula(law: DelayLaw, mean: float, deviation: float) -> None:
    assert abs(drawn(law).mean() - mean) < 5 * deviation / math.sqrt(MANY)


def test_bounds_of_laws_are_kept_and_reached() -> None:
    assert set(drawn(Uniform(3)).tolist()) == {0, 1, 2, 3}
    assert set(drawn(Uniform(0)).tolist()) == {0}
    assert set(drawn(Exponential(2.0, most=3)).tolist()) == {0, 1, 2, 3}
    assert set(drawn(Exponential(2.0, most=0)).tolist()) == {0}
    assert set(drawn(Pareto(2, 0.1, most=4)).tolist()) == {2, 3, 4}
    assert set(drawn(Pareto(7, 2.0, most=7)).tolist()) == {7}


@pytest.mark.parametrize("law", [Pareto(1, 1e-3), Pareto(1, 1e-300), Exponential(1e300)], ids=repr)
def test_tails_without_end_still_fit_64_bits(law: DelayLaw) -> None:
    delay = drawn(law)
    assert delay.min() >= 0
    assert LONGEST // 2 < delay.max() <= LONGEST


def test_bursts_hold_back_until_the_stop_ends() -> None:
    event = np.arange(10_000)
    base = drawn(Uniform(50), event)
    delay = drawn(Bursts(Uniform(50), every=1_000, lasts=200), event)
    held = event % 1_000 >= 800
    np.testing.assert_array_equal(delay[~held], base[~held])
    np.testing.assert_array_equal((event + delay)[held], (event // 1_000 * 1_000 + 1_000 + base)[held])
    stream = Stream.of(event, event, event, event + delay)
    assert len(stream.between(1_850, 2_000)) == 0  # only the stop, once the delays of the base are over
    assert len(stream.between(2_000, 2_051)) > 200


def test_bursts_of_no_time_and_of_all_the_time() -> None:
    event = np.arange(50)
    assert not drawn(Bursts(Constant(0), every=10, lasts=0), event).any()
    np.testing.assert_array_equal(event + drawn(Bursts(Constant(0), every=10, lasts=10), event), event // 10 * 10 + 10)


def test_drift_goes_linearly_from_law_to_law() -> None:
    begin, end = MANY // 4, MANY // 4 * 3
    delay = drawn(Drift(Constant(0), Constant(1), begin, end))
    assert not delay[: begin + 1].any()
    assert delay[end:].all()
    tenth = (end - begin) // 10
    for number, part in enumerate(np.split(delay[begin:end], 10)):
        assert part.mean() == pytest.approx((number + 0.5) / 10, abs=5 * 0.5 / math.sqrt(tenth))


def test_step_changes_at_its_event_time() -> None:
    delay = drawn(Step(Constant(4), Step(Constant(5), Constant(6), at=20), at=10), np.arange(30))
    assert delay.tolist() == [4] * 10 + [5] * 10 + [6] * 10


def test_slow_keys_are_always_the_same() -> None:
    law = ByKey(Uniform(100), Constant(1_000), share=0.2)
    key = random().integers(-50, 50, MANY)
    delay = drawn(law, key=key)
    slow = set(key[delay == 1_000].tolist())
    assert not slow & set(key[delay != 1_000].tolist())
    assert slow == set(key[law.is_slow(key)].tolist())
    assert slow == set(key[drawn(law, key=key, seed=1) == 1_000].tolist())


@pytest.mark.parametrize("share", [0.0, 0.05, 0.1, 0.25, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("keys", [10, 100, 1_000, 54_321])
def test_the_share_of_slow_keys_is_met_whether_they_are_few_or_many(keys: int, share: float) -> None:
    law = ByKey(Constant(0), Constant(1), share)
    assert abs(np.count_nonzero(law.is_slow(np.arange(keys))) - share * keys) <= 2
    far_apart = random(5).integers(-(2**62), 2**62, MANY)
    assert abs(law.is_slow(far_apart).mean() - share) < APART
    assert law.is_slow(np.arange(keys)).any() == (round(share * keys, 6) >= 1)


def test_slowness_has_nothing_to_do_with_popularity() -> None:
    law = ByKey(Constant(0), Constant(1), share=0.5)
    key = zipf_keys(random(), MANY, 1_000, 0.5)
    assert drawn(law, key=key).mean() == pytest.approx(0.5, abs=0.1)


# Event times


def expected_times(pieces: list[tuple[int, int]], length: int) -> list[int]:
    """Go from microsecond to microsecond; a tuple happens each time that a million of rate units have come together."""
    times, units = [], 0  # tuples expected so far, in millionths
    for now in range(length):
        rate = next(rate for start, rate in reversed(pieces) if start <= now)
        while units + rate > len(times) * 1_000_000:
            times.append(now)
        units += rate
    return times


@given(
    st.lists(st.tuples(st.integers(1, 300), st.one_of(st.just(0), st.integers(1, 3_000_000))), max_size=4),
    st.integers(0, 1_000_000),
    st.integers(0, 400),
)
def test_even_times_are_those_of_a_clock(pieces: list[tuple[int, int]], first: int, length: int) -> None:
    rate = [(0, first), *sorted(dict(pieces).items())]
    assert evenly(rate, length).tolist() == expected_times(rate, length)


def test_even_times_of_one_rate() -> None:
    assert evenly(100_000, 1_000_000).tolist() == list(range(0, 1_000_000, 10))
    assert evenly(3, 3_000_000).tolist() == [number * 1_000_000 // 3 for number in range(9)]
    assert evenly(np.float64(0.5), 3_000_000).tolist() == [0, 2_000_000]
    assert evenly(np.int64(2), 1_000_000).tolist() == [0, 500_000]
    assert len(evenly(0, 1_000)) == len(evenly(1_000, 0)) == 0
    for rate in (7, 0.7, 1_234.5, 99_999):
        assert len(evenly(rate, 10_000_000)) == math.ceil(rate * 10)


@given(st.integers(1, 1_000), st.integers(1, 10_000_000))
def test_as_many_even_times_as_the_rate_says_however_it_is_rounded(count: int, length: int) -> None:
    assert len(evenly(count * 1_000_000 / length, length)) == count


@given(st.lists(st.sampled_from([0, 1, 3, 0.7, 1 / 3, 99_999.9]), min_size=1, max_size=4), st.integers(1, 10**7))
def test_nothing_happens_at_the_end_even_if_the_largest_number_is_drawn(rates: list[float], length: int) -> None:
    class Largest:
        def random(self, n: int) -> NDArray[np.float64]:
            return np.full(n, np.nextafter(1, 0))

        def poisson(self, mean: float) -> int:
            return 3 if mean else 0

    rate = [(number * 1_000_000, each) for number, each in enumerate(rates)]
    assert (poisson(Largest(), rate, length) < length).all()  # type: ignore[arg-type]


def test_a_rate_doubles_and_halves_midway() -> None:
    times = evenly([(0, 1_000), (500_000, 2_000), (750_000, 500)], 1_000_000)
    assert np.histogram(times, [0, 500_000, 750_000, 1_000_000])[0].tolist() == [500, 500, 125]
    assert evenly([(0, 1_000), (5_000, 9_000)], 3_000).tolist() == [0, 1_000, 2_000]  # a piece after the end


def test_poisson_counts_have_the_rate_as_mean_and_variance() -> None:
    length, rate = 4_000_000, [(0, 50_000), (1_000_000, 0), (2_000_000, 100_000)]
    times = poisson(random(1), rate, length)
    assert times.dtype == np.int64
    assert (np.diff(times) >= 0).all()
    assert times.min() >= 0
    assert times.max() < length
    counts = np.histogram(times, np.arange(0, length + 1, 1_000))[0]  # a millisecond each
    for first, last, mean in ((0, 1_000, 50), (1_000, 2_000, 0), (2_000, 4_000, 100)):
        part = counts[first:last]
        assert part.mean() == pytest.approx(mean, abs=5 * math.sqrt(mean / len(part)))
        assert part.var() == pytest.approx(mean, rel=5 * math.sqrt(2 / len(part)))


def test_poisson_gaps_are_exponential() -> None:
    times = poisson(random(2), 1_000, MANY * 1_000)
    gaps = np.sort(np.diff(times))
    points = np.unique(gaps)
    found = np.searchsorted(gaps, points, side="right") / len(gaps)
    assert np.abs(found - (1 - np.exp(-(points + 0.5) / 1_000))).max() < APART + 1e-3  # times are rounded down


# Keys and values


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 2.5])
def test_keys_come_as_often_as_their_rank_says(skew: float) -> None:
    keys = 50
    found = np.bincount(zipf_keys(random(), MANY, keys, skew), minlength=keys)
    assert len(found) == keys
    weights = np.array([1 / (rank + 1) ** skew for rank in range(keys)])
    wanted = MANY * weights / weights.sum()
    assert (np.abs(np.sort(found)[::-1] - wanted) < 5 * np.sqrt(wanted) + 1).all()


def test_both_streams_have_the_same_favourites_and_they_are_scattered() -> None:
    favourites = [np.argmax(np.bincount(zipf_keys(random(seed), 10_000, 100, 1.0))) for seed in range(5)]
    assert len(set(favourites)) == 1
    assert len({int(np.argmax(np.bincount(zipf_keys(random(), 10_000, keys, 1.0)))) for keys in range(90, 110)}) > 10


def test_skew_without_end_leaves_one_key() -> None:
    assert len(np.unique(zipf_keys(random(), 1_000, 100, 1e6))) == 1
    assert zipf_keys(random(), 5, 1, 1.0).tolist() == [0] * 5
    assert len(zipf_keys(random(), 0, 5, 1.0)) == 0


def test_uniform_keys_are_even() -> None:
    found = np.bincount(uniform_keys(random(), MANY, 7))
    assert len(found) == 7
    assert (np.abs(found - MANY / 7) < 5 * math.sqrt(MANY / 7)).all()


def test_values_are_of_their_law() -> None:
    even = uniform(random(), MANY, 2.0, 6.0)
    assert even.min() >= 2
    assert even.max() < 6
    assert even.mean() == pytest.approx(4, abs=0.02)
    bell = normal(random(), MANY, 10.0, 3.0)
    assert bell.mean() == pytest.approx(10, abs=0.04)
    assert bell.std() == pytest.approx(3, abs=0.04)
    assert ((bell > 7) & (bell < 13)).mean() == pytest.approx(math.erf(1 / math.sqrt(2)), abs=0.006)
    assert normal(random(), 3, 5.0, 0.0).tolist() == [5.0] * 3


# Whole streams


@pytest.mark.parametrize("arrivals", ["even", "poisson"])
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_generated_streams_are_in_order_and_follow_from_their_seed(law: DelayLaw, arrivals: str) -> None:
    make = partial(generate, 20_000, rate=200_000, keys=20, skew=0.8, delays=law, arrivals=arrivals)
    stream = make(seed=1)
    assert in_order(stream)
    assert (stream.delays >= 0).all()
    assert stream.event.min() >= 0
    assert stream.event.max() < 20_000
    assert set(stream.key.tolist()) <= set(range(20))
    assert same(stream, make(seed=1))
    assert not same(stream, make(seed=2))


def test_another_law_of_delay_makes_other_arrivals_of_the_same_tuples() -> None:
    streams = [generate(50_000, delays=law, arrivals="poisson", payload=normal) for law in LAWS]
    tuples = [sorted(zip(s.event.tolist(), s.key.tolist(), s.value.tolist(), strict=True)) for s in streams]
    assert all(each == tuples[0] for each in tuples)


def test_other_keys_and_values_leave_times_as_they_are() -> None:
    one, other = generate(50_000, arrivals="poisson"), generate(50_000, arrivals="poisson", skew=1.0, payload=normal)
    np.testing.assert_array_equal(one.event, other.event)
    np.testing.assert_array_equal(one.arrival, other.arrival)
    assert not np.array_equal(one.key, other.key)


def test_defaults_are_those_of_the_paper() -> None:
    stream = generate(1_000_000)
    assert len(stream) == 100_000
    assert len(np.unique(stream.key)) == 10
    assert stream.delays.max() == 5_000
    assert 0 <= stream.value.min() < stream.value.max() < 1


def test_values_are_drawn_by_the_payload() -> None:
    stream = generate(100_000, payload=partial(normal, mean=1_000.0, deviation=1.0))
    assert stream.value.min() > 990


def test_recorded_rows_are_played_in_order_and_wrap_round() -> None:
    key, value = np.array([10, 11, 12, 13]), np.array([0.0, 0.1, 0.2, 0.3])
    stream = restamp(key, value, rate=1_000_000, length_us=10, delays=Constant(5), offset=6)
    assert stream.key.tolist() == [12, 13, 10, 11, 12, 13, 10, 11, 12, 13]
    np.testing.assert_array_equal(stream.value, (stream.key - 10) / 10)
    assert stream.event.tolist() == list(range(10))
    assert stream.arrival.tolist() == list(range(5, 15))


def test_recorded_rows_keep_their_places_under_delays() -> None:
    key = np.arange(1_000)
    make = partial(restamp, key, key * 0.5, rate=[(0, 10_000), (50_000, 20_000)], length_us=100_000)
    stream = make(delays=Uniform(9_000), seed=4)
    assert in_order(stream)
    assert not (np.diff(stream.key) >= 0).all()
    happened = np.argsort(stream.event)
    np.testing.assert_array_equal(stream.key[happened], np.arange(1_500) % 1_000)
    np.testing.assert_array_equal(stream.event[happened][500:], 50_000 + np.arange(1_000) * 50)
    assert same(stream, make(delays=Uniform(9_000), seed=4))
    assert not same(stream, make(delays=Uniform(9_000), seed=5))


def test_slow_keys_of_a_recorded_file_are_slow() -> None:
    law = ByKey(Constant(0), Constant(9), share=0.5)
    stream = restamp(np.arange(100), np.ones(100), rate=1_000_000, length_us=300, delays=law)
    np.testing.assert_array_equal(stream.delays == 9, law.is_slow(stream.key))


# Recorded files


def test_a_recorded_file_is_read_as_the_papers_write_it(tmp_path: Path) -> None:
    file = tmp_path / "rovio.csv"
    file.write_bytes(b"key,value,eventTime,arrivalTime\r\n78684720,777,0,5000.0\r\n7,-1.5,0,5000.0\r\n7,3,1,9.0\r\n")
    key, value = read_recorded(file)
    assert (key.dtype, value.dtype) == (np.int64, np.float64)
    assert key.tolist() == [78684720, 7, 7]
    assert value.tolist() == [777.0, -1.5, 3.0]
    assert len(restamp(*read_recorded(str(file)), rate=1_000, length_us=9_000, delays=Uniform(10))) == 9


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is no recorded stream: Empty CSV file"),
        ("key,value,eventTime,arrivalTime\n", "has no rows"),
        ("key,eventTime,arrivalTime\n1,2,3\n", "has no column value"),
        ("a,b\n1,2\n", "has no column key and value"),
        ("key,value,key\n1,2,3\n", "has no column key, or two of it"),
        ("key,value\n1,2\n1,x\n", "invalid value 'x'"),
        ("key,value\n1.5,2\n", "invalid value '1.5'"),
        ("key,value\n1,2\n,3\n", "has no key in row 2"),
        ("key,value\n1,2\n1,nan\n", "has no value in row 2"),
    ],
)
def test_files_that_are_no_recorded_stream_are_refused(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "some.csv"
    file.write_text(text)
    with pytest.raises(SchemaError) as caught:
        read_recorded(file)
    assert what in str(caught.value)
    assert str(file) in str(caught.value)
    assert "key,value,eventTime,arrivalTime" in caught.value.way_out


def test_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        read_recorded(tmp_path / "nothing.csv")
    with pytest.raises(StorageError, match="cannot be read"):
        read_recorded(tmp_path)


# Refusals


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lambda: Constant(-1), "by of Constant cannot be -1"),
        (lambda: Uniform(-1), "to of Uniform cannot be -1"),
        (lambda: Uniform(1.5), "to of Uniform cannot be 1.5"),
        (lambda: Uniform(2**61), "to of Uniform cannot be"),
        (lambda: Exponential(0), "mean of Exponential cannot be 0"),
        (lambda: Exponential(math.inf), "mean of Exponential cannot be inf"),
        (lambda: Exponential("5"), "mean of Exponential cannot be '5'"),
        (lambda: Exponential(5, most=-1), "most of Exponential cannot be -1"),
        (lambda: Pareto(0, 1.0), "least of Pareto cannot be 0"),
        (lambda: Pareto(1, 0.0), "shape of Pareto cannot be 0.0"),
        (lambda: Pareto(1, math.nan), "shape of Pareto cannot be nan"),
        (lambda: Pareto(10, 1.0, most=9), "most of Pareto cannot be 9"),
        (lambda: Bursts(5, 10, 1), "base of Bursts cannot be 5"),
        (lambda: Bursts(Uniform, 10, 1), "base of Bursts cannot be"),
        (lambda: Bursts(Uniform(1), 0, 0), "every of Bursts cannot be 0"),
        (lambda: Bursts(Uniform(1), 10, 11), "lasts of Bursts cannot be 11"),
        (lambda: Drift(None, Uniform(1), 0, 1), "first of Drift cannot be None"),
        (lambda: Drift(Uniform(1), None, 0, 1), "last of Drift cannot be None"),
        (lambda: Drift(Uniform(1), Uniform(1), -1, 1), "begin of Drift cannot be -1"),
        (lambda: Drift(Uniform(1), Uniform(1), 5, 5), "end of Drift cannot be 5"),
        (lambda: ByKey(1, Uniform(1), 0.5), "fast of ByKey cannot be 1"),
        (lambda: ByKey(Uniform(1), 1, 0.5), "slow of ByKey cannot be 1"),
        (lambda: ByKey(Uniform(1), Uniform(2), -0.1), "share of ByKey cannot be -0.1"),
        (lambda: ByKey(Uniform(1), Uniform(2), 1.1), "share of ByKey cannot be 1.1"),
        (lambda: Step(1, Uniform(1), 5), "before of Step cannot be 1"),
        (lambda: Step(Uniform(1), 1, 5), "after of Step cannot be 1"),
        (lambda: Step(Uniform(1), Uniform(1), 0.5), "at of Step cannot be 0.5"),
        (lambda: generate(-1), "length_us cannot be -1"),
        (lambda: generate(0.5), "length_us cannot be 0.5"),
        (lambda: generate(1, rate=-1), "rate cannot be -1"),
        (lambda: generate(1, rate=math.nan), "rate cannot be nan"),
        (lambda: generate(1, rate=math.inf, arrivals="poisson"), "rate cannot be inf"),
        (lambda: generate(1, rate=None), "rate cannot be None"),
        (lambda: generate(1, rate="fast"), "rate cannot be 'fast'"),
        (lambda: generate(1, rate=[(0, 1, 2)]), "rate cannot be [(0, 1, 2)]"),
        (lambda: generate(1, rate=[]), "pieces of rate cannot start at []"),
        (lambda: generate(1, rate=[(5, 1)]), "pieces of rate cannot start at [5]"),
        (lambda: generate(1, rate=[(0, 1), (5, 1), (5, 2)]), "pieces of rate cannot start at [0, 5, 5]"),
        (lambda: generate(1, rate=[(0, 1), (2, -1)]), "rate cannot be -1"),
        (lambda: generate(1, rate=[(0, 1), (0.5, 1)]), "the start of a piece of rate cannot be 0.5"),
        (lambda: generate(1, keys=0), "keys cannot be 0"),
        (lambda: generate(1, keys=0, skew=1.0), "keys cannot be 0"),
        (lambda: generate(1, skew=-0.1), "skew cannot be -0.1"),
        (lambda: generate(1, skew=math.nan), "skew cannot be nan"),
        (lambda: generate(1, arrivals="bursty"), "arrivals='bursty' is not known"),
        (lambda: generate(1, delays=5_000), "delays cannot be 5000"),
        (lambda: generate(1, seed=-1), "seed cannot be -1"),
        (lambda: generate(1, payload=lambda rng, n: np.zeros(n + 1)), "differ in length: key 1, value 2, event 1"),
        (lambda: generate(1, payload=lambda rng, n: np.array(["a"] * n)), "value is of type <U1"),
        (lambda: uniform_keys(random(), -1, 5), "n cannot be -1"),
        (lambda: zipf_keys(random(), -1, 5, 1.0), "n cannot be -1"),
        (lambda: uniform(random(), 5, 1.0, 0.0), "there are no values from 1.0 to 0.0"),
        (lambda: uniform(random(), 5, 0.0, math.inf), "there are no values from 0.0 to inf"),
        (lambda: normal(random(), 5, math.nan), "mean cannot be nan"),
        (lambda: normal(random(), 5, 0.0, -1.0), "deviation cannot be -1.0"),
        (lambda: Stream.of([1, 2], [1, 2], [1], [1, 2]), "key 2, value 2, event 1, arrival 2"),
        (lambda: Stream.of([1, 2, 3], [1, 2, 3], [5, 5, 6], [5, 4, 5]), "row 1 arrives at 4, before it happens at 5"),
        (lambda: Stream.of([1], [1], [0.5], [1]), "event is of type float64"),
        (lambda: Stream.of([1], [1], [0], ["1"]), "arrival is of type <U1"),
        (lambda: Stream.of([[1]], [1], [0], [1]), "key has 2 dimensions"),
        (lambda: restamp([], [], rate=1, length_us=1, delays=Uniform(1)), "no rows were recorded"),
        (lambda: restamp([1], [], rate=1, length_us=1, delays=Uniform(1)), "there are 1 keys, but 0 values"),
        (lambda: restamp([1.5], [1], rate=1, length_us=1, delays=Uniform(1)), "key is of type float64"),
        (lambda: restamp([1], [1], rate=-1, length_us=1, delays=Uniform(1)), "rate cannot be -1"),
        (lambda: restamp([1], [1], rate=1, length_us=-1, delays=Uniform(1)), "length_us cannot be -1"),
        (lambda: restamp([1], [1], rate=1, length_us=1, delays=Uniform(1), offset=-1), "offset cannot be -1"),
        (lambda: restamp([1], [1], rate=1, length_us=1, delays=3), "delays cannot be 3"),
        (lambda: restamp([1], [1], rate=1, length_us=1, delays=Uniform(1), seed=-1), "seed cannot be -1"),
    ],
)
def test_wrong_arguments_are_refused_with_a_way_out(wrong: Callable[[], object], what: str) -> None:
    with pytest.raises(SchemaError) as caught:
        wrong()
    assert what in caught.value.what
    assert caught.value.way_out


def test_a_law_of_ones_own_may_not_let_tuples_arrive_early() -> None:
    class Early:
        def draw(self, rng: np.random.Generator, event: Numbers, key: Numbers) -> Numbers:
            return np.full(len(event), -1, np.int64)

    with pytest.raises(SchemaError, match="before it happens"):
        generate(100, delays=Early())


def test_a_rate_is_a_number_or_pieces() -> None:
    rates: list[Rate] = [1_000, 1_000.0, [(0, 1_000)], ((0, 1_000.0),)]
    assert all(same(generate(50_000, rate=rate), generate(50_000, rate=1_000)) for rate in rates)
