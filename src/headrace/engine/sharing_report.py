"""EXPLAIN of what views share: one section in the report on a view, and a report on the whole engine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.engine.catalogue import Catalogue
from headrace.engine.definition import PlannedView
from headrace.engine.opening import AUTO, EXACT, OFF
from headrace.engine.reader import Reader
from headrace.engine.sharing_graph import paces_said, runs_of_view, sharing_graph
from headrace.engine.sharing_work import SharedWork, shared_work
from headrace.engine.stacking import readers_of
from headrace.explain.parts import Fact, Outline, Part, Section, Table
from headrace.explain.report import Report
from headrace.explain.words import counted, cut, listed, one_line
from headrace.operators.naming import Naming
from headrace.operators.traffic import cost_of
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Feed, Join, JoinKind, Over, Top, Tree
from headrace.plan.view import Shape
from headrace.thrifty.share.apart import Apart
from headrace.thrifty.share.blocks import Block, blocks_of
from headrace.thrifty.share.masks import is_mask
from headrace.thrifty.share.orders import beginnings
from headrace.thrifty.share.patience import can_wait, may_be_given
from headrace.thrifty.share.plan import Shared

_LONG = 160  # characters of a condition
_WHY = {
    AUTO: "joins and groups that are the same but for the columns that views read are shared; where filters differ, "
    "if that is estimated to be less work",
    EXACT: "joins and groups that are the same but for the columns that views read are shared",
    OFF: "sharing is off",
}
_UNMERGED = "it is new: what it has in common with others is merged in the background"


@dataclass(frozen=True)
class SharedReport:
    """What is known of a shared subplan.

    Parameters
    ----------
    operators, are : how many operators it has, and which, in words.
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
    are: str
    instead_of: int
    differ_on: tuple[str, ...]
    entries: int
    bytes: int
    rows: int
    cpu: float
    eager: tuple[str, ...]
    paces: Mapping[str, int]

    def __str__(self) -> str:
        said = f"{self.are} over {listed(self.tables)} in place of {self.instead_of}, for {listed(self.views)}"
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

    @property
    def runs_briefly(self) -> str:
        """The same in a few words."""
        if self.eager:
            return "runs in every step"
        return paces_said(self.paces.values()) if self.paces else "runs when a view needs it"


def shared_reports(catalogue: Catalogue, reader: Reader) -> list[SharedReport]:
    """All subplans that views share, as of the last step."""
    return [_one(name, catalogue, reader) for name in catalogue.subplans]


def shared_section(view: PlannedView, catalogue: Catalogue, reader: Reader) -> Section:
    """What a view shares with others; a section without parts if it shares nothing."""
    given = view.kernel.given if isinstance(view.kernel, TreeView) else {}
    facts = (
        Fact(one.by, f"gives what [{number}] would: {_said(one.by, catalogue, reader)}")
        for number, one in sorted(given.items())
    )
    return Section("shared", tuple(facts))


def _said(name: str, catalogue: Catalogue, reader: Reader) -> str:
    if name in catalogue.subplans:
        return str(_one(name, catalogue, reader))
    return "it is the answer of that view, which hands on what changes in it"


def views_section(name: str, view: PlannedView, catalogue: Catalogue) -> Section:
    """Which views a view reads, and which read it; a section without parts if there are none."""
    given = {one.by for one in view.kernel.given.values()} if isinstance(view.kernel, TreeView) else set[str]()
    reads = tuple(Fact("reads", _how_read(inner, given, catalogue)) for inner in view.definition.views)
    readers = readers_of(name, catalogue.views)
    return Section("views", (*reads, *([Fact("read by", listed(readers))] if readers else [])))


def _how_read(inner: str, given: Collection[str], catalogue: Catalogue) -> str:
    if inner in given:
        return f"{inner}: what it keeps is kept once, and its changes are handed on"
    if inner not in catalogue.views:
        return inner
    view = catalogue.views[inner]
    if view.definition.freshness is not None:
        why = "its changes wait for a goal, and this view is as new as its tables"
    elif not isinstance(view.kernel, TreeView):
        why = f"it is kept by the strategy {view.definition.strategy!r}"
    else:
        why = "nothing in this view has to be kept of it, or it is not shared"
    return f"{inner}: its query is part of this one, over tables, because {why}"


