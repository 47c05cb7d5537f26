"""EXPLAIN for views over foreign-key joins: the graph, who is alive in it, and where rows meet, as plain values.

What such a view costs depends on rows that change state, and which rows are dead, and on whom they wait, is what a
user looks for when an answer lacks something. Both are in the sizes of arrangements, once these have names. So here
they get them, in values that JSON can hold; the text and the drawing are made of these values and of nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.foreign import drawing, explain_text
from headrace.foreign.chain import ChainPlan, Join
from headrace.foreign.planner import FOREIGN
from headrace.foreign.view import ForeignView
from headrace.operators.layout import GROUPS
from headrace.plan.explained import Explained
from headrace.plan.lines import listed
from headrace.plan.rows import written
from headrace.plan.view import Shape

Sizes = Mapping[str, Sequence[tuple[int, int, int]]]
"""For each arrangement: (runs, entries, bytes) of each bucket."""


@dataclass(frozen=True)
class SourceExplained:
    """One source of the join: which rows of its table take part, and how many of them are alive."""

    name: str
    table: str
    key: tuple[str, ...]  # columns of the table
    condition: str | None
    rows: int  # of those that meet the condition and have no NULL in a foreign key: L(R) and N(R)
    live: int | None  # L(R); None where it is not known: for a root whose joined rows have a condition of their own
    dead: int | None  # N(R)
    asserted: tuple[str, ...]  # what must agree where several ways bring it
    replicated: bool
    why: str  # why it is replicated


@dataclass(frozen=True)
class ReferenceExplained:
    """A source refers to another: by what, how many rows wait for it, and where the two meet."""

    parent: str
    child: str
    key: tuple[str, ...]
    position: int  # which child of its parent is waited for first, from 1
    waiting: int | None  # dead rows of the parent that have come to this child and no further
    asserted: tuple[str, ...]  # what is compared beyond the key
    stage: int  # from 1
    partition: tuple[str, ...] | None
    where: str
    why: str


@dataclass(frozen=True)
class ArrangementExplained:
    """One arrangement of a view: what it maps to what, and its size."""

    name: str
    keys: str
    payload: str
    runs: int
    entries: int
    bytes: int


@dataclass(frozen=True)
class ForeignExplanation(Explained):
    """How a view over a foreign-key join is kept.

    `str()` is for people, `to_dict()` for programs, `to_svg()` for pages.
    """

    view: str
    sql: str
    strategy: str
    why: str
    root: str
    sources: list[SourceExplained]  # the root first, parents before their children
    references: list[ReferenceExplained]  # in the order in which rows pass them
    replicated: tuple[str, ...]
    condition: str | None  # over joined rows
    shape: str  # groups | total | rows
    keys: tuple[str, ...]
    arguments: tuple[str, ...]
    having: str | None
    answer_rows: int  # joined rows in the answer
    groups: int
    groups_stay: bool
    groups_where: str
    stages: int
    exchanges: int
    exchange: str
    estimated: str
    arrangements: list[ArrangementExplained]
    state_bytes: int
    live_rows: int  # of all sources together
    bytes_per_live_row: float | None
    buckets: int
    evaluated_by: str
    evaluated_why: str
    last_step: dict[str, Any]

    def __str__(self) -> str:
        return explain_text.to_text(self)

    def to_svg(self) -> str:
        """The foreign-key graph as a drawing, for a page or a file of its own."""
        return drawing.to_svg(self)

    def source(self, name: str) -> SourceExplained:
        """The source of this name."""
        return next(source for source in self.sources if source.name == name)

    def children(self, name: str) -> list[ReferenceExplained]:
        """What a source refers to, in the order in which its rows wait."""
        return [reference for reference in self.references if reference.parent == name]


def explain_foreign(
    name: str,
    sql: str,
    why: str,
    kernel: ForeignView,
    keys: Mapping[str, tuple[str, ...]],
    rows: Mapping[str, int],
    groups: int,
    sizes: Sizes,
    answer: Mapping[str, tuple[str, str]],
    evaluated: tuple[str, str],
    last_step: Mapping[str, Any],
    having: str | None = None,
) -> ForeignExplanation:
    """Explain a view over a foreign-key join.

    Parameters
    ----------
    keys : the key columns of each table.
    rows : how many rows each arrangement stands for (equal ones are one entry), those of the answer included.
    groups : how many groups exist.
    answer : keys and payload of the arrangements of the answer, in words.
    evaluated : what evaluates expressions over rows, and why.
    last_step : the summary of the last step, empty if there was none.
    """
    chain, asked = kernel.chain, kernel.rows
    counts = _Counts(kernel, rows)
    sources = [
        SourceExplained(
            name=source,
            table=asked.source(source).table,
            key=keys.get(asked.source(source).table, ()),
            condition=None if (condition := asked.source(source).condition) is None else str(condition),
            rows=counts.rows(source),
            live=(live := counts.live(source)),
            dead=None if live is None else counts.rows(source) - live,
            asserted=chain.graph.asserted[source],
            replicated=source in chain.replicated,
            why="; ".join(dict.fromkeys(j.why for j in chain.joins if j.child == source in chain.replicated)),
        )
        for source in reversed(chain.graph.sources)
    ]
    live_rows = sum(rows[GROUPS] if source.live is None else source.live for source in sources)
    state_bytes = sum(size for parts in sizes.values() for _, _, size in parts)
    return ForeignExplanation(
        view=name,
        sql=sql,
        strategy=FOREIGN,
        why=why,
        root=chain.graph.root,
        sources=sources,
        references=[
            ReferenceExplained(
                parent=join.parent,
                child=join.child,
                key=join.key,
                position=join.position + 1,
                waiting=counts.waiting(join),
                asserted=join.asserted,
                stage=join.level + 1,
                partition=join.partition,
                where=_where(chain, join),
                why=join.why,
            )
            for join in chain.joins
        ],
        replicated=tuple(source.name for source in sources if source.replicated),
        condition=None if asked.condition is None else written(asked.condition),
        shape=kernel.layout.plan.shape.value,
        keys=tuple(map(written, asked.keys)),
        arguments=tuple(map(written, asked.arguments)),
        having=having,
        answer_rows=rows[GROUPS],
        groups=groups,
        groups_stay=kernel.stays,
        groups_where=_groups_where(kernel),
        stages=len(kernel.stages),
        exchanges=len(kernel.stages),
        exchange=_exchange(kernel),
        estimated=_estimated(chain),
        arrangements=_arrangements(kernel, sizes, answer),
        state_bytes=state_bytes,
        live_rows=live_rows,
        bytes_per_live_row=state_bytes / live_rows if live_rows else None,
        buckets=kernel.buckets,
        evaluated_by=evaluated[0],
        evaluated_why=evaluated[1],
        last_step=dict(last_step),
    )


@dataclass(frozen=True)
class _Counts:
    """Live and dead rows: each row waits in the first arrangement of its chain that it cannot leave."""

    kernel: ForeignView
    in_arrangement: Mapping[str, int]

    def rows(self, source: str) -> int:
        """All rows of a source that take part: N(R) and L(R)."""
        chain = self.kernel.chain.of(source)
        return self.in_arrangement[chain[0].waiting] if chain else self._awaited(source)

    def live(self, source: str) -> int | None:
        """The live rows of a source, L(R). Those of the root are not kept, but each of them is a joined row."""
        if source != self.kernel.chain.graph.root:
            return self._awaited(source)
        answer, reached = self.in_arrangement[GROUPS], self.in_arrangement[self.kernel.chain.final.waiting]
        # A condition on joined rows is tested after the join, so what it drops was alive, and nobody counted it.
        return answer if self.kernel.rows.condition is None or answer == reached else None

    def waiting(self, join: Join) -> int | None:
        """Rows that have come to this join and not passed it: the paper's s(t) is the number of joins passed."""
        chain = self.kernel.chain.of(join.parent)
        passed = self.live(join.parent) if join.last else self.in_arrangement[chain[join.position + 1].waiting]
        return None if passed is None else self.in_arrangement[join.waiting] - passed

    def _awaited(self, source: str) -> int:
        return self.in_arrangement[next(j.live for j in self.kernel.chain.joins if j.child == source)]


