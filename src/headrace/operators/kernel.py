"""What the runtime asks of a maintained view, whatever kind of view it is.

A view lifts changed rows into its rings (the *map side*), and then takes one or more *stages*: each adds what arrived
in a bucket to that bucket's state, and may send changes on to buckets of the next stage. Views know nothing of files,
tasks or Spark; the runtime knows nothing of aggregates or joins. This is the seam between them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.plan.expression import Expression
from headrace.plan.tree import FeedId
from headrace.relation.columns import take_column
from headrace.relation.residence import Residence
from headrace.relation.run import Run
from headrace.relation.runset import AnyRun
from headrace.rings import Group

State = Mapping[str, Sequence[AnyRun]]
Incoming = Mapping[str, Sequence[Run]]
Lifted = dict[int, dict[str, Run]]
"""Changes by bucket and by part."""
ALL_INLETS = "rows"


@dataclass(frozen=True)
class MapSide:
    """What is evaluated on the rows of one table before a view sums anything."""

    table: str
    source: str  # which occurrence of the table, if a view joins several; else empty
    condition: Expression | None
    keys: tuple[Expression, ...]
    arguments: tuple[Expression, ...]

    @property
    def expressions(self) -> tuple[Expression, ...]:
        condition = () if self.condition is None else (self.condition,)
        return (*condition, *self.keys, *self.arguments)


@dataclass(frozen=True)
class Evaluated:
    """A map side, evaluated: rows that pass the condition, their keys, arguments and multiplicities."""

    keys: list[pa.Array]
    arguments: list[pa.Array]
    diff: NDArray[np.int64]
    origin: NDArray[np.int64]  # which row of the change batch each came from

    def take(self, positions: NDArray[np.integer]) -> Evaluated:
        """Pick rows by position."""
        return Evaluated(
            [take_column(key, positions) for key in self.keys],
            [take_column(argument, positions) for argument in self.arguments],
            self.diff[positions],
            self.origin[positions],
        )


@dataclass(frozen=True)
class PartRows:
    """A map side, evaluated on a part of a product: rows, with those keys and arguments that read the part.

    Where another part is read, a key is a constant that nobody looks at, and an argument is NULL.
    """

    rows: Evaluated
    keys: frozenset[int]  # by number
    arguments: frozenset[int]


@dataclass(frozen=True)
class ViewChange:
    """How many rows (or groups) were inserted, deleted and updated: in a view by a step, or through an operator.

    An updated row counts neither as inserted nor as deleted.
    """

    inserted: int = 0
    deleted: int = 0
    updated: int = 0

    def __add__(self, other: ViewChange) -> ViewChange:
        return ViewChange(self.inserted + other.inserted, self.deleted + other.deleted, self.updated + other.updated)

    def __bool__(self) -> bool:
        return bool(self.inserted or self.deleted or self.updated)

    def __str__(self) -> str:
        return f"+{self.inserted:,} -{self.deleted:,} ~{self.updated:,}"


@dataclass(frozen=True)
class Traffic:
    """What an operator took and what it gave.

    Rows of a side that is in every bucket are counted once. The input of an aggregate is summed on the way and
    counted as inserted: only its state tells whether a group is inserted, deleted or updated.

    Parameters
    ----------
    right : what it took on its right side, as a part of `taken`.
    groups : how many groups of an aggregate the input belonged to.
    fed : rows that other operators gave it, before equal ones were added up; they may wait for a later flush.
    cpu : CPU seconds of the operator, in whatever thread or process it ran, with those of handing on what it gave.
    """

    taken: ViewChange = ViewChange()
    given: ViewChange = ViewChange()
    right: ViewChange = ViewChange()
    groups: int = 0
    fed: int = 0
    cpu: float = 0.0

    def __add__(self, other: Traffic) -> Traffic:
        if not (other.taken or other.given or other.groups or other.fed):  # in most sums only CPU time is added
            return Traffic(self.taken, self.given, self.right, self.groups, self.fed, self.cpu + other.cpu)
        return Traffic(
            self.taken + other.taken,
            self.given + other.given,
            self.right + other.right,
            self.groups + other.groups,
            self.fed + other.fed,
            self.cpu + other.cpu,
        )


@dataclass(frozen=True)
class Sent:
    """Changes on their way to a bucket of some later stage; `view` is empty if they are for the sender itself."""

    stage: int
    bucket: int
    part: str
    run: Run
    view: str = ""


@dataclass(frozen=True)
class Reduced:
    """What one stage does to one bucket of a view."""

    runs: dict[str, Run] = field(default_factory=dict)  # the change of each arrangement
    live: dict[str, int] = field(default_factory=dict)  # by how many live entries each grew (live, not stored)
    sent: list[Sent] = field(default_factory=list)  # changes for later stages
    held: dict[str, list[Run]] = field(default_factory=dict)  # changes that wait at their inlets
    changes: Run | None = None  # the changed groups before and after, for readers
    summary: ViewChange | None = None
    groups: int = 0  # how many groups the changes of an aggregate belonged to
    traffic: dict[str, Traffic] = field(default_factory=dict)  # what went through each operator
    fed: dict[str, dict[str, Traffic]] = field(default_factory=dict)  # what other views were given, by operator
    multiplied: dict[str, int] = field(default_factory=dict)  # entries made of products, by what they were made for


@dataclass(frozen=True)
class Inlet:
    """A part under which changes enter an operator of a view, where the runtime can hold them back.

    Parameters
    ----------
    ring : adds up changes of the same key.
    stage : the stage of the operator.
    residence : in which bucket each entry lies; None if the entries do not tell.
    copied : whether every bucket gets all changes, so that one bucket holds them for all.
    """

    ring: Group
    stage: int
    residence: Residence | None
    copied: bool = False


@dataclass(frozen=True)
class InOnePass:
    """A view whose buckets are changed all at once, as if they were one.

    Parameters
    ----------
    kernel : the same view with one bucket.
    residences : in which bucket each entry of its arrangements lies.
    """

    kernel: ViewKernel
    residences: Mapping[str, Residence]


class ViewKernel(Protocol):
    """A maintained view as pure functions over runs.

    Kernels inherit from it for the defaults of the methods that only a few of them need.
    """

    @property
    def sides(self) -> tuple[MapSide, ...]:
        """The map sides, one per source."""
        ...

    @property
    def arrangements(self) -> Mapping[str, Group]:
        """All arrangements and the group of their payloads."""
        ...

    @property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        """The arrangements that each stage reads and writes."""
        ...

    def home(self, part: str, bucket: int) -> int:
        """The bucket whose copy of an arrangement this bucket reads: its own, unless all buckets share one copy."""
        ...

    def refused(self, source: str, rows: Evaluated) -> dict[int, str]:
        """Rows that the view's rings cannot take, with the reason."""
        ...

    def lift(self, source: str, rows: Evaluated, buckets: int) -> Lifted:
        """Lift and sum changed rows, by bucket."""
        ...

    @property
    def product_refusal(self) -> str:
        """Why the view cannot take products of rows in their parts (`relation.product`); empty if it can."""
        return 'it is kept by rows, and not by a tree of views over a join (strategy="factorized")'

    def lift_product(self, source: str, parts: Sequence[PartRows], term: str, buckets: int) -> Lifted:
        """Lift and sum a product of rows part by part; `term` tells it from other products of the step."""
        raise AssertionError(f"products are refused before they get here: {self.product_refusal}")

    def reduce(
        self, stage: int, bucket: int, state: State, incoming: Incoming, waiting: Collection[str] = ()
    ) -> Reduced:
        """Add what arrived in a bucket to its state; what is for inlets that wait is held."""
        ...

    @property
    def inlets(self) -> Mapping[str, Inlet]:
        """Where changes enter the view; empty if they cannot be held back."""
        return {}

    @property
    def holds(self) -> Mapping[str, tuple[str, ...]]:
        """The inlets that wait and are flushed together, by the name of the path that begins there.

        A view without operators has one path, of all its inlets.
        """
        return {ALL_INLETS: tuple(self.inlets)} if self.inlets else {}

    @property
    def seeds(self) -> Lifted:
        """What a new view receives before the first row, so that it has its answer over empty tables."""
        return {}

    @property
    def starts_empty(self) -> bool:
        """Whether there is nothing to keep while the tables are empty."""
        return not self.seeds

    @property
    def row_keys(self) -> Sequence[tuple[str, tuple[Expression, ...]]]:
        """How the keys of the answer are computed from rows: per source, its table and the key expressions.

        Empty if the answer does not follow from the rows of each source by themselves.
        """
        return ()

    @property
    def in_one_pass(self) -> InOnePass | None:
        """How a small step changes all buckets of the view at once; None if the view is kept bucket by bucket."""
        return None

    def residences(self, buckets: int) -> Mapping[str, Residence]:
        """In which of so many buckets each entry of an arrangement lies; without those whose entries do not tell."""
        return {} if self.in_one_pass is None else self.in_one_pass.residences

    def feed_of(self, part: str) -> FeedId | None:
        """The feed that a part carries to Catalyst; None for any other part."""
        return None

    @property
    def never_by_catalyst(self) -> bool:
        """Whether the kernels can evaluate all expressions on any values, so that Catalyst never has to."""
        return False

    def evaluated_by_catalyst(self) -> ViewKernel:
        """The same view over the same state, with Catalyst instead of kernels for all that the view evaluates."""
        return self
