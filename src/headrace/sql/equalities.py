"""From the conditions of a join to sources that share variables.

SQL says which columns are equal; a join plan says which variable they all are. So equalities are gathered into classes,
each class becomes a variable, and every other condition goes to the one source it reads. Conditions that read several
sources are left over, and the caller decides what becomes of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.plan.view import Shape
from headrace.sql.flatten import Flat
from headrace.sql.jvm import Catalyst, Jvm, conjuncts, kind
from headrace.sql.refusals import Refusals
from headrace.sql.scalars import to_type
from headrace.sql.sources import Sources


@dataclass(eq=False)
class Variable:
    """Expressions of several sources that are equal in every row of the join, or an expression of one source."""

    members: list[tuple[int, Jvm]]
    joins: bool
    name: str = ""


class Equalities:
    """The sources of one flattened view, the variables they share, and the conditions that read several of them."""

    def __init__(self, catalyst: Catalyst, refusals: Refusals, flat: Flat) -> None:
        self.catalyst = catalyst
        self.refusals = refusals
        self.flat = flat
        self.sources = Sources(catalyst, flat)
        self.variables: list[Variable] = []
        across = self._place_conditions()
        for variable in self.variables:
            self._bind(variable)
        self.leftover = [term for term in across if not self._placed(term)]

    def _place_conditions(self) -> list[Jvm]:
        """Give each condition to its source, gather equalities, and return conditions that read several sources."""
        across = []
        for term in conjuncts(self.flat.condition):
            read = self.sources.read_by(term)
            if len(read) < 2:
                self.sources.sides[read[0] if read else 0].filters.append(term)
            elif kind(term) == "EqualTo" and len(read) == 2 and self._one_a_side(term):
                self._equate(term.left(), term.right())
            else:
                across.append(term)
        return across

    def _one_a_side(self, equality: Jvm) -> bool:
        return len(self.sources.read_by(equality.left())) == len(self.sources.read_by(equality.right())) == 1

    def _equate(self, left: Jvm, right: Jvm) -> None:
        classes = [self._class_of(bare(node)) for node in (left, right)]
        older, newer = sorted(classes, key=self.variables.index)
        if older is not newer:
            older.members += newer.members
            self.variables.remove(newer)

    def _class_of(self, node: Jvm) -> Variable:
        [source] = self.sources.read_by(node)
        known = self._variable_with(source, node)
        if known is None:
            known = Variable([(source, node)], joins=True)
            self.variables.append(known)
        return known

    def _variable_with(self, source: int, node: Jvm, joins: bool | None = None) -> Variable | None:
        for variable in self.variables:
            if joins in (None, variable.joins):
                for owner, member in variable.members:
                    if owner == source and node.semanticEquals(member):
                        return variable
        return None

    def _bind(self, variable: Variable) -> None:
        """Keep one expression per source; a filter of the source demands that its other expressions equal that one."""
        first: dict[int, Jvm] = {}
        for source, member in variable.members:
            if to_type(member.dataType()) is None:
                self.refusals.refuse_type(member)
            if source in first:
                self.sources.sides[source].filters.append(self.catalyst.expressions.EqualTo(first[source], member))
            else:
                first[source] = member
        columns = {s: node for s, node in variable.members if kind(node) == "AttributeReference" and not floats(node)}
        self.sources.equate(columns)  # equal floats may still differ: 0.0 and -0.0

    def _placed(self, term: Jvm) -> bool:
        """Try to give a condition to one source by replacing columns of the others with equal ones; True on success."""
        read, local = self.sources.localised(term)
        if len(read) == 1:
            self.sources.sides[read[0]].filters.append(local)
        return len(read) == 1

    def is_product(self) -> bool:
        """Whether the join has parts that share no variable; refused unless the query joins them by CROSS JOIN."""
        parts = [{i} for i in range(len(self.sources.sides))]
        for variable in self.variables:
            touched = {source for source, _ in variable.members}
            merged = set[int]().union(*(part for part in parts if part & touched))
            parts = [part for part in parts if not part & touched] + [merged]
        if len(parts) > 1 + self.flat.products:
            parts.sort(key=min)
            one, other = (", ".join(self.sources.sides[i].name for i in sorted(part)) for part in parts[:2])
            self.refusals.refuse(
                f"a join of {one} with {other}",
                "no condition connects them, so every row would meet every other",
                "add a condition, or write CROSS JOIN if you mean it",
            )
        return len(parts) > 1

    def variable_of(self, source: int, node: Jvm) -> Variable:
        """The variable of an expression over one source; a new variable if there is none yet."""
        # Without groups a float is shown as it is, while a join variable has one zero only.
        raw = floats(node) and self.flat.shape is Shape.ROWS
        known = self._variable_with(source, node, joins=False if raw else None)
        if known is None:
            if to_type(node.dataType()) is None:
                self.refusals.refuse_type(node)
            known = Variable([(source, node)], joins=False)
            self.variables.append(known)
        return known

    def name_variables(self, wanted: Sequence[tuple[Variable, str]] = ()) -> None:
        """Name the variables, by `wanted` where the name is free, and add them to their sources."""
        taken: set[str] = set()
        for variable, name in wanted:
            if not variable.name and name not in taken:
                variable.name = name
                taken.add(name)
        for variable in self.variables:
            variable.members.sort(key=lambda member: member[0])
            if not variable.name:
                variable.name = next(name for name in self._names(variable) if name not in taken)
                taken.add(variable.name)
            normalise = variable.joins or self.flat.shape is not Shape.ROWS
            for source, node in dict(reversed(variable.members)).items():
                side = self.sources.sides[source]
                node = self.catalyst.normalised_float(node) if floats(node) and normalise else node
                side.variables.append((variable.name, node))
                if variable.joins and node.nullable():
                    side.required.add(variable.name)

    def _names(self, variable: Variable) -> Iterator[str]:
        columns = [
            (self.sources.sides[s].name, n.name()) for s, n in variable.members if kind(n) == "AttributeReference"
        ]
        yield from (column for _, column in columns)
        yield from (f"{source}.{column}" for source, column in columns)
        text = variable.members[0][1].sql()
        yield text
        yield from (f"{text}#{i}" for i in range(2, len(self.variables) + 2))


def bare(node: Jvm) -> Jvm:
    """An expression without the normalisation that Catalyst and the flattener put around floats."""
    return node.child().child() if kind(node) == "KnownFloatingPointNormalized" else node


def floats(node: Jvm) -> bool:
    """Whether an expression is a FLOAT or a DOUBLE."""
    return node.dataType().simpleString() in ("float", "double")
