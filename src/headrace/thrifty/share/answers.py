"""Answers that stand for operators: what a view keeps, its readers need not keep again.

The tree of a view that reads another view has the operators of that view in it, as they were read from its query
(`sql.tree_reader`). The topmost of them keeps what the inner view keeps as its answer. So the inner view hands the
changes of its answer on, and neither that operator nor what is below it runs in the reader.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from headrace.operators.tree_view import TreeView
from headrace.plan.expression import column
from headrace.plan.tree import Aggregation, Feed, Tree
from headrace.thrifty.share.fingerprint import kept_rows
from headrace.thrifty.share.orders import Manner
from headrace.thrifty.share.patience import may_be_given
from headrace.thrifty.share.plan import Member, Shared, SharedAnswer

_AS_READ = Manner(exact=True, own_orders=True)


@dataclass(frozen=True)
class Reading:
    """A view that reads others, as far as that decides what these can give to it.

    Parameters
    ----------
    reads : the views that it reads, with all that these read.
    named : the operators that were read as what a view keeps, by number.
    is_patient : it has a goal, so what it is given has to be able to wait.
    """

    kernel: TreeView
    reads: Collection[str]
    named: Mapping[int, str]
    is_patient: bool


def answers(givers: Mapping[str, TreeView], readings: Mapping[str, Reading]) -> dict[str, Shared]:
    """The views whose answers stand for operators of others, by name.

    Parameters
    ----------
    givers : the views that can hand changes on.
    """
    members: dict[str, list[Member]] = {}
    for view, reading in readings.items():
        tree = reading.kernel.tree
        for number, giver in _given(reading, givers).items():
            root, last = givers[giver].tree.root, len(givers[giver].tree.nodes) - 1
            outputs = tuple(column(one.name, one.type, one.nullable) for one in root.fields)
            below = len(tree.from_top(number))
            members.setdefault(giver, []).append(Member(view, number, Feed(last, None, outputs), below))
    return {
        name: SharedAnswer(replace(givers[name], given={}, followers=(), unkept=frozenset()), tuple(found), _AS_READ)
        for name, found in members.items()
    }


def not_run(kernel: TreeView, numbers: Collection[int]) -> frozenset[int]:
    """The operators of a view that do not run in it if these are given, and these."""
    return frozenset(range(len(kernel.tree.nodes))) - kernel.tree.from_top(len(kernel.tree.nodes) - 1, numbers)


def _given(reading: Reading, givers: Mapping[str, TreeView]) -> dict[int, str]:
    """The operators of a view for which answers stand, each with the view whose answer it is; the topmost ones."""
    tree, found = reading.kernel.tree, dict[int, str]()
    for number in reversed(range(len(tree.nodes) - 1)):
        node = tree.nodes[number]
        if not isinstance(node, Aggregation) or node.single:
            continue
        if number not in tree.from_top(len(tree.nodes) - 1, found):
            continue  # only what is given already would read it
        if reading.is_patient and not may_be_given(reading.kernel, number):
            continue
        named = reading.named.get(number)
        able = (name for name in reading.reads if name in givers)
        giver = next((name for name in able if _keeps(givers[name].tree, tree, number, is_named=name == named)), None)
        if giver is not None:
            found[number] = giver
    return found


def _keeps(giver: Tree, tree: Tree, number: int, *, is_named: bool) -> bool:
    """Whether the answer of a view has the rows of an operator of another one.

    It may be kept by other operators below, such as those of live tuples, if the operator was read as that answer.
    """
    if not is_named:
        return kept_rows(giver, len(giver.nodes) - 1) == kept_rows(tree, number)
    node = tree.nodes[number]
    assert isinstance(node, Aggregation)
    return _asked(giver.root) == _asked(node)


def _asked(node: Aggregation) -> object:
    functions = [(one.function, one.type, one.sql) for one in node.plan.aggregates]
    return node.plan.shape, [(field.name, field.type) for field in node.fields], functions
