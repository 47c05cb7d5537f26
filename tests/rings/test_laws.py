"""Every ring obeys the laws, and a ring that does not is told which law it breaks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from headrace.rings import Compensated, Integer, Parity, Payload, Product, Relational, Vector
from headrace.rings.mixed import MixedCovariance
from headrace.testing import check_ring

RINGS = [
    Integer(1),
    Integer(2),
    Integer(3),
    Compensated(),
    Compensated(3),
    Product((Integer(1),)),
    Product((Integer(1), Integer(2), Integer(3))),
    Product((Integer(1), Compensated(), Integer(2))),
    Relational(),
    Product((Product((Integer(1), Compensated())), Compensated())),
    Parity(),
    Product((Parity(), Integer(1))),
    Vector(3),
    Vector(0),
    MixedCovariance(0, 2),
    MixedCovariance(2, 0),
    MixedCovariance(2, 3),
]


@pytest.mark.parametrize("ring", RINGS, ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_ring_obeys_the_laws(ring, seed):
    check_ring(ring, seed=seed)


class WrongNegate(Integer):
    def negate(self, payload: Payload) -> Payload:
        return tuple(~column for column in payload)  # forgets to add one


class NonAssociativeAdd(Integer):
    def add(self, left: Payload, right: Payload) -> Payload:
        return ((left[0] + right[0]) | 1,)


class DropsARow(Integer):
    def sum_by(self, payload: Payload, group_of: np.ndarray, groups: int) -> Payload:
        return super().sum_by((payload[0][:-1],), group_of[:-1], groups)


class EverythingIsZero(Integer):
    def is_zero(self, payload: Payload) -> np.ndarray:
        return np.ones(len(payload[0]), bool)


class WrongType(Integer):
    def sample(self, rng: np.random.Generator, n: int) -> Payload:
        return (super().sample(rng, n)[0].astype(np.int32),)


@pytest.mark.parametrize(
    ("ring", "law"),
    [
        (WrongNegate(), "a - a = 0"),
        (WrongNegate(), "insert then delete changes nothing"),
        (NonAssociativeAdd(), "addition associates"),
        (DropsARow(), "summing by group is adding"),
        (EverythingIsZero(), "is_zero(a) is true of an element that is not zero"),
        (WrongType(), "a payload column is int32[64], declared int64[64]"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_broken_ring_is_told_which_law_it_breaks(ring, law):
    with pytest.raises(AssertionError) as caught:
        check_ring(ring)
    message = str(caught.value)
    assert message.startswith(repr(ring))
    assert law in message


def test_a_ring_that_breaks_one_law_is_told_of_one_law_only():
    class Rounds(Integer):
        def ones(self, n: int) -> Payload:
            return self.zeros(n)

    with pytest.raises(AssertionError, match=r"breaks 1 law:\n  one is neutral"):
        check_ring(Rounds())


@dataclass(frozen=True)
class Modulo7:
    """A user's own group: no multiplication, no inheritance."""

    dtypes = (np.dtype(np.int8),)
    exact = True

    def zeros(self, n):
        return (np.zeros(n, np.int8),)

    def add(self, left, right):
        return ((left[0] + right[0]) % np.int8(7),)

    def negate(self, payload):
        return (-payload[0] % np.int8(7),)

    def scale(self, payload, times):
        return ((payload[0].astype(np.int64) * (times % 7) % 7).astype(np.int8),)

    def is_zero(self, payload):
        return payload[0] == 0

    def sum_by(self, payload, group_of, groups):
        return ((np.bincount(group_of, payload[0], groups) % 7).astype(np.int8),)

    def equal(self, left, right):
        return left[0] == right[0]

    def sample(self, rng, n):
        return (rng.integers(0, 7, n, dtype=np.int8),)


def test_a_group_of_ones_own_needs_no_multiplication():
    check_ring(Modulo7())
    check_ring(Product((Modulo7(), Integer(1))))


def test_a_product_with_a_group_in_it_cannot_multiply():
    product = Product((Modulo7(), Integer(1)))
    with pytest.raises(TypeError, match="a group but not a ring"):
        product.ones(1)


def test_a_product_needs_a_part():
    with pytest.raises(ValueError, match="at least one part"):
        Product(())
