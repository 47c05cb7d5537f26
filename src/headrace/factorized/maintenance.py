"""Maintenance plans: per relation, the statements that turn a change of the relation into changes of views.

Every strategy is a plan of this one form: a set of views, and per relation a *trigger*, a list of statements, each of
which joins a change with views that do not contain the relation. Factorized maintenance, DBToaster's recursive one and
first-order deltas differ only in their views; the same code executes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property


@dataclass(frozen=True)
class View:
    """One view of a plan: its keys, what it sums, and whether it is kept."""

    name: str
    keys: tuple[str, ...]
    relations: frozenset[str]
    relation: str | None = None  # for a leaf, the relation that it sums
    lifted: tuple[str, ...] = ()  # variables summed away here, whose values enter the payload here
    payload: tuple[int, ...] = ()  # the views whose payloads are multiplied, in the order their parts stand in
    kept: bool = False
    why: str = ""
    stage: int = 0  # the stage that reads the view, and stores it if it is kept
    replicated: bool = False  # the same in every bucket, stored once
    orders: tuple[tuple[str, ...], ...] = ()  # the orders of keys in which it is arranged; the first is its own


@dataclass(frozen=True)
class Probe:
    """How one factor of a statement is found: by the first `bound` keys of one of its arrangements."""

    slot: int  # which factor
    order: int  # which arrangement
    bound: int


@dataclass(frozen=True)
class Statement:
    """The change of `target` that follows from a change of one factor: that change joined with the other factors."""

    target: int
    factors: tuple[int, ...]
    delta: int  # which factor has changed
    probes: tuple[Probe, ...] = ()

    @property
    def source(self) -> int:
        """The view whose change the statement starts from."""
        return self.factors[self.delta]


@dataclass(frozen=True)
class Trigger:
    """What a change of one relation does."""

    relation: str
    leaf: int
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Stage:
    """The part of a plan that runs in the buckets of one variable, and gives changes of one view."""

    level: int  # stages of one level run at the same time, after those of the level before
    partition: str | None  # the variable whose value decides the bucket
    why: str
    triggers: tuple[Trigger, ...]  # of relations, and of views that stages before this one compute
    root: int


def passed_on(view: int) -> str:
    """Name the changes of a view that one stage computes and another reads."""
    return f"={view}"


@dataclass(frozen=True)
class MaintenancePlan:
    """Views and triggers, and how both are spread over buckets."""

    strategy: str
    views: tuple[View, ...]
    triggers: tuple[Trigger, ...]
    root: int
    stages: tuple[Stage, ...] = ()  # the last one gives the answer
    static: frozenset[str] = field(default_factory=frozenset)

    @property
    def partition(self) -> str | None:
        """The variable that decides the bucket in the last stage."""
        return self.stages[-1].partition if self.stages else None

    @property
    def levels(self) -> int:
        """How many stages follow one another."""
        return 1 + max((stage.level for stage in self.stages), default=0)

    @cached_property
    def by_relation(self) -> dict[str, Trigger]:
        return {trigger.relation: trigger for trigger in self.triggers}

    @cached_property
    def probed(self) -> frozenset[int]:
        """Views that some statement reads."""
        return frozenset(s.factors[p.slot] for t in self.triggers for s in t.statements for p in s.probes)

    def with_kept(self) -> MaintenancePlan:
        """Mark the views to keep: the answer, and those that a statement of a changing relation reads."""
        readers: dict[int, set[str]] = {}
        for trigger in self.triggers:
            if trigger.relation not in self.static:
                for statement in trigger.statements:
                    for probe in statement.probes:
                        readers.setdefault(statement.factors[probe.slot], set()).add(trigger.relation)
        views = [
            replace(view, kept=i == self.root or i in readers, why=_why(i == self.root, readers.get(i, set())))
            for i, view in enumerate(self.views)
        ]
        # Views that only filling reads are computed only then, when relations that never change come first.
        triggers = [
            trigger
            if trigger.relation in self.static
            else replace(trigger, statements=tuple(s for s in trigger.statements if views[s.target].kept))
            for trigger in self.triggers
        ]
        return replace(self, views=tuple(views), triggers=tuple(triggers))

    @property
    def replicated_relations(self) -> tuple[str, ...]:
        """Relations whose changes go to every bucket."""
        return tuple(t.relation for t in self.triggers if self.views[t.leaf].replicated)


def _why(is_root: bool, readers: set[str]) -> str:
    if is_root:
        return "it is the answer"
    return f"changes of {', '.join(sorted(readers))} are joined with it" if readers else "no change is joined with it"


def arranged(views: Sequence[View], triggers: Iterable[Trigger]) -> tuple[tuple[View, ...], tuple[Trigger, ...]]:
    """Choose per statement the order in which factors are joined, and per view the arrangements that this needs."""
    triggers = tuple(triggers)
    wanted: dict[int, list[frozenset[str]]] = {i: [] for i in range(len(views))}
    bounds: dict[tuple[int, int], list[tuple[int, frozenset[str]]]] = {}
    for t, trigger in enumerate(triggers):
        for s, statement in enumerate(trigger.statements):
            steps = _join_order(views, statement)
            bounds[t, s] = steps
            for slot, bound in steps:
                wanted[statement.factors[slot]].append(bound)
    orders = {i: _orders(views[i].keys, sets) for i, sets in wanted.items()}
    placed = tuple(replace(view, orders=orders[i]) for i, view in enumerate(views))
    out = []
    for t, trigger in enumerate(triggers):
        statements = []
        for s, statement in enumerate(trigger.statements):
            probes = tuple(
                Probe(slot, _order_with(orders[statement.factors[slot]], bound), len(bound))
                for slot, bound in bounds[t, s]
            )
            statements.append(replace(statement, probes=probes))
        out.append(replace(trigger, statements=tuple(statements)))
    return placed, tuple(out)


def _join_order(views: Sequence[View], statement: Statement) -> list[tuple[int, frozenset[str]]]:
    """Order factors, the most bound one next: a factor found by its whole key never makes more rows."""
    have = frozenset(views[statement.source].keys)
    left = [slot for slot in range(len(statement.factors)) if slot != statement.delta]
    steps = []
    while left:
        slot = min(_openness(views[statement.factors[slot]].keys, have, slot) for slot in left)[-1]
        keys = frozenset(views[statement.factors[slot]].keys)
        steps.append((slot, keys & have))
        have = have | keys
        left.remove(slot)
    return steps


def _openness(keys: tuple[str, ...], have: frozenset[str], slot: int) -> tuple[bool, int, int]:
    bound = len(have.intersection(keys))
    return bound == 0 and bool(keys), len(keys) - bound, slot


def _orders(keys: tuple[str, ...], sets: Sequence[frozenset[str]]) -> tuple[tuple[str, ...], ...]:
    """Orders of the keys such that each set is the beginning of one of them; as few as a greedy cover finds."""
    chains: list[list[frozenset[str]]] = []
    for wanted in sorted(set(sets), key=lambda s: (len(s), sorted(s))):
        for chain in chains:
            if chain[-1] <= wanted:
                chain.append(wanted)
                break
        else:
            chains.append([wanted])
    orders = []
    for chain in chains or [[]]:
        order: list[str] = []
        for prefix in [*chain, frozenset(keys)]:
            order += [key for key in keys if key in prefix and key not in order]
        orders.append(tuple(order))
    return tuple(dict.fromkeys(orders))


def _order_with(orders: Sequence[tuple[str, ...]], bound: frozenset[str]) -> int:
    return next(i for i, order in enumerate(orders) if frozenset(order[: len(bound)]) == bound)
