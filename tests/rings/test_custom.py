"""Rings of users: what the base classes derive is right, and a ring that breaks a law cannot be registered."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pyspark import cloudpickle
from tests.own_rings import RINGS, AnyTrue, Complex, MaxProduct, MinPlus, SumOfSquares
from tests.seeds import seeds

import headrace as hr
from headrace.errors import SchemaError, StepFailedError
from headrace.rings import Payload, registry
from headrace.rings.checked import check_custom_ring
from headrace.rings.named import named


@pytest.fixture(autouse=True)
def _registry_as_before() -> Iterator[None]:
    before = registry.registered()
    yield
    registry._RINGS.clear()
    registry._RINGS.update(before)


@pytest.mark.parametrize("name", list(RINGS))
def test_the_rings_of_the_tests_are_registered(name: str) -> None:
    hr.register_ring(name, RINGS[name])
    assert registry.ring_called(name) is not None


@pytest.mark.parametrize("ring", list(RINGS.values()), ids=repr)
@seeds("derived methods of rings", 3)
def test_derived_methods_are_as_adding_one_by_one(ring: hr.Semiring, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, groups = int(rng.integers(0, 40)), int(rng.integers(1, 6))
    elements, group_of = ring.sample(rng, n), rng.integers(0, groups, n)
    subtracts = isinstance(ring, hr.Ring)
    times = rng.integers(-7 if subtracts else 0, 8, n)
    sums = [ring.zeros(1) for _ in range(groups)]
    scaled = [ring.zeros(1) for _ in range(n)]
    for i in range(n):
        one = tuple(column[i : i + 1] for column in elements)
        sums[group_of[i]] = ring.add(sums[group_of[i]], one)
        step = one if times[i] >= 0 or not isinstance(ring, hr.Ring) else ring.negate(one)
        for _ in range(abs(times[i])):
            scaled[i] = ring.add(scaled[i], step)
    together = ring.sum_by(elements, group_of, groups)
    assert all(ring.equal(tuple(column[g : g + 1] for column in together), own).all() for g, own in enumerate(sums))
    multiples = ring.scale(elements, times)
    assert all(ring.equal(tuple(column[i : i + 1] for column in multiples), own).all() for i, own in enumerate(scaled))


class TakesNegative(MaxProduct):
    def takes(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        return ~np.isnan(values)


class NoNeutralOne(MaxProduct):
    def ones(self, n: int) -> Payload:
        return (np.full(n, 0.5),)


class ForgetsToNegate(Complex):
    def negate(self, payload: Payload) -> Payload:
        return payload


class Concatenates(MinPlus):
    def multiply(self, left: Payload, right: Payload) -> Payload:
        return (left[0] * 10 + right[0],)


class DoesNotDistribute(Complex):
    def multiply(self, left: Payload, right: Payload) -> Payload:
        return left[0] * right[0], left[1] + right[1]


class SumsOfNothing(MinPlus):
    def sum_by(self, payload: Payload, group_of: NDArray[np.int64], groups: int) -> Payload:
        out = super().sum_by(payload, group_of, groups)[0].copy()
        out[np.bincount(group_of, minlength=groups) == 0] = 7
        return (out,)


class LiftsByRank(SumOfSquares):
    def lift(self, values: NDArray[Any]) -> Payload:
        return super().lift(values + 1.0 / max(1, len(values)))


@pytest.mark.parametrize(
    ("ring", "law"),
    [
        (TakesNegative(), r"zero is neutral: \(array\(\[0\.\]\),\) != \(array\(\[-"),
        (NoNeutralOne(), "one is neutral: "),
        (ForgetsToNegate(0), r"is_zero\(a - a\) is false"),
        (Concatenates(), "zero absorbs: |one is neutral: |multiplication commutes: "),
        (DoesNotDistribute(0), "one is neutral: |zero absorbs: |multiplication distributes: "),
        (SumsOfNothing(), "the sum of an empty group is zero: "),
        (LiftsByRank(), "a value is lifted alike"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, hr.Semiring) else "",
)
def test_a_ring_that_breaks_a_law_is_refused(ring: hr.Semiring, law: str) -> None:
    with pytest.raises(SchemaError, match=f"breaks a law: .*({law})") as refused:
        hr.register_ring("broken", ring)
    assert "let `takes`" in refused.value.way_out
    assert "broken" not in registry.registered()


class WritesToItsArguments(MaxProduct):
    def add(self, left: Payload, right: Payload) -> Payload:
        np.maximum(left[0], right[0], out=left[0])
        return left


class WrongLength(MaxProduct):
    def multiply(self, left: Payload, right: Payload) -> Payload:
        return (left[0][:-1] * right[0][:-1],)


class NoTuple(MaxProduct):
    def zeros(self, n: int) -> Payload:
        return np.zeros((n, 1))  # type: ignore[return-value]


class OneByte(AnyTrue):
    dtypes = (np.int8,)  # type: ignore[assignment]


class NoDtypes(AnyTrue):
    dtypes = ()  # type: ignore[assignment]


class OddType(AnyTrue):
    sql_type = "interval day"


class Locked(MaxProduct):
    def __init__(self) -> None:
        import threading

        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("ring", "what"),
    [
        (WritesToItsArguments(), "add raised ValueError: output array is read-only"),
        (WrongLength(), r"multiply gave an array of \(31,\), not of \(32,\)"),
        (NoTuple(), "zeros gave no tuple of 1 arrays"),
        (OneByte(), "a payload column of int8 is not kept"),
        (NoDtypes(), "its payloads have no column"),
        (OddType(), "its sql_type is none"),
        (Locked(), "cannot be sent to Spark's tasks"),
        (MaxProduct, "MaxProduct is a class"),
        (object(), "has no zeros, ones, add"),
    ],
    ids=lambda value: "" if isinstance(value, str) else getattr(value, "__name__", type(value).__name__),
)
def test_what_cannot_be_a_ring_is_refused(ring: Any, what: str) -> None:
    with pytest.raises(SchemaError, match=what):
        hr.register_ring("unfit", ring)


@pytest.mark.parametrize("name", ["", "a b", "1st", "a-b", "a.b", "naïve", 7])
def test_names_are_plain(name: Any) -> None:
    with pytest.raises(SchemaError, match="is no name for a ring"):
        hr.register_ring(name, MaxProduct())


def test_an_equal_ring_again_changes_nothing() -> None:
    first = Complex(0)
    hr.register_ring("again", first)
    hr.register_ring("Again", Complex(0))
    assert registry.ring_called("again") is first
    hr.register_ring("again", Complex(1))  # no view uses it
    assert registry.ring_called("again") == Complex(1)


def test_a_ring_travels_with_its_name() -> None:
    hr.register_ring("travelling", SumOfSquares())
    ring = named("travelling", SumOfSquares())
    sent = cloudpickle.dumps(ring)
    del registry._RINGS["travelling"]  # a task has no register
    got = pickle.loads(sent)
    assert got == ring
    assert got.show(got.lift(np.array([3.0])), np.array([False]), hr_double())[0].as_py() == 9.0


def hr_double() -> Any:
    import pyarrow as pa

    return pa.float64()


def test_a_ring_that_fails_later_fails_the_step() -> None:
    class Moody(MaxProduct):
        def add(self, left: Payload, right: Payload) -> Payload:
            if (left[0] == 99).any():
                raise RuntimeError("not this one")
            return super().add(left, right)

    check_custom_ring("moody", Moody())
    ring = named("moody", Moody())
    registry._RINGS["moody"] = Moody()
    with pytest.raises(StepFailedError, match="ring 'moody': add raised RuntimeError: not this one"):
        ring.add(ring.lift(np.array([99.0])), ring.ones(1))


def test_rings_of_other_classes_look_different() -> None:
    looks = {named(name, ring).looks for name, ring in RINGS.items() if not isinstance(ring, Complex)}
    assert len(looks) == len(RINGS) - 2
    assert named("x", Complex(0)).looks == named("x", Complex(0)).looks
