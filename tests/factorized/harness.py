"""Runs a view over a join in memory, bucket by bucket, without the runtime: what tests of plans stand on."""

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa

from headrace.factorized.join_view import JoinView
from headrace.operators.kernel import Evaluated, PartRows
from headrace.plan.expression import column
from headrace.plan.join import JoinPlan, Source
from headrace.relation.run import Run, merge
from headrace.relation.types import SqlType

BIGINT, DOUBLE, STRING = SqlType("bigint"), SqlType("double"), SqlType("string")


def natural_join(
    schemas: dict[str, tuple[str, ...]], keys: tuple[str, ...] = (), doubles: str = "", texts: str = ""
) -> JoinPlan:
    """The natural join of relations of BIGINT columns (or DOUBLE, or STRING), all variables bound by name."""

    def kind(variable: str) -> SqlType:
        return DOUBLE if variable in doubles else STRING if variable in texts else BIGINT

    sources = tuple(
        Source(name, name, None, tuple((v, column(v, kind(v), False)) for v in variables))
        for name, variables in schemas.items()
    )
    return JoinPlan(sources, keys, ())


Rows = tuple[dict[str, np.ndarray], np.ndarray]


def part_rows(source: Source, part: Rows) -> PartRows:
    """A part of a product of rows of a source all of whose variables are columns."""
    columns, diff = part
    n = len(diff)
    keys = [
        pa.array(columns[name], e.type.arrow) if name in columns else pa.array(np.ones(n, bool))
        for name, e in source.variables
    ]
    factors = [
        pa.array(columns[f.value], f.type.arrow) if f.value in columns else pa.nulls(n, f.type.arrow)
        for f in source.factors
    ]
    own = frozenset(i for i, (name, _) in enumerate(source.variables) if name in columns)
    arguments = frozenset(i for i, factor in enumerate(source.factors) if factor.value in columns)
    return PartRows(Evaluated(keys, factors, np.asarray(diff, np.int64), np.arange(n)), own, arguments)


class InMemory:
    """The state of one view, and what steps do to it."""

    def __init__(self, view: JoinView) -> None:
        self.view = view
        self.state: dict[tuple[str, int], list[Run]] = defaultdict(list)
        self.multiplied: Counter[str] = Counter()  # entries made of products, by view

    def source(self, name: str) -> Source:
        return next(source for source in self.view.join.sources if source.name == name)

    def step(self, changes: dict[str, Rows], products: dict[str, list[list[Rows]]] | None = None) -> None:
        """Apply {relation: (columns, diff)} as one step, and {relation: products of parts, each (columns, diff)}."""
        view, buckets = self.view, self.view.buckets
        incoming: dict[int, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
        for source in view.join.sources:
            if source.name not in changes:
                continue
            columns, diff = changes[source.name]
            keys = [pa.array(columns[name], e.type.arrow) for name, e in source.variables]
            factors = [pa.array(columns[str(factor.value)], factor.type.arrow) for factor in source.factors]
            rows = Evaluated(keys, factors, np.asarray(diff, np.int64), np.arange(len(diff)))
            assert not view.refused(source.name, rows)
            for bucket, parts in view.lift(source.name, rows, buckets).items():
                for part, run in parts.items():
                    incoming[bucket][part].append(run)
        for name, terms in (products or {}).items():
            for number, term in enumerate(terms):
                parts_of_rows = [part_rows(self.source(name), part) for part in term]
                for bucket, parts in view.lift_product(name, parts_of_rows, str(number), buckets).items():
                    for part, run in parts.items():
                        incoming[bucket][part].append(run)
        for stage in range(len(view.stages)):
            later: dict[int, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
            pending = []
            for bucket in sorted(incoming):
                done = view.reduce(stage, bucket, self._state(stage, bucket), incoming[bucket])
                pending.append((bucket, done.runs))
                self.multiplied.update(done.multiplied)
                for sent in done.sent:
                    assert sent.stage == stage + 1
                    later[sent.bucket][sent.part].append(sent.run)
            self._store(pending)
            incoming = later
        assert not incoming

    def _state(self, stage: int, bucket: int) -> dict[str, list[Run]]:
        return {part: list(self.state[part, self.view.home(part, bucket)]) for part in self.view.stages[stage]}

    def _store(self, pending: list[tuple[int, dict[str, Run]]]) -> None:
        for bucket, runs in pending:
            for part, run in runs.items():
                self.state[part, self.view.home(part, bucket)].append(run)

    def contents(self, part: str) -> Run | None:
        """All buckets of an arrangement, added up."""
        runs = [run for (name, _), found in self.state.items() if name == part for run in found]
        return merge(self.view.arrangements[part], runs) if runs else None

    def entries(self) -> int:
        return sum(run.rows for runs in self.state.values() for run in runs)
