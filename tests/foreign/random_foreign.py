"""Random foreign-key joins and random changes of their tables, and a join by nested loops to compare with."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.operators.aggregate import read, read_changes
from headrace.operators.kernel import Evaluated, Sent
from headrace.operators.tree_view import TreeView
from headrace.plan.expression import column
from headrace.plan.foreign_graph import ForeignGraph
from headrace.plan.foreign_tree import ForeignTree, foreign_tree, graph_of
from headrace.plan.join import Source
from headrace.plan.rows import JoinedRows
from headrace.plan.view import Aggregate, Output, Shape, ViewPlan
from headrace.relation.run import Run, merge
from headrace.relation.schema import Column, TableSchema
from headrace.relation.types import SqlType

BIGINT, STRING = SqlType("bigint"), SqlType("string")
Row = tuple[int | str, ...]


@dataclass(frozen=True)
class ForeignSchema:
    """Tables t0 (the root), t1, ...: each with its columns, its key, and the tables it refers to."""

    columns: dict[str, tuple[str, ...]]
    keys: dict[str, tuple[str, ...]]

    @property
    def tables(self) -> dict[str, TableSchema]:
        return {
            name: TableSchema.of(name, [Column(c, kind_of(c), nullable=False) for c in columns], self.keys[name])
            for name, columns in self.columns.items()
        }

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(
            Source(name, name, None, tuple((c, column(c, kind_of(c), False)) for c in columns))
            for name, columns in self.columns.items()
        )

    @property
    def variables(self) -> list[str]:
        return list(dict.fromkeys(c for columns in self.columns.values() for c in columns))


def kind_of(name: str) -> SqlType:
    """Values of v0, v1, ... are texts; all keys are integers."""
    return STRING if name.startswith("v") else BIGINT


def random_schema(random: np.random.Generator, tables: int) -> ForeignSchema:
    """A root that refers to everything, by one path or by several, with keys of one or two columns."""
    keys = {f"t{i}": (f"k{i}",) if random.random() < 0.7 else (f"k{i}", f"j{i}") for i in range(tables)}
    refers: dict[int, set[int]] = {i: set() for i in range(tables)}
    for child in range(1, tables):
        parents = random.choice(child, size=min(child, int(random.integers(1, 3))), replace=False)
        for parent in parents:
            refers[int(parent)].add(child)
    columns = {}
    for i in range(tables):
        own = () if i == 0 and random.random() < 0.5 else keys[f"t{i}"]
        foreign = [c for child in sorted(refers[i]) for c in keys[f"t{child}"]]
        columns[f"t{i}"] = (*own, *foreign, f"v{i}")
        if not own:
            keys["t0"] = ()
    return ForeignSchema(columns, keys)


class Rows:
    """The rows of all tables as they are now; changes keep keys unique, and let references dangle."""

    def __init__(self, schema: ForeignSchema, random: np.random.Generator, values: int = 4) -> None:
        self.schema = schema
        self.random = random
        self.values = values
        self.now: dict[str, list[Row]] = {name: [] for name in schema.columns}

    def changes(self, most: int) -> dict[str, list[tuple[Row, int]]]:
        """Random insertions, deletions and updates of random tables, applied to the rows."""
        out: dict[str, list[tuple[Row, int]]] = {}
        for name in self.schema.columns:
            if self.random.random() < 0.3:
                continue
            for _ in range(int(self.random.integers(1, most + 1))):
                self._change(name, out.setdefault(name, []))
        return out

    def _change(self, name: str, changed: list[tuple[Row, int]]) -> None:
        rows, key = self.now[name], self._key(name)
        if rows and self.random.random() < 0.4:
            gone = rows.pop(int(self.random.integers(len(rows))))
            changed.append((gone, -1))
            if self.random.random() < 0.5:
                return
        row = self._row(name)
        same = [other for other in rows if key and [other[i] for i in key] == [row[i] for i in key]]
        for other in same:  # an update: what has the key leaves
            rows.remove(other)
            changed.append((other, -1))
        rows.append(row)
        changed.append((row, 1))

    def _key(self, name: str) -> list[int]:
        return [self.schema.columns[name].index(c) for c in self.schema.keys[name]]

    def _row(self, name: str) -> Row:
        return tuple(
            f"{c}{self.random.integers(3)}" if kind_of(c) == STRING else int(self.random.integers(self.values))
            for c in self.schema.columns[name]
        )

    def joined(self) -> Counter[Row]:
        """The natural join of all tables, by nested loops."""
        partial: list[dict[str, int | str]] = [{}]
        for name, columns in self.schema.columns.items():
            found = [dict(zip(columns, row, strict=True)) for row in self.now[name]]
            partial = [
                bound | row for bound in partial for row in found if all(bound.get(c, v) == v for c, v in row.items())
            ]
        return Counter(tuple(bound[v] for v in self.schema.variables) for bound in partial)


@dataclass(frozen=True)
class ForeignView:
    """A view over a foreign-key join: the tree that was planned, and the kernel that keeps it."""

    made: ForeignTree
    rows: JoinedRows
    kernel: TreeView


def _view(plan: ViewPlan, rows: JoinedRows, schema: ForeignSchema, sizes: dict[str, int], buckets: int) -> ForeignView:
    graph = graph_of(rows, schema.tables)
    assert isinstance(graph, ForeignGraph)
    made = foreign_tree(plan, graph, sizes, buckets)
    counts = {own: sizes.get(source, 0) for own, (source, _) in made.reads.items()}
    return ForeignView(made, rows, TreeView(made.tree, 7, buckets, counts))


def rows_view(schema: ForeignSchema, sizes: dict[str, int], buckets: int) -> ForeignView:
    """The view of all joined rows, with all their variables."""
    keys = tuple(column(v, kind_of(v), False) for v in schema.variables)
    outputs = tuple(Output(str(key.value), column(f"k{i}", key.type, False)) for i, key in enumerate(keys))
    rows = JoinedRows(schema.sources, None, keys, ())
    plan = ViewPlan(rows, Shape.ROWS, keys, (), (), None, outputs)
    return _view(plan, rows, schema, sizes, buckets)


def grouped_view(
    schema: ForeignSchema, by: str, argument: str, functions: tuple[str, ...], sizes: dict[str, int], buckets: int
) -> ForeignView:
    """A view that counts rows by a variable, and aggregates another one."""
    keys, arguments = (column(by, kind_of(by), False),), (column(argument, kind_of(argument), False),)
    rows = JoinedRows(schema.sources, None, keys, arguments)
    aggregates = (Aggregate("count", None, BIGINT, "count(1)"),)
    aggregates += tuple(Aggregate(f, 0, BIGINT if f == "count_distinct" else arguments[0].type, f) for f in functions)
    plan = ViewPlan(rows, Shape.GROUPS, keys, arguments, aggregates, None, ())
    return _view(plan, rows, schema, sizes, buckets)


class InMemory:
    """The state of one view without the runtime, and what steps do to it."""

    def __init__(self, view: ForeignView) -> None:
        self.made, self.rows, self.view = view.made, view.rows, view.kernel
        self.state: dict[tuple[str, int], list[Run]] = {}
        self.changed: list[Run] = []
        self.sent: list[tuple[int, str, int]] = []  # what the last step exchanged: from which bucket, what, rows

    def step(self, changes: dict[str, list[tuple[Row, int]]]) -> None:
        sent = self._lifted(changes)
        self.changed, self.sent = [], []
        stored: list[tuple[str, int, Run]] = []  # state is that before the step, for all stages of it
        for stage, parts in enumerate(self.view.stages):
            now, sent = [s for s in sent if s.stage == stage], [s for s in sent if s.stage > stage]
            for bucket in sorted({s.bucket for s in now}):
                incoming: dict[str, list[Run]] = {}
                for s in now:
                    if s.bucket == bucket:
                        incoming.setdefault(s.part, []).append(s.run)
                state = {part: list(self.state.get((part, self.view.home(part, bucket)), [])) for part in parts}
                done = self.view.reduce(stage, bucket, state, incoming)
                stored += [(part, self.view.home(part, bucket), run) for part, run in done.runs.items()]
                self.changed += [] if done.changes is None else [done.changes]
                # What is for a later stage of the same bucket is handed on as it came.
                self.sent += [(bucket, s.part, s.run.rows) for s in done.sent if s.part not in incoming]
                sent += done.sent
        for part, home, run in stored:
            self.state.setdefault((part, home), []).append(run)
        assert not sent

    def _lifted(self, changes: dict[str, list[tuple[Row, int]]]) -> list[Sent]:
        out = []
        for own, (name, places) in self.made.reads.items():
            given, source = changes.get(name, []), self.rows.source(name)
            if given:
                types = [source.variables[place][1].type.arrow for place in places]
                keys = [
                    pa.array([row[place] for row, _ in given], kind) for place, kind in zip(places, types, strict=True)
                ]
                diff = np.array([times for _, times in given], np.int64)
                rows = Evaluated(keys, [], diff, np.arange(len(diff)))
                for bucket, parts in self.view.lift(own, rows, self.view.buckets).items():
                    out += [Sent(0, bucket, part, run) for part, run in parts.items()]
        return out

    def answer(self) -> Counter[Row]:
        """The rows of the view, each with how often it occurs (or with its aggregates behind its key)."""
        found: Counter[Row] = Counter()
        for bucket in range(self.view.buckets):
            state = {part: self.state.get((part, bucket), []) for part in self.view.layout.arrangements}
            found += self._counted(read(self.view.layout, state))
        return found

    def changes(self) -> Counter[Row]:
        """What the last step changed; what left counts negative."""
        out: Counter[Row] = Counter()
        for run in self.changed:
            before, after = (self._counted(side) for side in read_changes(self.view.layout, run))
            out.subtract(before)
            out.update(after)
        return out

    def _counted(self, groups: pa.Table) -> Counter[Row]:
        times = groups.column("__rows").to_pylist()
        rows = [tuple(row.values()) for row in groups.drop_columns(["__rows"]).to_pylist()]
        if self.view.layout.plan.shape is not Shape.ROWS:
            return Counter(rows)
        return Counter(dict(zip(rows, times, strict=True)))

    def stored(self, part: str) -> Run | None:
        """All buckets of an arrangement, added up."""
        runs = [run for (name, _), found in self.state.items() if name == part for run in found]
        return merge(self.view.arrangements[part], runs) if runs else None
