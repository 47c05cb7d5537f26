"""The text of an explanation of a view kept by operators, for people at a terminal.

The tree comes first, from the answer down to the tables, with all that happens on the way: that is the query as it is
kept. Where operators run, what they keep and what went through them follows, each by the operator's number in brackets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.plan.lines import DEEPEST, WIDTH, counted, cut, labelled, last_step, listed, one_line, printable, wrapped

if TYPE_CHECKING:
    from headrace.operators.explained import FeedExplained, OperatorExplained, OperatorsExplanation, PortExplained

_NAME = 40  # the longest name of an arrangement that is shown whole
_EXPRESSION = 2 * WIDTH  # characters of a condition, or of what is computed


def to_text(e: OperatorsExplanation) -> str:
    """Write an explanation as lines of at most 120 characters."""
    lines = wrapped(f"view {e.view}: kept by {e.strategy}, because {e.why}", "", "    ")
    lines += labelled(
        "operators",
        f"{counted(len(e.operators), 'operator')} in {counted(len(e.stages), 'stage')} over "
        f"{counted(len(e.sources), 'source')}, each above what it reads; their numbers are in brackets",
    )
    lines += _tree(e)
    lines += _finish(e)
    lines += labelled("evaluated", f"by {e.evaluated_by}: {cut(e.evaluated_why, 4 * WIDTH)}")
    lines += _stages(e)
    lines += _everywhere(e)
    lines += _exchanges(e)
    lines += labelled("state", f"{e.state_bytes:,} bytes in {counted(e.buckets, 'bucket')}")
    lines += _arrangements(e)
    lines += _reasons("kept", ((a.why, a.name, a.operator) for a in e.arrangements))
    lines += _reasons("not kept", ((n.why, n.what, o.number) for o in reversed(e.operators) for n in o.not_kept))
    lines += labelled("a step", e.estimated)
    lines += last_step(e.last_step)
    lines += _traffic(e)
    return printable(lines)


# -- the tree -------------------------------------------------------------------------------------------------------


def _tree(e: OperatorsExplanation) -> Iterator[str]:
    """Each operator below the one that reads it, and tables below those; one that several read is written out once."""
    seen: set[int] = set()
    answer = e.operators[0]
    waiting: list[tuple[int, str, int | None]] = [(0, _operator(answer), answer.number)]
    while waiting:
        depth, text, number = waiting.pop()
        indent = " " * (4 + 2 * min(depth, DEEPEST))
        again = number in seen
        yield from wrapped(f"{text} (as above)" if again else text, indent, f"{indent}    ")
        if number is not None and not again:
            seen.add(number)
            below = [(depth + more, line, its) for more, line, its in _below(e, e.operator(number))]
            waiting += reversed(below)


def _below(e: OperatorsExplanation, operator: OperatorExplained) -> Iterator[tuple[int, str, int | None]]:
    """What an operator reads: how much deeper it stands, its line, and its number if it is an operator."""
    for port in operator.ports:
        side = f"{port.side}: " if port.side else ""
        if len(port.feeds) > 1:
            yield 1, f"{side}UNION ALL of", None
        deeper = 2 if len(port.feeds) > 1 else 1
        for feed in port.feeds:
            name = feed.source if feed.producer is None else _operator(e.operator(feed.producer))
            start = side if deeper == 1 else ""
            yield deeper, f"{start}{one_line(name)}{_on_the_way(feed)}", feed.producer


def _operator(operator: OperatorExplained) -> str:
    between = " " if operator.takes == "rows" else ": "
    return f"[{operator.number}] {operator.kind}{between}{cut(one_line(operator.said), _EXPRESSION)}"


def _on_the_way(feed: FeedExplained) -> str:
    """What happens to rows before they enter an operator."""
    said = []
    if feed.condition is not None:
        said.append(f"where {cut(one_line(feed.condition), _EXPRESSION)}")
    if feed.computes:
        said.append(f"computing {cut(one_line(', '.join(feed.computes)), _EXPRESSION)}")
    if feed.times is not None:
        said.append(f"each {one_line(feed.times)} times")
    if feed.catalyst is not None:
        said.append("evaluated by Catalyst")
    if not said:
        return ""
    return f"{' ' if feed.producer is None else '; then '}{', '.join(said)}"


def _finish(e: OperatorsExplanation) -> Iterator[str]:
    """What is made of the answer's groups or rows."""
    yield from labelled("columns", cut(", ".join(map(one_line, e.columns)), 4 * WIDTH))
    if e.having is not None:
        yield from labelled("having", f"{cut(one_line(e.having), 4 * WIDTH)} (when read)")
    if e.order:
        yield from labelled("order", f"{', '.join(map(one_line, e.order))} (when read)")


