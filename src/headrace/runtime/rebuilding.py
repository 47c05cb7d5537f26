"""Making dropped arrangements of a view again: from the rows of tables, and from arrangements that are still kept.

It is filling, with a difference: the entries of some kept arrangements are delivered to their operators as if they had
just come, so that nothing below these has to run.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.operators.tree_view import TreeView
from headrace.relation.run import Run
from headrace.runtime.filling import columns_read
from headrace.runtime.inline import fill_inline
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import BucketResult, Program, view_arrangement
from headrace.runtime.stages import in_memory
from headrace.runtime.tasks import Mapped


def rebuild_inline(program: Program, name: str, kernel: TreeView, threads: int) -> BucketResult:
    """Run a program that makes parts of a view again; its tables are those that the view has to read for it."""
    return fill_inline(program, columns_read(program), threads, _delivered(program, name, kernel))


def _delivered(program: Program, name: str, kernel: TreeView) -> Iterator[Mapped]:
    """The entries of kept arrangements, as if they had just come to their operators, or gone."""
    rebuild = kernel.rebuild
    assert rebuild is not None, "only a rebuild reads kept arrangements"
    for part in (*rebuild.delivered, *rebuild.taken_back):
        ring = kernel.arrangements[part] if part in rebuild.taken_back else None
        out, states = Mapped(), program.states(view_arrangement(name, part))
        for bucket in range(program.buckets):
            for found in OPEN.of(program.root, states, kernel.home(part, bucket)):
                run = found if isinstance(found, Run) else in_memory(found)
                if run.rows:
                    run = kernel.come_again(part, run)
                    run = run if ring is None else Run(run.words, ring.negate(run.payload), run.values)
                    out.pieces[bucket].runs[name, part].append(run)
        yield out
