"""Case files as values: reading them, and writing the expectations back in. The format is described in `runner`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from tests.logic.values import Row, in_order, parse_row, row_text

from headrace.testing.oracle import arrow_type, sql_name

FOLDER = Path(__file__).parent / "cases"

_TABLE = re.compile(r"table (\w+) \((.*)\)(?: key (\w+(?:, \w+)*))?")
_COLUMN = re.compile(r"(\w+) (\w+(?:\([\d, ]+\))?)( NOT NULL)?")
_CHANGE = re.compile(r"([+-])(?:(\d+)x)? (\w+): (.*)")
_DIFFERENCE = re.compile(r"([+-])(?:(\d+)x)? (.*)")
_QUERY = re.compile(r"query (\w+)( ordered)?")
_ERROR = re.compile(r"(refused|fails) (\w+)")
_ANSWER = re.compile(r"answer: (.*)")
_AFTER = re.compile(r"after (\d+):( unchanged)?")
_EXPECTED = re.compile(r"(answer|after \d+):.*")


@dataclass(frozen=True)
class Columns:
    """Names and types of a table or an answer."""

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    required: tuple[bool, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Columns:
        found = [_COLUMN.fullmatch(part.strip()) for part in re.split(r",(?![^(]*\))", text)]
        if not all(found):
            raise ValueError(f"columns are `name TYPE [NOT NULL]`, separated by commas, not {text}")
        parts = [match.groups() for match in found if match]
        return cls(
            tuple(name for name, _, _ in parts),
            tuple(arrow_type(kind) for _, kind, _ in parts),
            tuple(required is not None for _, _, required in parts),
        )

    def __str__(self) -> str:
        return ", ".join(f"{name} {sql_name(kind).upper()}" for name, kind in zip(self.names, self.types, strict=True))

    def arrow(self, rows: Sequence[Row], diff: Sequence[int] | None = None) -> pa.Table:
        """Rows as an Arrow table, with `__diff` where these are changes."""
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.names)
        arrays = [pa.array(list(c), kind) for c, kind in zip(columns, self.types, strict=True)]
        table = pa.table(arrays, names=list(self.names))
        return table if diff is None else table.append_column("__diff", pa.array(diff, pa.int64()))


@dataclass(frozen=True)
class Table:
    """A table of a case file, with the rows it starts from."""

    name: str
    columns: Columns
    key: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def schema(self) -> pa.Schema:
        parts = zip(self.columns.names, self.columns.types, self.columns.required, strict=True)
        return pa.schema([pa.field(name, kind, not required) for name, kind, required in parts])


@dataclass(frozen=True)
class Step:
    """Changes of one step: for each table, rows with how often they come (or leave, if negative)."""

    title: str
    changes: Mapping[str, tuple[tuple[Row, int], ...]]


@dataclass(frozen=True)
class Query:
    """A statement, and its answer after the load and after each step: as a bag of rows, or in order."""

    name: str
    sql: str
    ordered: bool = False
    columns: Columns | None = None  # None until `expect` has computed the answers
    answers: tuple[tuple[Row, ...], ...] = ()


@dataclass(frozen=True)
class Error:
    """A statement that has no answer: refused for what it says, or failing on the rows that are there."""

    name: str
    sql: str
    refused: bool
    says: tuple[str, ...]


@dataclass(frozen=True)
class CaseFile:
    """Tables, steps and statements over them."""

    name: str
    tables: tuple[Table, ...] = ()
    steps: tuple[Step, ...] = ()
    queries: tuple[Query, ...] = ()
    errors: tuple[Error, ...] = ()

    @property
    def statements(self) -> tuple[str, ...]:
        """Names of all statements: the queries, then those that have no answer."""
        return (*(query.name for query in self.queries), *(error.name for error in self.errors))

    def only(self, name: str) -> CaseFile:
        """The same tables and steps, with one query."""
        return replace(self, queries=tuple(q for q in self.queries if q.name == name), errors=())

    def changes(self, step: int) -> dict[str, pa.Table]:
        """The changes of a step for `Engine.apply`; step 0 is the load."""
        if step == 0:
            return {t.name: t.columns.arrow(t.rows, [1] * len(t.rows)) for t in self.tables if t.rows}
        changed = self.steps[step - 1].changes
        return {t.name: t.columns.arrow(*zip(*changed[t.name], strict=True)) for t in self.tables if t.name in changed}

    def rows(self, step: int) -> dict[str, pa.Table]:
        """All rows of all tables after a step."""
        out = {}
        for table in self.tables:
            counts = Counter(row_text(row) for row in table.rows)  # as texts, because NaN is not equal to itself
            for done in self.steps[:step]:
                for row, times in done.changes.get(table.name, ()):
                    counts[row_text(row)] += times
            if negative := [text for text, count in counts.items() if count < 0]:
                raise ValueError(f"{self.name}.test, step {step}: {table.name} has no row {negative[0]} to delete")
            rows = [parse_row(text, table.columns.types) for text in counts.elements()]
            out[table.name] = table.columns.arrow(rows)
        return out


@dataclass
class _Section:
    """A line that starts at the margin, and the indented lines below it."""

    line: int
    head: str
    body: list[str] = field(default_factory=list)


def read(path: Path) -> CaseFile:
    """Read a case file."""
    return parse(path.stem, path.read_text())


def parse(name: str, text: str) -> CaseFile:
    """Read the text of a case file; errors name the line."""
    sections: list[_Section] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("  ") and sections and line.strip():
            sections[-1].body.append(line.strip())
        elif line.strip() and not line.startswith("#"):
            sections.append(_Section(number, line.rstrip()))
    case = CaseFile(name)
    for section in sections:
        try:
            case = _with_section(case, section)
        except (ValueError, KeyError, ArithmeticError) as error:
            raise ValueError(f"{name}.test, line {section.line} ({section.head}): {error}") from error
    if len(set(case.statements)) != len(case.statements):
        raise ValueError(f"{name}.test: two statements have the same name")
    return case


def _with_section(case: CaseFile, section: _Section) -> CaseFile:
    head, body = section.head, section.body
    if match := _TABLE.fullmatch(head):
        columns = Columns.parse(match[2])
        rows = tuple(parse_row(line, columns.types) for line in body)
        table = Table(match[1], columns, tuple((match[3] or "").split(", ")) if match[3] else (), rows)
        return replace(case, tables=(*case.tables, table))
    if head.startswith("step"):
        return replace(case, steps=(*case.steps, _step(case, head, body)))
    if match := _QUERY.fullmatch(head):
        return replace(case, queries=(*case.queries, Query(match[1], "\n".join(body), match[2] is not None)))
    if match := _ERROR.fullmatch(head):
        error = Error(match[2], "\n".join(body), match[1] == "refused", ())
        return replace(case, errors=(*case.errors, error))
    if head.startswith("says: "):
        error = case.errors[-1]
        return replace(case, errors=(*case.errors[:-1], replace(error, says=(*error.says, head[6:]))))
    if match := _ANSWER.fullmatch(head):
        columns = Columns.parse(match[1])
        answer = tuple(parse_row(line, columns.types) for line in body)
        return _with_query(case, replace(case.queries[-1], columns=columns, answers=(answer,)))
    if match := _AFTER.fullmatch(head):
        query = case.queries[-1]
        if query.columns is None or int(match[1]) != len(query.answers):
            raise ValueError(f"answers of {query.name} are out of order")
        return _with_query(case, replace(query, answers=(*query.answers, _answer(query, body, match[2] is not None))))
    raise ValueError("a section starts with table, step, query, refused, fails, says, answer or after")


def _with_query(case: CaseFile, query: Query) -> CaseFile:
    return replace(case, queries=(*case.queries[:-1], query))


def _step(case: CaseFile, head: str, body: list[str]) -> Step:
    tables = {table.name: table for table in case.tables}
    changes: dict[str, tuple[tuple[Row, int], ...]] = {}
    for line in body:
        match = _CHANGE.fullmatch(line)
        if match is None:
            raise ValueError(f"a change is `+ table: row` or `- table: row`, not {line}")
        row = parse_row(match[4], tables[match[3]].columns.types)
        changes[match[3]] = (*changes.get(match[3], ()), (row, int(f"{match[1]}{match[2] or 1}")))
    return Step(head.removeprefix("step").strip(), changes)


def _answer(query: Query, body: list[str], unchanged: bool) -> tuple[Row, ...]:
    """The answer after a step: written out if it is in order, as the difference to the one before if it is a bag."""
    assert query.columns is not None
    types, before = query.columns.types, query.answers[-1]
    if unchanged:
        return before
    if query.ordered:
        return tuple(parse_row(line, types) for line in body)
    texts = Counter(row_text(row) for row in before)
    for line in body:
        match = _DIFFERENCE.fullmatch(line)
        if match is None:
            raise ValueError(f"a difference is `+ row` or `- row`, not {line}")
        texts[match[3]] += int(f"{match[1]}{match[2] or 1}")
        if texts[match[3]] < 0:
            raise ValueError(f"the answer before has no row {match[3]}")
    return tuple(parse_row(line, types) for line in texts.elements())


def rewritten(text: str, queries: Mapping[str, Query]) -> str:
    """Put the answers of queries into the text of their case file; everything else stays as it is."""
    out: list[str] = []
    pending: Query | None = None  # its statement has been copied, its answers have not
    dropping = False
    for line in [*text.splitlines(), ""]:
        indented = line.startswith("  ")
        if not indented:
            if pending is not None:
                out += expectation(pending)
                pending = None
            dropping = _EXPECTED.fullmatch(line) is not None
            if match := _QUERY.fullmatch(line.rstrip()):
                pending = queries[match[1]]
        if not dropping:
            out.append(line.rstrip())
    return "\n".join(out).rstrip("\n") + "\n"


def text_of(case: CaseFile) -> str:
    """Write a case file, to keep a case that was found by chance."""
    lines: list[str] = []
    for table in case.tables:
        key = f" key {', '.join(table.key)}" if table.key else ""
        lines += [f"table {table.name} ({table.columns}){key}", *(f"  {row_text(row)}" for row in table.rows), ""]
    for step in case.steps:
        lines.append(f"step {step.title}".rstrip())
        for name, changes in step.changes.items():
            for row, times in changes:
                copies = "" if abs(times) == 1 else f"{abs(times)}x"
                lines.append(f"  {'+' if times > 0 else '-'}{copies} {name}: {row_text(row)}")
    for query in case.queries:
        lines += ["", f"query {query.name}{' ordered' if query.ordered else ''}", f"  {query.sql}", *expectation(query)]
    return "\n".join(lines) + "\n"


def expectation(query: Query) -> list[str]:
    """The lines of a case file that say what a query answers."""
    lines = [f"answer: {query.columns}"]
    before: tuple[Row, ...] = ()
    for step, answer in enumerate(query.answers):
        rows = list(answer) if query.ordered else in_order(answer)
        now, was = [row_text(row) for row in rows], [row_text(row) for row in before]
        same = now == was if query.ordered else Counter(now) == Counter(was)
        if step:
            lines.append(f"after {step}: unchanged" if same else f"after {step}:")
        if step == 0 or (query.ordered and not same):
            lines += [f"  {text}" for text in now]
        elif not same:
            lines += _differences("-", was, now) + _differences("+", now, was)
        before = tuple(rows)
    return lines


def _differences(sign: str, texts: list[str], without: list[str]) -> list[str]:
    """The first bag less the second, in the order of the first; several copies of a row are one line."""
    left = Counter(texts) - Counter(without)
    return [f"  {sign}{f'{count}x' if count > 1 else ''} {text}" for text, count in left.items()]