def engine_report(catalogue: Catalogue, reader: Reader, mode: str) -> Report:
    """Report on all views of an engine: which subplans they share, and which of them share nothing, and why."""
    apart = tuple(map(Apart.from_json, reader.unshared))
    found, views = shared_reports(catalogue, reader), catalogue.views
    alone = {name: _why_alone(view, catalogue, mode) for name, view in views.items() if not _sharing(view)}
    alone |= {name: _UNMERGED for name in alone if name in reader.unmerged}
    fewer, work = sum(one.instead_of - one.operators for one in found), shared_work(catalogue, reader)
    sections = [Section(f"shared subplan {one.name}", tuple(_parts(one, work[one.name], catalogue))) for one in found]
    rows = tuple((name, why) for name, why in alone.items())
    return Report(
        name="engine",
        kind="engine",
        sql="",
        strategy=mode,
        title=f"engine: {counted(len(views), 'view')}, {counted(len(found), 'shared subplan')}",
        kept=f"{reader.state_bytes:,} bytes in {counted(reader.buckets, 'bucket')}, of which shared subplans have "
        f"{sum(one.bytes for one in found):,}",
        step=f"runs {counted(fewer, 'operator')} fewer than views that share nothing",
        why=_WHY[mode],
        buckets=reader.buckets,
        arrangements=(),
        sections=(
            *sections,
            *_apart(apart),
            *_waiting(catalogue, reader),
            *_stacked(catalogue),
            *([Section("views that share nothing", (Table(("view", "why"), rows),))] if rows else []),
        ),
        graph=sharing_graph(found, catalogue, reader, apart, work),
        values={
            "shared": tuple(found),
            "work": work,
            "paces": {name: dict(reader.progress(name).paces) for name in views if reader.has_goal(name)},
            "alone": alone,
            "apart": tuple(one.to_json() for one in apart),
        },
        last_step={key: value for key, value in reader.summary.items() if key != "operators"},
    )


def _waiting(catalogue: Catalogue, reader: Reader) -> Iterator[Section]:
    """How often the own operators of views with goals run; what each of their paths waits for is said by the view."""
    rows = tuple(
        (name, str(view.definition.freshness), runs_of_view(name, catalogue, reader))
        for name, view in catalogue.views.items()
        if reader.has_goal(name)
    )
    if rows:
        yield Section("views that wait", (Table(("view", "goal", "own operators"), rows),))


def _stacked(catalogue: Catalogue) -> Iterator[Section]:
    """Which views read which, and which of these are kept once."""
    rows = []
    for name, view in catalogue.views.items():
        given = [giver for giver, one in catalogue.answering.items() if name in one.views]
        if view.definition.views:
            rows.append((name, listed([*view.definition.views]), listed(given) if given else "nothing"))
    if rows:
        yield Section("views that read views", (Table(("view", "reads", "is handed the changes of"), tuple(rows)),))


def _apart(found: Sequence[Apart]) -> Iterator[Section]:
    """What was shared and is not any more, and why."""
    for one in found:
        paces = dict.fromkeys(one.views, 1) | dict(one.paces)
        yield Section(
            f"taken apart: {listed(one.tables)} for {listed(one.views)}",
            (
                Fact(
                    "why",
                    f"{_why_apart(one)}: {_work(one.before)} of work were estimated, and {_work(one.after)} apart",
                ),
                Fact("apart", listed([f"{view} needs it {counted(pace, 'time')}" for view, pace in paces.items()])),
            ),
        )


def _why_apart(one: Apart) -> str:
    if one.reached:
        return (
            f"at a trigger, {listed(one.reached)} had to wait for the rows of all of them, and "
            f"{'misses its goal' if len(one.reached) == 1 else 'miss their goals'} by that"
        )
    often = f"the goal of {one.strictest} brought it up to date {one.pace} times until a trigger"
    return f"{often}, for the rows of all of them"


def _work(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


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
        are=_kinds(kernel.tree),
        instead_of=sum(member.operators for member in shared.members),
        differ_on=_differing(kernel.tree),
        entries=sum(run.rows for state in states for run in state.runs),
        bytes=sum(run.bytes for state in states for run in state.runs),
        rows=sum(rows for rows, _ in cost.values()),
        cpu=sum(cpu for _, cpu in cost.values()),
        eager=eager,
        paces={view: pace for view, pace in paces.items() if pace is not None},
    )


def _differing(tree: Tree) -> tuple[str, ...]:
    """The tables whose rows carry masks, or that groups read once per cluster of views."""
    masked = [feed.table for feed in _leaves(tree) if any(map(is_mask, feed.outputs))]
    ports = (port for node in tree.nodes for port in node.ports if len(port.feeds) > 1)
    clustered = (feed.table for port in ports for feed in port.feeds if feed.producer is None)
    return tuple(dict.fromkeys([*masked, *clustered]))


