"""Laws that everything obeys which Headrace keeps fresh, whatever its strategy, its handle or its estimator.

A law is a function of a *subject* (`testing.subjects`). `contracts()` gives every law with every subject, one of which
there is per strategy, handle and estimator that is registered: what is added there has to obey without a test being
written for it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import headrace as hr
from headrace.engine.looking import Look
from headrace.errors import HeadraceError
from headrace.relation.schema import DIFF
from headrace.testing.oracle import assert_same
from headrace.testing.subjects import Step, Subject, subjects


@dataclass(frozen=True)
class World:
    """Where a law is tried: a Spark session, a folder for locations, and a seed."""

    spark: SparkSession
    folder: Path
    seed: int

    def engine(self, name: str, **options: Any) -> hr.Engine:
        """Open the location of this name."""
        return hr.Engine(self.spark, self.folder / name, executor="inline", **options)


def any_batching_gives_the_same_answer(world: World, subject: Subject) -> None:
    """One step, several, or some before the definition and some after it: the answer is the same."""
    steps = subject.steps(world.seed, 6)
    answers = []
    for name, parts in (("one", [steps]), ("few", [steps[:1], steps[1:4], steps[4:]]), ("each", [[s] for s in steps])):
        with world.engine(name, buckets=len(name)) as engine:
            subject.tables(engine)
            handle = subject.make(engine)
            for part in parts:
                engine.apply(together(part))
            answers.append(subject.answer(handle))
    assert answers[0].num_rows, "nothing is compared"
    for other in answers[1:]:
        assert_same(other, answers[0], relative=1e-9)


def a_restart_gives_the_same_answer(world: World, subject: Subject) -> None:
    """A location that is closed and opened between steps answers as one that stays open, also before the next step."""
    steps = subject.steps(world.seed, 4)
    with world.engine("open", buckets=3) as engine:
        subject.tables(engine)
        handle = subject.make(engine)
        answers = []
        for step in steps:
            engine.apply(step)
            answers.append(subject.answer(handle))
    with world.engine("closed", buckets=3) as engine:
        subject.tables(engine)
        subject.make(engine)
    for step, answer in zip(steps, answers, strict=True):
        with world.engine("closed") as engine:
            engine.apply(step)
        with world.engine("closed") as engine:
            *_, handle = engine.views.values()
            assert_same(subject.answer(handle), answer, relative=1e-9)


def changes_lead_from_the_old_answer_to_the_new(world: World, subject: Subject) -> None:
    """The answer before a step, plus `changes()`, is the answer after it."""
    with world.engine("changes", buckets=3) as engine:
        subject.tables(engine)
        handle = subject.make(engine)
        before = subject.answer(handle)
        for step in subject.steps(world.seed, 5):
            engine.apply(step)
            after = subject.answer(handle)
            assert_changes(before, handle.changes(), after)
            before = after


def explaining_is_total_and_plain(world: World, subject: Subject) -> None:
    """EXPLAIN answers at any time: as text, as JSON that reads back as what it was, and as a drawing."""
    first, second = subject.steps(world.seed, 2)
    with world.engine("explained", buckets=3) as engine:
        subject.tables(engine)
        handle = subject.make(engine)
        _check_report(handle)
        for step in (first, second):
            engine.apply(step)
            _check_report(handle)
    with world.engine("explained") as engine:
        *_, handle = engine.views.values()
        _check_report(handle)
        subject.answer(handle)
        _check_report(handle)
        # A plan that is stored under another strategy's name would be made by that one when it is opened again.
        assert handle.explain().strategy == subject.strategy or not subject.strategy


def what_is_refused_leaves_no_trace(world: World, subject: Subject) -> None:
    """A definition or a step that is refused is refused before anything is written."""
    first, second = subject.steps(world.seed, 2)
    with world.engine("refused", buckets=3) as engine:
        subject.tables(engine)
        handle = subject.make(engine)
        engine.apply(first)
        engine.sync()  # nothing of the step before is left to be written, or to be removed
        names, answer, files = list(engine.views), subject.answer(handle), files_in(Path(engine.location))
        _assert_refused(lambda: subject.refused(engine))
        table = next(iter(second))
        _assert_refused(lambda: engine.apply({"no such table": second[table]}))
        others = [f"other {name}" for name in second[table].column_names]
        _assert_refused(lambda: engine.apply({**second, table: second[table].rename_columns(others)}))
        assert files_in(Path(engine.location)) == files
        assert list(engine.views) == names
        assert_same(subject.answer(handle), answer)
        engine.apply(second)  # and it goes on


def looking_without_spark_shows_the_same(world: World, subject: Subject) -> None:
    """Without Spark, a location has the same status, reports and answers as in the engine that writes it."""
    with world.engine("looked", buckets=3) as engine:
        subject.tables(engine)
        handle = subject.make(engine)
        for step in [None, *subject.steps(world.seed, 3)]:
            if step is not None:
                engine.apply(step)
            with Look(engine.location) as look:
                assert list(look.views) == list(engine.views)
                seen: Any = look.views[handle.name]
                assert look.status() == engine.status()
                assert str(seen.explain()) == str(handle.explain())
                assert seen.explain().to_dict() == handle.explain().to_dict()
                assert seen.explain().to_svg() == handle.explain().to_svg()
                if step is not None:  # a model needs rows
                    assert subject.answer(seen).equals(subject.answer(handle))


LAWS = (
    any_batching_gives_the_same_answer,
    a_restart_gives_the_same_answer,
    changes_lead_from_the_old_answer_to_the_new,
    explaining_is_total_and_plain,
    what_is_refused_leaves_no_trace,
    looking_without_spark_shows_the_same,
)


Law = Callable[[World, Subject], None]


def contracts() -> Iterator[tuple[Law, Subject]]:
    """Every law with every subject that it is about."""
    for subject in subjects():
        for law in LAWS:
            if subject.tells_changes or law is not changes_lead_from_the_old_answer_to_the_new:
                yield law, subject


def together(steps: Sequence[Step]) -> Step:
    """Several steps as one."""
    names = dict.fromkeys(name for step in steps for name in step)
    return {name: pa.concat_tables([step[name] for step in steps if name in step]) for name in names}


def assert_changes(before: pa.Table, changes: pa.Table, after: pa.Table) -> None:
    """Fail unless the answer before, plus the changes, is the answer after."""
    counts: Counter[str] = Counter()
    for table, sign in ((before, 1), (changes, 1), (after, -1)):
        diff = table.column(DIFF).to_pylist() if DIFF in table.column_names else [1] * table.num_rows
        columns = [table.column(name).to_pylist() for name in before.column_names]
        for row, times in zip(zip(*columns, strict=True), diff, strict=True):
            counts[repr(row)] += sign * times
    wrong = {row: count for row, count in counts.items() if count}
    assert not wrong, f"changes do not lead from the answer before to the answer after: {wrong}"


def files_in(location: Path) -> dict[str, int]:
    """All files of a location, with their sizes."""
    return {str(p.relative_to(location)): p.stat().st_size for p in sorted(location.rglob("*")) if p.is_file()}


def _assert_refused(action: Callable[[], object]) -> None:
    try:
        action()
    except HeadraceError:
        return
    raise AssertionError("nothing was refused")


def _check_report(handle: Any) -> None:
    report = handle.explain()
    assert handle.name in str(report).splitlines()[0]
    plain = report.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert isinstance(report, hr.Report)
    assert report.to_svg().startswith("<svg")
