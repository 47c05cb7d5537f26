"""What SQL a view may not contain, found before anything is built.

The analysed plan still speaks the user's language: the optimizer has not yet turned a DISTINCT into an Expand, a
subquery into a join or CURRENT_DATE into a date. So refusals are decided there, and they quote the user's own text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from headrace.errors import UnsupportedSQLError
from headrace.rings.named import NamedRing
from headrace.sql.distinct import is_kept_distinct
from headrace.sql.functions import DUPLICATES_DO_NOT_MATTER, REFUSED, why_refused
from headrace.sql.jvm import Jvm, conjuncts, identity, items, kind, option
from headrace.sql.membership import is_membership
from headrace.sql.windows import SLIDING, WAY_OUT, check_sessions, is_sliding, is_window_type

_READABLE = {
    "Project", "Filter", "Aggregate", "Sort", "Distinct", "SubqueryAlias", "View", "ResolvedHint",
    "WithCTE", "CTERelationDef", "CTERelationRef", "LogicalRDD", "PipeOperator", "Join",
}  # fmt: skip

_TRANSPARENT = {"WithCTE", "PipeOperator", "ResolvedHint"}  # what may stand above the LIMIT of a query

_ONE_SELECT = "a view is one SELECT over tables and their inner joins for now"
_CAST = "cast it to a number, a string, a date or a timestamp"
_SPLIT = "make each query a view of its own, and combine their answers when you read them"
_OPERATORS = {
    "AsOfJoin": ("an AS OF join", _ONE_SELECT, _SPLIT),
    "LateralJoin": ("a lateral join", _ONE_SELECT, _SPLIT),
    "Union": ("UNION", _ONE_SELECT, _SPLIT),
    "Intersect": ("INTERSECT", _ONE_SELECT, _SPLIT),
    "Except": ("EXCEPT", _ONE_SELECT, _SPLIT),
    "UnionLoop": ("a recursive query", "it has no fixed plan to maintain", "write the levels out as views"),
    **dict.fromkeys(  # the second one takes the first rows of each window
        ("Window", "WindowGroupLimit"),
        ("a window function (OVER)", "sums do not tell the places of rows", "leave the choice of a strategy out"),
    ),
    "GlobalLimit": (
        "LIMIT inside a subquery",
        "which rows stay depends on all the others",
        "put the LIMIT at the end of the whole query, or make the inner query a view of its own",
    ),
    "Offset": ("OFFSET", "which rows stay depends on all the others", "apply it to the answer you read"),
    "Tail": ("TAIL", "which rows stay depends on all the others", "apply it to the answer you read"),
    "Expand": (
        "ROLLUP, CUBE or GROUPING SETS",
        "one row would belong to several groups",
        "make one view for each grouping",
    ),
    "Generate": (
        "a table function (EXPLODE, LATERAL VIEW) over an array of a column",
        "the query does not say how many rows a row becomes",
        "explode before the table; arrays that the query lists are kept",
    ),
    "Sample": ("TABLESAMPLE", "the same rows would not be chosen again", "filter by a hash of the key instead"),
    "Pivot": ("PIVOT", "its columns depend on the rows", "write SUM(x) FILTER (WHERE ...) for each column"),
    "Repartition": ("a REPARTITION hint", "Headrace decides where rows go", "drop the hint"),
    "RepartitionByExpression": ("DISTRIBUTE BY", "Headrace decides where rows go", "drop it"),
    "RebalancePartitions": ("a REBALANCE hint", "Headrace decides where rows go", "drop the hint"),
}
_NOT_REPEATED = {"Sample", "Repartition", "RepartitionByExpression", "RebalancePartitions"}
_NO_TABLE = {"OneRowRelation", "LocalRelation", "Range", "ResolvedInlineTable"}

INNER_JOINS = {"Inner$", "Cross$"}

_CLOCK = {
    "CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now", "CurrentBatchTimestamp",
}  # fmt: skip
_SPECIAL_DATE = re.compile(r"\s*(now|today|tomorrow|yesterday)\s*(\S*)\s*", re.IGNORECASE)
_TYPED_LITERAL = re.compile(
    r"\b(?:date|timestamp|timestamp_ltz|timestamp_ntz)\s*(?:'|\")\s*(?:now|today|tomorrow|yesterday)\b", re.IGNORECASE
)
_SURROUNDINGS = {"CurrentUser", "CurrentDatabase", "CurrentCatalog"}
_SUBQUERIES = {"ScalarSubquery", "Exists", "ListQuery", "InSubquery", "LateralSubquery"}


class Refusals:
    """Refuses what one query may not contain, and quotes the text of the query.

    Parameters
    ----------
    ring_of : the ring of the user that a function of a plan stands for, if it stands for one.
    """

    def __init__(self, view: str, sql: str, ring_of: Callable[[Jvm], NamedRing | None] = lambda function: None) -> None:
        self.view = view
        self.sql = sql
        self.ring_of = ring_of
        self.memberships: dict[int, str] = {}  # the text of each `x IN (SELECT ...)`, by the columns that it selects

    def check(self, analysed: Jvm) -> None:
        """Raise unless every operator and function of the analysed plan is one that Headrace can maintain."""
        check_sessions(analysed, self)
        self._check_operator(analysed, outermost=True)
        self.check_literals()

    def check_literals(self) -> None:
        """Raise if the SQL has a literal such as DATE 'today': the analysed plan has only the day that it stood for."""
        if match := _TYPED_LITERAL.search(self.sql):
            self._refuse_clock(self.sql[match.start() : match.end()] + "'")

    def refuse(self, what: str, why: str, way_out: str) -> NoReturn:
        raise UnsupportedSQLError(f"view {self.view!r}: {what} cannot be maintained: {why}", way_out=way_out)

    def refuse_for_now(self, what: str, why: str, way_out: str) -> NoReturn:
        """Refuse what Headrace cannot maintain, though Spark could recompute it at every step."""
        self.refuse(what, why, f'{way_out}; or let Spark recompute the view at every step, with refresh="full"')

    def text(self, node: Jvm) -> str:
        """The part of the query that a node came from, or Spark's rendering where the origin is lost."""
        origin = node.origin()
        start, stop = option(origin.startIndex()), option(origin.stopIndex())
        if start is not None and stop is not None and option(origin.sqlText()) == self.sql:
            return " ".join(self.sql[start : stop + 1].split())
        return str(node.sql())

    def refuse_sort_by(self) -> NoReturn:
        self.refuse("SORT BY", "Headrace decides where rows go", "use ORDER BY, or drop it")

    def refuse_operator(self, node: Jvm) -> NoReturn:
        name = kind(node)
        if name in _NO_TABLE:
            self.refuse(
                "a query without a table", "nothing it reads can change", "read a table made with engine.table()"
            )
        if not items(node.children()):
            self.refuse(
                f"a source that is not a Headrace table ({node.nodeName()})",
                "Headrace cannot see its changes",
                "make it known with engine.table(...) and feed its changes with engine.apply(...)",
            )
        unknown = (f"the operator {name}", "Headrace has no rule for it", "use SELECT ... JOIN ... WHERE ... GROUP BY")
        refuse = self.refuse if name in _NOT_REPEATED else self.refuse_for_now
        refuse(*(SLIDING if name == "Expand" and is_sliding(node) else _OPERATORS.get(name, unknown)))

    def refuse_type(self, node: Jvm, within: Jvm | None = None) -> NoReturn:
        self.refuse(
            f"{self.text(node)} of type {node.dataType().simpleString()}"
            + ("" if within is None else f" in {self.text(within)}"),
            "Headrace keeps no columns of that type",
            f"{WAY_OUT}, and use these" if is_window_type(node.dataType()) else _CAST,
        )

    def check_join(self, join: Jvm) -> None:
        if kind(join.joinType()) not in INNER_JOINS:
            self.refuse_for_now(
                f"{join.joinType().sql()} JOIN",
                "only inner joins are kept up to date for now",
                "write JOIN if rows without a partner do not matter, or make each table a view and join the answers",
            )

    def refuse_function(self, call: Jvm) -> NoReturn:
        function = call.aggregateFunction() if kind(call) == "AggregateExpression" else call
        name = str(function.prettyName())
        self.refuse_for_now(f"{name.upper()} in {self.text(call)}", *why_refused(kind(function), name))

    def refuse_distinct(self, call: Jvm) -> NoReturn:
        self.refuse_for_now(
            self.text(call),
            "this function is not kept of the different values",
            "make a view of SELECT DISTINCT and aggregate its answer",
        )

    def _check_operator(self, node: Jvm, outermost: bool = False) -> None:
        name = kind(node)
        if outermost and name == "GlobalLimit":  # it is applied when the view is read
            return self._check_operator(node.child().child())
        if name not in _READABLE:
            self.refuse_operator(node)
        if name == "Sort" and not getattr(node, "global")():
            self.refuse_sort_by()
        if name == "Join":
            self.check_join(node)
        for expression in items(node.expressions()):
            for term in conjuncts(expression) if name == "Filter" else [expression]:
                if name == "Filter" and is_membership(term):
                    self._check_membership(term)
                else:
                    self._check_expression(term)
        children = items(node.children())
        for i, child in enumerate(children):
            # The query itself comes after its WITH clauses.
            self._check_operator(child, outermost and name in _TRANSPARENT and i == len(children) - 1)

    def _check_expression(self, node: Jvm) -> None:
        name = kind(node)
        if name in _SUBQUERIES:
            self.refuse_for_now("a subquery inside an expression", _ONE_SELECT, _SPLIT)
        if name == "AggregateExpression":
            self._check_aggregate(node)
        self._check_repeatable(node)
        for child in items(node.children()):
            self._check_expression(child)

    def _check_membership(self, term: Jvm) -> None:
        values = items(term.values())
        for value in values:
            self._check_expression(value)
        subquery = term.query().plan()
        self._check_operator(subquery)
        text = self.text(term)
        if len(values) == 1 and kind(values[0]) == "AttributeReference":
            text = f"{self.text(values[0])} {text}"
        self.memberships |= {identity(attribute): text for attribute in items(subquery.output())}

    def _check_aggregate(self, call: Jvm) -> None:
        name = kind(call.aggregateFunction())
        if name in REFUSED:
            self.refuse_function(call)
        if call.isDistinct() and name not in DUPLICATES_DO_NOT_MATTER and not is_kept_distinct(call):
            self.refuse_distinct(call)

    def check_repeatable(self, node: Jvm) -> None:
        """Raise if an expression, or a part of it, may give another value over the same rows."""
        self._check_repeatable(node)
        for child in items(node.children()):
            self.check_repeatable(child)

    def _check_repeatable(self, node: Jvm) -> None:
        name = kind(node)
        if name in _CLOCK or (name == "Cast" and self._is_special_date(node)):
            self._refuse_clock(self.text(node))
        if name in _SURROUNDINGS:
            self.refuse(self.text(node), "it depends on who runs the query", "write the value itself")
        if ("UDF" in name or "UDAF" in name or name == "ScalaAggregator") and self.ring_of(node) is None:
            self.refuse(
                f"the user-defined function {self.text(node)}",
                "it would not be there after a restart",
                "compute the column before the rows reach the table; an aggregate may be a ring (hr.register_ring)",
            )
        if not node.deterministic() and all(child.deterministic() for child in items(node.children())):
            self.refuse(self.text(node), "it gives another value each time", "store the value in a column of the table")

    def _is_special_date(self, cast: Jvm) -> bool:
        child = cast.child()
        if kind(child) != "Literal" or child.value() is None or child.dataType().simpleString() != "string":
            return False
        temporal = cast.dataType().simpleString() in ("date", "timestamp", "timestamp_ntz")
        return temporal and _SPECIAL_DATE.fullmatch(child.value().toString()) is not None

    def _refuse_clock(self, text: str) -> NoReturn:
        self.refuse(
            text,
            "it changes with the clock, while a view changes with its table",
            "filter by time when you read the answer, or write the date itself",
        )
