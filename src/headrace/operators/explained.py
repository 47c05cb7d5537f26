"""What an explanation of a view kept by operators is made of: plain values, which JSON can hold.

The text, the drawing and programs read these and nothing else, so whatever is shown anywhere can be found in all three.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.operators import drawing, explain_text
from headrace.plan.explained import Explained


@dataclass(frozen=True)
class Passing:
    """What the last step brought to an operator, or had it give. Who is updated is neither inserted nor deleted.

    Rows of a side that is in every bucket are counted in each. What an aggregate takes is summed on the way and counted
    as inserted: whether a group comes, goes or changes is seen only when it is added to its state.
    """

    inserted: int = 0
    deleted: int = 0
    updated: int = 0

    def __bool__(self) -> bool:
        return bool(self.inserted or self.deleted or self.updated)

    def __str__(self) -> str:
        return f"+{self.inserted:,} -{self.deleted:,} ~{self.updated:,}"


@dataclass(frozen=True)
class FeedExplained:
    """Rows on their way to an operator: where from, what happens to them, and how they get there."""

    producer: int | None  # the number of an operator; None for a table
    table: str
    source: str  # which occurrence of the table
    condition: str | None
    computes: tuple[str, ...]  # columns that are not just taken over
    times: str | None  # how often each row is meant
    way: str  # stays | exchanged | everywhere
    moves: str  # the same in words
    catalyst: str | None  # why Catalyst evaluates it; None where kernels do

    @property
    def name(self) -> str:
        """The operator or the source that the rows come from."""
        return self.source if self.producer is None else f"[{self.producer}]"


@dataclass(frozen=True)
class PortExplained:
    """Where rows enter an operator. Several feeds are a UNION ALL."""

    side: str  # left | right; empty where there is one port
    columns: tuple[str, ...]
    feeds: tuple[FeedExplained, ...]
    rows: int  # about how many were expected when the view was planned; 0 where nothing was known
    everywhere: str | None  # why it is in every bucket; None if it is not


@dataclass(frozen=True)
class NotKept:
    """What an operator need not keep."""

    what: str
    why: str


@dataclass(frozen=True)
class OperatorExplained:
    """One operator: what it does, where, and what went through it."""

    number: int
    kind: str
    text: str  # on what it joins, what it groups by, in which order
    residual: str | None  # what else must be true of the pairs of a join
    ports: tuple[PortExplained, ...]
    stage: int  # from 1
    where: str  # in which bucket
    why: str
    not_kept: tuple[NotKept, ...]
    takes: str  # rows; or groups or different rows, where they are summed on the way
    taken: Passing | None  # None if there was no step yet
    given: Passing | None

    @property
    def said(self) -> str:
        """What it does, with all that must be true of a pair."""
        if self.residual is None:
            return self.text
        return f"{self.text} {'AND' if self.text.startswith('on ') else 'on'} {self.residual}"

    @property
    def feeds(self) -> Iterator[tuple[PortExplained, FeedExplained]]:
        """All that enters it."""
        return ((port, feed) for port in self.ports for feed in port.feeds)


@dataclass(frozen=True)
class StageExplained:
    """Operators that share their buckets: nothing moves between them."""

    number: int  # from 1
    operators: tuple[int, ...]
    arrives: tuple[str, ...]  # what is exchanged between operators before it, in words


@dataclass(frozen=True)
class SourceExplained:
    """A table, as often as the query reads it."""

    name: str
    table: str
    rows: int  # of the table now
    static: bool


@dataclass(frozen=True)
class ArrangementExplained:
    """One arrangement of a view: whose it is, what it maps to what, why it is kept, and its size."""

    operator: int
    name: str
    keys: str
    payload: str
    why: str
    runs: int
    entries: int
    bytes: int


@dataclass(frozen=True)
class OperatorsExplanation(Explained):
    """How a view is kept by operators.

    `str()` is for people, `to_dict()` for programs, `to_svg()` for pages.
    """

    view: str
    sql: str
    strategy: str
    why: str
    operators: list[OperatorExplained]  # the answer first, each before those it reads from
    sources: list[SourceExplained]
    columns: tuple[str, ...]  # of the answer
    having: str | None
    order: tuple[str, ...]
    stages: list[StageExplained]
    exchanges: int  # at most: small steps need none
    exchanged: tuple[str, ...]  # what each of them moves
    evaluated_by: str
    evaluated_why: str
    arrangements: list[ArrangementExplained]
    state_bytes: int
    estimated: str
    buckets: int
    last_step: dict[str, Any]

    def __str__(self) -> str:
        return explain_text.to_text(self)

    def to_svg(self) -> str:
        """The tree of operators as a drawing, for a page or a file of its own."""
        return drawing.to_svg(self)

    def operator(self, number: int) -> OperatorExplained:
        """The operator of this number."""
        return next(operator for operator in self.operators if operator.number == number)

    def source(self, name: str) -> SourceExplained:
        """The source of this name."""
        return next(source for source in self.sources if source.name == name)

    def kept_by(self, number: int) -> list[ArrangementExplained]:
        """The arrangements of one operator."""
        return [arrangement for arrangement in self.arrangements if arrangement.operator == number]
