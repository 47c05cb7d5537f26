"""The text of an explanation, for people at a terminal.

Plans over wide tables have hundreds of variables, most of them columns of one relation that nothing is joined on. So
the text shows what a reader decides by (where relations meet, what is kept, what a change costs) and counts the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.factorized.order import Node
from headrace.factorized.order_text import parse
from headrace.plan.lines import (
    DEEPEST,
    WIDTH,
    counted,
    cut,
    labelled,
    last_step,
    listed,
    one_line,
    printable,
    wrapped,
)

if TYPE_CHECKING:
    from headrace.factorized.explain import JoinExplanation, ViewExplained

BY_KEY = "by its whole key"
_LOCALS = 3  # how many local variables of a relation are named
_READERS = 36  # up to so many characters relations are named, else counted


def to_text(e: JoinExplanation) -> str:
    """Write an explanation as lines of at most 120 characters."""
    lines = wrapped(f"{e.kind} {e.view}: {e.strategy} maintenance of a join, because {e.why}", "", "    ")
    lines += labelled("join", _shape(e))
    lines += labelled("keys", ", ".join(e.keys) or "(none: one group)")
    lines += labelled("evaluated", f"by {e.evaluated_by}: {e.evaluated_why}")
    if e.order:
        lines += labelled("order", e.order_why)
        for root in parse(e.order).roots:
            lines += _order(e, root)
    answer = e.views[0]
    lines += labelled(
        "payload", f"of the answer: {cut(answer.payload, 4 * WIDTH)}; of other views: what their relations have of it"
    )
    kept = sum(view.kept for view in e.views)
    lines += labelled(
        "state", f"{e.state_bytes:,} bytes in {e.buckets} buckets; {kept} of {len(e.views)} views are kept"
    )
    lines += _table(e)
    if len(e.stages) == 1:
        lines += labelled("partition", f"{f'by {e.partition}' if e.partition else 'none'}: {e.partition_why}")
    for i, stage in enumerate(e.stages if len(e.stages) > 1 else []):
        made = (
            f"{stage['computes']} from {', '.join(stage['from'])}, partitioned by {stage['partition']}: {stage['why']}"
        )
        lines += labelled("stages" if i == 0 else "", f"{i + 1}. {made}")
    if e.replicated:
        lines += labelled("replicated", f"{', '.join(e.replicated)}: stored once, and read by every bucket")
    if e.proposal:
        lines += labelled("proposal", e.proposal)
    if e.static:
        lines += labelled("static", f"{', '.join(e.static)}: filled once, and what only filling needs is not kept")
    lines += labelled("exchange", e.exchanges)
    lines += labelled("a step", e.estimated)
    lines += _triggers(e)
    lines += last_step(e.last_step)
    return printable(lines)


def _shape(e: JoinExplanation) -> str:
    count = Counter(variable for variables in e.relations.values() for variable in variables)
    shared = sum(times > 1 for times in count.values())
    return (
        f"of {counted(len(e.relations), 'relation')} over {counted(len(count), 'variable')}, {shared} of them shared"
        f"; the query is {listed(e.classes) or 'cyclic'}"
    )


def _order(e: JoinExplanation, root: Node) -> Iterator[str]:
    written = {node.variable for node in root.subtree()}
    stack = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        stack += [(child, depth + 1) for child in reversed(node.children)]
        stop = " (not summed here)" if node.stop_pushdown else ""
        start = f"    {'  ' * min(depth, DEEPEST)}{one_line(node.variable)}{stop}"
        relations = [_relation(name, [v for v in e.relations[name] if v not in written]) for name in node.relations]
        if not relations:
            yield cut(start, WIDTH)
            continue
        line = f"{start}: {', '.join(relations)}"
        if len(line) <= WIDTH:
            yield line
            continue
        yield cut(f"{start}: {relations[0]}", WIDTH)
        for relation in relations[1:]:  # a relation a line, below each other
            yield cut(f"{' ' * len(start)}  {relation}", WIDTH)


def _relation(name: str, local: Sequence[str]) -> str:
    shown = list(map(one_line, local if len(local) <= _LOCALS + 1 else [*local[:_LOCALS], f"+{len(local) - _LOCALS}"]))
    return f"{one_line(name)}({', '.join(shown)})" if shown else one_line(name)


def _table(e: JoinExplanation) -> Iterator[str]:
    rows = [
        (
            f"{'  ' * min(depth, DEEPEST)}{one_line(view.name)}",
            "not kept" if not view.kept else "kept once" if view.replicated else "kept",
            f"{view.degree:,}",
            f"{view.entries:,}" if view.kept else "",
            f"{view.bytes:,}" if view.kept else "",
            _readers(e, view),
        )
        for view, depth in _tree(e)
    ]
    head = ("view", "", "sums" if e.kind == "view" else "features", "entries", "bytes", "joined with changes of")
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(5)]
    widths[0] = min(widths[0], WIDTH - 4 - 10 - len(head[5]) - sum(widths[1:5]))
    last = WIDTH - 4 - 10 - sum(widths)
    for name, state, degree, entries, size, readers in [head, *rows]:
        yield (
            f"    {cut(name, widths[0]):{widths[0]}}  {state:{widths[1]}}  {degree:>{widths[2]}}  "
            f"{entries:>{widths[3]}}  {size:>{widths[4]}}  {cut(readers, last)}"
        ).rstrip()


def _tree(e: JoinExplanation) -> Iterator[tuple[ViewExplained, int]]:
    """The views with their depth: children under their parent, or one list where views are shared."""
    if e.strategy != "factorized":
        yield from ((view, 0) for view in sorted(e.views, key=lambda view: view.relation is not None))
        return
    by_name = {view.name: view for view in e.views}
    stack = [(e.views[0], 0)]
    while stack:
        view, depth = stack.pop()
        yield view, depth
        stack += [(by_name[child], depth + 1) for child in reversed(view.children)]


def _readers(e: JoinExplanation, view: ViewExplained) -> str:
    if view is e.views[0]:
        return "(the answer)"
    if not view.read_by:
        return "(no relation)"
    others = [name for name in e.relations if name not in e.static and name not in view.changes]
    if len(others) > 2 and sorted(view.read_by) == sorted(others):
        return "all other relations"
    named = ", ".join(map(one_line, view.read_by))
    return named if len(named) <= _READERS else f"{len(view.read_by)} relations"


def _triggers(e: JoinExplanation) -> Iterator[str]:
    changing = [trigger for trigger in e.triggers if not trigger["static"]]
    short = _short_names(e, changing)
    for trigger in changing:
        yield cut(f"    {one_line(trigger['relation'])}: {trigger['cost']}", WIDTH)
        own, same = _own_statements(trigger, changing)
        for statement in own:
            found = statement["found"]
            product = " * ".join([change_of(short[statement["changed"]]), *(short[name] for name in found)])
            yield from wrapped(f"{change_of(short[statement['target']])} += {product}", " " * 6, " " * 10)
            for how in dict.fromkeys(found.values()):
                if how != BY_KEY:
                    names = ", ".join(short[name] for name in found if found[name] == how)
                    yield from wrapped(f"{names}: found {how}", " " * 8, " " * 10)
        if same:
            yield cut(f"      then as for {one_line(same)}", WIDTH)


def _own_statements(trigger: dict[str, Any], triggers: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """The statements up to where the rest is that of an earlier trigger, and the relation of that one.

    Paths meet on their way up a tree, so without this most of a deep tree's text would be said many times.
    """
    mine = trigger["statements"]
    for own in range(len(mine) - 1):  # a rest of one statement is as short as its mention
        for earlier in triggers[: triggers.index(trigger)]:
            if earlier["statements"][own - len(mine) :] == mine[own:]:
                return mine[:own], earlier["relation"]
    return mine, ""


def change_of(name: str) -> str:
    """What the change of a view is called."""
    return f"d{name}" if name.startswith("V_") else f"d({name})"


def _short_names(e: JoinExplanation, triggers: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Names for statements: without keys, which the views above show, where lines would be too long with them."""
    short = {view.name: one_line(view.name).removesuffix(f"[{one_line(', '.join(view.keys))}]") for view in e.views}
    longest = max((len(s["text"]) for trigger in triggers for s in trigger["statements"]), default=0)
    if longest + 6 <= WIDTH or len(set(short.values())) < len(short):
        return {name: one_line(name) for name in short}
    return short
