"""Names that a person recognises for the fields of operators, which are only numbered.

Operators know fields by position (`l0`, `r1`, `a0`), whatever the columns of a query are called, but the reader of an
explanation knows columns and aggregates. So fields are followed down to the tables: a column is shown by its name, a
computed field by its expression, and the result of an aggregate by the text of the aggregate in the query.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from headrace.explain.words import cut
from headrace.operators.asked import plain
from headrace.operators.group import GroupLayout
from headrace.operators.layout import Behind, ViewLayout
from headrace.plan.expression import Expression
from headrace.plan.tree import FLAG, Aggregation, Feed, Join, JoinKind, Over, Tree
from headrace.rings import Integer
from headrace.rings.named import NamedRing

_LONGEST = 120  # characters of a name: expressions over expressions could double with every operator
# A literal, or a word (perhaps quoted, or of several parts) that is no number and no function.
_WORD = re.compile(r"'(?:[^'\\]|\\.)*'|(?<![\w`.])(?:`[^`]+`|[^\W\d]\w*)(?:\.(?:`[^`]+`|\w+))*(?![\w`.(])")
_SQL = frozenset({
    "AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "ILIKE", "RLIKE", "ESCAPE", "BETWEEN", "CAST", "AS", "CASE", "WHEN",
    "THEN", "ELSE", "END", "DISTINCT", "DIV", "TRUE", "FALSE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "INTERVAL",
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "STRING", "BINARY", "FROM", "FOR",
    "BOTH", "LEADING", "TRAILING",
})  # fmt: skip

_POWERS = {"squares": "squares", "cubes": "cubes", "fourths": "fourth powers"}
_SUMMED = {role: f"sum of the {what} with its rounding error" for role, what in _POWERS.items()}
_SUMMED |= {f"distinct_{role}": f"sum of the {what} of the different values" for role, what in _POWERS.items()}
_SUMMED |= {
    "cross": "sum of the products",
    "distinct_sum": "sum of the different values",
    "parity": "parity of the bits",
    "distinct_parity": "parity of the bits of the different values",
}

Named = Callable[[str], str]
"""The name of a column, given what an expression calls it."""


@dataclass(frozen=True, eq=False)
class Naming:
    """Names of all fields of one tree."""

    tree: Tree

    @cached_property
    def _shared(self) -> frozenset[str]:
        """Columns that several sources have, so that their names need the source in front."""
        tables = [feed for _, _, _, feed in self.tree.feeds() if feed.producer is None]
        read = Counter(name for feed in tables for name in {c for e in feed.expressions for c in e.columns})
        return frozenset(name for name, times in read.items() if times > 1)

    @cached_property
    def _ports(self) -> tuple[tuple[tuple[str, ...], ...], ...]:
        found: list[tuple[tuple[str, ...], ...]] = []
        for node in self.tree.nodes:
            # Where several feeds end, the first names the columns, as it does in UNION ALL.
            found.append(
                tuple(
                    tuple(written(output, self._of(port.feeds[0], found)) for output in port.feeds[0].outputs)
                    for port in node.ports
                )
            )
        return tuple(found)

    def _of(self, feed: Feed, ports: list[tuple[tuple[str, ...], ...]]) -> Named:
        if feed.producer is None:
            return lambda name: f"{feed.source}.{name}" if name in self._shared else name
        producer = feed.producer
        return lambda name: self._given(producer, name, ports[producer])

    def _given(self, number: int, name: str, ports: tuple[tuple[str, ...], ...]) -> str:
        node = self.tree.nodes[number]
        if name == FLAG:
            return "exists"
        if isinstance(node, Aggregation) and name.startswith("a"):
            return cut(node.plan.aggregates[int(name[1:])].sql, _LONGEST)
        if isinstance(node, Over) and name.startswith("w"):
            return cut(node.functions[int(name[1:])].sql, _LONGEST)
        return ports[1 if name.startswith("r") else 0][int(name[1:])]

    def port(self, number: int, side: int) -> tuple[str, ...]:
        """The names of the fields that an operator takes."""
        return self._ports[number][side]

    def given(self, number: int, name: str) -> str:
        """The name of a field that an operator gives."""
        return self._given(number, name, self._ports[number])

    def condition(self, feed: Feed) -> str | None:
        """The condition that a feed puts on its rows."""
        return None if feed.condition is None else self.on_the_way(feed, feed.condition)

    def on_the_way(self, feed: Feed, expression: Expression) -> str:
        """An expression over the rows of a feed's producer; columns of a table are written without the source."""
        if feed.producer is None:
            return written(expression, str, longest=None)
        return written(expression, self._of(feed, list(self._ports)), longest=None)

    def keys(self, number: int) -> tuple[tuple[str, str, str], ...]:
        """The keys of a join, each as (left, comparison sign, right)."""
        node = self.tree.nodes[number]
        assert isinstance(node, Join)
        sides = zip(*self._ports[number], strict=False)
        # NOT IN compares with `=`, although its keys are null-safe: it handles NULLs by itself.
        compared = ("<=>" if safe and node.kind is not JoinKind.NULL_AWARE else "=" for safe in node.safe)
        return tuple((left, sign, right) for (left, right), sign in zip(sides, compared, strict=False))

    def residual(self, number: int) -> str | None:
        """The condition on the pairs of a join, besides equal keys; None if there is none."""
        node = self.tree.nodes[number]
        assert isinstance(node, Join)
        if node.residual is None:
            return None
        return written(node.residual, lambda name: self.given(number, name), longest=None)

    def groups(self, layout: GroupLayout) -> ViewLayout:
        """The layout of an aggregate with names in place of numbers."""
        number, view = int(layout.name or len(self.tree.nodes) - 1), layout.view
        names = self._ports[number][0]
        fields = [replace(e, sql=name) for e, name in zip((*view.plan.keys, *view.plan.arguments), names, strict=True)]
        keys = len(view.plan.keys)
        plan = replace(view.plan, keys=tuple(fields[:keys]), arguments=tuple(fields[keys:]))
        return ViewLayout(plan, view.seed)


