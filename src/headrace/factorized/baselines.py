"""The strategies that factorized maintenance is measured against, as plans of the same form.

*First-order* keeps the relations as they are and joins a change with all others. *Recursive* is DBToaster's strategy:
per relation it keeps the rest of the query, in connected pieces, and maintains these pieces the same way, recursively.
Both run on the kernels of factorized plans, so a comparison measures the plans only.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.factorized.maintenance import MaintenancePlan, Statement, Trigger, View, arranged
from headrace.plan.hypergraph import Hypergraph


def first_order(query: Hypergraph, features: Collection[str], updatable: Collection[str]) -> MaintenancePlan:
    """Keep every relation with all its variables; a change of one is joined with all others."""
    names = [relation.name for relation in query.relations]
    lifted = tuple(v for v in query.variables if v in features and v not in query.free)
    root = View(
        name=f"V_all[{', '.join(query.free)}]",
        keys=query.free,
        relations=frozenset(names),
        lifted=lifted,
        payload=tuple(range(1, len(names) + 1)),
        kept=True,
        why="it is the answer",
    )
    leaves = [
        View(
            name=f"{relation.name}[{', '.join(relation.variables)}]",
            keys=relation.variables,
            relations=frozenset([relation.name]),
            relation=relation.name,
            kept=any(other in updatable for other in names if other != relation.name),
            why="changes of the other relations are joined with it",
        )
        for relation in query.relations
    ]
    triggers = [Trigger(name, i, (Statement(0, root.payload, i - 1),)) for i, name in enumerate(names, start=1)]
    return _planned("first-order", [root, *leaves], triggers, 0, updatable)


def recursive(query: Hypergraph, features: Collection[str], updatable: Collection[str]) -> MaintenancePlan:
    """Keep, per relation, the connected pieces of the rest of the query, and recursively so for each piece."""
    return _Recursive(query, frozenset(features), frozenset(updatable)).plan()


class _Recursive:
    def __init__(self, query: Hypergraph, features: frozenset[str], updatable: frozenset[str]) -> None:
        self.query = query
        self.updatable = updatable
        self.views: list[View] = []
        self.number: dict[tuple[frozenset[str], frozenset[str]], int] = {}
        self.statements: dict[str, list[Statement]] = {relation.name: [] for relation in query.relations}
        self.leaf: dict[str, int] = {}
        taken: set[str] = set()
        for relation in query.relations:
            # A feature that is joined on is lifted by the first relation that has it.
            own = tuple(v for v in relation.variables if v in features and v not in taken)
            taken.update(own)
            keys = tuple(v for v in relation.variables if v not in query.local_variables)
            self.leaf[relation.name] = len(self.views)
            self.number[frozenset([relation.name]), frozenset(keys)] = len(self.views)
            self.views.append(
                View(
                    name=f"{relation.name}[{', '.join(keys)}]",
                    keys=keys,
                    relations=frozenset([relation.name]),
                    relation=relation.name,
                    lifted=own,
                )
            )

    def plan(self) -> MaintenancePlan:
        root = self._view(frozenset(r.name for r in self.query.relations), frozenset(self.query.free))
        triggers = [Trigger(name, self.leaf[name], tuple(made)) for name, made in self.statements.items()]
        return _planned("recursive", self.views, triggers, root, self.updatable)

    def _view(self, relations: frozenset[str], keys: frozenset[str]) -> int:
        if (relations, keys) in self.number:
            return self.number[relations, keys]
        ordered = tuple(v for v in self.query.variables if v in keys)
        number = self.number[relations, keys] = len(self.views)
        parts = tuple(self.leaf[r.name] for r in self.query.relations if r.name in relations)
        what = "_".join(r.name for r in self.query.relations if r.name in relations)
        self.views.append(View(f"V_{what}[{', '.join(ordered)}]", ordered, relations, payload=parts))
        for name in sorted(relations):
            bound = frozenset(self.query.relation(name).variables) | keys
            rest = [self._view(piece, self._of(piece) & bound) for piece in self._pieces(relations - {name}, name)]
            self.statements[name].append(Statement(number, (self.leaf[name], *rest), 0))
        return number

    def _of(self, relations: frozenset[str]) -> frozenset[str]:
        return frozenset(v for name in relations for v in self.query.relation(name).variables)

    def _pieces(self, relations: frozenset[str], without: str) -> list[frozenset[str]]:
        """The connected pieces of the other relations, once the variables of one relation are fixed."""
        bound = set(self.query.relation(without).variables)
        left = sorted(relations)
        found = []
        while left:
            piece, reached = {left[0]}, self._of(frozenset([left[0]])) - bound
            while more := [n for n in left if n not in piece and reached & self._of(frozenset([n]))]:
                piece.update(more)
                reached |= self._of(frozenset(more)) - bound
            found.append(frozenset(piece))
            left = [name for name in left if name not in piece]
        return found


def _planned(
    strategy: str, views: list[View], triggers: list[Trigger], root: int, updatable: Collection[str]
) -> MaintenancePlan:
    placed, planned = arranged(views, triggers)
    static = frozenset(trigger.relation for trigger in planned if trigger.relation not in updatable)
    plan = MaintenancePlan(strategy, placed, planned, root, static=static)
    return plan.with_kept()