def _where(chain: ChainPlan, join: Join) -> str:
    if join.partition is None:
        return "in every bucket"
    if set(join.partition) == set(chain.graph.variables[join.parent]) != set(join.key):
        return "by hash of the whole row"
    return f"by hash of {', '.join(join.partition)}"


def _groups_where(kernel: ForeignView) -> str:
    if kernel.layout.plan.shape is Shape.ROWS:
        return "they stay in the bucket in which they come out of the last join"
    if not kernel.stays:
        return "summed over buckets, because the rows of a group come out of the last join in several"
    by = kernel.chain.final.partition or ()
    return (
        f"groups stay in the bucket in which their rows come out of the last join: {listed(by)} "
        f"{'is' if len(by) == 1 else 'are'} among their keys"
    )


def _exchange(kernel: ForeignView) -> str:
    chain = kernel.chain
    replicated = [source for source in reversed(chain.graph.sources) if source in chain.replicated]
    to_all = f" (those of {', '.join(replicated)} to every bucket)" if replicated else ""
    total = len(kernel.stages)
    said = [f"one of changed rows, by what they are joined on first{to_all}"]
    if chain.levels > 1:
        said.append(f"{chain.levels - 1} between stages, of rows that come to life or die")
    if not kernel.stays:
        said.append("one of changes of groups, summed before it")
    return f"none for batches that the driver has and native expressions; else {total}: {'; '.join(said)}"


def _estimated(chain: ChainPlan) -> str:
    root = chain.graph.root
    children = [join.child for join in chain.of(root)]
    one = "one row each of" if len(children) > 1 else "one row of"
    return (
        f"costs in proportion to the rows that come, go, come to life or die: a row of {root} looks up {one} "
        f"{listed(children)}; a change of any other source reaches every row that waits for it"
    )


def _arrangements(
    kernel: ForeignView, sizes: Sizes, answer: Mapping[str, tuple[str, str]]
) -> list[ArrangementExplained]:
    named: dict[str, tuple[str, str, str]] = {}
    for join in kernel.chain.joins:
        copies = sum(other.child == join.child for other in kernel.chain.joins)
        live = f"L({join.child}){f' for {join.parent}' if copies > 1 else ''}"
        named[join.waiting] = (f"I({join.parent}, {join.child})", f"({', '.join(join.left)})", "count")
        named[join.live] = (live, f"({', '.join(join.right)})", "count")
    for part, (keys, payload) in answer.items():
        named[part] = (_answer_name(kernel, part), keys, payload)
    return [
        ArrangementExplained(
            *named[part],
            runs=sum(runs for runs, _, _ in sizes.get(part, ())),
            entries=sum(entries for _, entries, _ in sizes.get(part, ())),
            bytes=sum(size for _, _, size in sizes.get(part, ())),
        )
        for part in kernel.arrangements
    ]


def _answer_name(kernel: ForeignView, part: str) -> str:
    arguments = [written(kernel.rows.arguments[i]) for i in kernel.layout.values.get(part, ())]
    if not arguments:
        return part
    return f"{'values' if len(arguments) == 1 else 'combinations'} of {', '.join(arguments)}"
