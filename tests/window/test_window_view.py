"""A window join as a view: the same answers as in one process, in any buckets and batches, with all state in runs."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from tests.window.streams import steady

from headrace.bench.disorder.local_join import WindowJoin
from headrace.datasets.disorder import Stream
from headrace.operators.kernel import Evaluated, Sent
from headrace.plan.expression import column
from headrace.relation.run import Run, merge
from headrace.relation.types import SqlType
from headrace.window.answers import Answer
from headrace.window.arrivals import Arrivals
from headrace.window.emitted import ANSWERS, read_answers
from headrace.window.estimators import make_estimator
from headrace.window.spec import WindowSpec
from headrace.window.window_view import ESTIMATOR_STATE, LATE, Side, WindowView

BIGINT, TIME, DOUBLE, STRING = (SqlType(kind) for kind in ("bigint", "timestamp", "double", "string"))


def view(spec: WindowSpec, key: SqlType = BIGINT, **options: object) -> WindowView:
    sides = []
    for number, table in enumerate(("r", "s")):
        value = column("v", DOUBLE) if spec.aggregate.column and spec.aggregate.side == number else None
        sides.append(Side(table, (column("k", key),), column("at", TIME), column("came", TIME), value))
    return WindowView(spec, (sides[0], sides[1]), 7, **options)  # type: ignore[arg-type]


def evaluated(kernel: WindowView, number: int, rows: Stream, key: SqlType = BIGINT) -> Evaluated:
    keys = pa.array(rows.key) if key == BIGINT else pa.array([f"key {k}" for k in rows.key], pa.large_string())
    times = [pa.array(t).cast(pa.timestamp("us", "UTC")) for t in (rows.event, rows.arrival)]
    value = [] if kernel.streams[number].value is None else [pa.array(rows.value)]
    return Evaluated([keys], [*times, *value], np.ones(len(rows), np.int64), np.arange(len(rows)))


class Driven:
    """A window join with its state in memory."""

    def __init__(self, kernel: WindowView, buckets: int) -> None:
        self.kernel, self.buckets = kernel, buckets
        self.state: dict[tuple[str, int], list[Run]] = defaultdict(list)
        self.changes: pa.Table | None = None

    def step(self, sides: list[Evaluated]) -> None:
        arrived: dict[int, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
        for source, rows in zip(("left", "right"), sides, strict=True):
            assert not self.kernel.refused(source, rows)
            for bucket, parts in self.kernel.lift(source, rows, self.buckets).items():
                for part, run in parts.items():
                    arrived[bucket][part].append(run)
        sent: list[Sent] = []
        for bucket, parts in arrived.items():
            sent += self._reduce(0, bucket, parts)
        parts = defaultdict(list)
        for one in sent:
            assert (one.stage, one.bucket) == (1, 0)
            parts[one.part].append(one.run)
        if parts:
            self._reduce(1, 0, parts)

    def _reduce(self, stage: int, bucket: int, parts: dict[str, list[Run]]) -> list[Sent]:
        state = {part: self.state[part, bucket] for part in self.kernel.stages[stage]}
        done = self.kernel.reduce(stage, bucket, state, parts)
        for part, run in done.runs.items():
            merged = merge(self.kernel.arrangements[part], [*self.state[part, bucket], run])
            self.state[part, bucket] = [merged] if merged.rows else []
        if stage:
            self.changes = read_answers(self.kernel.spec, [] if done.changes is None else [done.changes], diff="diff")
        return done.sent

    def answers(self) -> list[dict[str, object]]:
        return read_answers(self.kernel.spec, self.state[ANSWERS, 0]).to_pylist()  # type: ignore[no-any-return]


def batches(streams: tuple[Stream, Stream], cuts: int) -> list[list[Stream]]:
    """Both streams cut at the same times of arrival."""
    last = int(max(stream.arrival[-1] for stream in streams)) + 1
    edges = np.linspace(0, last, cuts + 1).astype(int)
    return [[s.between(int(a), int(b)) for s in streams] for a, b in pairwise(edges)]


def expected(spec: WindowSpec, steps: list[list[Stream]]) -> list[Answer]:
    join = WindowJoin(spec, {"auto": make_estimator("auto", spec)})
    found = []
    for left, right in steps:
        found += join.feed(Arrivals.of(left, right, spec.aggregate.side))
    return found


def micros(moment: object) -> int:
    return int(pa.scalar(moment, pa.timestamp("us", "UTC")).value)


@pytest.mark.parametrize("within", [None, "3 ms"])
@pytest.mark.parametrize(("agg", "key"), [("count", BIGINT), ("sum(v)", STRING), ("avg(right.v)", BIGINT)])
@pytest.mark.parametrize(("cuts", "buckets"), [(1, 1), (13, 3)])
def test_answers_are_those_of_one_process(within: str | None, agg: str, key: SqlType, cuts: int, buckets: int) -> None:
    spec = WindowSpec.parse("10 ms", emit_after="8 ms", horizon="5 ms", agg=agg, within=within)
    steps = batches(steady(500_000, rate=4_000), cuts)
    kernel = view(spec, key)
    driven = Driven(kernel, buckets)
    for step in steps:
        driven.step([evaluated(kernel, number, rows, key) for number, rows in enumerate(step)])
    wanted = [answer for answer in expected(spec, steps) if not answer.final]
    rows = driven.answers()
    assert [micros(row["window_start"]) for row in rows] == [spec.start(a.window) for a in wanted]
    assert [micros(row["emitted_at"]) for row in rows] == [a.at for a in wanted]
    assert [row["observed"] for row in rows] == [pytest.approx(a.observed) for a in wanted]
    estimates = [a.estimates["auto"] for a in wanted]
    for name in ("value", "low", "high"):
        assert [row[name] for row in rows] == [pytest.approx(getattr(e, name), rel=1e-6) for e in estimates]
    # Closed windows have left the state; what was learned is one text.
    open_windows = (500_000 + 5_000) // spec.slide - spec.completed_by(500_000)
    kept = [run for (part, _), runs in driven.state.items() for run in runs if part in kernel.matching.arrangements]
    entries = sum(run.rows for run in kept)
    if within is None:
        assert 0 < entries <= 10 * (open_windows + 1)
    else:  # rows, of which a quarter may be of no use any more before they go
        assert 0 < entries <= 2 * (open_windows + 2) * 2 * 40 * (1 if cuts > 1 else 50)
    assert [run.rows for run in driven.state[ESTIMATOR_STATE, 0]] == [1]


def test_all_revisions_end_in_the_final_answers() -> None:
    spec = WindowSpec.parse("10 ms", emit_after="8 ms", horizon="25 ms")
    steps = batches(steady(300_000, rate=4_000), 40)
    rows: dict[str, list[dict[str, object]]] = {}
    for revisions in ("estimate", "final", "all"):
        kernel = view(spec, revisions=revisions)
        driven, summed = Driven(kernel, 2), defaultdict(int)
        for step in steps:
            driven.step([evaluated(kernel, number, some) for number, some in enumerate(step)])
            assert driven.changes is not None
            for change in driven.changes.to_pylist():
                summed[tuple(value for name, value in change.items() if name != "diff")] += change["diff"]
        rows[revisions] = driven.answers()
        # What steps said they changed adds up to what there is.
        assert {key for key, times in summed.items() if times} == {tuple(row.values()) for row in rows[revisions]}
        assert set(summed.values()) <= {0, 1}
    complete = {row["window_start"]: row for row in rows["final"]}
    assert all(
        row["final"] and row["value"] == row["low"] == row["high"] == row["observed"] for row in complete.values()
    )
    assert not any(row["final"] for row in rows["estimate"])
    last = {row["window_start"]: row for row in rows["all"]}
    assert len(last) == len(rows["all"]) == len(rows["estimate"])
    for start, row in last.items():
        assert row == complete.get(start, row)
        assert row["final"] == (start in complete)


def test_rows_that_make_no_sense_are_refused_with_the_reason() -> None:
    kernel = view(WindowSpec.parse("10 ms", agg="sum(v)"))
    moment = pa.array([5, 5, None, 5, 9, 5]).cast(pa.timestamp("us", "UTC"))
    came = pa.array([5, 5, 5, None, 8, 7]).cast(pa.timestamp("us", "UTC"))
    values = pa.array([1.0, None, 1, 1, 1, float("nan")])
    rows = Evaluated(
        [pa.array([None, 1, 1, 1, 1, 1], pa.int64())], [moment, came, values], np.ones(6, np.int64), np.arange(6)
    )
    assert kernel.refused("left", rows) == {
        0: "NULL in the key k of a window join",
        1: "v is NULL, NaN or infinite, and cannot be summed",
        2: "NULL in the time at of a window join",
        3: "NULL in the time came of a window join",
        4: "its at is after its arrival at came",
        5: "v is NULL, NaN or infinite, and cannot be summed",
    }


def test_rows_after_the_horizon_are_kept_aside() -> None:
    kernel = view(WindowSpec.parse("10 ms", horizon="5 ms"), STRING)
    driven = Driven(kernel, 1)
    rows = Stream.of([1, 2, 2], [0, 0, 0], [0, 1_000, 1_000], [5_000, 6_001, 6_001])
    driven.step([evaluated(kernel, number, some, STRING) for number, some in enumerate((rows, rows.take([])))])
    (late,) = driven.state[LATE, 0]
    assert late.values["k0"].to_pylist() == ["key 2"]
    assert late.payload[0].tolist() == [2]
