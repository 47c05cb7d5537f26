"""The report on a view over a foreign-key join: the graph, who is alive in it, and where rows meet.

What such a view costs depends on rows that change state, and which rows are dead, and on whom they wait, is what a
user looks for when an answer lacks something. Both are in the sizes of arrangements, once these have names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.explain.graph import Edge, Graph, Node
from headrace.explain.layers import longest_paths
from headrace.explain.parts import Cell, Fact, Outline, Part, Section, Table
from headrace.explain.report import THEORY, Arrangement, Report, Subject, last_step, state
from headrace.explain.words import counted, cut, listed
from headrace.foreign.chain import ChainPlan, Join
from headrace.foreign.view import ForeignView
from headrace.operators.layout import GROUPS
from headrace.operators.naming import having_words, key_words, payload_words
from headrace.plan.rows import written
from headrace.plan.view import Shape

_LONG = 240  # characters of a condition


@dataclass(frozen=True)
class SourceExplained:
    """One source of the join: which rows of its table take part, and how many of them are alive."""

    name: str
    table: str
    key: tuple[str, ...]  # columns of the table
    condition: str | None
    rows: int  # of those that meet the condition and have no NULL in a foreign key: L(R) and N(R)
    live: int | None  # L(R); None where it is not known: for a root whose joined rows have a condition of their own
    dead: int | None  # N(R)
    asserted: tuple[str, ...]  # what must agree where several ways bring it
    replicated: bool
    why: str  # why it is replicated


@dataclass(frozen=True)
class ReferenceExplained:
    """A source refers to another: by what, how many rows wait for it, and where the two meet."""

    parent: str
    child: str
    key: tuple[str, ...]
    position: int  # which child of its parent is waited for first, from 1
    waiting: int | None  # dead rows of the parent that have come to this child and no further
    asserted: tuple[str, ...]  # what is compared beyond the key
    stage: int  # from 1
    partition: tuple[str, ...] | None
    where: str
    why: str


def report(
    kernel: ForeignView, subject: Subject, keys: Mapping[str, tuple[str, ...]], rows: Mapping[str, int]
) -> Report:
    """Report on a view over a foreign-key join.

    Parameters
    ----------
    keys : the key columns of each table.
    rows : how many rows each arrangement stands for (equal ones are one entry), those of the answer included.
    """
    chain, asked, plan = kernel.chain, kernel.rows, kernel.layout.plan
    counts = _Counts(kernel, rows)
    sources = {
        source: SourceExplained(
            name=source,
            table=asked.source(source).table,
            key=keys.get(asked.source(source).table, ()),
            condition=None if (condition := asked.source(source).condition) is None else str(condition),
            rows=counts.rows(source),
            live=(live := counts.live(source)),
            dead=None if live is None else counts.rows(source) - live,
            asserted=chain.graph.asserted[source],
            replicated=source in chain.replicated,
            why="; ".join(dict.fromkeys(j.why for j in chain.joins if j.child == source in chain.replicated)),
        )
        for source in reversed(chain.graph.sources)
    }
    references = tuple(
        ReferenceExplained(
            parent=join.parent,
            child=join.child,
            key=join.key,
            position=join.position + 1,
            waiting=counts.waiting(join),
            asserted=join.asserted,
            stage=join.level + 1,
            partition=join.partition,
            where=_where(chain, join),
            why=join.why,
        )
        for join in chain.joins
    )
    kept = _arrangements(kernel, subject)
    size, groups = sum(a.bytes for a in kept), subject.size(GROUPS).live
    live_rows = sum(rows[GROUPS] if source.live is None else source.live for source in sources.values())
    root = chain.graph.root
    values = {
        "root": root,
        "sources": tuple(sources.values()),  # the root first, parents before their children
        "references": references,  # in the order in which rows pass them
        "replicated": tuple(source.name for source in sources.values() if source.replicated),
        "condition": None if asked.condition is None else written(asked.condition),  # over joined rows
        "shape": plan.shape.value,  # groups | total | rows
        "keys": tuple(map(written, asked.keys)),
        "arguments": tuple(map(written, asked.arguments)),
        "having": None if plan.having is None else having_words(kernel.layout),
        "answer_rows": rows[GROUPS],  # joined rows in the answer
        "groups": groups,
        "groups_stay": kernel.stays,
        "groups_where": _groups_where(kernel),
        "exchanges": len(kernel.stages),
        "exchange": _exchange(kernel),
        "live_rows": live_rows,  # of all sources together
        "bytes_per_live_row": size / live_rows if live_rows else None,
        "evaluated_by": subject.evaluated[0],
        "evaluated_why": subject.evaluated[1],
    }
    least = "at least " if sources[root].live is None else ""
    every = sum(source.rows for source in sources.values())
    per_row = f", {size / live_rows:,.0f} a live row" if live_rows else ""
    return Report.of(
        subject,
        how=f"a join of {counted(len(sources), 'source')} kept along its foreign keys, from {root}",
        kept=(
            f"{least}{live_rows:,} of {every:,} rows live and the others waiting, {size:,} bytes in "
            f"{counted(subject.buckets, 'bucket')}{per_row}"
        ),
        step=_estimated(chain),
        arrangements=kept,
        sections=[
            Section("plan", tuple(_plan(values, sources))),
            Section("state", (state(kept), Fact("answer", _answer(values, sources[root])))),
            Section("stages", tuple(_stages(values, len(kernel.stages)))),
            last_step(subject.last_step),
            Section(
                THEORY,
                (
                    Fact("live", "a row is alive, in L(R), if it meets a live row of every source that it refers to"),
                    Fact(
                        "dead",
                        "a row waits, in N(R), for the first that it does not meet; how many it has passed is the "
                        "counter s(t) of Cquirrel",
                    ),
                    *(
                        Fact(
                            "asserted",
                            f"{listed(r.asserted)} must be the same by every way to {r.parent}: compared when "
                            f"{r.parent} meets {r.child}",
                        )
                        for r in references
                        if r.asserted
                    ),
                ),
            ),
        ],
        graph=_graph(values, sources),
        values=values,
    )


def _plan(values: Mapping[str, Any], sources: Mapping[str, SourceExplained]) -> Iterator[Part]:
    facts = {
        "where": f"{cut(values['condition'], _LONG)} (of joined rows)" if values["condition"] else "",
        "columns" if values["shape"] == "rows" else "keys": ", ".join(values["keys"]) or "(none: one group)",
        "arguments": "" if values["shape"] == "rows" else ", ".join(values["arguments"]) or "(none)",
        "having": f"{values['having']} (when read)" if values["having"] else "",
        "evaluated": f"by {values['evaluated_by']}: {values['evaluated_why']}",
    }
    yield from (Fact(label, text) for label, text in facts.items() if text)
    yield Table(("source", "key", "found by", "rows", "live", "dead", "waiting"), tuple(_graph_rows(values, sources)))
    label = "rows of"
    for source in sources.values():
        if source.condition is not None:
            yield Fact(label, f"{source.name}: {cut(source.condition, _LONG)}")
            label = ""


def _children(values: Mapping[str, Any], name: str) -> list[ReferenceExplained]:
    """What a source refers to, in the order in which its rows wait."""
    return [reference for reference in values["references"] if reference.parent == name]


def _graph_rows(values: Mapping[str, Any], sources: Mapping[str, SourceExplained]) -> Iterator[tuple[Cell, ...]]:
    """Each source below those that refer to it; one that several ways lead to is written out once."""
    seen: set[str] = set()
    stack: list[tuple[str, ReferenceExplained | None, int]] = [(values["root"], None, 0)]
    while stack:
        name, reference, depth = stack.pop()
        source = sources[name]
        shown = f"{'  ' * min(depth, 12)}{_named(source)}"
        by = "" if reference is None else ", ".join(reference.key)
        if name in seen:
            yield f"{shown} ^", "", by, None, None, None, "^ as above"
            continue
        seen.add(name)
        children = _children(values, name)
        stack += [(child.child, child, depth + 1) for child in reversed(children)]
        waits = ", ".join(f"{_number(c.waiting)} for {c.child}" for c in children if c.waiting != 0)
        yield shown, ", ".join(source.key) or "(none)", by, source.rows, source.live, source.dead, waits


def _named(source: SourceExplained) -> str:
    return source.name if source.name == source.table else f"{source.name} ({source.table})"


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _answer(values: Mapping[str, Any], root: SourceExplained) -> str:
    rows, groups = counted(values["answer_rows"], "joined row"), values["groups"]
    shapes = {
        "groups": f"in {counted(groups, 'group')}",
        "total": "in one group",
        "rows": f"{groups:,} of them different",
    }
    said = f"{rows}, {shapes[values['shape']]}; {values['groups_where']}"
    if root.live is not None:
        return said
    most = root.rows - sum(child.waiting or 0 for child in _children(values, root.name))
    return (
        f"{said}. The condition is tested on joined rows, so of {root.name} it is only known that "
        f"{values['answer_rows']:,} to {counted(most, 'row')} are alive"
    )


def _stages(values: Mapping[str, Any], stages: int) -> Iterator[Part]:
    lines = [
        f"{r.stage}. {r.parent} with {r.child}, {cut(r.where, _LONG)}: {r.why}"
        for r in sorted(values["references"], key=lambda reference: reference.stage)
    ]
    if not values["groups_stay"]:
        lines.append(f"{stages}. groups, by hash of their keys")
    yield Outline(tuple((0, line) for line in lines))
    if values["replicated"]:
        yield Fact("replicated", f"{', '.join(values['replicated'])}: stored once, and read by every bucket")
    yield Fact("exchange", values["exchange"])


def _graph(values: Mapping[str, Any], sources: Mapping[str, SourceExplained]) -> Graph:
    """The foreign-key graph from the root down, with the share of live rows of each source."""
    references = values["references"]
    depth = longest_paths(values["root"], [(reference.parent, reference.child) for reference in references])
    nodes = []
    for source in sources.values():
        live = values["answer_rows"] if source.live is None else source.live
        said = f"{live:,} in the answer, {source.rows:,} rows"
        if source.live is not None:
            said = f"{source.live:,} live, {source.dead:,} dead"
        about = f"{source.name}, of table {source.table}; {said}"
        nodes.append(
            Node(
                source.name,
                "replicated" if source.replicated else "kept",
                depth[source.name],
                (_named(source), f"[{', '.join(source.key)}]" if source.key else "no key", said),
                (source.condition or "all rows",),
                f"{about}; in every bucket: {source.why}" if source.replicated else about,
                live / source.rows if source.rows else 0,
            )
        )
    edges = []
    for r in references:
        lines = [", ".join(r.key), *([f"= {', '.join(r.asserted)}"] if r.asserted else [])]
        about = f"{r.parent} refers to {r.child} by {', '.join(r.key)}; stage {r.stage}, {r.where}: {r.why}"
        about += f"; {', '.join(r.asserted)} must agree with what other ways bring" if r.asserted else ""
        waiting = [f"{r.waiting:,} wait"] if r.waiting else []
        edges.append(Edge(r.parent, r.child, "asserted" if r.asserted else "joined", (*lines, *waiting), about))
    return Graph(tuple(nodes), tuple(edges))


@dataclass(frozen=True)
class _Counts:
    """Live and dead rows: each row waits in the first arrangement of its chain that it cannot leave."""

    kernel: ForeignView
    in_arrangement: Mapping[str, int]

    def rows(self, source: str) -> int:
        """All rows of a source that take part: N(R) and L(R)."""
        chain = self.kernel.chain.of(source)
        return self.in_arrangement[chain[0].waiting] if chain else self._awaited(source)

    def live(self, source: str) -> int | None:
        """The live rows of a source, L(R). Those of the root are not kept, but each of them is a joined row."""
        if source != self.kernel.chain.graph.root:
            return self._awaited(source)
        answer, reached = self.in_arrangement[GROUPS], self.in_arrangement[self.kernel.chain.final.waiting]
        # A condition on joined rows is tested after the join, so what it drops was alive, and nobody counted it.
        return answer if self.kernel.rows.condition is None or answer == reached else None

    def waiting(self, join: Join) -> int | None:
        """Rows that have come to this join and not passed it: the paper's s(t) is the number of joins passed."""
        chain = self.kernel.chain.of(join.parent)
        passed = self.live(join.parent) if join.last else self.in_arrangement[chain[join.position + 1].waiting]
        return None if passed is None else self.in_arrangement[join.waiting] - passed

    def _awaited(self, source: str) -> int:
        return self.in_arrangement[next(j.live for j in self.kernel.chain.joins if j.child == source)]


