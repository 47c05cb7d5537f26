"""From the conditions of a join to sources that share variables.

SQL says which columns are equal; a join plan says which variable they all are. So equalities are gathered into
classes, each class becomes a variable, every other condition goes to the one source it reads, and what is left over
(a comparison across tables, a product nobody asked for) is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from headrace.plan.join import JoinPlan
from headrace.plan.view import Shape
from headrace.sql.evaluate import MapSide
from headrace.sql.flatten import Flat
from headrace.sql.jvm import Catalyst, Jvm, kind
from headrace.sql.products import Products
from headrace.sql.refusals import Refusals
from headrace.sql.scalars import to_type
from headrace.sql.sources import Sources, conjuncts


@dataclass(eq=False)
class Variable:
    """Expressions of several sources that are equal in every row of the join, or a key of one source."""

    members: list[tuple[int, Jvm]]
    joins: bool
    name: str = ""


@dataclass(frozen=True)
class Join:
    """The join under a view: Catalyst's side of its sources, and the plan that says the same without Spark."""

    sources: Sources
    plan: JoinPlan
    sides: dict[str | None, MapSide]


@dataclass
class Joiner:
    """Reads the join of one flattened view.

    Parameters
    ----------
    output_names : names that the variables of the keys should have, where the keys are the view's columns.
    """

    catalyst: Catalyst
    refusals: Refusals
    flat: Flat
    output_names: list[str] | None = None
    variables: list[Variable] = field(default_factory=list)

    def join(self) -> Join:
        self._refuse_extremes()
        sources = self.sources = Sources(self.catalyst, self.flat)
        leftover = self._place_conditions()
        for variable in self.variables:
            self._bind(variable)
        for term in leftover:
            self._place_leftover(term)
        cross = self._is_product()
        keys = [self._key_variable(i, key) for i, key in enumerate(self.flat.keys)]
        self._name(keys)
        products = Products(self.catalyst, self.refusals, sources)
        arguments = tuple(products.argument(argument) for argument in self.flat.arguments)
        sides: dict[str | None, MapSide] = {side.name: side.map_side(self.catalyst) for side in sources.sides}
        plan = JoinPlan(
            sources=tuple(side.source(sides[side.name].condition) for side in sources.sides),
            keys=tuple(key.name for key in keys),
            arguments=arguments,
            cross=cross,
        )
        return Join(sources, plan, sides)

    def _refuse_extremes(self) -> None:
        for aggregate in self.flat.aggregates:
            if aggregate.function in ("min", "max"):
                self.refusals.refuse_for_now(
                    aggregate.sql,
                    "MIN and MAX are not kept up to date over joins yet",
                    "leave it out, or keep it in a view of the one table that has the column",
                )

    def _place_conditions(self) -> list[Jvm]:
        """Give each condition to its source, and gather equalities; what reads several sources is returned."""
        leftover = []
        for term in conjuncts(self.flat.condition):
            read = self.sources.read_by(term)
            if len(read) < 2:
                self.sources.sides[read[0] if read else 0].filters.append(term)
            elif kind(term) == "EqualTo" and len(read) == 2 and self._one_a_side(term):
                self._equate(term.left(), term.right())
            else:
                leftover.append(term)
        return leftover

    def _one_a_side(self, equality: Jvm) -> bool:
        return len(self.sources.read_by(equality.left())) == len(self.sources.read_by(equality.right())) == 1

    def _equate(self, left: Jvm, right: Jvm) -> None:
        classes = [self._class_of(_bare(node)) for node in (left, right)]
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
        """Keep one expression a source; others of the same source must equal it, which is that source's affair."""
        first: dict[int, Jvm] = {}
        for source, member in variable.members:
            if to_type(member.dataType()) is None:
                self.refusals.refuse_type(member)
            if source in first:
                self.sources.sides[source].filters.append(self.catalyst.expressions.EqualTo(first[source], member))
            else:
                first[source] = member
        columns = {s: node for s, node in variable.members if kind(node) == "AttributeReference" and not _floats(node)}
        self.sources.equate(columns)  # equal floats may still differ: 0.0 and -0.0

    def _place_leftover(self, term: Jvm) -> None:
        read, local = self.sources.localised(term)
        if len(read) == 1:
            self.sources.sides[read[0]].filters.append(local)
            return
        self.refusals.refuse_for_now(
            f"the condition {self.refusals.text(term)}",
            "it compares columns of several tables, and a view joins on equal columns only for now",
            "write an equality of one table's expression with another's, or filter the answer when you read it",
        )

    def _is_product(self) -> bool:
        """Whether some parts of the join share no variable; refused unless the query says CROSS JOIN for each."""
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

    def _key_variable(self, i: int, key: Jvm) -> Variable:
        bare = _bare(key)
        read, local = self.sources.localised(bare)
        if len(read) > 1:
            self._refuse_key(i, bare)
        source = read[0] if read else 0
        # Without groups a float is shown as it is, while a join variable has one zero only.
        raw = _floats(local) and self.flat.shape is Shape.ROWS
        known = self._variable_with(source, local, joins=False if raw else None)
        if known is None:
            known = Variable([(source, local)], joins=False)
            self.variables.append(known)
        return known

    def _refuse_key(self, i: int, key: Jvm) -> NoReturn:
        if self.output_names is not None:
            self.refusals.refuse(
                f"the column {self.output_names[i]!r}",
                "a feature must come from one table, and it reads several",
                "select the columns it is made of, each as a feature",
            )
        what = "GROUP BY" if self.flat.shape is Shape.GROUPS else "the column"
        self.refusals.refuse_for_now(
            f"{what} {self.refusals.text(key)}",
            "it reads columns of several tables, and a key must come from one for now",
            "use the columns it is made of, and compute it from the answer you read",
        )

    def _name(self, keys: list[Variable]) -> None:
        """Name the variables, and hand them to their sources."""
        taken: set[str] = set()
        for name, variable in zip(self.output_names or (), keys, strict=False):
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
                node = self.catalyst.normalised_float(node) if _floats(node) and normalise else node
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


def _bare(node: Jvm) -> Jvm:
    """An expression without the normalisation that Catalyst and the flattener put around floats."""
    return node.child().child() if kind(node) == "KnownFloatingPointNormalized" else node


def _floats(node: Jvm) -> bool:
    return node.dataType().simpleString() in ("float", "double")
