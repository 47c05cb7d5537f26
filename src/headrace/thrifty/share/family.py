"""A family: blocks that have operators in common, and each of these operators once.

An operator of one block and an operator of another are the same if they do the same with the same inputs, where an
input is a table, or an operator that is the same. So a family is a graph of operators. Some of them are the last of a
block, and several blocks may go through one operator on their way to different ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.thrifty.share.blocks import Block
from headrace.thrifty.share.skeleton import Grouped, Joined, Leaf, Skeleton


@dataclass
class FamilyOperator:
    """A join or groups that some blocks of a family have.

    Parameters
    ----------
    inputs : per port, the number of the operator that gives its rows; None for a table.
    users : the blocks that go through it, each with the path of the operator in the block.
    ends : the blocks whose last operator it is.
    """

    skeleton: Joined | Grouped
    inputs: tuple[int | None, ...]
    users: dict[int, str] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)


def family_of(blocks: Sequence[Block], *, exact: bool) -> list[FamilyOperator]:
    """The operators of several blocks, each after those whose rows it takes.

    Parameters
    ----------
    exact : operators over different rows of the same tables are different operators.
    """
    family: list[FamilyOperator] = []
    known: dict[object, list[int]] = {}

    def place(number: int, skeleton: Skeleton, path: str) -> int | None:
        if isinstance(skeleton, Leaf):
            return None
        below = tuple(place(number, one, path + step) for step, one in skeleton.inputs)
        conditions = blocks[number].wanted
        taken = tuple(
            (one.table if isinstance(one, Leaf) else at, conditions.get(path + step) if exact else None)
            for (step, one), at in zip(skeleton.inputs, below, strict=True)
        )
        same = known.setdefault((skeleton.own_shape, taken), [])
        # A block that joins the same tables twice has two joins, whose rows it wants under different conditions.
        found = next((at for at in same if number not in family[at].users), None)
        if found is None:
            found = len(family)
            family.append(FamilyOperator(skeleton, below))
            same.append(found)
        family[found].users[number] = path
        before = family[found].skeleton
        if isinstance(skeleton, Grouped) and isinstance(before, Grouped):
            family[found].skeleton = before.with_all(skeleton)
        return found

    for number, block in enumerate(blocks):
        end = place(number, block.skeleton, "")
        assert end is not None
        family[end].ends.append(number)
    return family
