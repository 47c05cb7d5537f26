"""Streams whose tuples arrive late and out of order, as window joins under disorder are measured on.

A tuple has the time when it happened and the time when it arrives, both in whole microseconds, and a join sees only
what has arrived. Streams are generated from a rate, a skew of keys and a law of delay, or played again from a recorded
file with new times, since the recorded files of the papers span less than a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from os import PathLike
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
from numpy.typing import ArrayLike, NDArray

from headrace.datasets.delays import DelayLaw, Numbers, Uniform, law, real, whole
from headrace.errors import SchemaError, StorageError

Values = NDArray[np.float64]
Payload = Callable[[np.random.Generator, int], Values]

Rate = float | Sequence[tuple[int, float]]
"""Tuples a second: one number, or pieces (from which microsecond on, rate), the first of which starts at 0."""

_SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_START = datetime(2026, 1, 1, tzinfo=UTC)
_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True, eq=False)
class Stream:
    """Tuples in the order in which they arrive; those that arrive together, in the order in which they happened.

    Make one with `Stream.of`, which sorts and checks; the constructor does neither.

    Attributes
    ----------
    event, arrival : when each tuple happened and arrives, in microseconds.

    >>> late = Stream.of(key=[7, 8, 9], value=[0.5, 1, 2], event=[0, 10, 20], arrival=[30, 12, 20])
    >>> late.key.tolist(), late.delays.tolist(), late.between(12, 30).value.tolist()
    ([8, 9, 7], [2, 0, 30], [1.0, 2.0])
    """

    key: Numbers
    value: Values
    event: Numbers
    arrival: Numbers

    @classmethod
    def of(cls, key: ArrayLike, value: ArrayLike, event: ArrayLike, arrival: ArrayLike) -> Stream:
        """Make a stream of tuples in any order.

        Raises
        ------
        SchemaError : the columns differ in length or type, or a tuple arrives before it happens.
        """
        keys, values = _column("key", key, np.int64), _column("value", value, np.float64)
        events, arrivals = _column("event", event, np.int64), _column("arrival", arrival, np.int64)
        lengths = {"key": len(keys), "value": len(values), "event": len(events), "arrival": len(arrivals)}
        if len(set(lengths.values())) > 1:
            counted = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise SchemaError(f"the columns of a stream differ in length: {counted}", way_out="give a row of each")
        early = np.flatnonzero(arrivals < events)
        if len(early):
            row = early[0]
            raise SchemaError(
                f"row {row} arrives at {arrivals[row]}, before it happens at {events[row]}; so do {len(early)} rows",
                way_out="give arrival times that are event times plus delays of 0 or more",
            )
        return cls(keys, values, events, arrivals)._rows(np.lexsort((events, arrivals)))

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def delays(self) -> Numbers:
        """The delay of each tuple, in microseconds."""
        return self.arrival - self.event

    def take(self, positions_or_mask: ArrayLike) -> Stream:
        """Take some rows; they stay in the order of their arrival, whatever the order of the positions."""
        rows = np.asarray(positions_or_mask)
        if not len(rows):
            rows = rows.astype(np.int64)  # NumPy takes an empty list for floats
        return self._rows(np.sort(np.arange(len(self))[rows], kind="stable"))

    def between(self, first: int, last: int) -> Stream:
        """Return the rows that arrive in [first, last), without copying them."""
        start, stop = np.searchsorted(self.arrival, [first, last])
        return self._rows(slice(start, stop))

    def to_arrow(self, start: datetime = _START) -> pa.Table:
        """Return columns key, value, event_time and arrival_time; times are counted from `start`."""
        if start.tzinfo is None:
            raise SchemaError(f"start {start} has no time zone", way_out="give one, such as datetime(..., tzinfo=UTC)")
        from_epoch = (start - _EPOCH) // timedelta(microseconds=1)
        return pa.table(
            {
                "key": self.key,
                "value": self.value,
                "event_time": pa.array(self.event + from_epoch).cast(_TIME),
                "arrival_time": pa.array(self.arrival + from_epoch).cast(_TIME),
            }
        )

    def _rows(self, rows: Numbers | slice) -> Stream:
        return Stream(self.key[rows], self.value[rows], self.event[rows], self.arrival[rows])


def _column(name: str, values: ArrayLike, kind: type[Any]) -> NDArray[Any]:
    column = np.asarray(values)
    if column.ndim != 1:
        raise SchemaError(f"{name} has {column.ndim} dimensions", way_out="give an array of one dimension")
    # What is cast must keep its number: no fractions of microseconds, no keys of text.
    if len(column) and not np.can_cast(column.dtype, kind):
        raise SchemaError(f"{name} is of type {column.dtype}", way_out=f"give an array of {kind.__name__}")
    return column.astype(kind, copy=False)


def generate(
    length_us: int,
    *,
    rate: Rate = 100_000,
    keys: int = 10,
    skew: float = 0.0,
    payload: Payload | None = None,
    delays: DelayLaw = Uniform(5_000),  # noqa: B008 - a frozen value
    arrivals: Literal["even", "poisson"] = "even",
    seed: int = 0,
) -> Stream:
    """Make a stream of what happens in `length_us` microseconds, from 0 on; equal arguments give equal streams.

    Event times, keys, values and delays are drawn apart, so of two calls that differ in `delays` only, the tuples are
    the same and only their arrivals differ. The two sides of a join take two seeds.

    Parameters
    ----------
    keys, skew : how many keys there are, numbered from 0, and how much more often the popular ones come: see
        `zipf_keys`.
    payload : draws the values, given a source of random numbers and their count; `uniform` if None.
    arrivals : "even" spaces what happens as `evenly` does, "poisson" at random.

    >>> len(generate(50_000)), len(generate(50_000, rate=[(0, 100_000), (25_000, 200_000)]))
    (5000, 7500)
    """
    event_rng, key_rng, value_rng, delay_rng = np.random.default_rng(whole("seed", seed)).spawn(4)
    if arrivals not in ("even", "poisson"):
        raise SchemaError(f"arrivals={arrivals!r} is not known", way_out="use 'even' or 'poisson'")
    event = evenly(rate, length_us) if arrivals == "even" else poisson(event_rng, rate, length_us)
    key = zipf_keys(key_rng, len(event), keys, skew) if skew else uniform_keys(key_rng, len(event), keys)
    value = (uniform if payload is None else payload)(value_rng, len(event))
    return Stream.of(key, value, event, event + law("delays", delays).draw(delay_rng, event, key))


def restamp(
    key: ArrayLike,
    value: ArrayLike,
    *,
    rate: Rate,
    length_us: int,
    delays: DelayLaw,
    offset: int = 0,
    seed: int = 0,
) -> Stream:
    """Play recorded rows again, in their order, at an even rate and with new delays.

    Parameters
    ----------
    offset : the position of the row to start at. After the last row comes the first.

    >>> restamp([4, 5, 6], [1, 2, 3], rate=1_000, length_us=5_000, delays=Uniform(0), offset=2).key.tolist()
    [6, 4, 5, 6, 4]
    """
    keys, values = _column("key", key, np.int64), _column("value", value, np.float64)
    if len(keys) != len(values):
        raise SchemaError(f"there are {len(keys)} keys, but {len(values)} values", way_out="give a value for each key")
    if not len(keys):
        raise SchemaError("no rows were recorded that could be played again", way_out="give 1 row or more")
    rng = np.random.default_rng(whole("seed", seed))
    event = evenly(rate, length_us)
    rows = (whole("offset", offset) + np.arange(len(event))) % len(keys)
    delay = law("delays", delays).draw(rng, event, keys[rows])
    return Stream.of(keys[rows], values[rows], event, event + delay)


def read_recorded(path: str | PathLike[str]) -> tuple[Numbers, Values]:
    """Read the keys and values of a recorded stream, in the order of the file, for `restamp`.

    The file is CSV with a header. Besides `key` and `value` the files of the papers have `eventTime` and `arrivalTime`;
    those and other columns are ignored.
    """
    way_out = "give a CSV file with the header key,value,eventTime,arrivalTime and numbers below it"
    types = {"key": pa.int64(), "value": pa.float64()}
    try:
        table = csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=types))
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read: {error.strerror or error}", way_out="check the path and its permissions"
        ) from error
    except ValueError as error:  # Arrow's own, and text that is not UTF-8
        raise SchemaError(f"{path} is no recorded stream: {error}", way_out=way_out) from error
    missing = " and ".join(name for name in types if table.column_names.count(name) != 1)
    if missing:
        raise SchemaError(f"{path} has no column {missing}, or two of it", way_out=way_out)
    for name in types:
        if table[name].null_count:
            row = table[name].is_null().to_pylist().index(True)
            raise SchemaError(f"{path} has no {name} in row {row + 1}", way_out=way_out)
    if not table.num_rows:
        raise SchemaError(f"{path} has no rows", way_out=way_out)
    return table["key"].to_numpy(), table["value"].to_numpy()


def evenly(rate: Rate, length_us: int) -> Numbers:
    """Return event times from 0 to before `length_us`, at even distances as long as the rate stays the same.

    >>> evenly(1_000, 3_000).tolist(), evenly([(0, 1_000), (2_000, 4_000)], 3_000).tolist()
    ([0, 1000, 2000], [0, 1000, 2000, 2250, 2500, 2750])
    """
    pieces = _Pieces.of(rate, length_us)
    # A rate such as 1 / 3 is rounded, and must not make a tuple more for it.
    count = np.ceil(pieces.total / _SECOND * (1 - 1e-15))
    return pieces.times(np.arange(count, dtype=np.float64) * _SECOND)


def poisson(rng: np.random.Generator, rate: Rate, length_us: int) -> Numbers:
    """Return event times from 0 to before `length_us` that are independent of one another; the rate is their mean."""
    pieces = _Pieces.of(rate, length_us)
    # Given how many there are, they are uniform over what is due.
    return pieces.times(np.sort(rng.random(rng.poisson(pieces.total / _SECOND))) * pieces.total)


@dataclass(frozen=True)
class _Pieces:
    """A rate that stays the same from piece to piece: when a piece starts, its rate, and what is due before it.

    What is due is counted in millionths of tuples, the rate times microseconds: for whole rates it is exact.
    """

    start: Numbers
    rate: Values
    before: Values
    total: float
    length: int

    @classmethod
    def of(cls, rate: Rate, length_us: int) -> _Pieces:
        length = whole("length_us", length_us)
        given = list(rate) if isinstance(rate, Sequence) else [(0, rate)]
        if not all(isinstance(piece, tuple) and len(piece) == 2 for piece in given):
            raise SchemaError(f"rate cannot be {rate!r}", way_out="give a number, or a list of pairs (start, rate)")
        starts = [whole("the start of a piece of rate", start) for start, _ in given]
        rates = np.array([real("rate", each) for _, each in given])
        if not starts or starts[0] or any(then <= start for start, then in pairwise(starts)):
            raise SchemaError(
                f"pieces of rate cannot start at {starts}", way_out="start the first at 0 and each later than the last"
            )
        due = rates * np.diff(np.minimum([*starts, length], length))
        upto = np.cumsum([0.0, *due])
        return cls(np.array(starts), rates, upto[:-1], float(upto[-1]), length)

    def times(self, due: Values) -> Numbers:
        """Return when so much, less than the total, is due, rounded down."""
        # A piece in which nothing falls due has as much before it as the next, and the last of such is found.
        piece = np.searchsorted(self.before, due, side="right") - 1
        event = self.start[piece] + ((due - self.before[piece]) / self.rate[piece]).astype(np.int64)
        return event[event < self.length]  # a quotient may be rounded up to the very end


def uniform_keys(rng: np.random.Generator, n: int, keys: int) -> Numbers:
    """Draw `n` keys from 0 to before `keys`, each as likely as any other."""
    return rng.integers(0, whole("keys", keys, least=1), whole("n", n), np.int64)


def zipf_keys(rng: np.random.Generator, n: int, keys: int, skew: float) -> Numbers:
    """Draw `n` keys from 0 to before `keys`, the r-th most popular with a probability in proportion to r ** -skew.

    Which keys are popular depends on `keys` only, so that both streams of a join have the same favourites; their
    numbers are scattered.
    """
    real("skew", skew)
    ranks = np.arange(1.0, whole("keys", keys, least=1) + 1)
    upto = np.cumsum(ranks**-skew)
    rank = np.searchsorted(upto, rng.random(whole("n", n)) * upto[-1], side="right")
    numbers = np.random.default_rng(keys).permutation(keys)
    drawn: Numbers = numbers[np.minimum(rank, keys - 1)]
    return drawn


def uniform(rng: np.random.Generator, n: int, least: float = 0.0, most: float = 1.0) -> Values:
    """Draw `n` values from `least` to before `most`."""
    if not (np.isfinite(least) and np.isfinite(most) and least <= most):
        raise SchemaError(f"there are no values from {least} to {most}", way_out="give finite bounds in order")
    return rng.uniform(least, most, whole("n", n))


def normal(rng: np.random.Generator, n: int, mean: float = 0.0, deviation: float = 1.0) -> Values:
    """Draw `n` values of the normal law."""
    if not np.isfinite(mean):
        raise SchemaError(f"mean cannot be {mean}", way_out="give a finite number")
    return rng.normal(mean, real("deviation", deviation), whole("n", n))