def _where(chain: ChainPlan, join: Join) -> str:
    if join.partition is None:
        return "in every bucket"
    if set(join.partition) == set(chain.graph.variables[join.parent]) != set(join.key):
        return "by hash of the whole row"
    return f"by hash of {', '.join(join.partition)}"


def _groups_where(kernel: ForeignView) -> str:
    if kernel.layout.plan.shape is Shape.ROWS:
        return "they stay in the bucket in which they come out of the last join"
    if not kernel.stays:
        return "summed over buckets, because the rows of a group come out of the last join in several"
    by = kernel.chain.final.partition or ()
    return (
        f"groups stay in the bucket in which their rows come out of the last join: {listed(by)} "
        f"{'is' if len(by) == 1 else 'are'} among their keys"
    )


def _exchange(kernel: ForeignView) -> str:
    chain = kernel.chain
    replicated = [source for source in reversed(chain.graph.sources) if source in chain.replicated]
    to_all = f" (those of {', '.join(replicated)} to every bucket)" if replicated else ""
    total = len(kernel.stages)
    said = [f"one of changed rows, by what they are joined on first{to_all}"]
    if chain.levels > 1:
        said.append(f"{chain.levels - 1} between stages, of rows that come to life or die")
    if not kernel.stays:
        said.append("one of changes of groups, summed before it")
    return f"none for batches that the driver has and native expressions; else {total}: {'; '.join(said)}"


