"""A query as Catalyst reads it: parsed, resolved and optimized at most once, however many strategies look at it.

Each strategy reads the query in a form of its own, and Spark does most of the work for each form. So a query is a value
that is passed around, and it remembers whatever has been found out about it, reasons for refusing it included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.logger import PySparkLogger

from headrace.errors import HeadraceError, SchemaError, UnsupportedSQLError
from headrace.plan.view import HIDDEN
from headrace.relation.types import SqlType
from headrace.rings.named import NamedRing
from headrace.sql.flatten import Flat, Flattener
from headrace.sql.jvm import Jvm, items
from headrace.sql.refusals import Refusals
from headrace.sql.rings import called
from headrace.sql.scalars import to_type
from headrace.sql.session import Query, SqlSession
from headrace.sql.windows import WAY_OUT, is_window

Schema = tuple[tuple[str, SqlType, bool], ...]

_RESERVED = {"__diff"}
T = TypeVar("T")


class once(Generic[T]):
    """A property that is computed once, when it is first asked for; an error is remembered too, and raised again."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> T:
        known = owner.__dict__.setdefault("_once", {})
        if self._name not in known:
            try:
                known[self._name] = self._compute(owner)
            except HeadraceError as refused:
                known[self._name] = refused
        found = known[self._name]
        if isinstance(found, HeadraceError):
            raise found
        return found  # type: ignore[no-any-return]


class SqlQuery:
    """The SQL of one view over the tables registered in a session.

    Every property may raise UnsupportedSQLError, if the query is not SQL or cannot be read in that form, or
    SchemaError, if it names a table or a column that does not exist.
    """

    def __init__(self, session: SqlSession, view: str, sql: str) -> None:
        self.session = session
        self.view = view
        self.sql = sql
        self.refusals = Refusals(view, sql, session.rings.of_call)

    @once
    def analysed(self) -> Jvm:
        """The query as Catalyst understands it."""
        with self._translated():
            analysed = self._execution.analyzed()
            if self.session.is_command(analysed):
                self.refusals.refuse("a command", "only a query has an answer to keep", "write the view as one SELECT")
            return analysed

    @once
    def optimized(self) -> Jvm:
        """The query as Catalyst would run it."""
        with self._translated():
            return self._execution.optimizedPlan()

    @once
    def reordered(self) -> Jvm:
        """The optimized query, with joins reordered to avoid joining what no condition connects."""
        with self._translated():
            return self._execution.reorderedPlan()

    @once
    def rings(self) -> Mapping[str, NamedRing]:
        """The rings of the user that the query sums in, by name."""
        return self.session.rings.in_plan(self.analysed) if called(self.sql) else {}

    @once
    def schema(self) -> Schema:
        """The columns of the answer, if Headrace can keep them."""
        return _schema(self.analysed, self.session, self.refusals)

    @once
    def flat(self) -> Flat:
        """The query as one block: sources, conditions, groups, and what is made of the groups."""
        with self._translated():
            self.refusals.check(self.analysed)
        optimized, _ = self.optimized, self.schema  # what is wrong with the columns is said first
        return Flattener(self.session.catalyst, self.refusals).flatten(optimized)

    @once
    def _execution(self) -> Query:
        return self.session.query(self.sql)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn Spark's errors into Headrace's."""
        with _quiet():
            try:
                yield
            except PySparkException as error:
                raise _explained(self.view, error, self.session) from None
            except Py4JJavaError as error:  # a statement that Spark itself stumbles over, such as an INSERT
                said = str(error.java_exception.getMessage()).splitlines()[0]
                way_out = "write the view as one SELECT"
                raise UnsupportedSQLError(f"view {self.view!r}: {said}", way_out=way_out) from None


def _schema(analysed: Jvm, session: SqlSession, refusals: Refusals) -> Schema:
    schema = []
    _check_named_once([field.name() for field in items(analysed.schema())], session, refusals)
    for field in items(analysed.schema()):
        name, type = field.name(), to_type(field.dataType())
        if type is None:
            refusals.refuse(
                f"column {name!r} of type {field.dataType().simpleString()}",
                "Headrace keeps no columns of that type",
                WAY_OUT if is_window(field) else "cast it to a number, a string, a date or a timestamp",
            )
        if name in _RESERVED or name.startswith(HIDDEN):
            why = "Headrace uses it for multiplicities" if name in _RESERVED else "Headrace sorts by such names"
            refusals.refuse(f"the column name {name!r}", why, "give the column another name with AS")
        schema.append((name, type, field.nullable()))
    return tuple(schema)


def _check_named_once(names: list[str], session: SqlSession, refusals: Refusals) -> None:
    """Refuse columns that cannot be told apart, as in SELECT * over a join; all of them are named."""
    first: dict[str, str] = {}
    twice: dict[str, None] = {}
    for name in names:
        spelling = name if session.case_sensitive else name.lower()
        if spelling in first:
            twice[name] = None
        first.setdefault(spelling, name)
    if len(twice) == 1:
        refusals.refuse(
            f"the column name {next(iter(twice))!r}", "two columns have it", "give the column another name with AS"
        )
    if twice:
        refusals.refuse(
            f"the column names {', '.join(map(repr, twice))}",
            "several columns have each of them",
            "list the columns in place of *, and give these other names with AS",
        )


def _explained(view_name: str, error: PySparkException, session: SqlSession) -> HeadraceError:
    """Spark's error as Headrace's, with Spark's message and its pointer into the SQL."""
    condition = error.getCondition() or ""
    message = (error.getMessage() or str(error)).strip()
    pointers = [c.summary().strip() for c in error.getQueryContext() or [] if c.summary().strip() not in message]
    what = "\n".join([f"view {view_name!r}: {message}", *pointers])
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        asked = ((error.getMessageParameters() or {}).get("relationName") or "").strip("`").replace("``", "`")
        if asked.lower() == view_name.lower():
            return SchemaError(
                f"view {view_name!r} reads itself", way_out="read the tables and views that it is made of"
            )
        for name, (why, way_out) in session.unreadable.items():
            if asked.lower() == name.lower():
                return UnsupportedSQLError(f"view {view_name!r} reads {name!r}, {why}", way_out=way_out)
        return SchemaError(what, way_out="register the table first with engine.table(...), or make the view first")
    if condition.startswith("UNRESOLVED_COLUMN"):
        return SchemaError(what, way_out="name a column that the table has")
    if condition.startswith("UNRESOLVED_ROUTINE"):
        return UnsupportedSQLError(
            what,
            way_out="use Spark's built-in functions; those of your session are unknown here, but for rings that are "
            "registered with hr.register_ring(...)",
        )
    if condition.endswith("FUNCTION_WITH_UNSUPPORTED_SYNTAX") and "`pythonudaf`" in message:
        return UnsupportedSQLError(
            what, way_out="a ring takes no FILTER and no DISTINCT: write CASE WHEN ... THEN x END as its argument"
        )
    if isinstance(error, ParseException):
        return UnsupportedSQLError(what, way_out="write the view as one SELECT in Spark SQL")
    if isinstance(error, AnalysisException):
        return UnsupportedSQLError(what, way_out="correct the query; it must also run in spark.sql(...)")
    return UnsupportedSQLError(what, way_out="the query fails in Spark before it reads a row; correct it there first")


@contextmanager
def _quiet() -> Iterator[None]:
    # PySpark logs every failed query to stderr by itself; here the error says it all.
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
