"""The two halves of a step: the map side turns rows into changes by bucket, the reduce side adds them to state.

Both are pure but for the files that the reduce side writes under names no other attempt can have. Executors only
decide where these functions run and how the pieces get from one to the other.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.operators.delta import filtered
from headrace.operators.kernel import Evaluated, ViewChange, ViewKernel
from headrace.plan import native
from headrace.relation import kernels, runfile
from headrace.relation.arrangement import runs_to_merge
from headrace.relation.change import BadRows, ChangeBatch, set_apart
from headrace.relation.columns import take_column, take_rows, whole
from headrace.relation.dependency import Guard, guards, judge_dependency
from headrace.relation.residence import Residence
from headrace.relation.run import Run
from headrace.relation.runset import AnyRun
from headrace.relation.table import apply_changes
from headrace.rings import COUNT, Group
from headrace.runtime.aside import Found, named_once
from headrace.runtime.openruns import OPEN
from headrace.runtime.pending import hold
from headrace.runtime.program import (
    BucketResult,
    Holding,
    Parcel,
    Program,
    TableTask,
    ViewTask,
    guard_arrangement,
    table_arrangement,
    view_arrangement,
)
from headrace.runtime.record import RECENT, BucketState
from headrace.runtime.runwriter import RunWriter

_SMALL = runfile.SMALL // 2  # a few of such runs are soon merged, and their sum still shares a file


@dataclass
class Pieces:
    """What the map side hands to the reduce side for one bucket."""

    rows: dict[str, list[ChangeBatch]] = field(default_factory=lambda: defaultdict(list))
    bad: list[BadRows] = field(default_factory=list)  # which views refuse, if the step only looks for bad rows
    runs: dict[tuple[str, str], list[Run]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class Mapped:
    """The output of the map side: pieces per bucket, and the rows that a view refuses, if they end the step."""

    pieces: dict[int, Pieces] = field(default_factory=lambda: defaultdict(Pieces))
    bad: list[BadRows] = field(default_factory=list)
    refused: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # positions of such rows, by view
    passed: dict[str, tuple[int, int]] = field(default_factory=dict)  # rows and their net number, per table not kept
    newest: dict[str, int] = field(default_factory=dict)  # per table with a watermark: the latest time inserted
    held: dict[str, Holding] = field(default_factory=dict)  # what was done to hold changes, per view

    def into(self, others: dict[int, Pieces]) -> None:
        """Add the pieces to those of other tables."""
        for bucket, own in self.pieces.items():
            for table, rows in own.rows.items():
                others[bucket].rows[table] += rows
            others[bucket].bad += own.bad
            for key, runs in own.runs.items():
                others[bucket].runs[key] += runs


def map_rows(program: Program, task: TableTask, rows: pa.Table, diff: NDArray[np.int64]) -> Mapped:
    """Turn changed rows into pieces per bucket."""
    out = Mapped()
    if task.excluded is not None:
        keep = np.flatnonzero(~np.isin(task.identities(rows, diff), task.excluded))
        rows, diff = take_rows(rows, keep), diff[keep]
    if not len(diff):
        return out
    if task.store:
        _map_table(program, task, rows, diff, out)
        _map_times(task, rows, diff, out)
    elif not (task.layout.schema.kept or task.views_only):
        rows, diff = _map_passing(task, rows, diff, out)
        _map_times(task, rows, diff, out)
    if task.views and (task.store or task.views_only):
        # What the table itself refuses goes to no view. A NULL where none may be is no value there: what it looks like
        # as part of a key could overflow, and that error would be told in place of the row's own.
        sound, _ = set_apart(task.layout.schema, ChangeBatch(rows, diff))
        rows, diff = sound.rows, sound.diff
    for view in task.views:
        start = time.thread_time()
        count = _map_view(program, task, view, rows, diff, out)
        if view.waits:
            done = Holding(time.thread_time() - start, {view.side.source: count})
            out.held[view.name] = out.held.get(view.name, Holding()) + done
    if program.judge_only:
        _map_bad(program, task, out)
    return out


def _map_table(program: Program, task: TableTask, rows: pa.Table, diff: NDArray[np.int64], out: Mapped) -> None:
    batch = ChangeBatch(rows.select(task.layout.schema.names), diff)
    for bucket, at in rows_by_bucket(program, task.layout.lead, batch.rows):
        out.pieces[bucket].rows[task.name].append(batch if at is None else batch.take(at))
    for guard in guards(task.layout):
        about = guard.about(batch)
        if len(about):
            for bucket, at in rows_by_bucket(program, guard.lead, about.rows):
                out.pieces[bucket].rows[guard_arrangement(guard)].append(about if at is None else about.take(at))


def _map_bad(program: Program, task: TableTask, out: Mapped) -> None:
    """Send the bad rows to the buckets of their rows, where all that is said of a row comes together."""
    for bad in out.bad:
        for bucket, at in rows_by_bucket(program, task.layout.lead, bad.rows):
            out.pieces[bucket].bad.append(bad if at is None else bad.take(at))
    out.bad = []


def rows_by_bucket(
    program: Program, lead: Callable[[pa.Table], NDArray[np.uint64]], rows: pa.Table
) -> Iterator[tuple[int, NDArray[np.int64] | None]]:
    """The positions of a table's rows by bucket, which their first words decide; None stands for all of them."""
    if program.buckets == 1:
        yield 0, None
        return
    n = rows.num_rows
    codes = np.empty(n, np.int32)
    kernels.buckets_of(lead(rows), program.buckets, codes)
    order, starts = np.empty(n, np.int64), np.empty(program.buckets + 1, np.int64)
    kernels.split_by(codes, program.buckets, order, starts)
    for bucket in range(program.buckets):
        at = order[starts[bucket] : starts[bucket + 1]]
        if len(at):
            yield bucket, None if len(at) == n else at


