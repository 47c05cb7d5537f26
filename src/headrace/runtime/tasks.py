"""The two halves of a step: the map side turns rows into changes by bucket, the reduce side adds them to state.

Both are pure but for the run files that the reduce side writes under names no other attempt can have. Executors only
decide where these functions run and how the pieces get from one to the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.operators.aggregate import maintain
from headrace.operators.delta import Evaluated, deltas, filtered, group_words, not_summable, split
from headrace.plan import native
from headrace.relation import kernels, runfile
from headrace.relation.arrangement import alive, runs_to_merge
from headrace.relation.change import BadRows, ChangeBatch, set_apart
from headrace.relation.columns import take_column, take_rows, whole
from headrace.relation.layout import TableLayout, hash_rows
from headrace.relation.run import Run, merge
from headrace.relation.runfile import StoredRun
from headrace.relation.schema import DIFF, Column
from headrace.relation.table import COUNT, apply_changes
from headrace.relation.types import SqlType
from headrace.rings import Group
from headrace.runtime.location import Location
from headrace.runtime.log import BucketState, RunRef
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import (
    BucketResult,
    Program,
    TableTask,
    ViewTask,
    table_arrangement,
    view_arrangement,
)


@dataclass
class Pieces:
    """What the map side hands to the reduce side for one bucket."""

    rows: dict[str, list[ChangeBatch]] = field(default_factory=lambda: defaultdict(list))
    runs: dict[tuple[str, str], list[Run]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class Mapped:
    """What the map side made of some rows: pieces by bucket, and rows that no view can take."""

    pieces: dict[int, Pieces] = field(default_factory=lambda: defaultdict(Pieces))
    bad: list[BadRows] = field(default_factory=list)

    def into(self, others: dict[int, Pieces]) -> None:
        """Add the pieces to those of other tables."""
        for bucket, own in self.pieces.items():
            for table, rows in own.rows.items():
                others[bucket].rows[table] += rows
            for key, runs in own.runs.items():
                others[bucket].runs[key] += runs


def map_rows(
    program: Program, task: TableTask, rows: pa.Table, diff: NDArray[np.int64], own: Collection[int] | None
) -> Mapped:
    """Turn changed rows into pieces by bucket; `own` limits them to some buckets (each task then reads all rows)."""
    out = Mapped()
    if task.excluded is not None:
        keep = np.flatnonzero(~np.isin(row_identity(task.layout, rows, diff), task.excluded))
        rows, diff = take_rows(rows, keep), diff[keep]
    if not len(diff):
        return out
    if task.store:
        _map_table(program, task, rows, diff, own, out)
    if program.judge_only and own is not None and 0 not in own:
        return out  # one task is enough to look for values that no view can take
    for view in task.views:
        _map_view(program, task, view, rows, diff, own, out)
    return out


def _map_table(
    program: Program, task: TableTask, rows: pa.Table, diff: NDArray[np.int64], own: Collection[int] | None, out: Mapped
) -> None:
    columns = rows.select(task.layout.schema.names)
    codes = np.empty(len(diff), np.int32)
    kernels.buckets_of(task.layout.lead(columns), program.buckets, codes)
    order, starts = np.empty(len(diff), np.int64), np.empty(program.buckets + 1, np.int64)
    kernels.split_by(codes, program.buckets, order, starts)
    for bucket in range(program.buckets) if own is None else own:
        at = order[starts[bucket] : starts[bucket + 1]]
        if len(at):
            batch = ChangeBatch(columns, diff)
            out.pieces[bucket].rows[task.name].append(batch if len(at) == len(diff) else batch.take(at))


def _map_view(
    program: Program,
    task: TableTask,
    view: ViewTask,
    rows: pa.Table,
    diff: NDArray[np.int64],
    own: Collection[int] | None,
    out: Mapped,
) -> None:
    evaluated = evaluate(view, rows, diff)
    wrong = not_summable(view.layout, evaluated)
    if wrong:
        at = evaluated.origin[np.array(sorted(wrong))]
        chosen = ChangeBatch(rows.select(task.layout.schema.names), diff).take(at)
        reasons = [f"view {view.name!r}: {wrong[i]}" for i in sorted(wrong)]
        out.bad.append(BadRows(task.name, chosen.rows, chosen.diff, reasons, judge=view.name))
        return
    if program.judge_only or not len(evaluated.diff):
        return
    words = group_words(view.layout, evaluated)
    if own is not None and len(own) < program.buckets:
        codes = np.empty(len(evaluated.diff), np.int32)
        kernels.buckets_of(words[0], program.buckets, codes)
        mine = np.zeros(program.buckets, bool)
        mine[list(own)] = True
        at = np.flatnonzero(mine[codes])
        if not len(at):
            return
        evaluated, words = evaluated.take(at), np.ascontiguousarray(words[:, at])
    for part, run in deltas(view.layout, evaluated, words).items():
        for bucket, piece in split(run, program.buckets).items():
            out.pieces[bucket].runs[view.name, part].append(piece)


def evaluate(view: ViewTask, rows: pa.Table, diff: NDArray[np.int64]) -> Evaluated:
    """Evaluate a view's map side, natively or by picking the columns that Catalyst evaluated."""
    plan = view.layout.plan
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
    for task in program.tables:
        if pieces.rows.get(task.name):
            _reduce_table(program, task, bucket, pieces.rows[task.name], result)
        if program.judge_only:
            continue
        for view in task.views:
            incoming = {part: pieces.runs[view.name, part] for part in view.layout.arrangements}
            if incoming["groups"]:
                _reduce_view(program, view, bucket, incoming, result)
    return result


