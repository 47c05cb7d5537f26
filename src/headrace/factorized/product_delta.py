"""The delta of a view whose change is a product: each part is joined with the siblings that have its variables.

This is what OPTIMIZE does in F-IVM's delta trees (Figure 7, Section 6): sums are pushed past joins, into the part that
has the variable, and what would be a Cartesian product stays in its factors (Example 12). Parts meet only where one
sibling has variables of both. Of the ways to join them then, the one with the fewest rows is taken: pairs of entries of
the parts are looked up in the sibling, or its entries are listed by the keys of one part and looked up in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.factorized.algebra import Algebra, Scope
from headrace.factorized.delta import in_order, indicator, join
from headrace.factorized.maintenance import MaintenancePlan, Probe, Statement
from headrace.factorized.matches import Matches, Reader, expanded, grouped
from headrace.factorized.products import Part, Product, entries, summed
from headrace.relation.kernels import Positions
from headrace.relation.run import Run, merge
from headrace.relation.variables import Variables
from headrace.rings import Payload


def product_delta(
    plan: MaintenancePlan, algebra: Algebra, variables: Variables, statement: Statement, product: Product, read: Reader
) -> Product | None:
    """Compute the change of a statement's target that follows from a product; None when nothing changes."""
    siblings = [_Sibling.of(plan, statement, probe, read) for probe in statement.every_probe]
    if not all(sibling.size for sibling in siblings):
        return None
    out = []
    for parts, beside in _connected(product, siblings):
        made = _Component(plan, algebra, variables, statement, read, list(parts), list(beside)).joined()
        if made is None:
            return None
        out.append(made)
    return tuple(out)


@dataclass(frozen=True)
class _Sibling:
    """A view that a change is joined with."""

    view: int
    keys: tuple[str, ...]
    size: int  # the entries of its runs

    @classmethod
    def of(cls, plan: MaintenancePlan, statement: Statement, probe: Probe, read: Reader) -> _Sibling:
        view = statement.factors[probe.slot]
        size = sum(run.rows for run in read(view, probe.order))
        return cls(view, plan.views[view].keys, size)


def _connected(product: Sequence[Part], siblings: Sequence[_Sibling]) -> list[tuple[list[Part], list[_Sibling]]]:
    """Bring together the parts and siblings that share variables; without a variable, each is by itself."""
    found: list[tuple[set[str], list[Part], list[_Sibling]]] = []
    ones: list[tuple[set[str], list[Part], list[_Sibling]]] = [(set(part.keys), [part], []) for part in product]
    ones += [(set(sibling.keys), [], [sibling]) for sibling in siblings]
    for keys, parts, beside in ones:
        for component in [component for component in found if component[0] & keys]:
            keys, parts, beside = component[0] | keys, component[1] + parts, component[2] + beside
        found = [component for component in found if not component[0] & keys]
        found.append((keys, parts, beside))
    return [(parts, beside) for _, parts, beside in found]


