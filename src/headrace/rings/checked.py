"""What is checked of a user's ring when it is registered: its methods, its payloads, and the laws of its algebra.

Every answer rests on the laws, and a ring that breaks one gives answers that depend on how changes were batched. So
they are tried on samples before the ring is used: on what the ring draws itself, and on what it makes of numbers. Its
arguments are read-only here, as those that come from files are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import HeadraceError, SchemaError
from headrace.rings.base import Payload, concatenate, take
from headrace.rings.laws import violations
from headrace.rings.named import NamedRing, dtypes_of

_METHODS = ("zeros", "ones", "add", "multiply", "scale", "sum_by", "is_zero", "equal", "sample", "lift")
_ATTRIBUTES = ("dtypes", "exact")
_ROUNDS, _TRIPLES = 8, 32
_NUMBERS = np.concatenate([[0.0, 1.0, -1.0, 0.5, 2.0, 0.25], np.arange(-16, 17) / 8])
_INHERIT = "inherit from hr.Ring or hr.Semiring, which have all that does not differ from ring to ring"


def check_custom_ring(name: str, ring: Any) -> None:
    """Refuse what is no ring, and a ring that breaks a law; the error has the law and its two sides."""
    _check_methods(name, ring)
    _check_dtypes(name, ring)
    try:
        for from_numbers in (False, True):
            tried = _Tried(name, "", from_numbers)
            tried.__dict__["ring"] = ring
            rng = np.random.default_rng(0)
            for _ in range(_ROUNDS):
                for broken in (*violations(tried, rng, _TRIPLES, subtracts=tried.subtracts), *_edges(tried, rng)):
                    raise SchemaError(
                        f"ring {name!r} ({ring!r}) breaks a law: {broken}",
                        way_out="correct the method, or let `takes` (and `sample`) leave out the values for which the "
                        "law does not hold",
                    )
    except SchemaError:
        raise
    except HeadraceError as error:
        raise SchemaError(error.what, way_out=error.way_out.partition("; nothing")[0]) from error


def _check_methods(name: str, ring: Any) -> None:
    missing = [what for what in _METHODS if not callable(getattr(ring, what, None))]
    missing += [what for what in _ATTRIBUTES if not hasattr(ring, what)]
    if isinstance(ring, type):
        raise SchemaError(
            f"ring {name!r}: {ring.__name__} is a class", way_out=f"pass an instance of it: {ring.__name__}()"
        )
    if missing:
        raise SchemaError(f"ring {name!r}: {ring!r} has no {', '.join(missing)}", way_out=_INHERIT)


def _check_dtypes(name: str, ring: Any) -> None:
    try:
        dtypes = dtypes_of(ring)
    except TypeError as error:
        raise SchemaError(
            f"ring {name!r}: its dtypes {ring.dtypes!r} are none: {error}",
            way_out="give a tuple of NumPy dtypes, as in (np.float64, np.int64)",
        ) from error
    for dtype in dtypes:
        # Runs are copied word by word, and a column of a run's file is a matrix at most.
        if dtype.base.kind not in "iuf" or dtype.base.itemsize != 8 or len(dtype.shape) > 1:
            raise SchemaError(
                f"ring {name!r}: a payload column of {dtype} is not kept",
                way_out="use int64, uint64 and float64, or several of them an element, as in (np.float64, (3,)); "
                "a complex number is two columns, a truth value an integer",
            )
    if not dtypes:
        raise SchemaError(f"ring {name!r}: its payloads have no column", way_out="declare at least one dtype")


def _edges(ring: NamedRing, rng: np.random.Generator) -> Iterator[str]:
    """Laws about sums over nothing, and of what SQL does beside the algebra."""
    a = ring.sample(rng, _TRIPLES)
    one_each = np.arange(_TRIPLES)
    with_empty = ring.sum_by(a, one_each, _TRIPLES + 1)
    last = take(with_empty, np.array([_TRIPLES]))
    if not ring.is_zero(last).all():
        yield f"the sum of an empty group is zero: {last} != {ring.zeros(1)}"
    nothing = take(a, one_each[:0])
    for found in (ring.add(nothing, nothing), ring.multiply(nothing, nothing), ring.lift(np.zeros(0))):
        if len(found[0]):
            yield f"nothing makes nothing: {found} != {nothing}"
    ring.sum_by(nothing, one_each[:0], 2)
    for values in (_NUMBERS, np.arange(-3, 4)):  # doubles and integers
        taken = values[~ring.not_taken(values)]
        once, twice = ring.lift(taken), ring.lift(np.concatenate([taken, taken]))
        if not ring.equal(take(twice, np.arange(len(taken))), once).all():
            yield "a value is lifted alike, whatever stands beside it"


@dataclass(frozen=True)
class _Tried(NamedRing):
    """A ring on trial: nobody may write to what it gives; `from_numbers` draws what it makes of numbers."""

    from_numbers: bool = False

    def sample(self, rng: np.random.Generator, n: int) -> Payload:
        if not self.from_numbers:
            return super().sample(rng, n)
        values = _NUMBERS[~self.not_taken(_NUMBERS)]
        if not len(values):
            return super().sample(rng, n)
        a, b = (self.lift(rng.choice(values, n)) for _ in range(2))
        return take(concatenate([a, self.add(a, b), self.multiply(a, b)]), rng.permutation(3 * n)[:n])

    def _payload(self, method: str, n: int, *arguments: Any) -> Payload:
        found = tuple(np.array(column) for column in super()._payload(method, n, *arguments))
        for column in found:
            column.flags.writeable = False
        return found
