"""`key IN (SELECT g FROM t GROUP BY g HAVING ...)` as a HAVING of the query around it.

Where the query joins the same table by the same column g, and groups by it, each of its groups has exactly the rows of
t that a group of the subquery has. Then the subquery need not be kept at all: its aggregates are those of the outer
groups, and membership is a condition on them. Everything that this rests on is checked here, but for one thing that
only keys can tell: that no row of t meets several others in the join (`Flat.root_required`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from headrace.plan.view import Shape
from headrace.sql.jvm import Jvm, conjuncts, identity, items, kind

if TYPE_CHECKING:
    from headrace.sql.flatten import Flat
    from headrace.sql.refusals import Refusals

_ABOVE_GROUPS = {"Project", "Filter", "SubqueryAlias"}


def is_membership(term: Jvm) -> bool:
    """Whether a term of an analysed WHERE is `x IN (SELECT ... GROUP BY ...)`."""
    if kind(term) != "InSubquery":
        return False
    plan = term.query().plan()
    while kind(plan) in _ABOVE_GROUPS:
        plan = plan.child()
    return kind(plan) == "Aggregate"


@dataclass(frozen=True)
class Copy:
    """The outer query's own copy of the table that the subquery reads."""

    leaf: int  # the outer query's own copy of the table
    columns: dict[int, Jvm]  # the outer query's attribute per attribute of the subquery, by number
    key: int  # the GROUP BY item that equals the subquery's group


@dataclass(frozen=True)
class Membership:
    """One `x IN (SELECT ...)`, as the semi join that Catalyst makes of it."""

    refusals: Refusals
    join: Jvm
    subquery: Flat
    key: Jvm = None  # the x, over the leaves of the outer query

    @property
    def text(self) -> str:
        found = [self.refusals.memberships.get(identity(attribute)) for attribute in items(self.join.right().output())]
        return next(filter(None, found), f"IN by {self.join.condition().get().sql()}")

    def compared(self) -> Jvm:
        """The x of `x IN (SELECT ...)`, over the left side of the join; refused unless the subquery can be replaced."""
        outputs = {identity(attribute): i for i, attribute in enumerate(items(self.join.right().output()))}
        condition = self.join.condition().get()
        sides = [condition.left(), condition.right()] if kind(condition) == "EqualTo" else []
        inner = [side for side in sides if kind(side) == "AttributeReference" and identity(side) in outputs]
        if len(inner) != 1:
            self.refuse("it compares several columns, or one that is converted first, as floating-point numbers are")
        self._check_subquery(self.subquery.outputs[outputs[identity(inner[0])]])
        return next(side for side in sides if side is not inner[0])

    def refuse(self, why: str) -> NoReturn:
        self.refusals.refuse_for_now(
            self.text,
            why,
            "join the table itself, by the column that the subquery groups by, and write the condition as HAVING",
        )

    @property
    def table(self) -> str:
        return self.subquery.leaves[0][0]

    def _check_subquery(self, selected: Jvm) -> None:
        inner = self.subquery
        if inner.shape is not Shape.GROUPS:
            self.refuse("the subquery does not group, and only the groups of a table can be looked for")
        if len(inner.leaves) != 1:
            self.refuse("the subquery reads more than one table")
        if len(inner.keys) != 1 or kind(inner.keys[0]) != "AttributeReference":
            self.refuse("the subquery must group by one column")
        if not selected.semanticEquals(inner.slots[0]):
            self.refuse("the subquery selects something other than the column it groups by")
        for term in conjuncts(inner.condition):
            if _read(term) - {identity(inner.keys[0])}:
                self.refuse(
                    f"the subquery leaves out rows of {self.table} by {self.refusals.text(term)}, "
                    "and the groups of the query have them all"
                )

    def copy_in(self, outer: Flat, terms: list[Jvm]) -> Copy:
        """Find the outer query's copy of the table, and check that its groups are those of the subquery.

        Parameters
        ----------
        outer : the outer query, with its leaves and keys.
        terms : all conditions of the outer query.
        """
        copies = [i for i, (table, _) in enumerate(outer.leaves) if table == self.table]
        if len(copies) != 1:
            self.refuse(f"the query must join {self.table} exactly once, and does so {len(copies)} times")
        [leaf] = copies
        inner, own = (items(node.output()) for node in (self.subquery.leaf, outer.leaves[leaf][1]))
        columns = {identity(a): b for a, b in zip(inner, own, strict=True)}
        group = columns[identity(self.subquery.keys[0])]
        others = {identity(attribute) for attribute in own} - {identity(group)}
        for what, nodes in (("its condition", terms), ("GROUP BY", outer.keys)):
            for node in nodes:
                if _read(node) & others:
                    self.refuse(
                        f"{what} {self.refusals.text(node)} reads more of {self.table} than {group.name()}, "
                        "so the groups of the query and those of the subquery have different rows"
                    )
        same = _equal_to(group, terms)
        if not _is_among(self.key, same):
            self.refuse(f"what is looked for does not equal {group.name()} of the {self.table} that the query joins")
        keys = [i for i, key in enumerate(outer.keys) if _is_among(key, same)]
        if not keys:
            self.refuse(f"the query does not group by {group.name()} of {self.table}, or by a column that equals it")
        return Copy(leaf, columns, keys[0])


def _read(node: Jvm) -> set[int]:
    return {identity(attribute) for attribute in items(node.references().toSeq())}


def _equal_to(node: Jvm, terms: list[Jvm]) -> list[Jvm]:
    """All expressions that the equalities among `terms` make equal to a node, the node included."""
    same = [node]
    pairs = [(term.left(), term.right()) for term in terms if kind(term) == "EqualTo"]
    grown = True
    while grown:
        reached = [(a, b) for pair in pairs for a, b in (pair, pair[::-1]) if _is_among(a, same)]
        new = [b for _, b in reached if not _is_among(b, same)]
        same, grown = same + new[:1], bool(new)
    return same


def _is_among(node: Jvm, nodes: list[Jvm]) -> bool:
    return any(node.semanticEquals(other) for other in nodes)
