"""Laws of delay: how long after its event a tuple of a stream arrives.

An estimator of a window join is as good as its idea of the delays, so it has to be tried on laws that are bounded or
heavy-tailed, that change over time, and that depend on the key. Each law is a small value, and laws combine other laws.
All times are whole microseconds.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from numbers import Real
from typing import Protocol, SupportsIndex, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from headrace.errors import SchemaError

Numbers = NDArray[np.int64]

LONGEST = 2**60
"""No length of time is above this (36,000 years), so that sums of a few of them still fit 64 bits."""

_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio


@runtime_checkable
class DelayLaw(Protocol):
    """Anything that draws delays."""

    def draw(self, rng: np.random.Generator, event: Numbers, key: Numbers) -> Numbers:
        """Return a delay, 0 or more, for each tuple, given its event time and key."""


def whole(what: str, value: SupportsIndex, *, least: int = 0, most: int = LONGEST) -> int:
    """Return a whole number, or refuse what is none or lies outside of `least` to `most`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        up_to = "2**60" if most == LONGEST else most
        raise SchemaError(f"{what} cannot be {value!r}", way_out=f"give a whole number from {least} to {up_to}")
    return number


def real(what: str, value: float, *, above: float | None = None) -> float:
    """Return a finite number of 0 or more, or more than `above` if that is given; refuse any other."""
    if isinstance(value, Real) and math.isfinite(value) and (value >= 0 if above is None else value > above):
        return float(value)
    wanted = "of 0 or more" if above is None else f"above {above}"
    raise SchemaError(f"{what} cannot be {value!r}", way_out=f"give a finite number {wanted}")


def law(what: str, value: object) -> DelayLaw:
    """Return a law of delay, or refuse what is none."""
    if isinstance(value, type) or not isinstance(value, DelayLaw):
        raise SchemaError(f"{what} cannot be {value!r}", way_out="give a law of delay, such as Uniform(5_000)")
    return value


@dataclass(frozen=True)
class Constant:
    """Every tuple is late by the same time.

    >>> Constant(7).draw(np.random.default_rng(0), np.arange(3), np.arange(3)).tolist()
    [7, 7, 7]
    """

    by: int

    def __post_init__(self) -> None:
        whole("by of Constant", self.by)

    def draw(self, rng: np.random.Generator, event: Numbers, key: Numbers) -> Numbers:
        return np.full(len(event), self.by, np.int64)


@dataclass(frozen=True)
class Uniform:
    """Any delay from 0 to `to`, both included, is as likely as any other."""

    to: int

    def __post_init__(self) -> None:
        whole("to of Uniform", self.to)

    def draw(self, rng: np.random.Generator, event: Numbers, key: Numbers) -> Numbers:
        return rng.integers(0, self.to, len(event), np.int64, endpoint=True)


@dataclass(frozen=True)
class Exponential:
    """Delays with a light tail.

    Parameters
    ----------
    mean : the mean of the law without `most`.
    most : the longest delay. The law is cut off there, as if longer delays were drawn again: nothing piles up at it.
    """

    mean: float
    most: int | None = None

    def __post_init__(self) -> None:
        real("mean of Exponential", self.mean, above=0)
        if self.most is not None:
            whole("most of Exponential", self.most)

    def draw(self, rng: np.random.Generator, event: Numbers, key: Numbers) -> Numbers:
        most = LONGEST if self.most is None else self.most
        below = -math.expm1(-most / self.mean)  # the share of the law that is not cut off
        return _rounded(-self.mean * np.log1p(-below * rng.random(len(event))), most)


@dataclass(frozen=True)
class Pareto:
    """Delays with a heavy tail: of those above d, the share `2 ** -shape` is above 2 d.

    Parameters
    ----------
    least : the shortest delay, 1 or more.
    shape : at 2 and below the variance is infinite, at 1 and below the mean is too.
    most : the longest delay, where the law is cut off as in `Exponential`.
    """

    least: int
    shape: float
    most: int | None = None

    def __post_init__(self) -> None:
        whole("least of Pareto", self.least, least=1)
        real("shape of Pareto", self.shape, above=0)
        if self.most is not None:
            whole("most of Pareto", self.most, least=self.least)

    def draw(self, rng: np.random.Generator, event: Numbers, key: Numbers) -> Numbers:
        most = LONGEST if self.most is None else self.most
        below = -math.expm1(self.shape * math.log(self.least / most))
        growth = -np.log1p(-below * rng.random(len(event))) / self.shape
        return _rounded(self.least * np.exp(growth), most)


