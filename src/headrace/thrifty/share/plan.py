"""Which views share which subplans.

Blocks of all views are grouped by their skeletons, and the blocks of a group are clustered by what sharing is worth
(`benefit`). Larger blocks come first: what is inside a shared block is shared with it. A shared subplan that is there
already is used as it is as long as it has all that its members read, so that a view which joins or leaves costs the
others nothing; even the last one reads on from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from headrace.operators.tree_view import Given, TreeView
from headrace.plan.tree import Feed
from headrace.thrifty.share.benefit import Work, clusters
from headrace.thrifty.share.blocks import Block, blocks_of, shape_of
from headrace.thrifty.share.merge import merged
from headrace.thrifty.share.patience import may_be_given


@dataclass(frozen=True)
class Member:
    """An operator of a view in whose place a shared subplan gives rows, and how they follow from the subplan's.

    Parameters
    ----------
    reads : a fingerprint of what the view reads there: rows and values.
    """

    view: str
    number: int
    feed: Feed
    reads: str


@dataclass(frozen=True)
class Shared:
    """A subplan that several views share; its kernel knows nothing of them."""

    kernel: TreeView
    members: tuple[Member, ...]

    @property
    def views(self) -> tuple[str, ...]:
        """The views that read it."""
        return tuple(dict.fromkeys(member.view for member in self.members))

    @property
    def stage(self) -> int:
        """The stage of its last operator, in steps from bucket to bucket and in steps in one pass."""
        at_once = self.kernel.in_one_pass
        kernels = [self.kernel, *([at_once.kernel] if at_once is not None else [])]
        return max(kernel.placement.stages for kernel in kernels if isinstance(kernel, TreeView)) - 1

    def without(self, view: str) -> Shared:
        """The same subplan after a view is gone."""
        return replace(self, members=tuple(member for member in self.members if member.view != view))


@dataclass(frozen=True)
class _Candidate:
    view: str
    block: Block
    covered: frozenset[int]  # the operators of the view that the block stands for


def given_to(view: str, shared: Mapping[str, Shared]) -> dict[int, Given]:
    """What shared subplans give to a view, by the operator in whose place they do."""
    return {
        member.number: Given(name, member.feed, one.stage)
        for name, one in shared.items()
        for member in one.members
        if member.view == view
    }


def planned(
    views: Mapping[str, TreeView],
    optional: Mapping[str, Collection[str]],
    work: Work,
    before: Mapping[str, Shared],
    patient: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, Shared]:
    """The subplans that views should share, by name; one that was there before keeps its name and its kernel.

    Parameters
    ----------
    views : the views that may share, without any sharing.
    optional : the columns of each table that may be NULL.
    work : estimates the work of a subplan; by it, members with different conditions share or do not.
    before : what is shared now.
    patient : views with goals, for which the rows of a subplan have to be able to wait; each with its eagerness.
    """
    out: dict[str, Shared] = {}
    free = {view: set(range(len(kernel.tree.nodes))) for view, kernel in views.items()}
    for group in _groups(views, patient):
        able = [one for one in group if one.covered <= free[one.view]]
        now = _now(able, before)
        for cluster in clusters([one.block for one in able], work, now):
            members = [able[i] for i in cluster]
            if len(members) < 2 and cluster not in now:
                continue
            for one in members:
                free[one.view] -= one.covered
            made = _made(members, views, optional)
            name, kept = next(
                ((n, found) for n, old in before.items() if n not in out and (found := _reused(old, made)) is not None),
                (_new_name({*before, *out}), made),
            )
            out[name] = kept
    return out


def _now(candidates: list[_Candidate], before: Mapping[str, Shared]) -> list[list[int]]:
    """Which of some candidates share a subplan now, by their positions."""
    at = {(one.view, one.block.number, _reads(one.block)): i for i, one in enumerate(candidates)}
    found = [[(m.view, m.number, m.reads) for m in shared.members] for shared in before.values()]
    parts = [[at[member] for member in members if member in at] for members in found]
    return [part for part in parts if part]


def _groups(views: Mapping[str, TreeView], patient: Mapping[str, float]) -> list[list[_Candidate]]:
    """Blocks that can be shared, the largest first."""
    found: dict[str, list[_Candidate]] = {}
    for view, kernel in views.items():
        blocks = blocks_of(kernel.tree)
        for block in blocks.values():
            if view in patient and not may_be_given(kernel, block.number):
                continue
            key = repr(block.skeleton.shape)
            block = replace(block, eagerness=patient.get(view, 1.0))
            found.setdefault(key, []).append(_Candidate(view, block, kernel.tree.from_top(block.number)))
    return sorted(found.values(), key=lambda group: (-group[0].block.joins, -len(group)))


def _made(members: list[_Candidate], views: Mapping[str, TreeView], optional: Mapping[str, Collection[str]]) -> Shared:
    result = merged([one.block for one in members], optional)
    first = views[members[0].view]
    sizes = {
        source: max(views[one.view].sizes.get(own, 0) for one, own in zip(members, names, strict=True))
        for source, names in result.sources.items()
    }
    static, growing = (_all(getattr(views[one.view], what) for one in members) for what in ("static", "growing"))
    kernel = TreeView(result.tree, first.seed, first.buckets, sizes, static, growing, answers=False)
    feeds = zip(members, result.feeds, strict=True)
    made = (Member(one.view, one.block.number, feed, _reads(one.block)) for one, feed in feeds)
    return Shared(kernel, tuple(made))


def _reads(block: Block) -> str:
    conditions = sorted((path, shape_of(condition)) for path, condition in block.conditions.items())
    values = [value.shape for value in block.given.values()]
    return hashlib.sha256(repr((conditions, values)).encode()).hexdigest()[:16]


def _all(found: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*found)


def _reused(old: Shared, made: Shared) -> Shared | None:
    """A shared subplan that has all that new members read, with them as its members; None if it lacks something."""
    if old.kernel.tree == made.kernel.tree:
        return replace(old, members=made.members)
    known = {(member.view, member.number, member.reads): member for member in old.members}
    kept = [known.get((member.view, member.number, member.reads)) for member in made.members]
    if any(member is None for member in kept):
        return None
    return replace(old, members=tuple(member for member in kept if member is not None))


def _new_name(taken: Collection[str]) -> str:
    number = 1
    while f"~{number}" in taken:
        number += 1
    return f"~{number}"