def _map_passing(
    task: TableTask, rows: pa.Table, diff: NDArray[np.int64], out: Mapped
) -> tuple[pa.Table, NDArray[np.int64]]:
    """Count the rows of a table that keeps none, and set those apart that break its rules; returns the others."""
    batch, bad = set_apart(task.layout.schema, ChangeBatch(rows, diff))
    if bad is not None:
        own_columns = bad.rows.select(task.layout.schema.names)
        out.bad.append(BadRows(bad.table, own_columns, bad.diff, bad.reasons))
    out.passed[task.name] = (len(batch.diff), int(batch.diff.sum()))
    return batch.rows, batch.diff


def _map_times(task: TableTask, rows: pa.Table, diff: NDArray[np.int64], out: Mapped) -> None:
    """Find the latest time that was inserted, from which the table's watermark follows."""
    watermark = task.layout.schema.watermark
    if watermark is not None:
        times = whole(rows.column(watermark.column)).filter(pa.array(diff > 0))
        if times.null_count < len(times):
            out.newest[task.name] = pc.max(times.cast(pa.int64())).as_py()


def _map_view(
    program: Program,
    task: TableTask,
    view: ViewTask,
    rows: pa.Table,
    diff: NDArray[np.int64],
    out: Mapped,
) -> int:
    """Lift the rows of one map side; returns how many pass its condition."""
    evaluated = evaluate(view, rows, diff)
    wrong = view.kernel.refused(view.side.source, evaluated)
    if wrong:
        _refuse(task, view, rows, diff, {int(evaluated.origin[i]): wrong[i] for i in sorted(wrong)}, out)
        return 0
    count = len(evaluated.diff)
    if program.judge_only or not count:
        return count
    for bucket, parts in view.kernel.lift(view.side.source, evaluated, program.buckets).items():
        for part, run in parts.items():
            out.pieces[bucket].runs[view.name, part].append(run)
    return count


def _refuse(
    task: TableTask, view: ViewTask, rows: pa.Table, diff: NDArray[np.int64], wrong: Mapping[int, str], out: Mapped
) -> None:
    """Note the rows that a view refuses; those that it has refused on another map side are noted already."""
    known = out.refused[view.name]
    new = {at: f"view {view.name!r}: {why}" for at, why in wrong.items() if at not in known}
    known.update(new)
    if new:
        chosen = ChangeBatch(rows.select(task.layout.schema.names), diff).take(np.array(list(new)))
        out.bad.append(BadRows(task.name, chosen.rows, chosen.diff, list(new.values()), judge=view.name))


def evaluate(view: ViewTask, rows: pa.Table, diff: NDArray[np.int64]) -> Evaluated:
    """Evaluate a view's map side, natively or by picking the columns that Catalyst evaluated."""
    plan = view.side
    everything = Evaluated([], [], diff, np.arange(len(diff)))
    if view.prefix is not None:
        mask = whole(rows.column(f"{view.prefix}c")) if plan.condition is not None else None
        keys = [whole(rows.column(f"{view.prefix}k{i}")) for i in range(len(plan.keys))]
        arguments = [whole(rows.column(f"{view.prefix}v{i}")) for i in range(len(plan.arguments))]
        return filtered(mask, Evaluated(keys, arguments, diff, everything.origin))
    needed = {name for e in (*plan.keys, *plan.arguments) for name in e.columns}
    condition_columns = plan.condition.columns if plan.condition is not None else frozenset()
    columns: Mapping[str, pa.Array] = {name: whole(rows.column(name)) for name in needed | condition_columns}
    if plan.condition is not None:
        mask = native.evaluate(plan.condition, columns, len(diff))
        kept = filtered(mask, everything)
        if len(kept.diff) < len(diff):
            columns = {name: take_column(columns[name], kept.origin) for name in needed}
    else:
        kept = everything
    n = len(kept.diff)
    keys = [whole(native.evaluate(key, columns, n)) for key in plan.keys]
    arguments = [whole(native.evaluate(argument, columns, n)) for argument in plan.arguments]
    return Evaluated(keys, arguments, kept.diff, kept.origin)