def payload_words(layout: ViewLayout) -> str:
    """What a group's payload holds, in words."""
    words = []
    for part in layout.components:
        named = () if part.argument is None else (part.argument, *part.others)
        argument = f" of {', '.join(str(layout.plan.arguments[i]) for i in named)}" if named else ""
        if part.role == "rows":
            words.append("row count")
        elif part.role == "present":
            words.append(f"count{argument}")
        elif part.role == "distinct":
            words.append(f"count of the different {'combinations' if part.others else 'values'}{argument}")
        elif part.role in _SUMMED:
            words.append(f"{_SUMMED[part.role]}{argument}")
        elif part.role == "place":
            function, rank, *_ = part.options
            words.append(f"place of {plain(str(function)).upper()} {rank}{argument}")
        elif part.role == "complete":
            words.append(f"count of rows with all{argument}")
        elif isinstance(part.ring, NamedRing):
            words.append(f"sum in {part.ring.name}{argument}")
        elif isinstance(part.ring, Integer):
            words.append(f"exact {64 * part.ring.limbs}-bit sum{argument}")
        else:
            words.append(f"sum{argument} with its rounding error")
    return f"({', '.join(words)})"


def key_words(layout: ViewLayout, part: str) -> str:
    """What the keys of one of a view's arrangements are, in words."""
    names = [str(key) for key in layout.plan.keys]
    if part in layout.frequencies:
        names += ["count", f"{layout.plan.arguments[layout.frequencies[part]]} (ordered)"]
    elif part in layout.values:
        arranged = layout.values[part]
        arguments = [str(layout.plan.arguments[i]) for i in arranged.arguments]
        match arranged.behind:
            case Behind.VALUE | Behind.PAIR:
                names += [f"{argument} (ordered)" for argument in arguments]
            case Behind.COMBINATION:
                names += arguments
            case Behind.BIT:
                names.append(f"bit of {arguments[0]}")
    return f"({', '.join(names)})"


def written(expression: Expression, named: Named, longest: int | None = _LONGEST) -> str:
    """An expression as SQL, with other names for its columns.

    >>> from headrace.plan.expression import column
    >>> from headrace.relation.types import SqlType
    >>> left, right = (column(name, SqlType("bigint")) for name in ("l0", "r0"))
    >>> sum = Expression("Add", SqlType("bigint"), "(l0 + r0)", (left, right))
    >>> written(sum, {"l0": "price", "r0": "fee"}.__getitem__)
    '(price + fee)'
    """
    text = _written(expression, named)
    return text if longest is None else cut(text, longest)


def _written(expression: Expression, named: Named) -> str:
    if expression.op == "column":
        return named(str(expression.value))
    out, at = "", 0
    columns: list[Expression] = []
    for arg in expression.args:
        if arg.op == "column":
            columns.append(arg)
            continue
        found = _pattern(arg.sql).search(expression.sql, at)
        if found is None:  # the text is not a sequence of the texts of its parts
            return expression.sql
        out += _renamed(expression.sql[at : found.start()], columns, named) + _written(arg, named)
        at, columns = found.end(), []
    return out + _renamed(expression.sql[at:], columns, named)


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    """A pattern that finds a text, but not in the middle of a word."""
    before, after = (r"(?<!\w)" if text[:1].isalnum() else ""), (r"(?!\w)" if text[-1:].isalnum() else "")
    return re.compile(before + re.escape(text) + after)


def _renamed(text: str, columns: Sequence[Expression], named: Named) -> str:
    """Rename the columns in a piece of text; the text stays unchanged if it is not clear where they are.

    Spark writes a column as the query does, so its name in the text may differ from its name in the expression.
    """
    words = [word for word in _WORD.finditer(text) if not word.group().startswith("'") and word.group() not in _SQL]
    if len(words) != len(columns):
        return text
    out, at = "", 0
    for word, column in zip(words, columns, strict=True):
        out += text[at : word.start()] + named(str(column.value))
        at = word.end()
    return out + text[at:]
