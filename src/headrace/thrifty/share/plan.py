"""Which views share which subplans.

The largest blocks of all views are grouped: blocks that begin with different operators have nothing to share. The
blocks of a group are clustered by what sharing is worth (`benefit`), and each cluster gets a subplan in an order that
its members have in common (`orders`). A shared subplan that is there already is used as it is as long as it has all
that its members read, so that a view which joins or leaves costs the others nothing; even the last one reads on from
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from headrace.operators.tree_view import Given, TreeView
from headrace.plan.tree import Feed
from headrace.thrifty.share.apart import Apart
from headrace.thrifty.share.benefit import ALL_MANNERS, EXACT_MANNERS, Cluster, Work, clusters
from headrace.thrifty.share.blocks import Block, blocks_of
from headrace.thrifty.share.merge import merged
from headrace.thrifty.share.orders import Manner, beginnings, in_common_order
from headrace.thrifty.share.patience import may_be_given

_FEW = 8  # blocks that are all compared with each other whenever a view comes or goes


@dataclass(frozen=True)
class Member:
    """An operator of a view in whose place a shared subplan gives rows, and how they follow from the subplan's.

    Parameters
    ----------
    operators : how many operators of the view the subplan stands for.
    """

    view: str
    number: int
    feed: Feed
    operators: int


@dataclass(frozen=True)
class Shared:
    """A subplan that several views share, in some manner; its kernel knows nothing of them."""

    kernel: TreeView
    members: tuple[Member, ...]
    manner: Manner

    is_answer: ClassVar[bool] = False

    @property
    def views(self) -> tuple[str, ...]:
        """The views that read it."""
        return tuple(dict.fromkeys(member.view for member in self.members))

    @property
    def stage(self) -> int:
        """The stage of its last operator, in steps from bucket to bucket and in steps in one pass."""
        return last_stage(self.kernel)

    def without(self, view: str) -> Shared:
        """The same subplan after a view is gone."""
        return replace(self, members=tuple(member for member in self.members if member.view != view))


@dataclass(frozen=True)
class SharedAnswer(Shared):
    """A view whose answer others read (`answers`): it has the name of the view, which keeps all state."""

    is_answer: ClassVar[bool] = True


def shared_without(shared: Mapping[str, Shared], views: Iterable[str]) -> dict[str, Shared]:
    """What views share, after some of them are gone; an answer that nobody else reads is none that is shared."""
    found, gone = dict(shared), set(views)
    for view in gone:
        found = {name: one.without(view) for name, one in found.items()}
    return {name: one for name, one in found.items() if not one.is_answer or (one.members and name not in gone)}


def last_stage(kernel: TreeView) -> int:
    """The stage of the last operator of a kernel, in steps from bucket to bucket and in steps in one pass."""
    at_once = kernel.in_one_pass
    kernels = [kernel, *([at_once.kernel] if at_once is not None else [])]
    return max(one.placement.stages for one in kernels if isinstance(one, TreeView)) - 1


@dataclass(frozen=True)
class _Candidate:
    view: str
    block: Block

    @property
    def operators(self) -> set[tuple[str, int]]:
        """The joins of the block, as operators of the view."""
        return {(self.view, number) for number in (self.block.number, *(b.number for b in self.block.inner.values()))}

    def members_of(self, shared: Shared) -> list[Member]:
        """The operators of the block in whose place a shared subplan gives rows."""
        numbers = {self.block.number, *(inner.number for inner in self.block.inner.values())}
        return [member for member in shared.members if member.view == self.view and member.number in numbers]


def given_to(
    view: str, shared: Mapping[str, Shared], stages: Mapping[str, int] = MappingProxyType({})
) -> dict[int, Given]:
    """What shared subplans give to a view, by the operator in whose place they do.

    Parameters
    ----------
    stages : the last stage of views that read something themselves, where that counts.
    """
    return {
        member.number: Given(name, member.feed, stages.get(name, one.stage))
        for name, one in shared.items()
        for member in one.members
        if member.view == view
    }


def planned(
    views: Mapping[str, TreeView],
    optional: Mapping[str, Collection[str]],
    work: Work,
    before: Mapping[str, Shared],
    known: Collection[str],
    fresh: Collection[str] | None = None,
    patient: Mapping[str, float] = MappingProxyType({}),
    apart: Sequence[Apart] = (),
    elsewhere: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> dict[str, Shared]:
    """The subplans that views should share, by name; one that was there before keeps its name and its kernel.

    Parameters
    ----------
    views : the views that may share, without any sharing.
    optional : the columns of each table that may be NULL.
    work : estimates the work of clusters of blocks; by it, blocks share or do not.
    before : what is shared now.
    known : tables whose rows are known well enough to tell how many rows different conditions have in common. Over
        other tables, only operators with equal conditions are shared.
    fresh : views that are new; what others share with each other stays as it is. None stands for all views.
    patient : views with goals, for which the rows of a subplan have to be able to wait; each with its eagerness.
    apart : what was taken apart before, and stays so.
    elsewhere : the operators of views for which the answers of other views stand, and what is below them.
    """
    out: dict[str, Shared] = {}
    for group in _kept_apart(_groups(views, patient, apart, elsewhere), apart):
        all_known = {*known}.issuperset(table for one in group for table in one.block.tables.values())
        now, usable = _now(group, before), _usable(group, before, apart)
        going_on = _now(group, usable)
        manners = ALL_MANNERS if all_known else EXACT_MANNERS
        new = [i for i, one in enumerate(group) if fresh is None or one.view in fresh or len(group) <= _FEW]
        for cluster in clusters([one.block for one in group], work, now, manners, new):
            if len(cluster.blocks) < 2 and all(cluster.blocks != one.blocks for one in going_on):
                continue
            members = [group[i] for i in cluster.blocks]
            if (kept := _kept(members, usable)) is not None:
                out |= kept
                continue
            made = _made(members, views, optional, cluster.manner)
            if len(made.members) < 2:
                continue
            same = (n for n, old in before.items() if n not in out and old.kernel.tree == made.kernel.tree)
            name = next(same, None) or _new_name({*before, *out})
            out[name] = replace(before[name], members=made.members) if name in before else made
    return out


def _now(candidates: list[_Candidate], before: Mapping[str, Shared]) -> list[Cluster]:
    """Which of some candidates share a subplan now."""
    found = (
        Cluster(tuple(i for i, one in enumerate(candidates) if one.members_of(shared)), shared.manner)
        for shared in before.values()
    )
    return [cluster for cluster in found if cluster.blocks]


def _kept(candidates: list[_Candidate], before: Mapping[str, Shared]) -> dict[str, Shared] | None:
    """The shared subplan that all of some candidates read already, with only these as its members; None if none is."""
    for name, shared in before.items():
        own = [one.members_of(shared) for one in candidates]
        if all(own):
            members = {(member.view, member.number): member for found in own for member in found}
            return {name: replace(shared, members=tuple(members.values()))}
    return None


def _kept_apart(groups: list[list[_Candidate]], apart: Sequence[Apart]) -> list[list[_Candidate]]:
    """The groups, with views in different ones that were taken apart; a new view joins those that are as eager."""
    for one in apart:
        out: list[list[_Candidate]] = []
        for group in groups:
            parts: dict[int, list[_Candidate]] = {}
            rest: list[_Candidate] = []
            for candidate in group:
                at = one.part_of(candidate.operators)
                (rest if at is None else parts.setdefault(at, [])).append(candidate)
            for candidate in rest if parts else ():
                _as_eager(candidate, list(parts.values())).append(candidate)
            out += parts.values() if parts else [group]
        groups = out
    return groups


def _as_eager(candidate: _Candidate, parts: Sequence[list[_Candidate]]) -> list[_Candidate]:
    """The part with a block that is brought up to date about as often as a candidate."""
    own = candidate.block.eagerness
    return min(parts, key=lambda part: min(abs(other.block.eagerness - own) for other in part))


def _usable(group: list[_Candidate], before: Mapping[str, Shared], apart: Sequence[Apart]) -> dict[str, Shared]:
    """The shared subplans that may go on as they are: not those that take rows for views which were taken apart."""
    own = {candidate.view for candidate in group}
    taken = {view for one in apart if own & {*one.views} for view in one.views}
    return {name: shared for name, shared in before.items() if not ({*shared.views} & taken) - own}


def _groups(
    views: Mapping[str, TreeView],
    patient: Mapping[str, float],
    apart: Sequence[Apart],
    elsewhere: Mapping[str, Collection[int]],
) -> list[list[_Candidate]]:
    """The largest blocks of all views, in groups that begin with the same operators."""
    groups: list[tuple[set[str], list[_Candidate]]] = []
    for view, kernel in views.items():
        own = {number for one in apart for name, number in one.own if name == view}.union(elsewhere.get(view, ()))
        for block in largest_blocks(kernel, patient.get(view), own):
            begins, members = beginnings(block), [_Candidate(view, block)]
            for group in [group for group in groups if group[0] & begins]:
                groups.remove(group)
                begins, members = begins | group[0], [*group[1], *members]
            groups.append((begins, members))
    return [members for _, members in groups]


def largest_blocks(kernel: TreeView, eagerness: float | None = None, own: Collection[int] = ()) -> list[Block]:
    """The blocks of a view that it may share as a whole; blocks within these are not listed.

    Parameters
    ----------
    eagerness : of a view with a goal, whose blocks have to be able to wait.
    own : operators that the view runs itself.
    """
    blocks = blocks_of(kernel.tree)
    if eagerness is not None:
        blocks = _able_to_wait(blocks, kernel, eagerness)
    blocks = {
        number: block
        for number, block in blocks.items()
        if not {*own} & {number, *(inner.number for inner in block.inner.values())}
    }
    inside = {inner.number for block in blocks.values() for inner in block.inner.values()}
    return [block for number, block in blocks.items() if number not in inside]


def _able_to_wait(blocks: Mapping[int, Block], kernel: TreeView, eagerness: float) -> dict[int, Block]:
    """The blocks of a view with a goal whose rows can wait for the view, with its eagerness."""
    able = {number for number in blocks if may_be_given(kernel, number)}

    def within(block: Block) -> Block:
        inner = {path: within(one) for path, one in block.inner.items() if one.number in able}
        return replace(block, inner=inner, eagerness=eagerness)

    return {number: within(block) for number, block in blocks.items() if number in able}


def _made(
    members: list[_Candidate], views: Mapping[str, TreeView], optional: Mapping[str, Collection[str]], manner: Manner
) -> Shared:
    reads = in_common_order([one.block for one in members], manner)
    # Two blocks of a view may have an operator in common, which is read once.
    found = {(one.view, b.number): b for one, own in zip(members, reads, strict=True) for b in own}
    read = [(view, block) for (view, _), block in found.items()]
    result = merged([block for _, block in read], optional, exact=manner.exact)
    sizes = {
        source: max(views[read[i][0]].sizes.get(own, 0) for i, own in names.items())
        for source, names in result.sources.items()
    }
    first = views[members[0].view]
    static, growing = (_all(getattr(views[one.view], what) for one in members) for what in ("static", "growing"))
    kernel = TreeView(result.tree, first.seed, first.buckets, sizes, static, growing, answers=False)
    made = (
        Member(view, block.number, feed, block.operators)
        for (view, block), feed in zip(read, result.feeds, strict=True)
    )
    return Shared(kernel, tuple(made), manner)


def _all(found: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*found)


def _new_name(taken: Collection[str]) -> str:
    number = 1
    while f"~{number}" in taken:
        number += 1
    return f"~{number}"
