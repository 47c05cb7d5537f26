"""The algebra that payloads obey, as protocols over whole arrays of payloads.

A payload array of n elements is a tuple of NumPy columns of length n: no Python object ever stands for one
payload. There are rungs. Arrangements, merges and exchanges only add and negate, so they ask for a `Group`; joins also
multiply, so they ask for a `Ring`. Where rows are only inserted nothing is ever negated, and a `Semiring` is enough.
Every operation takes and returns whole arrays.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

# The dtype of each column is the group's business (`Group.dtypes`), not one that a type checker can know.
Payload: TypeAlias = tuple[NDArray[Any], ...]
Positions: TypeAlias = NDArray[np.int64]


@runtime_checkable
class Monoid(Protocol):
    """A commutative monoid of payloads: what is needed to add up rows that stay."""

    @property
    def dtypes(self) -> tuple[np.dtype[np.generic], ...]:
        """The dtype of each column of a payload array; the layout on disk and in exchanges."""
        ...

    @property
    def exact(self) -> bool:
        """Whether the laws hold bit for bit; if not, they hold to one unit in the last place of the value."""
        ...

    def zeros(self, n: int) -> Payload:
        """Return n neutral elements."""
        ...

    def add(self, left: Payload, right: Payload) -> Payload:
        """Add element by element."""
        ...

    def scale(self, payload: Payload, times: NDArray[np.int64]) -> Payload:
        """Add each element to itself `times` times (a negative number subtracts, which only a group can)."""
        ...

    def is_zero(self, payload: Payload) -> NDArray[np.bool_]:
        """Tell which elements are neutral; such an entry disappears from an arrangement."""
        ...

    def sum_by(self, payload: Payload, group_of: Positions, groups: int) -> Payload:
        """Sum the elements that share a group number: element i goes to group `group_of[i]`."""
        ...

    def equal(self, left: Payload, right: Payload) -> NDArray[np.bool_]:
        """Tell which elements have the same value, to one unit in the last place where the algebra is not exact."""
        ...

    def sample(self, rng: np.random.Generator, n: int) -> Payload:
        """Draw n elements for checking the laws, awkward ones among them."""
        ...


@runtime_checkable
class Group(Monoid, Protocol):
    """A commutative group of payloads: what is needed to add up changes."""

    def negate(self, payload: Payload) -> Payload:
        """Return the inverse of each element, so that adding it gives zero."""
        ...


@runtime_checkable
class Semiring(Monoid, Protocol):
    """A commutative semiring: a monoid whose elements also multiply, which joins of rows that stay need."""

    def ones(self, n: int) -> Payload:
        """Return n neutral elements of multiplication."""
        ...

    def multiply(self, left: Payload, right: Payload) -> Payload:
        """Multiply element by element."""
        ...


@runtime_checkable
class Ring(Group, Semiring, Protocol):
    """A commutative ring: a group whose elements also multiply, which joins need."""


class Gathering(Group, Protocol):
    """A group that adds picked elements in place, for payloads that are too wide to be copied first."""

    def gather(self, into: Payload, payload: Payload, positions: Positions, hits: Positions) -> None:
        """Add element `positions[j]` of a payload to element `hits[j]` of another, for each j."""
        ...


def gathers(group: Group) -> TypeGuard[Gathering]:
    """Whether a group adds in place. Each lookup and each sum asks it, and a protocol's own check is slow."""
    return hasattr(group, "gather")


def take(payload: Payload, positions: NDArray[np.integer] | NDArray[np.bool_]) -> Payload:
    """Pick elements by position or by mask."""
    if positions.dtype == np.bool_:
        positions = np.flatnonzero(positions)
    # Not by indexing: `take` lets go of Python's lock, so that threads can pick at the same time.
    return tuple(np.take(column, positions, axis=0) for column in payload)


def concatenate(payloads: list[Payload]) -> Payload:
    """Put payload arrays of one group behind one another."""
    return tuple(np.concatenate(columns) for columns in zip(*payloads, strict=True))