# -- where operators run --------------------------------------------------------------------------------------------


def _stages(e: OperatorsExplanation) -> Iterator[str]:
    yield from labelled(
        "stages",
        f"{len(e.stages)}, none of them for a filter or a projection alone: these happen on the way. Within a stage "
        "nothing moves",
    )
    for stage in e.stages:
        numbers = [f"[{number}]" for number in stage.operators]
        shared = f"{listed(numbers)}, one after the other in every bucket"
        if not numbers:
            shared = "rows are only handed on: a total has its first row from the next stage on"
        if len(numbers) != 1:
            yield from _item(f"stage {stage.number}: {shared}", 4)
        for number in stage.operators:
            operator = e.operator(number)
            said = f"[{number}] {one_line(operator.where)}: {operator.why}"
            yield from _item(said, 6) if len(numbers) > 1 else _item(f"stage {stage.number}: {said}", 4)


def _everywhere(e: OperatorsExplanation) -> Iterator[str]:
    label = "everywhere"
    for operator in e.operators:
        for port in operator.ports:
            if port.everywhere is not None:
                yield from labelled(
                    label, f"{_named(port)}, the {port.side} side of [{operator.number}]: {port.everywhere}"
                )
                label = ""


def _exchanges(e: OperatorsExplanation) -> Iterator[str]:
    yield from labelled(
        "exchange", f"none for batches that the driver has and native expressions; else {e.exchanges}, of"
    )
    for moved in e.exchanged:
        yield from _item(moved, 4)


def _named(port: PortExplained) -> str:
    return listed([one_line(feed.name) for feed in port.feeds])


def _item(text: str, indent: int) -> list[str]:
    return wrapped(text, " " * indent, " " * (indent + 4))


# -- what they keep -------------------------------------------------------------------------------------------------


def _arrangements(e: OperatorsExplanation) -> Iterator[str]:
    head = ("arrangement", "entries", "runs", "bytes", "holds")
    rows = [
        (
            f"[{a.operator}] {one_line(a.name)}",
            f"{a.entries:,}",
            f"{a.runs:,}",
            f"{a.bytes:,}",
            f"{one_line(a.keys)} -> {one_line(a.payload)}",
        )
        for a in e.arrangements
    ]
    widths = [min(_NAME, width) if i == 0 else width for i, width in enumerate(_widths([head, *rows], 4))]
    last = WIDTH - 4 - 8 - sum(widths)
    for name, entries, runs, size, holds in [head, *rows]:
        yield (
            f"    {cut(name, widths[0]):{widths[0]}}  {entries:>{widths[1]}}  {runs:>{widths[2]}}  "
            f"{size:>{widths[3]}}  {cut(holds, last)}"
        ).rstrip()


def _widths(rows: Sequence[Sequence[str]], columns: int) -> list[int]:
    return [max(len(row[i]) for row in rows) for i in range(columns)]


def _reasons(label: str, kept: Iterable[tuple[str, str, int]]) -> Iterator[str]:
    """What operators keep, or do not, by the reason for it."""
    by_reason: dict[str, dict[str, list[str]]] = {}
    for why, what, number in kept:
        by_reason.setdefault(why, {}).setdefault(one_line(what), []).append(f"[{number}]")
    for why, things in by_reason.items():
        said = listed([f"{what} of {listed(numbers)}" for what, numbers in things.items()])
        yield from labelled(label, f"{said}: {why}")
        label = ""


# -- what went through them -----------------------------------------------------------------------------------------


def _traffic(e: OperatorsExplanation) -> Iterator[str]:
    if not e.last_step:
        return
    if not any(operator.taken or operator.given for operator in e.operators):
        yield from labelled("", "none of its rows came to an operator of this view")
        return
    head = ("operator", "took", "gave")
    rows = [(f"[{o.number}] {o.kind}", _taken(o), "" if o.given is None else str(o.given)) for o in e.operators]
    widths = _widths([head, *rows], 2)
    for operator, took, gave in [head, *rows]:
        yield f"    {operator:{widths[0]}}  {took:{widths[1]}}  {gave}".rstrip()
    yield from labelled("", "+ inserted, - deleted, ~ updated")


def _taken(operator: OperatorExplained) -> str:
    if operator.taken is None:
        return ""
    if operator.takes == "rows":
        return str(operator.taken)
    return counted(operator.taken.inserted, operator.takes.removesuffix("s"))
