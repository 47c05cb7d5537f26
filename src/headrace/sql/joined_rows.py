"""The join under a view as rows, for strategies that make the joined rows that change.

Conditions, keys and arguments may read any tables. A part that reads one source is evaluated there, before anything is
joined; what is left is evaluated on joined rows. Spark evaluates what only Spark can, at either place.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headrace.plan import native
from headrace.plan.expression import Expression
from headrace.plan.foreign_tree import ForeignTree
from headrace.plan.rows import STAND_IN, JoinedRows
from headrace.plan.view import Shape
from headrace.sql.equalities import Equalities, Variable, bare, floats
from headrace.sql.evaluate import CatalystView, MapSide
from headrace.sql.flatten import Flat
from headrace.sql.jvm import Catalyst, Jvm, identity, items, kind
from headrace.sql.refusals import Refusals
from headrace.sql.scalars import to_expression
from headrace.sql.sources import Sources


@dataclass(frozen=True)
class RowsOfJoin:
    """The rows of a join: the Catalyst expressions of its sources, and the plan that says the same without Spark.

    Parameters
    ----------
    joined : the condition, keys and arguments evaluated on joined rows, over attributes that stand for variables.
    standing : the attribute of each variable that `joined` reads.
    """

    sources: Sources
    plan: JoinedRows
    sides: dict[str, MapSide]
    joined: MapSide
    standing: dict[str, Jvm]

    def along(self, made: ForeignTree, view: CatalystView) -> CatalystView:
        """Catalyst's side of a tree that joins these rows: a map side per feed from a table, and one of the answer."""
        sides = {}
        for own, (source, places) in made.reads.items():
            side = self.sides[source]
            sides[own] = replace(side, keys=[side.keys[place] for place in places])
        [feed], number = made.tree.root.port.feeds, len(made.tree.nodes) - 1
        fields = {
            name: view.catalyst.attribute(made.shown[name], a.dataType(), a.nullable())
            for name, a in self.standing.items()
        }
        renamed = {identity(a): fields[name] for name, a in self.standing.items()}
        condition, *outputs = (
            None if node is None else view.catalyst.substitute(node, renamed)
            for node in (self.joined.condition, *self.joined.keys)
        )
        assert feed.producer is not None
        answer = MapSide(self.joined.leaf, condition, outputs, [])
        return replace(view, sides=sides, between={(number, 0, 0): (answer, tuple(fields.values()))})


@dataclass
class RowReader:
    """Reads the joined rows that one flattened view asks for."""

    catalyst: Catalyst
    refusals: Refusals
    flat: Flat
    equalities: Equalities = field(init=False)
    _standing: dict[int, tuple[Variable, Jvm]] = field(default_factory=dict)  # by identity of the attribute

    def read(self) -> RowsOfJoin:
        self.equalities = Equalities(self.catalyst, self.refusals, self.flat)
        sources = self.equalities.sources
        self.equalities.is_product()
        across = self.catalyst.conjunction([self._over_variables(term) for term in self.equalities.leftover])
        keys = [self._over_variables(key) for key in self.flat.keys]
        arguments = [self._over_variables(argument) for argument in self.flat.arguments]
        late = self._evaluated_late()
        self.equalities.name_variables()
        across, keys, arguments = (
            None if across is None else self.catalyst.substitute(across, late),
            [self.catalyst.substitute(key, late) for key in keys],
            [self.catalyst.substitute(argument, late) for argument in arguments],
        )
        sides: dict[str, MapSide] = {side.name: side.map_side(self.catalyst) for side in sources.sides}
        plan = JoinedRows(
            sources=tuple(side.source(sides[side.name].condition) for side in sources.sides),
            condition=None if across is None else self._expression(across),
            keys=tuple(map(self._expression, keys)),
            arguments=tuple(map(self._expression, arguments)),
        )
        joined = MapSide(self.flat.leaves[0][1], across, [*keys, *arguments], [])
        standing = {variable.name: attribute for variable, attribute in self._standing.values()}
        return RowsOfJoin(sources, plan, sides, joined, standing)

    def _over_variables(self, node: Jvm) -> Jvm:
        """The expression with an attribute in the place of every part that reads one source."""
        inner = bare(node)
        read, local = self.equalities.sources.localised(inner)
        if len(read) == 1:
            return self._stand_in(self.equalities.variable_of(read[0], local), local)
        if not read:
            return inner  # a constant
        children = items(inner.children())
        made = self.catalyst.with_children(inner, children, [self._over_variables(child) for child in children])
        grouped = floats(made) and self.flat.shape is not Shape.ROWS and inner is not node
        return self.catalyst.normalised_float(made) if grouped else made

    def _stand_in(self, variable: Variable, node: Jvm) -> Jvm:
        for known, attribute in self._standing.values():
            if known is variable:
                return attribute
        nullable = bool(node.nullable()) and not variable.joins
        attribute = self.catalyst.attribute(STAND_IN, node.dataType(), nullable)
        self._standing[identity(attribute)] = (variable, attribute)
        return attribute

    def _evaluated_late(self) -> dict[int, Jvm]:
        """Per attribute that need not travel, its expression over columns that do; it is evaluated on joined rows."""
        late: dict[int, Jvm] = {}
        for number, (variable, _) in list(self._standing.items()):
            [(source, node), *others] = variable.members
            if variable.joins or others or kind(node) == "AttributeReference":
                continue
            made_of = {identity(a): self._traveller(source, a) for a in items(node.references().toSeq())}
            if None in made_of.values() or native.why_not(to_expression(node, dict.fromkeys(made_of, ""))) is not None:
                continue
            late[number] = self.catalyst.substitute(node, made_of)
            self.equalities.variables.remove(variable)
            del self._standing[number]
        return late

    def _traveller(self, source: int, column: Jvm) -> Jvm | None:
        """What stands for a column of a source in joined rows, if anything does."""
        for variable, attribute in self._standing.values():
            for owner, member in variable.members:
                if owner == source and member.semanticEquals(column) and not floats(column):
                    return attribute
        return None

    def _expression(self, node: Jvm) -> Expression:
        return to_expression(node, {number: variable.name for number, (variable, _) in self._standing.items()})
