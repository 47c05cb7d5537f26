"""The report on a view kept by operators.

The tree of operators comes first, the answer on top. Then follow where operators run, what they keep and how many rows
went through them; each operator is named by its number in brackets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.explain.graph import Band, Edge, Graph, Node
from headrace.explain.parts import Fact, Outline, Part, Section, Table
from headrace.explain.report import THEORY, Arrangement, Report, Subject, last_step, state
from headrace.explain.words import counted, cut, listed, one_line
from headrace.operators.alive import Alive
from headrace.operators.described import Described, DescribedFeed, DescribedOperator, DescribedPort, ordered
from headrace.operators.kept_words import arrangements
from headrace.operators.naming import written
from headrace.operators.reach import reach_of
from headrace.operators.traffic import passing
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Aggregation, Join, JoinKind, Over, Top
from headrace.plan.view import Shape

_LONG = 240  # characters of an expression, or of a list of names


@dataclass(frozen=True)
class Source:
    """One source of the query: one occurrence of a table."""

    name: str
    table: str
    rows: int  # of the table now
    static: bool


def report(
    kernel: TreeView,
    subject: Subject,
    *,
    extra: Mapping[int, Mapping[str, Any]] | None = None,
) -> Report:
    """Report on a view kept by operators.

    Parameters
    ----------
    extra : further facts about operators, by number, from the rule that planned the tree; shown beside them.
    """
    described = Described(kernel, passing(subject), extra or {})
    tree = _Tree(
        described,
        {
            feed.source: Source(feed.source, feed.table, subject.rows.get(feed.table, 0), feed.table in kernel.static)
            for _, _, _, feed in kernel.tree.feeds()
            if feed.producer is None
        },
        arrangements(kernel, described.naming, subject),
    )
    by, why = described.evaluated()
    exchanged = described.exchanged()
    finish = tree.finish()
    return Report.of(
        subject,
        how=f"kept by {_operators(kernel)} over {counted(len(kernel.tree.tables), 'table')}",
        kept=f"{_size(tree.arrangements, subject)}: {_things((a.name, a.owner) for a in tree.arrangements)}",
        step=tree.step(),
        arrangements=tree.arrangements,
        sections=[
            Section("plan", (*tree.plan(), *finish.values(), Fact("evaluated", f"by {by}: {cut(why, 2 * _LONG)}"))),
            Section("state", tuple(tree.state())),
            Section("stages", tuple(tree.stages(exchanged))),
            last_step(subject.last_step, *tree.traffic()),
            Section(THEORY, tuple(tree.theory())),
        ],
        graph=tree.graph(),
        values={
            "operators": tree.operators,
            "sources": tuple(tree.sources.values()),
            "stages": described.stages,
            "exchanges": len(exchanged),  # at most: small steps need none
            "exchanged": exchanged,
            "evaluated_by": by,
            "evaluated_why": why,
            **tree.answer(),
        },
    )


@dataclass(frozen=True)
class _Tree:
    """The described operators of a view, with what they read and keep."""

    described: Described
    sources: Mapping[str, Source]
    arrangements: Sequence[Arrangement]

    @property
    def operators(self) -> tuple[DescribedOperator, ...]:
        return self.described.operators

    def operator(self, number: int) -> DescribedOperator:
        return self.operators[len(self.operators) - 1 - number]

    @property
    def _follows_keys(self) -> bool:
        """Whether the tree follows foreign keys, so that it is known which rows are alive."""
        return any(isinstance(found, Alive) for operator in self.operators for found in operator.extra.values())

    # -- in plain words -----------------------------------------------------------------------------------------------

    def step(self) -> str:
        """What a step costs."""
        joins = [(number, node) for number, node in enumerate(self.described.nodes) if isinstance(node, Join)]
        said = ["costs in proportion to the rows that change and the groups that they touch"]
        if joins:
            said = ["costs in proportion to the rows that change and to those that match them, operator by operator"]
        if self._follows_keys:
            said.append("a row finds one partner at most at a join, and who comes to life reaches all who wait for it")
        if crossed := [f"[{number}]" for number, node in joins if not node.keys]:
            said.append(f"{listed(crossed)} compares every changed row with all rows of the other side")
        if unknown := [f"[{number}]" for number, node in joins if node.kind is JoinKind.NULL_AWARE]:
            said.append(f"{listed(unknown)} asks all rows again when the first value or NULL comes, or the last leaves")
        if first := [f"[{number}]" for number, node in enumerate(self.described.nodes) if isinstance(node, Top)]:
            said.append(f"{listed(first)} {_reads(len(first))} on behind its first rows when many of these have left")
        over = [(f"[{number}]", node) for number, node in enumerate(self.described.nodes) if isinstance(node, Over)]
        if first := [number for number, node in over if node.first is not None]:
            said.append(
                f"{listed(first)} {_reads(len(first))} the first rows of the partitions that change, and no others"
            )
        reaching = [number for number, node in over if reach_of(node) is not None]
        if reaching:
            said.append(f"{listed(reaching)} {_reads(len(reaching))} the rows whose frames reach the rows that change")
        over = [(number, node) for number, node in over if number not in reaching]
        if whole := [number for number, node in over if node.first is None and node.keys]:
            said.append(
                f"{listed(whole)} {_reads(len(whole))} the partitions that change, as they were and as they are"
            )
        if every := [number for number, node in over if node.first is None and not node.keys]:
            said.append(f"{listed(every)} {_reads(len(every))} all rows, because they are one partition")
        return "; ".join(said)

    def theory(self) -> Iterator[Part]:
        """Why a change of the answer follows from changes of tables."""
        nodes = self.described.nodes
        kinds = {node.kind for node in nodes if isinstance(node, Join)}
        if JoinKind.INNER in kinds:
            yield Fact("join", "d(L x R) = dL x (R + dR) + L x dR: pairs are a product, and so is their change")
        if kinds - {JoinKind.INNER}:
            yield Fact(
                "partners",
                "a row is given by whether the number m of its partners is above zero; it is asked again only if rows "
                "that match it changed, and the difference between before and after is what the step changes",
            )
        if self._follows_keys:
            yield Fact(
                "alive",
                "a row is alive, in L(R), if it meets a live row of all that it refers to; one that waits, in N(R), "
                "has passed as many joins as the counter s(t) of Cquirrel says",
            )
        shapes = {node.plan.shape for node in nodes if isinstance(node, Aggregation)}
        if shapes & {Shape.GROUPS, Shape.TOTAL}:
            yield Fact("groups", "are sums over a ring, so the change of a group is the sum of the rows that change")
        if Shape.ROWS in shapes:
            yield Fact("rows", "are a bag: each different row with its count, and a change adds to the count")

    # -- the plan -----------------------------------------------------------------------------------------------------

    def plan(self) -> Iterator[Part]:
        yield Outline(tuple(self._outline()))
        for operator in self.operators:
            if operator.extra:
                yield Fact(operator.name, "; ".join(f"{label}: {value}" for label, value in operator.extra.items()))

    def _outline(self) -> Iterator[tuple[int, str]]:
        """The tree as indented lines: each operator below its reader; the inputs of a shared one once."""
        seen: set[int] = set()
        answer = self.operators[0]
        waiting: list[tuple[int, str, int | None]] = [(0, _said(answer), answer.number)]
        while waiting:
            depth, text, number = waiting.pop()
            again = number in seen
            yield depth, f"{text} (as above)" if again else text
            if number is not None and not again:
                seen.add(number)
                below = [(depth + more, line, its) for more, line, its in self._below(self.operator(number))]
                waiting += reversed(below)

    def _below(self, operator: DescribedOperator) -> Iterator[tuple[int, str, int | None]]:
        """What an operator reads: per input, its extra depth, its line, and its number if it is an operator."""
        for port in operator.ports:
            side = f"{port.side}: " if port.side else ""
            deeper = 2 if len(port.feeds) > 1 else 1
            if deeper > 1:
                yield 1, f"{side}UNION ALL of", None
            for feed in port.feeds:
                name = feed.source if feed.producer is None else _said(self.operator(feed.producer))
                start = side if deeper == 1 else ""
                yield deeper, f"{start}{one_line(name)}{_on_the_way(feed)}", feed.producer

    def answer(self) -> dict[str, Any]:
        """How the answer follows from its groups or rows: columns, condition and order."""
        plan, naming, last = self.described.kernel.layout.plan, self.described.naming, len(self.described.nodes) - 1

        def named(field: str) -> str:
            return naming.given(last, field)

        hidden = {one.name: written(one.expression, named) for one in plan.outputs if one not in plan.shown}
        return {
            "columns": tuple(_called(output.name, written(output.expression, named)) for output in plan.shown),
            "having": None if plan.having is None else written(plan.having, named, longest=None),
            "order": tuple(
                ordered(hidden.get(item.column, item.column), item.descending, item.nulls_first) for item in plan.order
            ),
        }

    def finish(self) -> dict[str, Fact]:
        """The columns, condition and order of `answer`, as facts."""
        answer = self.answer()
        said = {
            "columns": cut(", ".join(map(one_line, answer["columns"])), 2 * _LONG),
            "having": answer["having"] and f"{cut(one_line(answer['having']), 2 * _LONG)} (when read)",
            "order": answer["order"] and f"{', '.join(map(one_line, answer['order']))} (when read)",
        }
        return {label: Fact(label, text) for label, text in said.items() if text}

    # -- what is kept, where it runs, what went through it ------------------------------------------------------------

    def state(self) -> Iterator[Part]:
        yield state(self.arrangements)
        yield from _reasons("kept", ((a.why, a.name, a.owner) for a in self.arrangements))
        own = [operator for operator in reversed(self.operators) if not operator.shared]
        yield from _reasons("not kept", ((n.why, n.what, o.name) for o in own for n in o.not_kept))

    def stages(self, exchanged: Sequence[str]) -> Iterator[Part]:
        yield Outline(tuple(self._stages()))
        label = "everywhere"
        for operator in (operator for operator in self.operators if not operator.shared):
            for port in operator.ports:
                if port.everywhere is not None:
                    named = listed([one_line(feed.name) for feed in port.feeds])
                    yield Fact(label, f"{named}, the {port.side} side of {operator.name}: {port.everywhere}")
                    label = ""
        yield Fact(
            "exchange", f"none for batches that the driver has and native expressions; else {len(exchanged)}, of"
        )
        yield Outline(tuple((0, moved) for moved in exchanged))

    def _stages(self) -> Iterator[tuple[int, str]]:
        for stage in self.described.stages:
            numbers = [f"[{number}]" for number in stage.operators]
            shared = f"{listed(numbers)}, one after the other in every bucket"
            if not numbers and any(operator.shared for operator in self.operators):
                shared = "shared subplans run"
            elif not numbers:
                shared = "rows are only handed on: a total has its first row from the next stage on"
            if len(numbers) != 1:
                yield 0, f"stage {stage.number}: {shared}"
            for number in stage.operators:
                operator = self.operator(number)
                said = f"{operator.name} {one_line(operator.where)}: {operator.why}"
                yield (1, said) if len(numbers) > 1 else (0, f"stage {stage.number}: {said}")

    def traffic(self) -> Iterator[Part]:
        """How many rows went through the operators in the last step."""
        if not any(operator.taken or operator.given for operator in self.operators):
            yield Fact("", "none of its rows came to an operator of this view")
            return
        yield Table(
            ("operator", "took", "gave"),
            tuple(
                (f"{o.name} {o.kind}", o.took, "" if o.given is None else str(o.given))
                for o in self.operators
                if not o.shared
            ),
        )
        yield Fact("", "+ inserted, - deleted, ~ updated")

    # -- the graph ----------------------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        """Operators in bands, one per stage, with the tables below them."""
        depth = self._depths()
        lowest = 1 + max(depth.values())
        bands = []
        for stage in self.described.stages:
            if rows := [depth[number] for number in stage.operators]:
                bands.append(Band(f"stage {stage.number}", min(rows), max(rows)))
        return Graph(
            (
                *(self._node(operator, depth[operator.number]) for operator in self.operators),
                *(self._table(feed, lowest) for feed in self._read()),
            ),
            tuple(_edge(operator, port, feed) for operator in self.operators for port, feed in operator.feeds),
            tuple(bands),
        )

    def _depths(self) -> dict[int, int]:
        """The layer of each operator: below its readers in the same stage, and above all earlier stages."""
        own = {operator.number: 0 for operator in self.operators}
        for operator in self.operators:  # each before those it reads from
            for _, feed in operator.feeds:
                if feed.producer is not None and self.operator(feed.producer).stage == operator.stage:
                    own[feed.producer] = max(own[feed.producer], own[operator.number] + 1)
        found, top = {}, 0
        for stage in sorted({operator.stage for operator in self.operators}, reverse=True):
            members = [operator.number for operator in self.operators if operator.stage == stage]
            found.update({number: top + own[number] for number in members})
            top += 1 + max(own[number] for number in members)
        return found

    def _node(self, operator: DescribedOperator, layer: int) -> Node:
        kept = [arrangement for arrangement in self.arrangements if arrangement.owner == operator.name]
        lines = [f"{operator.name} {operator.kind}", operator.said]
        if operator.shared:
            lines.append(f"by {_giver(operator.shared)}")
        elif operator.taken is not None:
            lines += [f"took {operator.took}", f"gave {operator.given}"]
        lines += [f"{label}: {value}" for label, value in operator.extra.items()]
        about = f"{operator.kind} {operator.said}; stage {operator.stage}, {operator.where}: {operator.why}"
        about += f"; keeps {', '.join(arrangement.name for arrangement in kept)}"
        notes = () if operator.shared else (f"{sum(arrangement.bytes for arrangement in kept):,} bytes kept",)
        shares = [found.share for found in operator.extra.values() if isinstance(found, Alive)]
        kind = "elsewhere" if operator.shared else "operator"
        return Node(operator.name, kind, layer, tuple(lines), notes, about, shares[0] if shares else None)

    def _table(self, feed: DescribedFeed, layer: int) -> Node:
        source = self.sources[feed.source]
        about = f"{source.name}, of table {source.table}"
        about += f"; rows where {feed.condition}" if feed.condition is not None else "; all rows"
        condition = () if feed.condition is None else (f"where {feed.condition}",)
        return Node(
            source.name,
            "static" if source.static else "table",
            layer,
            (source.name, counted(source.rows, "row")),
            condition,
            f"{about}; never changes" if source.static else about,
        )

    def _read(self) -> Iterator[DescribedFeed]:
        """The feeds that read tables, from left to right."""
        waiting = [feed for _, feed in self.operators[0].feeds]
        seen: set[int] = set()
        while waiting:
            feed = waiting.pop(0)
            if feed.producer is None:
                yield feed
            elif feed.producer not in seen:
                seen.add(feed.producer)
                waiting = [*(below for _, below in self.operator(feed.producer).feeds), *waiting]


def _operators(kernel: TreeView) -> str:
    """How many operators a view has, and which subplans it shares with others."""
    own, names = counted(len(kernel.own), "operator"), list(dict.fromkeys(one.by for one in kernel.given.values()))
    subplans = [name for name in names if _is_subplan(name)]
    given = {"shared subplan": subplans, "what is kept of view": [name for name in names if name not in subplans]}
    return listed([own, *(f"{what}{'s' * (len(of) > 1)} {listed(of)}" for what, of in given.items() if of)])


def _is_subplan(name: str) -> bool:
    return name.startswith("~")  # which begins no name of a view


def _giver(name: str) -> str:
    return f"shared subplan {name}" if _is_subplan(name) else f"view {name}"


def _size(arrangements: Sequence[Arrangement], subject: Subject) -> str:
    entries, size = sum(a.entries for a in arrangements), sum(a.bytes for a in arrangements)
    return f"{counted(entries, 'entry', 'entries')}, {size:,} bytes in {counted(subject.buckets, 'bucket')}"


def _things(kept: Iterable[tuple[str, str]]) -> str:
    """Things in one line of text, each followed by its owners."""
    by_name: dict[str, list[str]] = {}
    for name, owner in kept:
        by_name.setdefault(one_line(name), []).append(owner)
    return cut(listed([f"{name} of {listed(owners)}" for name, owners in by_name.items()]), _LONG)


def _reasons(label: str, kept: Iterable[tuple[str, str, str]]) -> Iterator[Fact]:
    """What operators keep (or do not keep), one fact per reason."""
    by_reason: dict[str, list[tuple[str, str]]] = {}
    for why, what, owner in kept:
        by_reason.setdefault(why, []).append((what, owner))
    for why, things in by_reason.items():
        yield Fact(label, f"{_things(things)}: {why}")
        label = ""


def _called(name: str, text: str) -> str:
    """A column of the answer: its name, and its expression unless the name says the same."""
    return name if name == text or text.endswith(f".{name}") else f"{name} = {text}"


def _reads(tops: int) -> str:
    return "reads" if tops == 1 else "read"


def _said(operator: DescribedOperator) -> str:
    between = " " if operator.takes == "rows" else ": "
    shared = f" (by {_giver(operator.shared)})" if operator.shared else ""
    return f"{operator.name} {operator.kind}{between}{cut(one_line(operator.said), _LONG)}{shared}"


def _on_the_way(feed: DescribedFeed) -> str:
    """What happens to rows before they enter an operator."""
    said = []
    if feed.condition is not None:
        said.append(f"where {cut(one_line(feed.condition), _LONG)}")
    if feed.computes:
        said.append(f"computing {cut(one_line(', '.join(feed.computes)), _LONG)}")
    if feed.times is not None:
        said.append(f"each {one_line(feed.times)} times")
    if feed.catalyst is not None:
        said.append("evaluated by Catalyst")
    if not said:
        return ""
    return f"{' ' if feed.producer is None else '; then '}{', '.join(said)}"


def _edge(operator: DescribedOperator, port: DescribedPort, feed: DescribedFeed) -> Edge:
    lines = ["stays" if feed.way == "stays" else feed.moves]
    if feed.producer is not None and feed.condition is not None:
        lines.append(f"where {feed.condition}")
    if feed.catalyst is not None:
        lines.append("by way of Catalyst")
    about = f"{feed.name} to {operator.name}{f', {port.side} side' if port.side else ''}: {feed.moves}"
    about += f"; where {feed.condition}" if feed.condition is not None else ""
    about += f"; computes {', '.join(feed.computes)}" if feed.computes else ""
    about += f"; Catalyst evaluates {feed.catalyst}" if feed.catalyst is not None else ""
    about += f"; in every bucket: {port.everywhere}" if port.everywhere is not None else ""
    return Edge(operator.name, feed.name, feed.way, tuple(lines), about)
