"""The inline executor: runs a step in the calling process, without a Spark job.

It is what small steps use, because a job costs more than they do, and what tests use to run everything in milliseconds.
A step of few rows changes all buckets in one pass, so that its cost does not depend on their number. The kernels
release Python's lock, so a step of some size uses all cores by threads, one bucket per thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise

from headrace.relation.change import ChangeBatch
from headrace.relation.product import ProductBatch
from headrace.runtime.filling import PIECE_ROWS, Columns, map_stored
from headrace.runtime.one_pass import passes, settled
from headrace.runtime.products import map_products
from headrace.runtime.program import BucketResult, Program, TableTask, ViewTask, table_arrangement
from headrace.runtime.stages import each, run_later_stages
from headrace.runtime.tasks import Mapped, Pieces, map_rows, reduce_bucket, reductions, tell

WORTH_THREADS = 20_000  # changed rows below which handing work to threads costs more than it saves
_PART_ROWS = 200_000  # rows of a part: groups that two parts share are summed twice, so smaller parts gain nothing


Batches = Mapping[str, ChangeBatch | ProductBatch]


def run_inline(program: Program, batches: Batches, threads: int = 1) -> BucketResult:
    """Run a program over batches in memory, which also hold the columns that Catalyst evaluated for views.

    Products are taken here and nowhere else: they are small, so they come to the driver and stay in it.
    """
    rows = sum(len(batches[task.name]) for task in program.tables)
    result, parts = BucketResult(), passes(program, rows, threads)
    is_one_pass = parts[0].residences is not None
    with nullcontext(program) if is_one_pass else settled(program, result) as ready:
        for part in parts:
            part = replace(part, state=ready.state_after(result))
            result.add(_run(part, batches, 1 if rows < WORTH_THREADS else threads))
            if result.bad and not program.judge_only:
                break
    return tell(program, result)


def _run(program: Program, batches: Batches, threads: int) -> BucketResult:
    shares: list[tuple[TableTask, ChangeBatch]] = []
    products: list[Mapped] = []
    result = BucketResult()
    for task in program.tables:
        given = batches[task.name]
        if isinstance(given, ProductBatch):
            products.append(map_products(program, task, given, result))
        else:
            shares += _shares(task, given, threads)
    mapping = each(lambda share: map_rows(program, share[0], share[1].rows, share[1].diff), shares, threads)
    result.add(_reduced(program, chain(products, mapping), threads))
    return result


def _shares(task: TableTask, batch: ChangeBatch, threads: int) -> list[tuple[TableTask, ChangeBatch]]:
    """The work on the changes of one table that can be done side by side: what is stored, and each view."""
    if threads == 1 or not task.views:
        return [(task, batch)]
    if not task.store:
        return [(task, part) for part in _parts(batch, threads)]
    tasks = [replace(task, views=own, store=False, views_only=True) for own in _by_view(task)]
    parts = _parts(batch, max(1, threads // len(tasks)))
    return [(replace(task, views=()), batch), *((one, part) for one in tasks for part in parts)]


def _by_view(task: TableTask) -> list[tuple[ViewTask, ...]]:
    """The map sides of each view over a table: a row that several of them refuse is named once."""
    names = dict.fromkeys(view.name for view in task.views)
    return [tuple(view for view in task.views if view.name == name) for name in names]


def _parts(batch: ChangeBatch, most: int) -> list[ChangeBatch]:
    """The rows of a batch in parts that are worth it: groups that several parts have are added up again."""
    parts = max(1, min(most, len(batch) // _PART_ROWS))
    edges = [len(batch) * part // parts for part in range(parts + 1)]
    return [ChangeBatch(batch.rows.slice(a, b - a), batch.diff[a:b]) for a, b in pairwise(edges)]


def fill_inline(program: Program, columns: Columns, threads: int = 1, given: Iterable[Mapped] = ()) -> BucketResult:
    """Run a program over the stored rows of its tables, and over what views are `given` besides."""
    rows = {task.name: _stored(program, task) for task in program.tables}
    if sum(rows.values()) < WORTH_THREADS:
        threads = 1
    shares: list[tuple[TableTask, Iterable[int]]] = []
    for task in program.tables:
        every = range(program.buckets)
        shares += [(task, [bucket]) for bucket in every] if rows[task.name] > PIECE_ROWS else [(task, every)]
    mapping = each(lambda share: list(map_stored(program, share[0], columns[share[0].name], share[1])), shares, threads)
    everything = chain(given, (mapped for pieces in mapping for mapped in pieces))
    return tell(program, _reduced(program, everything, threads))


def _stored(program: Program, task: TableTask) -> int:
    return sum(run.rows for state in program.state[table_arrangement(task.name)].values() for run in state.runs)


def _reduced(program: Program, mapping: Iterable[Mapped], threads: int) -> BucketResult:
    result = BucketResult()
    pieces: dict[int, Pieces] = defaultdict(Pieces)
    for mapped in mapping:
        seen = BucketResult(bad=mapped.bad, passed=mapped.passed, newest=mapped.newest, held=mapped.held)
        result.add(seen)
        mapped.into(pieces)
    if result.bad and not program.judge_only:
        return result

    def reduced(bucket: int) -> BucketResult:
        # Popped, so that the memory of a bucket's pieces is free once the bucket is done.
        return reduce_bucket(program, bucket, pieces.pop(bucket))

    work: list[Callable[[], BucketResult]]
    if threads > 1 and program.residences is not None:
        work = [part for bucket, own in pieces.items() for part in reductions(program, bucket, own)]
    else:
        work = [partial(reduced, bucket) for bucket in sorted(pieces)]
    for done in each(lambda part: part(), work, threads):
        result.add(done)
    return run_later_stages(program, result, threads=threads)
