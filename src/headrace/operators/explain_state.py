"""What operators keep and what they need not keep, with the reasons and the sizes.

State is what such a view costs while nothing happens. So each arrangement says why it is there: who will look into it,
for what. And what is left out is said too, because a table declared static, or a key that is never NULL, may save it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headrace.operators.explained import ArrangementExplained, NotKept
from headrace.operators.group import GroupLayout
from headrace.operators.join import JoinLayout
from headrace.operators.layout import DISTINCT, GROUPS
from headrace.operators.naming import Naming
from headrace.operators.not_in import seen_part
from headrace.operators.top import TopLayout
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Join, JoinKind
from headrace.plan.view import Shape

Sizes = Mapping[str, Sequence[tuple[int, int, int]]]
"""For each arrangement: (runs, entries, bytes) of each bucket."""
Words = Mapping[str, tuple[str, str]]
"""For each arrangement of an aggregate: its keys and its payload, in words."""
SIDES = ("left", "right")

_Kept = tuple[str, str, str, str, str]  # part, name, keys, payload, why


def arrangements(kernel: TreeView, naming: Naming, sizes: Sizes, words: Words) -> list[ArrangementExplained]:
    """All arrangements of a view, by operator."""
    found = []
    for number, layout in enumerate(kernel.layouts):
        if isinstance(layout, JoinLayout):
            kept = _kept_by_join(kernel, naming, number, layout)
        elif isinstance(layout, TopLayout):
            kept = _kept_by_top(naming, number, layout)
        else:
            kept = _kept_by_group(naming, layout, words)
        for part, name, keys, payload, why in kept:
            runs, entries, size = (sum(bucket[i] for bucket in sizes.get(part, ())) for i in range(3))
            found.append(ArrangementExplained(number, name, keys, payload, why, runs, entries, size))
    return found


def _kept_by_join(kernel: TreeView, naming: Naming, number: int, layout: JoinLayout) -> Iterator[_Kept]:
    for side, part in enumerate(layout.parts):
        why = kernel.keeping.why_kept(number, side)
        if why is not None:
            some = "waiting " if side == 0 and layout.settles else ""
            yield part, f"{some}{SIDES[side]} rows", _tuple(naming.port(number, side)), "count", why
    if layout.node.kind is JoinKind.NULL_AWARE:
        yield (
            seen_part(layout),
            "values and NULLs",
            "(values, NULLs)",
            "count",
            "whether the subquery has any value, and any NULL, decides about all rows",
        )


def _kept_by_top(naming: Naming, number: int, layout: TopLayout) -> Iterator[_Kept]:
    fields = _tuple(naming.port(number, 0))
    yield layout.rows_part, "all rows", fields, "count", "when one of the first rows leaves, the next one is looked for"
    yield layout.top_part, "first rows", fields, "count", "rows that come are compared with these, and not with all"


def _kept_by_group(naming: Naming, layout: GroupLayout, words: Words) -> Iterator[_Kept]:
    view = naming.groups(layout)
    for plain in view.arrangements:
        part = layout.part(plain)
        if plain == GROUPS:
            rows = view.plan.shape is Shape.ROWS
            yield part, "rows" if rows else "groups", *words[part], _why_groups(layout)
            continue
        arguments = view.values[plain]
        names = ", ".join(str(view.plan.arguments[i]) for i in arguments)
        yield (
            part,
            f"{'values' if len(arguments) == 1 else 'combinations'} of {names}",
            *words[part],
            _why_values(layout, arguments),
        )


def _why_groups(layout: GroupLayout) -> str:
    if not layout.name:
        return "the answer is read from it"
    return "what a changed group was is taken back, and what it is now is given"


def _why_values(layout: GroupLayout, arguments: tuple[int, ...]) -> str:
    functions = layout.view.functions(arguments[0]) if len(arguments) == 1 else frozenset({"count_distinct"})
    said = []
    if functions & {"min", "max"}:
        said.append("when the first value leaves, MIN and MAX need the next one")
    if functions & DISTINCT:
        said.append("DISTINCT counts a value as long as any row has it")
    return "; ".join(said)


def not_kept(kernel: TreeView, number: int) -> Iterator[NotKept]:
    """What an operator could keep and does not."""
    layout = kernel.layouts[number]
    if isinstance(layout, GroupLayout):
        if layout.view.plan.shape is not Shape.ROWS and layout.view.plan.aggregates:
            yield NotKept("rows", "groups are sums, from which a row is taken away again")
        return
    if isinstance(layout, TopLayout):
        return
    for side, name in enumerate(SIDES):
        if kernel.keeping.why_kept(number, side) is None:
            yield NotKept(f"{name} rows", f"the {SIDES[1 - side]} side never changes, so nothing looks for partners")
        if side == 0 and layout.settles:
            yield NotKept("settled left rows", "a row with a partner always has one: the right side only grows")
        if _may_lack_key(layout.node, side):
            passes = "are given as they come" if layout.passes_absent(side) else "are left out"
            yield NotKept(f"some {name} rows", f"those whose key is NULL have no partner, and {passes}")


def _may_lack_key(node: Join, side: int) -> bool:
    keys = zip(node.ports[side].fields, node.safe, strict=False)
    return any(field.nullable and not safe for field, safe in keys)


def _tuple(names: Sequence[str]) -> str:
    return f"({', '.join(names)})"