def _reduce_table(
    program: Program, task: TableTask, bucket: int, batches: list[ChangeBatch], result: BucketResult
) -> None:
    name = table_arrangement(task.name)
    batch = batches[0]
    if len(batches) > 1:
        rows = pa.concat_tables([batch.rows for batch in batches]).combine_chunks()
        batch = ChangeBatch(rows, np.concatenate([batch.diff for batch in batches]))
    batch, bad = set_apart(task.layout.schema, batch)
    if bad is not None:
        result.bad.append(bad)
    before = program.bucket_state(name, bucket)
    runs = OPEN.of(program.root, before)
    change = apply_changes(task.layout, runs, batch, task.layout.words(batch.rows))
    if change.bad is not None:
        result.bad.append(change.bad)
    if result.bad or program.judge_only:
        return
    live = before.live + int(change.run.payload[0].sum())
    # A key has one row, so rows alive are entries alive; in a bag entries may stand for many rows, at most this many.
    _store(program, name, bucket, COUNT, change.run, live, before, runs, result)
    result.seen[task.name] = len(batch)


def _reduce_view(
    program: Program, view: ViewTask, bucket: int, incoming: Mapping[str, list[Run]], result: BucketResult
) -> None:
    names = {part: view_arrangement(view.name, part) for part in view.layout.arrangements}
    before = {part: program.bucket_state(names[part], bucket) for part in names}
    state = {part: OPEN.of(program.root, before[part]) for part in names}
    done = maintain(view.layout, state, incoming)
    for part, run in done.runs.items():
        live = before[part].live + done.live.get(part, 0)
        ring = view.layout.arrangements[part]
        _store(program, names[part], bucket, ring, run, live, before[part], state[part], result)
    result.summaries[view.name] = result.summaries.get(view.name, type(done.summary)()) + done.summary
    if done.changes is not None:
        ref = _write(program, done.changes)
        result.changes.setdefault(view.name, []).append(ref.name)


def _store(
    program: Program,
    name: str,
    bucket: int,
    ring: Group,
    delta: Run,
    live: int,
    before: BucketState,
    runs: list[StoredRun],
    result: BucketResult,
) -> None:
    """Add a run to an arrangement, merging it with the runs that are due."""
    if not delta.rows:
        return
    due = runs_to_merge([ref.rows for ref in before.runs], delta.rows, live)
    kept = tuple(ref for i, ref in enumerate(before.runs) if i not in due)
    if due:
        delta = merge(ring, [*(runs[i] for i in due), delta])  # type: ignore[list-item]
        if not kept:  # the whole sum: an entry whose count is zero is gone, with whatever its other sums left behind
            there = alive(delta.payload)
            delta = delta if there.all() else delta.take(there)
    if delta.rows:
        kept = (*kept, _write(program, delta))
    result.buckets.setdefault(name, {})[bucket] = BucketState(kept, live)


def _write(program: Program, run: Run) -> RunRef:
    location = Location(program.root)
    name = location.new_name(program.version, ".run")
    data, path = runfile.encode(run), location.runs / name
    runfile.write_encoded(data, path, fsync=program.fsync)
    OPEN.keep(path, data)
    return RunRef(name, run.rows, len(data))


def row_identity(layout: TableLayout, rows: pa.Table, diff: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash whole rows with their sign, to find them again when a step is run a second time without the bad ones."""
    signed = rows.select(layout.schema.names).append_column(DIFF, pa.array(np.sign(diff)))
    return hash_rows(signed, (*layout.schema.columns, Column(DIFF, SqlType("bigint"))), layout.seed + 3)
