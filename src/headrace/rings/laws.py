"""The laws of groups and rings as code, so that every ring that exists, or that a user writes, can be held to them.

Each law is a function that returns the elements on its two sides; `violations` says where they differ. Rings that are
exact must obey bit for bit. The others must obey to one unit in the last place of the largest operand, which is what
rounding allows, except for the one law that maintenance rests on: adding and taking away again changes nothing.
A semiring has no negation, so the laws about it are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from headrace.rings.base import Group, Monoid, Payload, Semiring, concatenate, take
from headrace.rings.product import Product


@dataclass(frozen=True)
class Law:
    """One law: `sides` maps three sampled payload arrays to the two things that must be equal."""

    name: str
    sides: Callable[..., tuple[Payload, Payload]]
    ring_only: bool = False  # it is about multiplication
    group_only: bool = False  # it is about negation


def _n(payload: Payload) -> int:
    return len(payload[0])


def _batching(g: Monoid, a: Payload, b: Payload, c: Payload) -> tuple[Payload, Payload]:
    everything = concatenate([a, b, c])
    whole = g.sum_by(everything, np.zeros(3 * _n(a), np.int64), 1)
    parts = concatenate([g.sum_by(x, np.zeros(_n(a), np.int64), 1) for x in (a, b, c)])
    return whole, g.sum_by(parts, np.zeros(3, np.int64), 1)


def _grouping(g: Monoid, a: Payload, b: Payload, c: Payload) -> tuple[Payload, Payload]:
    n = _n(a)
    order = np.arange(n, dtype=np.int64)
    return g.sum_by(concatenate([a, b]), np.concatenate([order, order]), n), g.add(a, b)


def _times(g: Monoid, payload: Payload, k: int) -> Payload:
    return g.scale(payload, np.full(_n(payload), k, np.int64))


LAWS: tuple[Law, ...] = (
    Law("addition commutes", lambda g, a, b, c: (g.add(a, b), g.add(b, a))),
    Law("addition associates", lambda g, a, b, c: (g.add(g.add(a, b), c), g.add(a, g.add(b, c)))),
    Law("zero is neutral", lambda g, a, b, c: (g.add(a, g.zeros(_n(a))), a)),
    Law("a - a = 0", lambda g, a, b, c: (g.add(a, g.negate(a)), g.zeros(_n(a))), group_only=True),
    Law(
        "insert then delete changes nothing",
        lambda g, a, b, c: (g.add(g.add(a, b), g.negate(b)), a),
        group_only=True,
    ),
    Law("scaling is repeated addition", lambda g, a, b, c: (_times(g, a, 3), g.add(g.add(a, a), a))),
    Law("scaling by -1 negates", lambda g, a, b, c: (_times(g, a, -1), g.negate(a)), group_only=True),
    Law("scaling by 0 gives zero", lambda g, a, b, c: (_times(g, a, 0), g.zeros(_n(a)))),
    Law("any batching gives the same sum", _batching),
    Law("summing by group is adding", _grouping),
    Law("one is neutral", lambda r, a, b, c: (r.multiply(a, r.ones(_n(a))), a), ring_only=True),
    Law("zero absorbs", lambda r, a, b, c: (r.multiply(a, r.zeros(_n(a))), r.zeros(_n(a))), ring_only=True),
    Law("multiplication commutes", lambda r, a, b, c: (r.multiply(a, b), r.multiply(b, a)), ring_only=True),
    Law(
        "multiplication associates",
        lambda r, a, b, c: (r.multiply(r.multiply(a, b), c), r.multiply(a, r.multiply(b, c))),
        ring_only=True,
    ),
    Law(
        "multiplication distributes",
        lambda r, a, b, c: (r.multiply(a, r.add(b, c)), r.add(r.multiply(a, b), r.multiply(a, c))),
        ring_only=True,
    ),
)


def violations(group: Monoid, rng: np.random.Generator, n: int = 64, *, subtracts: bool | None = None) -> Iterator[str]:
    """Yield one line per law that fails on n random triples of elements.

    `subtracts` says whether it can negate, if having the method does not.
    """
    a, b, c = (group.sample(rng, n) for _ in range(3))
    for payload in (a, b, c):
        for column, dtype in zip(payload, group.dtypes, strict=True):
            if dtype.hasobject and len(column) == n:
                continue  # relations, which have no fixed width (`rings.mixed`)
            # A subarray dtype declares a column of more than one number an element.
            if column.dtype != dtype.base or column.shape != (n, *dtype.shape):
                declared = f"{dtype.base}{[n, *dtype.shape]}"
                yield f"a payload column is {column.dtype}{list(column.shape)}, declared {declared}"
                return
    # An entry that is_zero disappears, so it must be true of what cancels and of nothing else.
    if not group.is_zero(group.zeros(n)).all():
        yield "is_zero(zeros) is false"
    negates = isinstance(group, Group) and subtracts is not False
    if isinstance(group, Group) and negates and group.exact and not group.is_zero(group.add(a, group.negate(a))).all():
        yield "is_zero(a - a) is false"
    if (group.is_zero(a) & ~group.equal(a, group.zeros(n))).any():
        yield "is_zero(a) is true of an element that is not zero"
    for law in LAWS:
        if (law.ring_only and not _multiplies(group)) or (law.group_only and not negates):
            continue
        left, right = law.sides(group, a, b, c)
        same = group.equal(left, right)
        if not same.all():
            at = np.flatnonzero(~same)[:1]
            yield f"{law.name}: {take(left, at)} != {take(right, at)}"


def _multiplies(group: Monoid) -> bool:
    if isinstance(group, Product):  # it has the methods of a ring whatever its parts are
        return all(map(_multiplies, group.parts))
    return isinstance(group, Semiring)