@dataclass
class _Component:
    """A join in progress of parts and siblings that share variables. Rows are positions of their entries."""

    plan: MaintenancePlan
    algebra: Algebra
    variables: Variables
    statement: Statement
    read: Reader
    parts: list[Part]  # those that are still to be joined, as are these siblings
    siblings: list[_Sibling]
    matches: Matches = field(default_factory=lambda: Matches(1, {}, {}, {}))
    payloads: list[Payload] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)
    order: tuple[str, ...] = ()  # the keys of the factor that came first: rows stay in its order

    def joined(self) -> Part | None:
        """Join all of them, and sum by the keys of the target; None if nothing is left."""
        if (part := self._untouched()) is not None:
            return part
        self._begin()
        while self.matches.rows and (self.parts or self.siblings):
            if (part := self._bound_part()) is not None:
                self._join_part(part)
            else:
                self._join_sibling()
        if not self.matches.rows:
            return None
        target = self.plan.views[self.statement.target]
        keys = tuple(name for name in target.orders[0] if name in self._have)
        lifted = tuple(name for name in target.lifted if name in self._have)
        scope = self.algebra.joined_scope(self.scopes, lifted)
        is_sorted = self.order[: len(keys)] == keys
        run = summed(
            self.algebra,
            self.variables,
            self.matches,
            self.payloads,
            self.scopes,
            keys,
            scope,
            lifted,
            is_sorted=is_sorted,
        )
        return Part(run.words, run.payload, run.values, keys, scope) if run.rows else None

    def _untouched(self) -> Part | None:
        """The only part, if nothing is joined with it and all of its keys stay: it goes on as it is."""
        if self.siblings or len(self.parts) != 1:
            return None
        (part,), target = self.parts, self.plan.views[self.statement.target]
        keys = tuple(name for name in target.orders[0] if name in part.keys)
        if len(keys) < len(part.keys) or set(keys).intersection(target.lifted):
            return None
        run = in_order(self.variables, part, part.keys, keys)
        return Part(run.words, run.payload, run.values, keys, part.scope)

    @property
    def _have(self) -> set[str]:
        return set(self.matches.words)

    def _begin(self) -> None:
        """Begin with the largest part, so that it is the others that are looked up; or with all of a sibling."""
        if self.parts:
            first = max(self.parts, key=lambda part: part.rows)
            self._without(first)
            self._added(first, first.keys, first.scope, np.arange(first.rows))
            self.order = first.keys
            return
        sibling = self.siblings.pop(0)
        every, self.order = self._entries(sibling), self.plan.views[sibling.view].orders[0]
        self._added(every, self.order, self.algebra.scope(sibling.view), np.arange(every.rows))

    def _without(self, part: Part) -> None:
        self.parts = [other for other in self.parts if other is not part]

    def _added(self, run: Run, keys: tuple[str, ...], scope: Scope, at: Positions) -> None:
        slot = len(self.payloads)
        self.matches.rows = len(at)
        self.matches.join(slot, run, at, self.variables, keys)
        self.payloads.append(run.payload)
        self.scopes.append(scope)

    # -- parts --------------------------------------------------------------------------------------------------------

    def _bound_part(self) -> Part | None:
        """A part some of whose keys a sibling has bound: it only leaves rows that it has entries for."""
        found = [part for part in self.parts if self._have.intersection(part.keys)]
        return max(found, key=lambda part: len(self._have.intersection(part.keys)), default=None)

    def _join_part(self, part: Part) -> None:
        self._without(part)
        bound = [name for name in part.keys if name in self._have]
        wanted = (*bound, *(name for name in part.keys if name not in bound))
        self._list(in_order(self.variables, part, part.keys, wanted), wanted, len(bound), part.scope)

    def _cross(self, part: Part) -> None:
        self._without(part)
        rows = self.matches.rows
        self.matches.take(np.repeat(np.arange(rows), part.rows))
        self._added(part, part.keys, part.scope, np.tile(np.arange(part.rows), rows))

    # -- siblings -----------------------------------------------------------------------------------------------------

    def _join_sibling(self) -> None:
        """Join the most bound sibling, or first what it lacks: the parts that it has keys of."""
        have = self._have
        sibling = min(self.siblings, key=lambda one: (not have.intersection(one.keys), len(set(one.keys) - have)))
        missing = [part for part in self.parts if set(part.keys).intersection(sibling.keys)]
        if missing and self.matches.rows * entries(missing) <= sibling.size:
            for part in missing:
                self._cross(part)
            return
        self.siblings.remove(sibling)
        view, scope = self.plan.views[sibling.view], self.algebra.scope(sibling.view)
        bound = [name for name in sibling.keys if name in have]
        number = self._searchable(sibling, frozenset(bound))
        if number is None:
            # No arrangement is searched by these keys. With parts missing, sorting all entries takes less than pairing
            # the parts, of which there would be more.
            wanted = (*bound, *(name for name in sibling.keys if name not in bound))
            found = in_order(self.variables, self._entries(sibling), view.orders[0], wanted)
            self._list(found, wanted, len(bound), scope)
            return
        keys, group = view.orders[number], self.algebra.group(sibling.view)
        probe = Probe(len(self.payloads), number, len(bound))
        runs = self.read(sibling.view, number)
        payload = join(group, self.variables, keys, probe, self.matches, runs, self.order)
        self.payloads.append(indicator(payload) if view.indicator else payload)
        self.scopes.append(scope)

    def _searchable(self, sibling: _Sibling, bound: frozenset[str]) -> int | None:
        """An arrangement of a sibling that can be searched by some of its keys."""
        view = self.plan.views[sibling.view]
        partition = self.plan.stages[view.stage].partition
        # Of keys without the variable of the buckets, nothing would tell in which bucket's runs they lie.
        if not bound or (partition in view.keys and partition not in bound and not view.replicated):
            return None
        return next((i for i, order in enumerate(view.orders) if frozenset(order[: len(bound)]) == bound), None)

    def _entries(self, sibling: _Sibling) -> Run:
        """All entries of a sibling."""
        found = merge(self.algebra.group(sibling.view), list(self.read(sibling.view, 0)))  # type: ignore[arg-type]
        is_indicator = self.plan.views[sibling.view].indicator
        return Run(found.words, indicator(found.payload), found.values) if is_indicator else found

    def _list(self, run: Run, keys: tuple[str, ...], bound: int, scope: Scope) -> None:
        """Join the rows with the entries of a run that have their values in the first keys."""
        names = keys[:bound]
        heads, group_of, _ = grouped(self.matches.key(self.variables, names), self.order[:bound] == names)
        first, last = run.find(heads)
        positions, owners = expanded(first[group_of], last[group_of])
        self.matches.take(owners)
        self._added(run, keys, scope, positions)