def _estimated(chain: ChainPlan) -> str:
    root = chain.graph.root
    children = [join.child for join in chain.of(root)]
    one = "one row each of" if len(children) > 1 else "one row of"
    return (
        f"costs in proportion to the rows that come, go, come to life or die: a row of {root} looks up {one} "
        f"{listed(children)}; a change of any other source reaches every row that waits for it"
    )


def _arrangements(kernel: ForeignView, subject: Subject) -> list[Arrangement]:
    found: dict[str, tuple[str, str, str, str]] = {}
    for join in kernel.chain.joins:
        copies = sum(other.child == join.child for other in kernel.chain.joins)
        live = f"L({join.child}){f' for {join.parent}' if copies > 1 else ''}"
        found[join.waiting] = (
            f"I({join.parent}, {join.child})",
            f"({', '.join(join.left)})",
            "count",
            f"rows that wait for {join.child}",
        )
        found[join.live] = (live, f"({', '.join(join.right)})", "count", f"what rows of {join.parent} look for")
    layout = kernel.layout
    for part in layout.arrangements:
        payload = payload_words(layout) if part == GROUPS else "count"
        found[part] = (_answer_name(kernel, part), key_words(layout, part), payload, "the answer is read from it")
    return [Arrangement.of("", *found[part], subject.size(part)) for part in kernel.arrangements]


def _answer_name(kernel: ForeignView, part: str) -> str:
    arguments = [written(kernel.rows.arguments[i]) for i in kernel.layout.values.get(part, ())]
    if not arguments:
        return part
    return f"{'values' if len(arguments) == 1 else 'combinations'} of {', '.join(arguments)}"
