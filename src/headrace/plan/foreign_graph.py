"""The foreign-key graph of a query: who refers to whom, and whether every joined row belongs to one row of a root.

A source refers to another when it has all variables of the other's key, so that each of its rows meets one row of the
other at most. If these references form an acyclic graph with one root, every row of the join belongs to one row of the
root, and no join on the way is ever larger than the table it starts from (Wang and Yi, SIGMOD 2020). Constant cost per
update needs nothing more, so where such a graph does not exist, the reason is worth a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.plan.expression import Expression
from headrace.plan.join import Source
from headrace.plan.native import widens


@dataclass(frozen=True)
class Reference:
    """A source refers to another by the variables of the other's key."""

    parent: str  # the one that refers: its rows stay or fall with those of the child
    child: str
    key: tuple[str, ...]


@dataclass(frozen=True)
class ForeignGraph:
    """An acyclic graph of references with one root. References that follow from others are left out."""

    sources: tuple[str, ...]  # children before the parents that refer to them; the root is the last
    references: tuple[Reference, ...]
    variables: Mapping[str, tuple[str, ...]]  # of each source

    @property
    def root(self) -> str:
        return self.sources[-1]

    def children(self, source: str) -> tuple[Reference, ...]:
        """The references of a source to its children."""
        return tuple(reference for reference in self.references if reference.parent == source)

    def parents(self, source: str) -> tuple[Reference, ...]:
        """The references to a source from its parents."""
        return tuple(reference for reference in self.references if reference.child == source)

    @cached_property
    def below(self) -> dict[str, frozenset[str]]:
        """Each source with all that can be reached from it, itself included."""
        out: dict[str, frozenset[str]] = {}
        for source in self.sources:
            out[source] = frozenset([source]).union(*(out[r.child] for r in self.children(source)))
        return out

    @cached_property
    def asserted(self) -> dict[str, tuple[str, ...]]:
        """Per source, the variables that come to it by several paths, or by a path and its own rows, and must agree.

        These are the assertion keys: a row whose paths disagree on one of them is not alive, though all its children
        are.
        """
        out = {}
        for source in self.sources:
            before, found = {source}, list[str]()
            for reference in self.children(source):
                # What both reach follows from the keys by which they reach it.
                new, old = self.below[reference.child] - before, before - self.below[reference.child]
                shared = self._bound(new) & self._bound(old)
                found += [v for v in sorted(shared) if v not in reference.key and v not in found]
                before |= new
            out[source] = tuple(found)
        return out

    def _bound(self, sources: Iterable[str]) -> set[str]:
        return {variable for source in sources for variable in self.variables[source]}


@dataclass(frozen=True)
class NotForeign:
    """Why a query has no foreign-key graph with one root."""

    why: str
    way_out: str


def foreign_graph(
    sources: Sequence[Source],
    keys: Mapping[str, tuple[str, ...]],
    references: Mapping[str, Sequence[str]] | None = None,
) -> ForeignGraph | NotForeign:
    """Find the graph of a join.

    Parameters
    ----------
    keys : the key columns of each table; no entry, or an empty one, for a table without a key.
    references : the tables that each table is declared to refer to. They are not needed, because a join on a whole key
        says it all; they only decide which way a join of two keys goes.
    """
    joined = _joined_variables(sources)
    key_of = {source.name: _key_variables(source, keys.get(source.table, ()), joined) for source in sources}
    has = {source.name: frozenset(source.variable_names) for source in sources}
    edges = {
        (parent.name, child.name)
        for parent in sources
        for child in sources
        if parent is not child and _refers(has[parent.name], key_of[child.name])
    }
    edges -= _reversed(sources, edges, references or {})
    if cycle := _cycle([source.name for source in sources], edges):
        return NotForeign(
            f"its references form a cycle: {' -> '.join(cycle)}",
            "a row would stay alive on itself; leave one of these joins out, or use another strategy",
        )
    roots = [source for source in sources if not any(child == source.name for _, child in edges)]
    if len(roots) > 1:
        return _several_roots(roots, keys, key_of, joined)
    ordered = _children_first([source.name for source in sources], edges)
    kept = {edge for edge in edges if not _follows(edge, edges)}
    listed = tuple(
        Reference(parent, child, key_of[child] or ())
        for parent in (source.name for source in sources)
        for child in (source.name for source in sources)
        if (parent, child) in kept
    )
    return ForeignGraph(ordered, listed, {source.name: source.variable_names for source in sources})


