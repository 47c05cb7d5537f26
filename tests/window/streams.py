"""Two disordered streams, and what their windows come to by nested loops, with nothing of `headrace.window` in it."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from headrace.datasets.delays import DelayLaw, Uniform
from headrace.datasets.disorder import Rate, Stream, generate
from headrace.window.arrivals import Arrivals

Windows = dict[int, tuple[int, int, int, float]]  # rows of both sides, matches, and the sum over these


def random_streams(
    rng: np.random.Generator, rows: int, *, keys: int = 5, length: int = 100, late: int = 30
) -> tuple[Stream, Stream]:
    """Two small streams with random whole values."""

    def one() -> Stream:
        n = int(rng.integers(0, rows + 1))
        event = rng.integers(-length, length, n)
        return Stream.of(
            key=rng.integers(0, keys, n),
            value=rng.integers(-5, 10, n).astype(float),
            event=event,
            arrival=event + rng.integers(0, late, n),
        )

    return one(), one()


def recomputed(left: Stream, right: Stream, length: int, slide: int, value_side: int = 0) -> Windows:
    """All windows that have a row, recomputed."""
    rows: dict[int, tuple[list[tuple[int, float]], list[tuple[int, float]]]] = defaultdict(lambda: ([], []))
    for side, stream in enumerate((left, right)):
        for key, value, event in zip(stream.key.tolist(), stream.value.tolist(), stream.event.tolist(), strict=True):
            window = event // slide
            while window * slide + length > event:
                rows[window][side].append((key, value))
                window -= 1
    out = {}
    for window, (ours, theirs) in rows.items():
        counts = Counter(key for key, _ in theirs)
        matches = sum(counts[key] for key, _ in ours)
        mine, other = (ours, counts) if value_side == 0 else (theirs, Counter(key for key, _ in ours))
        out[window] = (len(ours), len(theirs), matches, sum(value * other[key] for key, value in mine))
    return out


def steady(
    length: int,
    *,
    rate: Rate = 20_000,
    keys: int = 10,
    delays: DelayLaw | None = None,
    arrivals: str = "even",
    seed: int = 0,
) -> tuple[Stream, Stream]:
    """Two generated streams."""
    left, right = (
        generate(length, rate=rate, keys=keys, delays=delays or Uniform(5_000), arrivals=arrivals, seed=2 * seed + side)  # type: ignore[arg-type]
        for side in (0, 1)
    )
    return left, right


def arrivals_of(streams: tuple[Stream, Stream], value_side: int = 0) -> Arrivals:
    """Both in the order of their arrival."""
    return Arrivals.of(*streams, value_side)
