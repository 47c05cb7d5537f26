"""Unsharing in the engine: after a trigger has shown what each part costs, sharing is considered again.

This happens after the step of the trigger, never within one. The readers of a subplan are looked at together if the
triggers of all of them have fired together, because then all of them have just been learnt about. What is decided goes
to the log together with the new plan, so a crash leaves either the old plan or the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.engine.pacing_together import Together
from headrace.operators.tree_view import TreeView
from headrace.plan import native
from headrace.plan.expression import Expression
from headrace.plan.tree import Feed
from headrace.thrifty.share.apart import Apart, Operator
from headrace.thrifty.share.blocks import Block, blocks_of
from headrace.thrifty.share.dag import Place
from headrace.thrifty.share.divide import Readers
from headrace.thrifty.share.masks import bit_of, is_mask
from headrace.thrifty.share.plan import Shared
from headrace.thrifty.share.unshare import Division, Unshared, is_from, unshared

if TYPE_CHECKING:
    from headrace.thrifty.share.benefit import Sample


def taken_apart(
    seen: Together,
    shared: Mapping[str, Shared],
    views: Mapping[str, TreeView],
    sampled: Callable[[], Mapping[str, Sample]],
) -> list[Apart]:
    """What is better apart, by what a trigger has shown; samples of tables are taken if there is a choice."""
    able = {name: one for name, one in shared.items() if {*seen.plan.readers.get(name, ())} == {*one.views}}
    able = {name: one for name, one in able.items() if len(one.views) > 1}
    samples = sampled() if able else {}
    readers: dict[str, Readers] = {}
    for name, one in able.items():
        part, marks = seen.plan.subplans[name], marks_of(one, samples)
        if marks is not None:
            ends = {v: {e for at, e in seen.plan.views[v].ends.items() if _reads(seen, v, at, name)} for v in one.views}
            readers[name] = Readers(part.plan, ends, marks)
    found = unshared(seen.plan, seen.found, readers, seen.whole)
    return [_remembered(one, shared[one.division.subplan], readers[one.division.subplan], views, seen) for one in found]


def _reads(seen: Together, view: str, at: Place, name: str) -> bool:
    return seen.plan.views[view].reads.get(at) == name


def marks_of(shared: Shared, samples: Mapping[str, Sample]) -> dict[Place, dict[str, NDArray[np.bool_]]] | None:
    """Which rows of a sample each view wants, where conditions differ; None if that cannot be told."""
    bits: dict[str, int] = {}
    for member in shared.members:
        bit = 0 if member.feed.condition is None else bit_of(member.feed.condition)
        if bit is None:
            return None
        bits[member.view] = bits.get(member.view, 0) | bit
    out: dict[Place, dict[str, NDArray[np.bool_]]] = {}
    for n, node in enumerate(shared.kernel.tree.nodes):
        for side, port in enumerate(node.ports):
            found = [_wanted(feed, samples, len(port.feeds) > 1) for feed in port.feeds if feed.producer is None]
            if any(one is None for one in found):
                return None
            # Clusters of groups take the rows of a table one after the other, each cluster those that it wants.
            masks = [one for one in found if one is not None and one.size]
            if masks:
                mask = np.concatenate(masks)
                out[n, side] = {view: (mask & bit) != 0 for view, bit in bits.items()}
    return out


def _wanted(feed: Feed, samples: Mapping[str, Sample], is_cluster: bool) -> NDArray[np.int64] | None:
    """The masks of the rows of a sample; none, if all views want the same rows; None if that cannot be told."""
    words = [output for output in feed.outputs if is_mask(output)]
    if len(words) > 1 or (words and is_cluster) or feed.table not in samples:
        return None if words or is_cluster else np.zeros(0, np.int64)
    rows = samples[feed.table].rows
    columns = {name: rows.column(name).combine_chunks() for name in rows.column_names}

    def evaluated(expression: Expression) -> NDArray[np.int64]:
        found = native.evaluate(expression, columns, rows.num_rows)
        return np.asarray(pc.fill_null(pc.cast(found, pa.int64()), 0).to_numpy(zero_copy_only=False), np.int64)

    if words:
        return evaluated(words[0])
    if not is_cluster:
        return np.zeros(0, np.int64)
    passed = np.ones(rows.num_rows, np.int64) if feed.condition is None else evaluated(feed.condition)
    bits = feed.outputs[0].value  # the first key of its groups
    return passed * bits if isinstance(bits, int) else None


def _remembered(
    one: Unshared, shared: Shared, readers: Readers, views: Mapping[str, TreeView], seen: Together
) -> Apart:
    division = one.division
    members: dict[str, list[Operator]] = {}
    for member in shared.members:
        members.setdefault(member.view, []).append((member.view, member.number))
    alone = [(view,) for view in division.own if all(view not in group for group in division.groups)]
    strictest = min(readers.views, key=lambda view: seen.plan.wanted.get(view, float("inf")))
    return Apart(
        parts=tuple(tuple(op for view in group for op in members[view]) for group in (*division.groups, *alone)),
        own=tuple(op for view in division.own for op in _own(division, view, members[view], shared, readers, views)),
        tables=shared.kernel.tree.tables,
        before=one.before / 1e6,
        after=one.paces.total / 1e6,
        pace=seen.found.subplans[division.subplan],
        strictest=strictest,
        paces={view: _pace(one, view) for view in readers.views},
        reached=one.reached,
    )


def _pace(one: Unshared, view: str) -> int:
    """How often what the subplan did for a view is brought up to date in the new plan, at most."""
    name, reads = one.division.subplan, one.plan.views[view].below
    shared = [pace for subplan, pace in one.paces.subplans.items() if subplan in reads and is_from(subplan, name)]
    return max([*shared, *(pace for path, pace in one.paces.views[view].items() if is_from(path, name))])


def _own(
    division: Division,
    view: str,
    members: Collection[Operator],
    shared: Shared,
    readers: Readers,
    views: Mapping[str, TreeView],
) -> list[Operator]:
    """The operators of a view's own tree that it runs itself, if it goes on to read what lies below them."""
    stays = readers.needed[view] - division.own[view]
    if not stays:
        return []
    kept = [_tables_of(shared.kernel, readers.below[n]) for n in stays]
    blocks = blocks_of(views[view].tree)
    found: list[Operator] = []
    for _, number in members:
        block = blocks[number]
        inside: list[Block] = [block, *block.inner.values()]
        found += [(view, b.number) for b in inside if not any({*b.tables.values()} <= tables for tables in kept)]
    return found


def _tables_of(kernel: TreeView, operators: Collection[int]) -> set[str]:
    return {feed.table for n, _, _, feed in kernel.tree.feeds() if n in operators and feed.producer is None}