def reduce_bucket(program: Program, bucket: int, pieces: Pieces) -> BucketResult:
    """Add the pieces of one bucket to its state."""
    result = BucketResult()
    # Not in one file: if the file of a view is damaged, the view can be made again from its tables.
    result.add(_reduce_tables(program, program.tables, bucket, pieces))
    result.add(_reduce_views(program, list(program.views), 0, bucket, pieces))
    return result


def reductions(program: Program, bucket: int, pieces: Pieces) -> list[Callable[[], BucketResult]]:
    """What `reduce_bucket` does, as functions that may be called at the same time: one per table, one per view."""
    tables = [partial(_reduce_tables, program, [task], bucket, pieces) for task in program.tables]
    return [*tables, *(partial(_reduce_views, program, [name], 0, bucket, pieces) for name in program.views)]


def _reduce_tables(program: Program, tasks: Iterable[TableTask], bucket: int, pieces: Pieces) -> BucketResult:
    result = BucketResult()
    with program.writer() as writer:
        for task in tasks:
            result.bad += [bad for bad in pieces.bad if bad.table == task.name]
            if pieces.rows.get(task.name):
                _reduce_table(program, task, bucket, pieces.rows[task.name], writer, result)
            for guard in guards(task.layout):
                if given := pieces.rows.get(guard_arrangement(guard)):
                    _reduce_guard(program, guard, bucket, given, writer, result)
    return result


def _reduce_views(program: Program, names: Iterable[str], stage: int, bucket: int, pieces: Pieces) -> BucketResult:
    result = BucketResult()
    with program.writer() as writer:
        for name in () if program.judge_only else names:
            kernel = program.views[name]
            if stage < len(kernel.stages):
                _reduce_view(program, name, kernel, stage, bucket, pieces, writer, result)
    return result


def reduce_stage(program: Program, stage: int, bucket: int, pieces: Pieces) -> BucketResult:
    """Add what an earlier stage sent to one bucket to its state."""
    return _reduce_views(program, list(program.views), stage, bucket, pieces)


def _reduce_table(
    program: Program,
    task: TableTask,
    bucket: int,
    batches: list[ChangeBatch],
    writer: RunWriter,
    result: BucketResult,
) -> None:
    name = table_arrangement(task.name)
    batch, bad = set_apart(task.layout.schema, _together(batches))
    if bad is not None:
        result.bad.append(bad)
    held = Held.of(program, name, bucket)
    change = apply_changes(task.layout, held.runs, batch, task.layout.words(batch.rows), judged=task.by_key)
    if change.bad is not None:
        result.bad.append(change.bad)
    if result.bad or program.judge_only:
        return
    # With a key, each live row is one entry; in a bag an entry may stand for many rows, so this is an upper bound.
    store(writer, held, COUNT, change.run, int(change.run.payload[0].sum()), result, entries=False)
    result.seen[task.name] = len(batch)


def _reduce_guard(
    program: Program,
    guard: Guard,
    bucket: int,
    batches: list[ChangeBatch],
    writer: RunWriter,
    result: BucketResult,
) -> None:
    # What is wrong with a row by itself is said where the row is stored.
    batch, _ = set_apart(guard.table.schema, _together(batches))
    held = Held.of(program, guard_arrangement(guard), bucket)
    change = judge_dependency(guard, held.runs, batch)
    if change.bad is not None:
        result.bad.append(change.bad)
    if not (result.bad or program.judge_only):
        store(writer, held, COUNT, change.run, int(change.run.payload[0].sum()), result, entries=False)


def _together(batches: list[ChangeBatch]) -> ChangeBatch:
    if len(batches) == 1:
        return batches[0]
    rows = pa.concat_tables([batch.rows for batch in batches]).combine_chunks()
    return ChangeBatch(rows, np.concatenate([batch.diff for batch in batches]))


