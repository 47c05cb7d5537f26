"""Products of rings: one payload that carries several sums side by side.

A view with COUNT(*), SUM(a) and SUM(b) has one arrangement, not three; its payload lives in the product of the
three rings, in which everything happens component by component.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from headrace.rings.base import Group, Payload, Positions, Ring


@dataclass(frozen=True)
class Product:
    """The product of groups (a ring if all of them are rings)."""

    parts: tuple[Group, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a product needs at least one part")

    @property
    def dtypes(self) -> tuple[np.dtype[np.generic], ...]:
        return tuple(dtype for part in self.parts for dtype in part.dtypes)

    @property
    def exact(self) -> bool:
        return all(part.exact for part in self.parts)

    def split(self, payload: Payload) -> list[Payload]:
        """Give each part its own columns."""
        edges = accumulate((len(part.dtypes) for part in self.parts), initial=0)
        return [payload[start:stop] for start, stop in pairwise(edges)]

    def join(self, payloads: list[Payload]) -> Payload:
        """Put the columns of the parts side by side."""
        return tuple(column for payload in payloads for column in payload)

    def _each(self, apply: Callable[..., Payload], *payloads: Payload) -> Payload:
        return self.join([apply(part, *own) for part, *own in zip(self.parts, *map(self.split, payloads), strict=True)])

    def zeros(self, n: int) -> Payload:
        return self.join([part.zeros(n) for part in self.parts])

    def ones(self, n: int) -> Payload:
        return self.join([_ring(part).ones(n) for part in self.parts])

    def add(self, left: Payload, right: Payload) -> Payload:
        return self._each(lambda part, a, b: part.add(a, b), left, right)

    def negate(self, payload: Payload) -> Payload:
        return self._each(lambda part, a: part.negate(a), payload)

    def multiply(self, left: Payload, right: Payload) -> Payload:
        return self._each(lambda part, a, b: _ring(part).multiply(a, b), left, right)

    def scale(self, payload: Payload, times: NDArray[np.int64]) -> Payload:
        return self._each(lambda part, a: part.scale(a, times), payload)

    def sum_by(self, payload: Payload, group_of: Positions, groups: int) -> Payload:
        return self._each(lambda part, a: part.sum_by(a, group_of, groups), payload)

    def is_zero(self, payload: Payload) -> NDArray[np.bool_]:
        parts = zip(self.parts, self.split(payload), strict=True)
        zero: NDArray[np.bool_] = np.logical_and.reduce([part.is_zero(own) for part, own in parts])
        return zero

    def equal(self, left: Payload, right: Payload) -> NDArray[np.bool_]:
        parts = zip(self.parts, self.split(left), self.split(right), strict=True)
        same: NDArray[np.bool_] = np.logical_and.reduce([part.equal(a, b) for part, a, b in parts])
        return same

    def sample(self, rng: np.random.Generator, n: int) -> Payload:
        return self.join([part.sample(rng, n) for part in self.parts])


def _ring(part: Group) -> Ring:
    if not isinstance(part, Ring):
        raise TypeError(f"{part!r} is a group but not a ring: it cannot multiply")
    return part
