"""EXPLAIN of what views share: one section in the report on a view, and a report on the whole engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace.engine.catalogue import Catalogue
from headrace.engine.definition import PlannedView
from headrace.engine.opening import AUTO, EXACT, OFF
from headrace.engine.reader import Reader
from headrace.explain.graph import Edge, Graph, Node
from headrace.explain.parts import Fact, Outline, Part, Section, Table
from headrace.explain.report import Report
from headrace.explain.words import counted, cut, listed, one_line
from headrace.operators.traffic import cost_of
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Feed, Tree
from headrace.thrifty.share.blocks import Block, blocks_of
from headrace.thrifty.share.masks import is_mask
from headrace.thrifty.share.orders import pairs_of
from headrace.thrifty.share.patience import can_wait, may_be_given
from headrace.thrifty.share.plan import Shared

_LONG = 160  # characters of a condition
_WHY = {
    AUTO: "joins that are the same but for the columns that views read are shared; where filters differ, if that is "
    "estimated to be less work",
    EXACT: "joins that are the same but for the columns that views read are shared",
    OFF: "sharing is off",
}


@dataclass(frozen=True)
class SharedReport:
    """What is known of a shared subplan.

    Parameters
    ----------
    operators : its own operators.
    instead_of : the operators of its members that it stands for.
    differ_on : the tables on whose rows members have different conditions; their rows carry masks.
    rows, cpu : rows through its operators in the last step, and CPU seconds.
    eager : the views because of which it follows every step; none if its changes wait.
    paces : per view with a goal whose triggers have been planned: how often it is brought up to date until then.
    """

    name: str
    views: tuple[str, ...]
    tables: tuple[str, ...]
    operators: int
    instead_of: int
    differ_on: tuple[str, ...]
    entries: int
    bytes: int
    rows: int
    cpu: float
    eager: tuple[str, ...]
    paces: Mapping[str, int]

    def __str__(self) -> str:
        joins = counted(self.operators, "join")
        said = f"{joins} over {listed(self.tables)} in place of {self.instead_of}, for {listed(self.views)}"
        if self.differ_on:
            said += f"; conditions on {listed(self.differ_on)} differ, so rows carry a mask of the views that want them"
        return f"{said}; {counted(self.entries, 'entry', 'entries')}, {self.bytes:,} bytes"

    @property
    def runs(self) -> str:
        """When it is brought up to date, in words."""
        if self.eager:
            return f"in every step, because of {listed(self.eager)}"
        if not self.paces:
            return "when one of its views needs it; until then changes wait before it"
        often = listed([f"{pace} for {view}" for view, pace in self.paces.items()])
        return f"so many times until the trigger of a view: {often}; between them changes wait before it"


def shared_reports(catalogue: Catalogue, reader: Reader) -> list[SharedReport]:
    """All subplans that views share, as of the last step."""
    return [_one(name, catalogue, reader) for name in catalogue.shared]


def shared_section(view: PlannedView, catalogue: Catalogue, reader: Reader) -> Section:
    """What a view shares with others; a section without parts if it shares nothing."""
    given = view.kernel.given if isinstance(view.kernel, TreeView) else {}
    facts = (
        Fact(one.by, f"gives what [{number}] would: {_one(one.by, catalogue, reader)}")
        for number, one in sorted(given.items())
    )
    return Section("shared", tuple(facts))


def engine_report(catalogue: Catalogue, reader: Reader, mode: str) -> Report:
    """Report on all views of an engine: which subplans they share, and which of them share nothing, and why."""
    found, views = shared_reports(catalogue, reader), catalogue.views
    alone = {name: _why_alone(view, catalogue, mode) for name, view in views.items() if not _sharing(view)}
    saved = sum(one.instead_of - one.operators for one in found)
    sections = [Section(f"shared subplan {one.name}", tuple(_parts(one, catalogue))) for one in found]
    rows = tuple((name, why) for name, why in alone.items())
    return Report(
        name="engine",
        kind="engine",
        sql="",
        strategy=mode,
        title=f"engine: {counted(len(views), 'view')}, {counted(len(found), 'shared subplan')}",
        kept=f"{reader.state_bytes:,} bytes in {counted(reader.buckets, 'bucket')}, of which shared subplans have "
        f"{sum(one.bytes for one in found):,}",
        step=f"runs {counted(saved, 'join')} fewer than views that share nothing",
        why=_WHY[mode],
        buckets=reader.buckets,
        arrangements=(),
        sections=(*sections, *([Section("views that share nothing", (Table(("view", "why"), rows),))] if rows else [])),
        graph=_graph(found, catalogue),
        values={"shared": tuple(found), "alone": alone},
        last_step={key: value for key, value in reader.summary.items() if key != "operators"},
    )


def _one(name: str, catalogue: Catalogue, reader: Reader) -> SharedReport:
    shared = catalogue.shared[name]
    kernel, eager = shared.kernel, tuple(view for view in shared.views if not reader.has_goal(view))
    paces = {view: reader.progress(view).paces.get(name) for view in shared.views if view not in eager}
    states = [state for part in kernel.arrangements for state in reader.states(name, part).values()]
    cost = cost_of(reader.summary, name)
    return SharedReport(
        name=name,
        views=shared.views,
        tables=kernel.tree.tables,
        operators=len(kernel.tree.nodes),
        instead_of=sum(member.joins for member in shared.members),
        differ_on=tuple(dict.fromkeys(f.table for f in _leaves(kernel.tree) if any(map(is_mask, f.outputs)))),
        entries=sum(run.rows for state in states for run in state.runs),
        bytes=sum(run.bytes for state in states for run in state.runs),
        rows=sum(rows for rows, _ in cost.values()),
        cpu=sum(cpu for _, cpu in cost.values()),
        eager=eager,
        paces={view: pace for view, pace in paces.items() if pace is not None},
    )


def _leaves(tree: Tree) -> Iterator[Feed]:
    return (feed for _, _, _, feed in tree.feeds() if feed.producer is None)


def _sharing(view: PlannedView) -> bool:
    return isinstance(view.kernel, TreeView) and bool(view.kernel.given)


def _why_alone(view: PlannedView, catalogue: Catalogue, mode: str) -> str:
    if mode == OFF:
        return "sharing is off"
    if not isinstance(view.kernel, TreeView):
        return f"it is kept by the strategy {view.definition.strategy!r}, which has no operators"
    if view.is_final:
        return "its windows close, which takes rows out of its operators"
    if not all(catalogue.schemas[table].kept for table in view.tables):
        return "one of its tables keeps no rows, from which a shared subplan could be filled"
    if not (blocks := blocks_of(view.kernel.tree)):
        return "it has no inner join of tables by equal keys alone; other operators are not shared"
    if view.definition.freshness is not None and not _may_wait(view.kernel):
        return (
            "it has a goal, and rows that a shared subplan gave could not wait for it: on the way to its operators "
            "they may fail, or meet rows of a table"
        )
    mine = _pairs(blocks)
    others = [
        name
        for name, other in catalogue.views.items()
        if other is not view and isinstance(other.kernel, TreeView) and mine & _pairs(blocks_of(other.kernel.tree))
    ]
    if others:
        return f"it has joins in common with {listed(others)}: to share them would be more work, as estimated"
    return "no other view joins the same tables by the same keys"


def _pairs(blocks: Mapping[int, Block]) -> set[str]:
    return {pair for block in blocks.values() for pair in pairs_of(block)}


def _may_wait(kernel: TreeView) -> bool:
    return can_wait(kernel) and any(may_be_given(kernel, number) for number in blocks_of(kernel.tree))


def _parts(one: SharedReport, catalogue: Catalogue) -> Iterator[Part]:
    shared = catalogue.shared[one.name]
    yield Fact("is", str(one))
    yield Fact("runs", one.runs)
    yield Fact("last step", f"{counted(one.rows, 'changed row')} through its operators, {1e3 * one.cpu:.1f} ms of CPU")
    lines = []
    for number, node in enumerate(shared.kernel.tree.nodes):
        sources = [
            feed.table if feed.producer is None else f"[{feed.producer}]" for p in node.ports for feed in p.feeds
        ]
        text = getattr(node, "text", "")
        lines.append((0, f"[{number}] {listed(sources)} on {cut(one_line(text), _LONG)}"))
    yield Outline(tuple(lines))
    yield Table(("view", "operator", "given by", "rows"), tuple(_member_rows(shared, catalogue)))


def _member_rows(shared: Shared, catalogue: Catalogue) -> Iterator[tuple[str, str, str, str]]:
    """Which rows each member wants, in the words of its own tree."""
    for member in shared.members:
        kernel = catalogue.views[member.view].kernel
        assert isinstance(kernel, TreeView)
        inside = kernel.tree.from_top(member.number)
        conditions = (f.condition for number, _, _, f in kernel.tree.feeds() if number in inside)
        wanted = [one_line(condition.sql) for condition in conditions if condition is not None]
        yield member.view, f"[{member.number}]", f"[{member.feed.producer}]", cut(" AND ".join(wanted), _LONG) or "all"


def _graph(found: list[SharedReport], catalogue: Catalogue) -> Graph:
    """Views on top, shared subplans in the middle, tables below."""
    nodes: list[Node] = []
    edges: list[Edge] = []
    read: dict[str, None] = {}
    for name, view in catalogue.views.items():
        nodes.append(Node(name, "view", 0, (name, view.definition.strategy), about=one_line(view.definition.sql)))
        through = {side.table for side in view.kernel.sides}
        edges += [Edge(name, f"table {table}") for table in view.tables if table in through]
        read |= dict.fromkeys(table for table in view.tables if table in through)
    for one in found:
        lines = (f"shared subplan {one.name}", f"{counted(one.operators, 'join')} in place of {one.instead_of}")
        nodes.append(Node(one.name, "shared", 1, lines, (f"{one.bytes:,} bytes kept",), str(one)))
        edges += [Edge(view, one.name) for view in one.views]
        edges += [Edge(one.name, f"table {table}") for table in one.tables]
        read |= dict.fromkeys(one.tables)
    nodes += [Node(f"table {table}", "table", 2, (table,)) for table in read]
    return Graph(tuple(nodes), tuple(edges))
