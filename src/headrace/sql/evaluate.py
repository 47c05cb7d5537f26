"""A view's expressions, evaluated by Catalyst itself.

Spark evaluates whatever Headrace cannot evaluate natively, with the very expressions it planned: they are bound to the
columns of a DataFrame and become columns of it, or are evaluated over rows that the driver has (`projection`). The
classes here hold objects of the JVM and stay on the driver.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from headrace.errors import SchemaError
from headrace.plan.tree import FeedId
from headrace.plan.view import ViewPlan
from headrace.sql.flatten import Flat
from headrace.sql.jvm import Catalyst, Jvm, identity, items
from headrace.sql.projection import Projection

_SORTS = {  # by (descending, nulls first)
    (False, True): Column.asc_nulls_first,
    (False, False): Column.asc_nulls_last,
    (True, True): Column.desc_nulls_first,
    (True, False): Column.desc_nulls_last,
}


@dataclass(frozen=True)
class Template:
    """Expressions made once over placeholder attributes, and bound to columns of a DataFrame or of Arrow."""

    catalyst: Catalyst
    project: Jvm
    inputs: tuple[tuple[str, str, Jvm], ...]  # name and type of each column, and the attribute that stands for it

    @classmethod
    def of(cls, catalyst: Catalyst, leaf: Jvm, nodes: Iterable[Jvm], attributes: Iterable[Jvm]) -> Template:
        project = catalyst.project(nodes, leaf)
        read = {identity(attribute) for attribute in items(project.references().toSeq())}
        inputs = [(a.name(), a.dataType().simpleString(), a) for a in attributes if identity(a) in read]
        return cls(catalyst, project, tuple(inputs))

    def bind(self, df: DataFrame) -> list[Column]:
        """The expressions as columns of `df`, which has the inputs by name."""
        types = df.dtypes
        names = [name for name, _ in types]
        output = df._jdf.queryExecution().analyzed().output()
        pairs = []
        for name, type, attribute in self.inputs:
            position = _position(names, name)
            if types[position][1] != type:
                raise SchemaError(
                    f"column {name!r} is {types[position][1]}, not {type}",
                    way_out="cast it to the type of the table's column",
                )
            pairs.append((attribute, output.apply(position)))
        return [_column(self.catalyst, node) for node in self.catalyst.rewrite(self.project, pairs)]

    @cached_property
    def projection(self) -> Projection:
        """The same expressions over Arrow rows, without a job."""
        return Projection(self.catalyst, self.project, self.inputs)


@dataclass(frozen=True)
class MapSide:
    """The condition, keys and arguments to evaluate on the rows of one table, or of one operator of a tree."""

    leaf: Jvm
    condition: Jvm | None
    keys: Sequence[Jvm]
    arguments: Sequence[Jvm]

    @property
    def names(self) -> list[str]:
        condition = [] if self.condition is None else ["c"]
        keys = [f"k{i}" for i in range(len(self.keys))]
        return [*condition, *keys, *(f"v{i}" for i in range(len(self.arguments)))]

    def node(self, catalyst: Catalyst, name: str) -> Jvm:
        if name == "c":
            return self.condition
        node = (self.keys if name[0] == "k" else self.arguments)[int(name[1:])]
        return node if self.condition is None else catalyst.when(self.condition, node)


@dataclass(frozen=True)
class CatalystView:
    """A view's map side, aggregates and finish as Catalyst expressions; `plan` says the same without Spark.

    There is one map side per source, by its name. `between` has the feeds from one operator to another, each with the
    attributes that stand for the fields it reads.
    """

    catalyst: Catalyst
    plan: ViewPlan
    flat: Flat
    sides: Mapping[str, MapSide]
    not_null: tuple[bool, ...]
    between: Mapping[FeedId, tuple[MapSide, Sequence[Jvm]]] = field(default_factory=dict)
    _maps: dict[tuple[str, tuple[str, ...]], Template] = field(default_factory=dict, repr=False)
    _betweens: dict[FeedId, Template] = field(default_factory=dict, repr=False)

    def map_columns(
        self, changes: DataFrame, prefix: str = "", only: Collection[str] | None = None, source: str | None = None
    ) -> list[Column]:
        """The map side over the table's columns: `c` (condition), `k0..` (keys), `v0..` (arguments), in this order.

        Keys and arguments are NULL where the condition does not hold, and are not evaluated there, so a row that
        the view leaves out cannot raise. A NULL condition means that it does not hold.

        Parameters
        ----------
        changes : has the columns of the table, by name.
        prefix : put before the name of every column.
        only : names (without the prefix) to return; all when None.
        source : the source of the view that `changes` belong to; may be left out if the view has only one. For a join,
            `k0..` are the variables of the source, and `v0..` its factors.
        """
        source = next(iter(self.sides)) if source is None else source
        names = tuple(name for name in self.sides[source].names if only is None or name in only)
        columns = self._map(source, names).bind(changes)
        return [column.alias(prefix + name) for name, column in zip(names, columns, strict=True)]

    def map_values(self, changes: pa.Table, source: str) -> dict[str, pa.Array]:
        """The columns of `map_columns`, all of them, evaluated in the driver over rows that it has."""
        names = tuple(self.sides[source].names)
        return dict(zip(names, self._map(source, names).projection(changes), strict=True))

    def between_values(self, changes: pa.Table, feed: FeedId) -> dict[str, pa.Array]:
        """The columns of a feed between operators, over the fields of its producer; named as in `map_columns`."""
        return dict(zip(self.between[feed][0].names, self._between(feed).projection(changes), strict=True))

    def between_columns(self, changes: DataFrame, feed: FeedId) -> list[Column]:
        """The columns of `between_values` over a DataFrame, which has the fields of the producer by name."""
        columns = self._between(feed).bind(changes)
        return [column.alias(name) for name, column in zip(self.between[feed][0].names, columns, strict=True)]

    def finish(
        self, groups: DataFrame, keep: Sequence[str] = (), arrange: bool = True, hidden: bool = False
    ) -> DataFrame:
        """The answer over columns `k0..`, `a0..`: HAVING, outputs with the query's names and types, ORDER BY and LIMIT.

        Parameters
        ----------
        keep : columns (such as `__diff`) to pass on after the outputs.
        arrange : whether ORDER BY and LIMIT are wanted.
        hidden : whether the outputs are wanted that the answer is only sorted by.
        """
        outputs = self._outputs.bind(groups)
        named = [column.alias(output.name) for column, output in zip(outputs, self.plan.outputs, strict=True)]
        attributes = groups._jdf.queryExecution().analyzed().output()
        kept = [_column(self.catalyst, attributes.apply(_position(groups.columns, name))) for name in keep]
        kept_groups = groups.where(self._having.bind(groups)[0]) if self._having else groups
        answer = kept_groups.select(*named, *kept)
        if arrange and self.plan.limit is not None:
            answer = answer.orderBy(*self._total_order(answer)).limit(self.plan.limit)
        elif arrange and self.flat.order:
            answer = answer.orderBy(*self._order(answer))
        if hidden or not self.flat.hidden:
            return answer
        wanted = [*range(len(self.plan.shown)), *range(len(self.plan.outputs), len(self.plan.outputs) + len(keep))]
        output = answer._jdf.queryExecution().analyzed().output()
        return answer.select(*(_column(self.catalyst, output.apply(i)) for i in wanted))

    def _map(self, source: str, names: tuple[str, ...]) -> Template:
        if (source, names) not in self._maps:
            side = self.sides[source]
            nodes = [side.node(self.catalyst, name) for name in names]
            self._maps[source, names] = Template.of(self.catalyst, side.leaf, nodes, items(side.leaf.output()))
        return self._maps[source, names]

    def _between(self, feed: FeedId) -> Template:
        if feed not in self._betweens:
            side, fields = self.between[feed]
            nodes = [side.node(self.catalyst, name) for name in side.names]
            self._betweens[feed] = Template.of(self.catalyst, side.leaf, nodes, fields)
        return self._betweens[feed]

    @cached_property
    def _having(self) -> Template | None:
        flat = self.flat
        return None if flat.having is None else Template.of(self.catalyst, flat.leaf, [flat.having], flat.slots)

    @cached_property
    def _outputs(self) -> Template:
        # A group's columns arrive as nullable; the query's own schema may promise more.
        nodes = [
            self.catalyst.expressions.KnownNotNull(node) if promised else node
            for node, promised in zip(self.flat.outputs, self.not_null, strict=True)
        ]
        return Template.of(self.catalyst, self.flat.leaf, nodes, self.flat.slots)

    def _order(self, answer: DataFrame) -> list[Column]:
        columns = self._columns(answer)
        return [_SORTS[descending, first](columns[i]) for i, descending, first in self.flat.order]

    def _total_order(self, answer: DataFrame) -> list[Column]:
        """The order that decides what a LIMIT keeps, as `operators.order.total_order` says."""
        columns = self._columns(answer)
        named = {i for i, _, _ in self.flat.order}
        others = [column.asc_nulls_first() for i, column in enumerate(columns) if i not in named]
        # 0.0 and -0.0 are equal but look different, so their texts break the tie.
        outputs = zip(columns, self.plan.outputs, strict=True)
        texts = [column.cast("string").asc() for column, output in outputs if output.expression.type.is_floating]
        return [*self._order(answer), *others, *texts]

    def _columns(self, answer: DataFrame) -> list[Column]:
        """The outputs of an answer."""
        output = answer._jdf.queryExecution().analyzed().output()
        return [_column(self.catalyst, output.apply(i)) for i in range(len(self.plan.outputs))]


def _column(catalyst: Catalyst, node: Jvm) -> Column:
    return Column(catalyst.jvm.org.apache.spark.sql.classic.ExpressionUtils.column(node))


def _position(names: list[str], name: str) -> int:
    if names.count(name) != 1:
        raise SchemaError(
            f"column {name!r} is needed once, and is there {names.count(name)} times among {', '.join(names)}",
            way_out="give the DataFrame exactly the columns of the table",
        )
    return names.index(name)
