"""A user's ring under its name: what plans hold, what the rest of Headrace calls, and what travels to Spark's tasks.

A plan is stored as text, and a ring is code, so a plan only names it. The name is looked up in this process when the
ring is first used, and the ring itself goes along when a plan is sent to a task. What the ring returns is brought to
the types that it declares, because runs of one arrangement are read as one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import HeadraceError, StepFailedError
from headrace.rings import registry
from headrace.rings.base import Payload, Positions

Values = NDArray[Any]
"""A column of doubles or of 64-bit integers."""
_PROBED = (0.0, 1.0, 2.0, 3.0, 0.5, 0.25, -1.0, -2.0, 10.0)


@dataclass(frozen=True)
class NamedRing:
    """A registered ring or semiring.

    Parameters
    ----------
    looks : what is known of it where it was first used (`looks_of`); state of one ring must never be read by another.
    """

    name: str
    looks: str

    @cached_property
    def ring(self) -> Any:
        """The object that the user registered."""
        found = registry.ring_called(self.name)
        check_looks(self.name, self.looks, found)
        return found

    def __getstate__(self) -> dict[str, object]:
        """All fields and the ring: a task has no register to look it up."""
        return {"name": self.name, "looks": self.looks, "ring": self.ring}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    @property
    def subtracts(self) -> bool:
        """Whether rows can be taken away again: whether it is a ring, and not only a semiring."""
        return hasattr(self.ring, "negate")

    @cached_property
    def dtypes(self) -> tuple[np.dtype[np.generic], ...]:
        return dtypes_of(self.ring)

    @property
    def exact(self) -> bool:
        return bool(self.ring.exact)

    def zeros(self, n: int) -> Payload:
        return self._payload("zeros", n, n)

    def ones(self, n: int) -> Payload:
        return self._payload("ones", n, n)

    def add(self, left: Payload, right: Payload) -> Payload:
        return self._payload("add", len(left[0]), left, right)

    def negate(self, payload: Payload) -> Payload:
        assert self.subtracts, "what a semiring cannot take away is refused before a step is applied"
        return self._payload("negate", len(payload[0]), payload)

    def multiply(self, left: Payload, right: Payload) -> Payload:
        return self._payload("multiply", len(left[0]), left, right)

    def scale(self, payload: Payload, times: NDArray[np.int64]) -> Payload:
        if (times == 1).all():  # the usual case
            return payload
        return self._payload("scale", len(times), payload, times)

    def sum_by(self, payload: Payload, group_of: Positions, groups: int) -> Payload:
        return self._payload("sum_by", groups, payload, group_of, groups)

    def is_zero(self, payload: Payload) -> NDArray[np.bool_]:
        return self._mask("is_zero", len(payload[0]), payload)

    def equal(self, left: Payload, right: Payload) -> NDArray[np.bool_]:
        return self._mask("equal", len(left[0]), left, right)

    def sample(self, rng: np.random.Generator, n: int) -> Payload:
        return self._payload("sample", n, rng, n)

    def lift(self, values: Values) -> Payload:
        """Make elements from values, none of which is NULL."""
        return self._payload("lift", len(values), values)

    def not_taken(self, values: Values) -> NDArray[np.bool_]:
        """Tell which values the ring has no element for."""
        if hasattr(self.ring, "takes"):
            return ~self._mask("takes", len(values), values)
        return np.isnan(values)

    def show(self, payload: Payload, missing: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
        """Make the column of an answer, with NULL where no row counts."""
        shown = self._call("show", payload) if hasattr(self.ring, "show") else payload[0]
        try:
            column = shown if isinstance(shown, pa.Array) else pa.array(shown)
            column = column.cast(kind)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise self._wrong("show", f"gave what is no column of {kind}: {error}") from error
        if len(column) != len(missing):
            raise self._wrong("show", f"gave {len(column)} values for {len(missing)} elements")
        if missing.any():
            column = pc.if_else(pa.array(missing), pa.scalar(None, kind), column)
        return column

    def _payload(self, method: str, n: int, *arguments: Any) -> Payload:
        found = self._call(method, *arguments)
        if not isinstance(found, tuple) or len(found) != len(self.dtypes):
            raise self._wrong(method, f"gave no tuple of {len(self.dtypes)} arrays")
        columns = []
        for column, dtype in zip(found, self.dtypes, strict=True):
            made = np.ascontiguousarray(column, dtype.base)
            if made.shape != (n, *dtype.shape):
                raise self._wrong(method, f"gave an array of {made.shape}, not of {(n, *dtype.shape)}")
            columns.append(made)
        return tuple(columns)

    def _mask(self, method: str, n: int, *arguments: Any) -> NDArray[np.bool_]:
        found = np.asarray(self._call(method, *arguments))
        if found.dtype != np.bool_ or found.shape != (n,):
            raise self._wrong(method, f"gave {found.dtype}{list(found.shape)}, not {n} truth values")
        return found

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self.ring, method)(*arguments)
        except HeadraceError:
            raise
        except Exception as error:  # whatever a user's code raises
            raise self._wrong(method, f"raised {type(error).__name__}: {error}") from error

    def _wrong(self, method: str, what: str) -> StepFailedError:
        return StepFailedError(
            f"ring {self.name!r}: {method} {what}",
            way_out=f"correct {type(self.ring).__name__}.{method}; nothing was applied",
        )


def dtypes_of(ring: Any) -> tuple[np.dtype[np.generic], ...]:
    """The dtypes that a ring declares, however it writes them."""
    return tuple(np.dtype(dtype) for dtype in ring.dtypes)


def sql_type_of(ring: Any) -> str:
    """The SQL type in which a ring shows its elements."""
    return str(getattr(ring, "sql_type", "double"))


def named(name: str, ring: Any) -> NamedRing:
    """A ring under its name."""
    made = NamedRing(name, "")
    made.__dict__["ring"] = ring
    return NamedRing(name, looks_of(made))


def looks_of(made: NamedRing) -> str:
    """What tells a ring from others: its layout, and what it makes of a few numbers (to six digits)."""
    kind = "ring" if made.subtracts else "semiring"
    columns = ", ".join(f"{dtype.base.name}{list(dtype.shape) or ''}" for dtype in made.dtypes)
    return f"{kind} of ({columns}), shown as {sql_type_of(made.ring)}, sample {_digest(made)}"


def check_looks(name: str, looks: str, ring: Any) -> None:
    """Refuse a ring that differs from the one whose name a plan holds; `looks` is empty while it is registered."""
    made = NamedRing(name, "")
    made.__dict__["ring"] = ring
    if looks and looks_of(made) != looks:
        raise registry.other_ring(name, looks, looks_of(made))


def _digest(made: NamedRing) -> str:
    values = np.array(_PROBED)
    lifted = made.lift(values[~made.not_taken(values)])
    n = len(lifted[0])
    turned = tuple(np.roll(column, 1, axis=0) for column in lifted)
    pairs = made.sum_by(lifted, np.arange(n) // 2, (n + 1) // 2)
    found = []
    three = made.scale(lifted, np.full(n, 3))
    for payload in (lifted, made.multiply(lifted, turned), made.add(lifted, turned), pairs, three):
        numbers = np.concatenate([column.astype(np.float64).ravel() for column in payload]) + 0.0  # one zero
        found += [f"{number:.6g}" for number in numbers]
    return hashlib.sha256(" ".join(found).encode()).hexdigest()[:8]
