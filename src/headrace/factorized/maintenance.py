"""Maintenance plans: per relation, the statements that turn a change of the relation into changes of views.

Every strategy is a plan of this one form: a set of views, and per relation a *trigger*, a list of statements, each of
which joins a change with views that do not contain the relation. Factorized maintenance, DBToaster's recursive one and
first-order deltas differ only in their views; the same code executes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    categories: tuple[str, ...] = ()  # categorical variables that enter here, as keys up to the answer (`categories`)
    payload: tuple[int, ...] = ()  # the views whose payloads are multiplied, in the order their parts stand in
    kept: bool = False
    why: str = ""
    stage: int = 0  # the stage that reads the view, and stores it if it is kept
    replicated: bool = False  # the same in every bucket, stored once
    orders: tuple[tuple[str, ...], ...] = ()  # the orders of keys in which it is arranged; the first is its own
    indicator: bool = False  # a leaf that counts the rows of its relation by key, and is 1 where there are some


@dataclass(frozen=True)
class Probe:
    """How one factor of a statement is found: by the first `bound` keys of one of its arrangements.

    Factors `beside` it bind the same variables. Per row, the one of all these that has the fewest entries is listed,
    and the others are looked up: a worst-case optimal join, one variable at a time.
    """

    slot: int  # which factor
    order: int  # which arrangement
    bound: int
    beside: tuple[Probe, ...] = ()

    @property
    def all(self) -> tuple[Probe, ...]:
        """This probe and those beside it."""
        return (self, *self.beside)


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

    @property
    def every_probe(self) -> tuple[Probe, ...]:
        """All probes, also those beside others."""
        return tuple(one for probe in self.probes for one in probe.all)


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


@dataclass(frozen=True)
class Level:
    """A view whose entries readers list under the values that they know from the levels before.

    Parameters
    ----------
    order : the arrangement that begins with the known variables.
    bound : the known variables, in the order of that arrangement.
    variables : the variables whose values are listed here.
    counted : whether the payload of an entry is part of the multiplicity of a tuple.
    factors : other views whose payloads are, each looked up by its whole key.
    below : the levels (by number) that depend on this one directly.
    """

    view: int
    order: int
    bound: tuple[str, ...]
    variables: tuple[str, ...]
    counted: bool
    factors: tuple[int, ...] = ()
    below: tuple[int, ...] = ()


def passed_on(view: int) -> str:
    """Name the changes of a view that one stage computes and another reads."""
    return f"={view}"


def indicated(view: int) -> str:
    """Name the changes of an indicator projection: an input of its own beside that of its relation."""
    return f"?{view}"


@dataclass(frozen=True)
class MaintenancePlan:
    """Views and triggers, and how both are spread over buckets."""

    strategy: str
    views: tuple[View, ...]
    triggers: tuple[Trigger, ...]
    root: int
    stages: tuple[Stage, ...] = ()  # the last one gives the answer
    static: frozenset[str] = field(default_factory=frozenset)
    listing: tuple[Level, ...] = ()  # where readers list the answer, if it is kept factorized
    factors: tuple[int, ...] = ()  # views without keys that are a factor of every multiplicity of that answer

    @cached_property
    def shown(self) -> frozenset[str]:
        """The variables whose values readers see."""
        return frozenset(self.views[self.root].keys).union(*(level.variables for level in self.listing))

    @property
    def partition(self) -> str | None:
        """The variable that decides the bucket in the last stage."""
        return self.stages[-1].partition if self.stages else None

    @property
    def levels(self) -> int:
        """How many stages follow one another."""
        return 1 + max((stage.level for stage in self.stages), default=0)

    @property
    def is_tree(self) -> bool:
        """Whether the views are one tree, in which every view has one way up."""
        return self.strategy == "factorized"

    def joins_of(self, stage: Stage) -> list[tuple[int, list[Statement]]]:
        """The views that a stage of a tree computes, lower ones first, each with a statement per view it is a join of.

        Views over relations that never change again come first among these.
        """
        found: dict[int, dict[int, Statement]] = {}
        for trigger in stage.triggers:
            for statement in trigger.statements:
                found.setdefault(statement.target, {}).setdefault(statement.delta, statement)
        # Views are numbered from the root down.
        return [(target, sorted(found[target].values(), key=self._still_changes)) for target in sorted(found)[::-1]]

    def _still_changes(self, statement: Statement) -> tuple[bool, int]:
        source = self.views[statement.source]
        relations = frozenset([str(source.relation)]) if source.indicator else source.relations
        return not relations <= self.static, statement.delta

    @cached_property
    def by_relation(self) -> dict[str, Trigger]:
        return {trigger.relation: trigger for trigger in self.triggers}

    @cached_property
    def probed(self) -> frozenset[int]:
        """Views that some statement reads."""
        return frozenset(s.factors[p.slot] for t in self.triggers for s in t.statements for p in s.every_probe)

    def with_kept(self) -> MaintenancePlan:
        """Mark the views to keep: the answer, and those that a statement of a changing relation reads."""
        readers: dict[int, set[str]] = {}
        for trigger in self.triggers:
            if trigger.relation not in self.static:
                for statement in trigger.statements:
                    for probe in statement.every_probe:
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
        leaves = [self.views[trigger.leaf] for trigger in self.triggers]
        copied = [view for view in leaves if view.replicated and self.stages[view.stage].partition is not None]
        return tuple(view.name if view.indicator else str(view.relation) for view in copied)

    @cached_property
    def indicators(self) -> dict[str, tuple[int, ...]]:
        """The indicator projections of each relation that has some."""
        found: dict[str, tuple[int, ...]] = {}
        for i, view in enumerate(self.views):
            if view.indicator:
                found[str(view.relation)] = (*found.get(str(view.relation), ()), i)
        return found


def _why(is_root: bool, readers: set[str]) -> str:
    if is_root:
        return "it is the answer"
    return f"changes of {', '.join(sorted(readers))} are joined with it" if readers else "no change is joined with it"


def arranged(
    views: Sequence[View],
    triggers: Iterable[Trigger],
    listed: Mapping[int, frozenset[str]] | None = None,
    intersect: bool = False,
) -> tuple[tuple[View, ...], tuple[Trigger, ...]]:
    """Choose per statement the order in which factors are joined, and per view the arrangements that this needs.

    Parameters
    ----------
    listed : per view that readers list, the variables that they know.
    intersect : factors that bind the same variables are joined together, by the smaller side of each row.
    """
    triggers = tuple(triggers)
    wanted: dict[int, list[frozenset[str]]] = {i: [] for i in range(len(views))}
    for i, known in (listed or {}).items():
        wanted[i].append(known)
    bounds: dict[tuple[int, int], list[_Step]] = {}
    for t, trigger in enumerate(triggers):
        for s, statement in enumerate(trigger.statements):
            steps = _join_order(views, statement, intersect)
            bounds[t, s] = steps
            for step in steps:
                for slot, bound in step:
                    wanted[statement.factors[slot]].append(bound)
    orders = {i: _orders(views[i].keys, sets) for i, sets in wanted.items()}
    placed = tuple(replace(view, orders=orders[i]) for i, view in enumerate(views))
    out = []
    for t, trigger in enumerate(triggers):
        statements = []
        for s, statement in enumerate(trigger.statements):
            probes = []
            for step in bounds[t, s]:
                first, *beside = (
                    Probe(slot, order_with(orders[statement.factors[slot]], bound), len(bound)) for slot, bound in step
                )
                probes.append(replace(first, beside=tuple(beside)))
            statements.append(replace(statement, probes=tuple(probes)))
        out.append(replace(trigger, statements=tuple(statements)))
    return placed, tuple(out)


_Step = list[tuple[int, frozenset[str]]]
"""Factors that are joined together, each with the variables by which it is found."""


def _join_order(views: Sequence[View], statement: Statement, intersect: bool) -> list[_Step]:
    """Order factors, the most bound one next: a factor found by its whole key never makes more rows."""
    have = frozenset(views[statement.source].keys)
    left = [slot for slot in range(len(statement.factors)) if slot != statement.delta]
    steps = []
    while left:
        slot = min(_openness(views[statement.factors[slot]].keys, have, slot) for slot in left)[-1]
        keys = {other: frozenset(views[statement.factors[other]].keys) for other in left}
        new = keys[slot] - have
        together = [slot]
        if intersect and new and keys[slot] & have:
            together += [other for other in left if other != slot and keys[other] - have == new and keys[other] & have]
        steps.append([(other, keys[other] & have) for other in together])
        have = have | new
        left = [other for other in left if other not in together]
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


def order_with(orders: Sequence[tuple[str, ...]], bound: frozenset[str]) -> int:
    """Find an arrangement that begins with these variables."""
    return next(i for i, order in enumerate(orders) if frozenset(order[: len(bound)]) == bound)
