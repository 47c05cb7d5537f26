"""The text of an explanation of a foreign-key join, for people at a terminal.

The graph comes first, as a tree from the root down, with the live and the dead rows of every source beside it: an
answer that lacks rows is explained by the line where they wait. A source that several ways lead to is written out once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

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
    from headrace.foreign.explain import ForeignExplanation, ReferenceExplained, SourceExplained

_NAME = 40  # the longest name of an arrangement that is shown whole
_SHORTEST, _WAITING = 20, 30  # names of sources and keys are not cut further; what rows wait for has this much room
_UNKNOWN = "?"


def to_text(e: ForeignExplanation) -> str:
    """Write an explanation as lines of at most 120 characters."""
    lines = wrapped(f"view {e.view}: {e.strategy} maintenance of a join, because {e.why}", "", "    ")
    lines += labelled(
        "join",
        f"of {counted(len(e.sources), 'source')} along {counted(len(e.references), 'reference')}: every joined row "
        f"belongs to one row of {one_line(e.root)}",
    )
    lines += _output(e)
    lines += labelled("evaluated", f"by {e.evaluated_by}: {e.evaluated_why}")
    lines += labelled(
        "graph",
        "a row is alive if it meets a live row of every source that it refers to; a dead row waits for the first that "
        "it does not meet (how many it has passed is the counter s(t) of Cquirrel)",
    )
    lines += _graph(e)
    lines += _conditions(e)
    lines += _assertions(e)
    lines += labelled("answer", _answer(e))
    lines += _stages(e)
    if e.replicated:
        names = ", ".join(map(one_line, e.replicated))
        lines += labelled("replicated", f"{names}: stored once, and read by every bucket")
    per_row = "" if e.bytes_per_live_row is None else f", {e.bytes_per_live_row:,.0f} a live row"
    lines += labelled("state", f"{e.state_bytes:,} bytes in {e.buckets} buckets{per_row}")
    lines += _arrangements(e)
    lines += labelled("exchange", e.exchange)
    lines += labelled("a step", e.estimated)
    lines += last_step(e.last_step)
    return printable(lines)


def _output(e: ForeignExplanation) -> Iterator[str]:
    """What is made of joined rows."""
    if e.condition is not None:
        yield from labelled("where", f"{cut(e.condition, 4 * WIDTH)} (of joined rows)")
    yield from labelled("columns" if e.shape == "rows" else "keys", ", ".join(e.keys) or "(none: one group)")
    if e.shape != "rows":
        yield from labelled("arguments", ", ".join(e.arguments) or "(none)")
    if e.having is not None:
        yield from labelled("having", f"{e.having} (when read)")


def _graph(e: ForeignExplanation) -> Iterator[str]:
    head = ("source", "key", "found by", "rows", "live", "dead", "waiting")
    rows = [_graph_row(e, *line) for line in _tree(e)]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(6)]
    over = 4 + sum(widths) + 2 * len(widths) + _WAITING - WIDTH
    for i in range(3):  # names are cut where they leave no room for the last column
        less = max(0, min(over, widths[i] - _SHORTEST))
        widths[i], over = widths[i] - less, over - less
    for name, key, by, total, live, dead, waiting in [head, *rows]:
        words = [f"{cut(word, width):{width}}" for word, width in zip((name, key, by), widths, strict=False)]
        numbers = [f"{number:>{width}}" for number, width in zip((total, live, dead), widths[3:], strict=True)]
        start = f"    {'  '.join([*words, *numbers])}  "
        yield from (line.rstrip() for line in wrapped(waiting, start, " " * min(len(start), WIDTH - _WAITING)))


def _tree(
    e: ForeignExplanation,
) -> Iterator[tuple[SourceExplained, ReferenceExplained | None, int, bool]]:
    """Each source below those that refer to it: how it is reached, how deep, and whether it was there before."""
    seen: set[str] = set()
    stack: list[tuple[str, ReferenceExplained | None, int]] = [(e.root, None, 0)]
    while stack:
        name, reference, depth = stack.pop()
        yield e.source(name), reference, depth, name in seen
        if name not in seen:
            seen.add(name)
            stack += [(child.child, child, depth + 1) for child in reversed(e.children(name))]


def _graph_row(
    e: ForeignExplanation, source: SourceExplained, reference: ReferenceExplained | None, depth: int, again: bool
) -> tuple[str, ...]:
    name = f"{'  ' * min(depth, DEEPEST)}{_named(source)}"
    by = "" if reference is None else one_line(", ".join(reference.key))
    if again:
        return f"{name} ^", "", by, "", "", "", "^ as above"
    counts = (_number(source.rows), _number(source.live), _number(source.dead))
    return name, one_line(", ".join(source.key)) or "(none)", by, *counts, _waiting(e, source)


def _named(source: SourceExplained) -> str:
    name, table = one_line(source.name), one_line(source.table)
    return name if name == table else f"{name} ({table})"


def _number(count: int | None) -> str:
    return _UNKNOWN if count is None else f"{count:,}"


def _waiting(e: ForeignExplanation, source: SourceExplained) -> str:
    """For whom dead rows wait."""
    waits = [child for child in e.children(source.name) if child.waiting != 0]
    return ", ".join(f"{_number(child.waiting)} for {one_line(child.child)}" for child in waits)


def _conditions(e: ForeignExplanation) -> Iterator[str]:
    filtered = [source for source in e.sources if source.condition is not None]
    for i, source in enumerate(filtered):
        label = "rows of" if i == 0 else ""
        yield from labelled(label, f"{one_line(source.name)}: {cut(one_line(str(source.condition)), 2 * WIDTH)}")


def _assertions(e: ForeignExplanation) -> Iterator[str]:
    for i, reference in enumerate(reference for reference in e.references if reference.asserted):
        parent, child = one_line(reference.parent), one_line(reference.child)
        same = f"{listed(reference.asserted)} must be the same by every way to {parent}"
        yield from labelled("asserted" if i == 0 else "", f"{same}: compared when {parent} meets {child}")


def _answer(e: ForeignExplanation) -> str:
    rows = counted(e.answer_rows, "joined row")
    groups = {
        "groups": f"in {counted(e.groups, 'group')}",
        "total": "in one group",
        "rows": f"{e.groups:,} of them different",
    }
    said = f"{rows}, {groups[e.shape]}; {e.groups_where}"
    if e.source(e.root).live is not None:
        return said
    most = e.source(e.root).rows - sum(child.waiting or 0 for child in e.children(e.root))
    return (
        f"{said}. The condition is tested on joined rows, so of {one_line(e.root)} it is only known that "
        f"{e.answer_rows:,} to {counted(most, 'row')} are alive"
    )


def _stages(e: ForeignExplanation) -> Iterator[str]:
    by_stage = sorted(e.references, key=lambda reference: reference.stage)
    for i, reference in enumerate(by_stage):
        parent, child = one_line(reference.parent), one_line(reference.child)
        said = f"{reference.stage}. {parent} with {child}, {cut(reference.where, WIDTH)}: {reference.why}"
        yield from labelled("stages" if i == 0 else "", said)
    if not e.groups_stay:
        yield from labelled("", f"{e.stages}. groups, by hash of their keys")


def _arrangements(e: ForeignExplanation) -> Iterator[str]:
    rows = [
        (one_line(a.name), f"{a.entries:,}", f"{a.runs:,}", f"{a.bytes:,}", f"{one_line(a.keys)} -> {a.payload}")
        for a in e.arrangements
    ]
    yield from _aligned(("arrangement", "entries", "runs", "bytes", "holds"), rows)


def _aligned(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(4)]
    widths[0] = min(widths[0], _NAME)
    last = WIDTH - 4 - 8 - sum(widths)
    for name, entries, runs, size, holds in [head, *rows]:
        yield (
            f"    {cut(name, widths[0]):{widths[0]}}  {entries:>{widths[1]}}  {runs:>{widths[2]}}  "
            f"{size:>{widths[3]}}  {cut(holds, last)}"
        ).rstrip()