Edges = set[tuple[str, str]]


def _joined_variables(sources: Sequence[Source]) -> frozenset[str]:
    seen: dict[str, int] = {}
    for source in sources:
        for name in source.variable_names:
            seen[name] = seen.get(name, 0) + 1
    return frozenset(name for name, times in seen.items() if times > 1)


def _key_variables(source: Source, key: Sequence[str], joined: frozenset[str]) -> tuple[str, ...] | None:
    """The variables that a source's key columns are, in the order of the key; None unless all of them are joined."""
    variable = {_column(expression): name for name, expression in source.variables if name in joined}
    if not key or any(column not in variable for column in key):
        return None
    return tuple(variable[column] for column in key)


def _column(expression: Expression) -> str | None:
    """The column that an expression is, or casts to a wider type that keeps values distinct; None for any other."""
    if expression.op == "Cast" and not expression.type.is_floating and widens(expression.args[0].type, expression.type):
        return _column(expression.args[0])
    return str(expression.value) if expression.op == "column" else None


def _refers(variables: frozenset[str], key: tuple[str, ...] | None) -> bool:
    return key is not None and variables.issuperset(key)


def _reversed(sources: Sequence[Source], edges: Edges, references: Mapping[str, Sequence[str]]) -> Edges:
    """Of two sources that refer to each other, the reference that is given up.

    Both have the other's key, so either may be the parent: the one that is declared to refer, or else the first named.
    """
    given_up: Edges = set()
    for i, first in enumerate(sources):
        for second in sources[i + 1 :]:
            if {(first.name, second.name), (second.name, first.name)} <= edges:
                forth = second.table in references.get(first.table, ())
                back = first.table in references.get(second.table, ())
                keep_first = forth or not back
                given_up.add((second.name, first.name) if keep_first else (first.name, second.name))
    return given_up


def _cycle(names: Sequence[str], edges: Edges) -> list[str]:
    """A cycle, from a source back to itself; empty if there is none."""
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name not in done:
            for child in names:
                if (name, child) in edges and (found := walk(child, [*path, name])):
                    return found
            done.add(name)
        return []

    return next((found for name in names if (found := walk(name, []))), [])


def _several_roots(
    roots: Sequence[Source],
    keys: Mapping[str, tuple[str, ...]],
    key_of: Mapping[str, tuple[str, ...] | None],
    joined: frozenset[str],
) -> NotForeign:
    reasons = []
    for source in roots:
        key = keys.get(source.table, ())
        if not key:
            reasons.append(f"{source.name} has no key")
        elif key_of[source.name] is None:
            columns = {_column(expression) for name, expression in source.variables if name in joined}
            missing = [column for column in key if column not in columns]
            reasons.append(f"{source.name} is not joined by {', '.join(missing)} of its key")
        else:
            reasons.append(f"no table of the join has the key ({', '.join(key)}) of {source.name}")
    return NotForeign(
        "only the root may be referred to by none, and several of its tables are, so a row may meet many: "
        + "; ".join(reasons),
        "declare the keys of the tables with engine.table(..., key=...), and join on whole keys",
    )


def _children_first(names: Sequence[str], edges: Edges) -> tuple[str, ...]:
    ordered: list[str] = []

    def visit(name: str) -> None:
        if name not in ordered:
            for child in names:
                if (name, child) in edges:
                    visit(child)
            ordered.append(name)

    for name in names:
        visit(name)
    return tuple(ordered)


def _follows(edge: tuple[str, str], edges: Edges) -> bool:
    """Whether another path leads from the parent to the child: it brings the child's key along, which must agree."""
    parent, child = edge
    reached, waiting = set[str](), [c for p, c in edges if p == parent and c != child]
    while waiting:
        name = waiting.pop()
        if name == child:
            return True
        if name not in reached:
            reached.add(name)
            waiting += [c for p, c in edges if p == name]
    return False