def _reduce_view(
    program: Program,
    name: str,
    kernel: ViewKernel,
    stage: int,
    bucket: int,
    pieces: Pieces,
    writer: RunWriter,
    result: BucketResult,
) -> None:
    incoming = {part: runs for (view, part), runs in pieces.runs.items() if view == name}
    waiting = program.waiting.get(name, frozenset())
    if incoming.keys() <= waiting:
        start = time.thread_time()
        for part, runs in incoming.items():
            hold(program, name, part, bucket, runs, writer, result)
        result.add(BucketResult(held={name: Holding(time.thread_time() - start)}))
        return
    start = time.thread_time()
    held = {
        part: Held.of(program, view_arrangement(name, part), kernel.home(part, bucket)) for part in kernel.stages[stage]
    }
    done = kernel.reduce(stage, bucket, {part: own.runs for part, own in held.items()}, incoming, waiting)
    for part, run in done.runs.items():
        store(writer, held[part], kernel.arrangements[part], run, done.live.get(part, 0), result)
    for part, runs in done.held.items():
        hold(program, name, part, bucket, runs, writer, result)
    result.parcels += [Parcel(s.stage, s.bucket, s.view or name, s.part, s.run, s.run.rows) for s in done.sent]
    if done.multiplied:
        result.add(BucketResult(multiplied={name: done.multiplied}))
    if done.traffic:
        result.add(BucketResult(traffic={name: done.traffic, **done.fed}))
    if done.summary is not None:
        result.summaries[name] = result.summaries.get(name, ViewChange()) + done.summary
    if done.changes is not None:
        result.changes.setdefault(name, []).append(writer.add(done.changes))
    result.spent[name] = result.spent.get(name, 0.0) + time.thread_time() - start


@dataclass(frozen=True)
class Held:
    """An arrangement as a step finds it in a bucket, or in all buckets at once.

    Parameters
    ----------
    bucket : where the step adds a run; RECENT if the step changes all buckets at once.
    before : the state of that bucket.
    runs : the runs of `before`, and after them all others that have entries of the same bucket or buckets.
    residence : in which bucket each entry lies, if the step changes all buckets at once.
    """

    name: str
    bucket: int
    before: BucketState
    runs: Sequence[AnyRun]
    residence: Residence | None = None

    @classmethod
    def of(cls, program: Program, name: str, bucket: int) -> Held:
        states, residence = program.states(name), (program.residences or {}).get(name)
        if residence is None:
            return cls(name, bucket, states.get(bucket, BucketState()), OPEN.of(program.root, states, bucket))
        runs = OPEN.of_step(program.root, name, states, residence.buckets, residence.router)
        return cls(name, RECENT, states.get(RECENT, BucketState()), runs, residence)

    @property
    def is_all(self) -> bool:
        """Whether the runs of `before` are all there is."""
        return len(self.runs) == len(self.before.runs)


def store(
    writer: RunWriter, held: Held, ring: Group, delta: Run, growth: int, result: BucketResult, *, entries: bool = True
) -> None:
    """Add a run to an arrangement, merged with the runs that are due; if merges may be owed, with short ones only.

    `growth` says by how many live entries the arrangement grows, or by how many live rows if `entries` is False.
    """
    if not delta.rows:
        return
    before, live = held.before, held.before.live + growth
    due = _due(before, delta.rows, None if held.bucket == RECENT else live, only_small=writer.merges_small)
    kept = tuple(ref for i, ref in enumerate(before.runs) if i not in due)
    is_all = not kept and held.is_all
    if due:
        added = writer.add_sum(ring, [*(held.runs[i] for i in due), delta], held.residence, whole=is_all)
    else:
        added = writer.add(delta, None if held.residence is None else held.residence.of(delta.words))
    if is_all and entries:
        live = 0 if added is None else added.rows  # exact, and not an estimate
    kept = kept if added is None else (*kept, added)
    result.buckets.setdefault(held.name, {})[held.bucket] = BucketState(kept, live)


def _due(before: BucketState, incoming: int, live: int | None, *, only_small: bool) -> list[int]:
    """Which runs to merge with a new one; those that are not small only if nobody else merges them later."""
    able = [i for i, ref in enumerate(before.runs) if not only_small or ref.bytes <= _SMALL]
    sizes = [before.runs[i].rows for i in able]
    # Entries that are dead in the sum of all runs cannot be told from some of the runs.
    if live is None or len(able) < len(before.runs):
        live = sum(sizes) + incoming
    return [able[i] for i in runs_to_merge(sizes, incoming, live)]


def tell(program: Program, result: BucketResult) -> BucketResult:
    """Let the result of a task, or of a step in the driver, tell of its bad rows instead of carrying them along.

    If the step only looks for bad rows, they are written here, where all that is said of any of them has come together.
    """
    bad, result.bad = result.bad, []
    for task in program.tables:
        found = [Found(part, task.identities(part.rows, part.diff)) for part in bad if part.table == task.name]
        if found and program.judge_only:
            once = named_once(found)
            found = [replace(once, files=(program.aside.write(once.first.to_arrow()),))]
        result.found += [part.cut() for part in found]
    return result