@dataclass(frozen=True)
class Bursts:
    """A link that stops and recovers: what happens during a stop arrives in a burst after it.

    The last `lasts` microseconds of every `every` microseconds of event time are a stop. A tuple from then is held back
    until the stop ends, and its delay of the law `base` is added to that. So a stream that starts at 0 starts calmly.

    >>> link = Bursts(Constant(1), every=10, lasts=4)
    >>> link.draw(np.random.default_rng(0), np.array([0, 5, 6, 9, 10]), np.zeros(5, np.int64)).tolist()
    [1, 1, 5, 2, 1]
    """

    base: DelayLaw
    every: int
    lasts: int

    def __post_init__(self) -> None:
        law("base of Bursts", self.base)
        whole("every of Bursts", self.every, least=1)
        whole("lasts of Bursts", self.lasts, most=self.every)

    def draw(self, rng: np.random.Generator, event: Numbers, key: Numbers) -> Numbers:
        left = self.every - event % self.every
        return np.where(left <= self.lasts, left, 0) + self.base.draw(rng, event, key)


@dataclass(frozen=True)
class Step:
    """The law changes at once, for all that happens from the event time `at` on."""

    before: DelayLaw
    after: DelayLaw
    at: int

    def __post_init__(self) -> None:
        law("before of Step", self.before)
        law("after of Step", self.after)
        whole("at of Step", self.at)

    def draw(self, rng: np.random.Generator, event: Numbers, key: Numbers) -> Numbers:
        return _either(self.before, self.after, event >= self.at, rng, event, key)


@dataclass(frozen=True)
class Drift:
    """The law changes slowly: from `begin` to `end` (event times) the share of the law `last` grows from 0 to 1."""

    first: DelayLaw
    last: DelayLaw
    begin: int
    end: int

    def __post_init__(self) -> None:
        law("first of Drift", self.first)
        law("last of Drift", self.last)
        whole("end of Drift", self.end, least=whole("begin of Drift", self.begin) + 1)

    def draw(self, rng: np.random.Generator, event: Numbers, key: Numbers) -> Numbers:
        share = (event - self.begin) / (self.end - self.begin)
        return _either(self.first, self.last, rng.random(len(event)) < share, rng, event, key)


@dataclass(frozen=True)
class ByKey:
    """Some keys are slow, such as the shops at the end of a bad line: what is missing differs from what is there.

    Which keys are slow follows from the key alone, so it is the same in both streams of a join, and from run to run.

    Parameters
    ----------
    share : the share of keys that are slow, 0 to 1. Of keys numbered from 0 the slow ones come to it as closely as
        they can: one in ten keys, and not by chance none of them.
    """

    fast: DelayLaw
    slow: DelayLaw
    share: float

    def __post_init__(self) -> None:
        law("fast of ByKey", self.fast)
        law("slow of ByKey", self.slow)
        if real("share of ByKey", self.share) > 1:
            raise SchemaError(f"share of ByKey cannot be {self.share!r}", way_out="give a share from 0 to 1")

    def is_slow(self, key: Numbers) -> NDArray[np.bool_]:
        """Tell which keys are slow.

        >>> np.flatnonzero(ByKey(Constant(0), Constant(9), share=0.3).is_slow(np.arange(10))).tolist()
        [1, 4, 9]
        """
        # Multiples of the golden ratio, modulo 1, fall evenly into any interval, however few they are: a hash that
        # scatters at random would often leave ten keys without a slow one.
        place = (key.astype(np.int64).view(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
        return (place >> np.uint64(11)) * 2.0**-53 < self.share

    def draw(self, rng: np.random.Generator, event: Numbers, key: Numbers) -> Numbers:
        return _either(self.fast, self.slow, self.is_slow(key), rng, event, key)


def _rounded(delay: NDArray[np.float64], most: int) -> Numbers:
    # Rounding of floats may take a delay a little past the end of its law.
    return np.minimum(np.rint(delay), most).astype(np.int64)


def _either(
    one: DelayLaw,
    other: DelayLaw,
    is_other: NDArray[np.bool_],
    rng: np.random.Generator,
    event: Numbers,
    key: Numbers,
) -> Numbers:
    delay = np.empty(len(event), np.int64)
    for choice, rows in ((one, ~is_other), (other, is_other)):
        delay[rows] = choice.draw(rng, event[rows], key[rows])
    return delay