def _kinds(tree: Tree) -> str:
    joins = sum(isinstance(node, Join) for node in tree.nodes)
    numbers = {"aggregate": len(tree.nodes) - joins, "join": joins}
    return listed([counted(number, kind) for kind, number in numbers.items() if number])


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
    if any(catalogue.views[name] is view for name in catalogue.answering):
        return "views that read it are handed the changes of its answer; it takes nothing from others"
    if not (blocks := blocks_of(view.kernel.tree)):
        return "it has no inner join by equal keys alone, and no groups below its answer; nothing else is shared"
    if view.definition.freshness is not None and not _may_wait(view.kernel):
        return (
            "it has a goal, and rows that a shared subplan gave could not wait for it: on the way to its operators "
            "they may fail, or meet rows of a table"
        )
    mine = _beginnings(blocks)
    others = [
        name
        for name, other in catalogue.views.items()
        if other is not view and isinstance(other.kernel, TreeView) and mine & _beginnings(blocks_of(other.kernel.tree))
    ]
    if others:
        return f"it has operators in common with {listed(others)}: to share them would be more work, as estimated"
    return "no other view has the same joins or groups"


def _beginnings(blocks: Mapping[int, Block]) -> set[str]:
    return {name for block in blocks.values() for name in beginnings(block)}


def _may_wait(kernel: TreeView) -> bool:
    return can_wait(kernel) and any(may_be_given(kernel, number) for number in blocks_of(kernel.tree))


def _parts(one: SharedReport, work: SharedWork, catalogue: Catalogue) -> Iterator[Part]:
    shared = catalogue.shared[one.name]
    yield Fact("is", str(one))
    yield Fact("runs", one.runs)
    yield Fact("estimate", str(work))
    yield Fact("last step", f"{counted(one.rows, 'changed row')} through its operators, {1e3 * one.cpu:.1f} ms of CPU")
    lines = []
    for number, node in enumerate(shared.kernel.tree.nodes):
        sources = [
            feed.table if feed.producer is None else f"[{feed.producer}]" for p in node.ports for feed in p.feeds
        ]
        text = cut(one_line(getattr(node, "text", "")), _LONG)
        of = list(dict.fromkeys(sources))  # groups read a table once per cluster of views
        what = f"{listed(sources)} on {text}" if isinstance(node, Join) else f"groups of {listed(of)}: {text}"
        lines.append((0, f"[{number}] {what}"))
    yield Outline(tuple(lines))
    yield Table(("view", "operator", "given by", "rows"), tuple(_member_rows(shared, catalogue)))
    if above := [said for view in one.views for said in _above(view, shared, catalogue)]:
        what = "outer, semi and anti joins, DISTINCT and top-k share only what is below them"
        yield Fact("not part", f"{listed(above)}: {what}")


def _above(view: str, shared: Shared, catalogue: Catalogue) -> Iterator[str]:
    """The operators of a view that could never be shared, above what it reads of a subplan."""
    kernel = catalogue.views[view].kernel
    assert isinstance(kernel, TreeView)
    read = {member.number for member in shared.members if member.view == view}
    for number in sorted(kernel.own):
        kind = _never_shared(kernel.tree, number)
        if kind and read & kernel.tree.from_top(number):
            yield f"the {kind} [{number}] of {view}"


def _never_shared(tree: Tree, number: int) -> str:
    """What an operator is, if it is of a kind that runs in each view; empty if not."""
    node = tree.nodes[number]
    if isinstance(node, Join):
        return "" if node.kind is JoinKind.INNER else node.kind.value
    if isinstance(node, Top):
        return "top-k"
    if isinstance(node, Over):
        return "window function"
    is_distinct = node is tree.nodes[-1] and node.plan.shape is Shape.GROUPS and not node.plan.aggregates
    return "DISTINCT" if is_distinct else ""


def _member_rows(shared: Shared, catalogue: Catalogue) -> Iterator[tuple[str, str, str, str]]:
    """Which rows each member wants, in the words of its own tree."""
    for member in shared.members:
        kernel = catalogue.views[member.view].kernel
        assert isinstance(kernel, TreeView)
        inside, naming = kernel.tree.from_top(member.number), Naming(kernel.tree)
        conditions = (naming.condition(f) for number, _, _, f in kernel.tree.feeds() if number in inside)
        wanted = [one_line(condition) for condition in conditions if condition is not None]
        yield member.view, f"[{member.number}]", f"[{member.feed.producer}]", cut(" AND ".join(wanted), _LONG) or "all"
