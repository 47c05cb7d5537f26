"""A family: blocks that have joins in common, and each of these joins once.

A join of one block and a join of another are the same if they join the same inputs by the same keys, where an input is
a table, or a join that is the same. So a family is a graph of joins. Some of them are the last of a block, and several
blocks may go through one join on their way to different ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.thrifty.share.blocks import Block, Joined, Leaf, Skeleton


@dataclass
class FamilyJoin:
    """A join that some blocks of a family have.

    Parameters
    ----------
    inputs : per side, the number of the join that gives its rows; None for a table.
    users : the blocks that go through it, each with the path of the join in the block.
    ends : the blocks whose last join it is.
    """

    skeleton: Joined
    inputs: tuple[int | None, int | None]
    users: dict[int, str] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)


def family_of(blocks: Sequence[Block], *, exact: bool) -> list[FamilyJoin]:
    """The joins of several blocks, each after those whose rows it takes.

    Parameters
    ----------
    exact : joins over different rows of the same tables are different joins.
    """
    joins: list[FamilyJoin] = []
    known: dict[object, list[int]] = {}

    def place(number: int, skeleton: Skeleton, path: str) -> int | None:
        if isinstance(skeleton, Leaf):
            return None
        left, right = (place(number, side, f"{path}{i}") for i, side in enumerate(skeleton.sides))
        conditions = blocks[number].wanted
        inputs = tuple(
            (side.table, conditions[f"{path}{i}"] if exact else "") if isinstance(side, Leaf) else at
            for i, (side, at) in enumerate(zip(skeleton.sides, (left, right), strict=True))
        )
        same = known.setdefault((tuple(key.shape for key in skeleton.keys), inputs), [])
        # A block that joins the same tables twice has two joins, whose rows it wants under different conditions.
        found = next((at for at in same if number not in joins[at].users), None)
        if found is None:
            found = len(joins)
            joins.append(FamilyJoin(skeleton, (left, right)))
            same.append(found)
        joins[found].users[number] = path
        return found

    for number, block in enumerate(blocks):
        end = place(number, block.skeleton, "")
        assert end is not None
        joins[end].ends.append(number)
    return joins
