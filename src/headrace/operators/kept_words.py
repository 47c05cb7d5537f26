"""What the operators of a view keep, in words: each arrangement with its reason, and what need not be kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.explain.report import Arrangement, Subject
from headrace.operators.asked import DISTINCT, PERCENTILES, plain
from headrace.operators.group import GroupLayout
from headrace.operators.join import JoinLayout
from headrace.operators.layout import GROUPS, Arranged, Behind
from headrace.operators.naming import Naming, key_words, payload_words
from headrace.operators.not_in import NotInLayout
from headrace.operators.over import OverLayout
from headrace.operators.top import TopLayout
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Join
from headrace.plan.view import Shape

SIDES = ("left", "right")
_NAMES = {
    Behind.VALUE: "values",
    Behind.COMBINATION: "combinations",
    Behind.PAIR: "pairs",
    Behind.BIT: "bits",
}
_WHY = {
    Behind.COMBINATION: "DISTINCT counts a value as long as any row has it",
    Behind.PAIR: "in the order of the first, so that what stands beside the least or the greatest is found at the ends",
    Behind.BIT: "BIT_AND and BIT_OR ask how many values of a group have a bit",
}


@dataclass(frozen=True)
class NotKept:
    """Something that an operator need not keep, and why."""

    what: str
    why: str


def arrangements(kernel: TreeView, naming: Naming, subject: Subject) -> list[Arrangement]:
    """Everything that the operators keep, and why; what a memory budget has dropped is left out."""
    return [
        Arrangement.of(f"[{number}]", name, keys, payload, why, subject.size(part))
        for number in sorted(kernel.own)
        for part, name, keys, payload, why in _kept(kernel, naming, number)
        if part not in kernel.unkept
    ]


def _kept(kernel: TreeView, naming: Naming, number: int) -> Iterator[tuple[str, str, str, str, str]]:
    """The arrangements of an operator: part, name, keys, payload and reason."""
    layout = kernel.layouts[number]
    if isinstance(layout, GroupLayout):
        yield from _kept_groups(naming, layout)
    elif isinstance(layout, TopLayout):
        names = naming.port(number, 0)
        row = _row([names[place] for place in layout.rows.places])
        in_order = "in their order, so that the next rows are read where the first ones end"
        yield layout.rows_part, "all rows", row, "count", in_order
        yield layout.top_part, "first rows", row, "count", "rows that come are compared with these, not with all"
    elif isinstance(layout, OverLayout):
        names, keys = naming.port(number, 0), layout.node.keys
        row = _row([*names[:keys], *(names[keys + place] for place in layout.rows.tail.places)])
        first = layout.node.first is not None
        found = "so that the first ones are read and no others" if first else "so that those of a partition are found"
        yield layout.rows_part, "all rows", row, "count", f"by partition, each in its order, {found}"
    elif isinstance(layout, JoinLayout):
        for side, part in enumerate(layout.parts):
            why = kernel.keeping.why_kept(number, side)
            if why is not None:
                some = "waiting " if side == 0 and layout.settles else ""
                yield part, f"{some}{SIDES[side]} rows", _row(naming.port(number, side)), "count", why
    if isinstance(layout, NotInLayout):
        why = "whether the subquery has any value, and any NULL, decides about all rows"
        yield layout.seen_part, "values and NULLs", "(values, NULLs)", "count", why


def _kept_groups(naming: Naming, layout: GroupLayout) -> Iterator[tuple[str, str, str, str, str]]:
    view = naming.groups(layout)
    for one in view.arrangements:
        part, keys = layout.part(one), key_words(view, one)
        if one == GROUPS:
            name = "rows" if view.plan.shape is Shape.ROWS else "groups"
            yield part, name, keys, payload_words(view), _why_groups(layout)
            continue
        if one in view.frequencies:
            name = f"frequencies of {view.plan.arguments[view.frequencies[one]]}"
            yield part, name, keys, "count", "MODE is the first of these; when it leaves, the next one"
            continue
        arranged = view.values[one]
        names = ", ".join(str(view.plan.arguments[i]) for i in arranged.arguments)
        yield part, f"{_NAMES[arranged.behind]} of {names}", keys, "count", _why_values(layout, arranged)


def not_kept(kernel: TreeView, number: int) -> Iterator[NotKept]:
    """What an operator could keep and does not."""
    layout = kernel.layouts[number]
    if isinstance(layout, GroupLayout) and layout.view.plan.shape is not Shape.ROWS and layout.view.plan.aggregates:
        yield NotKept("rows", "groups are sums, from which a row is taken away again")
    if not isinstance(layout, JoinLayout):
        return
    for side, name in enumerate(SIDES):
        if kernel.keeping.why_kept(number, side) is None:
            yield NotKept(f"{name} rows", f"the {SIDES[1 - side]} side never changes, so nothing looks for partners")
        if side == 0 and layout.settles:
            yield NotKept("settled left rows", "a row with a partner always has one: the right side only grows")
        if _may_lack_key(layout.node, side):
            passes = "are given as they come" if layout.passes_absent(side) else "are left out"
            yield NotKept(f"some {name} rows", f"those whose key is NULL have no partner, and {passes}")


def _why_groups(layout: GroupLayout) -> str:
    if not layout.name:
        return "the answer is read from it"
    return "what a changed group was is taken back, and what it is now is given"


def _why_values(layout: GroupLayout, arranged: Arranged) -> str:
    if arranged.behind in _WHY:
        return _WHY[arranged.behind]
    functions, said = layout.view.functions(arranged.arguments[0]), []
    if functions & {"min", "max"}:
        said.append("when the first value leaves, MIN and MAX need the next one")
    if functions & DISTINCT:
        said.append("DISTINCT counts a value as long as any row has it")
    if {plain(function) for function in functions} & PERCENTILES:
        said.append("percentiles move along them, as many as a step changes")
    if "mode" in functions:
        said.append("MODE needs to know how often each occurs")
    if {"listagg", "listagg_distinct"} & functions:
        said.append("LISTAGG reads all values of the groups that change")
    return "; ".join(said) or "the pairs with a text are found by the text that is first among these"


def _may_lack_key(node: Join, side: int) -> bool:
    keys = zip(node.ports[side].fields, node.safe, strict=False)
    return any(field.nullable and not safe for field, safe in keys)


def _row(names: Sequence[str]) -> str:
    return f"({', '.join(names)})"
