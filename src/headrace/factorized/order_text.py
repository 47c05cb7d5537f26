"""Variable orders as text, so that people can read, write, compare and keep them.

Headrace's own form is an indented tree, one variable per line: `ksn !stop: Inventory, Item` is the variable ksn, whose
view does not aggregate (`stop_pushdown`), with two relations placed under it. A mark behind a relation applies to all
its unwritten variables. Names with characters other than letters, digits, `_`, `.`, `$`, `@` and `-` stand in
backticks; lines that start with `#` are comments. Two further forms are read and written: plain JSON values, for
programs, and the files of F-IVM, for exchange with F-IVM.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.errors import VariableOrderError
from headrace.factorized.order import Node, VariableOrder, completed, validate
from headrace.plan.hypergraph import Hypergraph

_NAME = r"(?:[\w.$@-]+|`(?:[^`]|``)+`)"
_LINE = re.compile(rf"(?P<indent> *)(?P<variable>{_NAME})(?P<stop>\s+!stop)?\s*(?::(?P<relations>.*))?")
_RELATION = rf"({_NAME})(\s+!stop)?"
_RELATIONS = re.compile(rf"\s*{_NAME}(?:\s+!stop)?\s*(?:,\s*{_NAME}(?:\s+!stop)?\s*)*")
_FIVM_HEADER = re.compile(r"\s*(\d+)\s+(\d+)\s*")
_FIVM_VARIABLE = re.compile(r"(\d+)\s+(\S+)\s+(\S+)\s+(-?\d+)\s+\{[\d,\s-]*\}(?:\s+\d+)?")
_FIVM_RELATION = re.compile(r"(\S+)\s+(\d+)\s+(\S.*)")


def parse(source: str | Mapping[str, Any]) -> VariableOrder:
    """Read an order in any of the three forms: the indented text, JSON (a text or its value), or F-IVM's file.

    Raises
    ------
    VariableOrderError : says which line, or which element of the JSON, cannot be read and why.
    """
    if not isinstance(source, str):
        return from_json(source)
    text = source.removeprefix("\ufeff").lstrip()
    if text.startswith(("{", "[")):
        try:
            return from_json(json.loads(source.removeprefix("\ufeff")))
        except json.JSONDecodeError as error:
            raise _error(
                error.lineno, f"not JSON: {error.msg}", "Mend it, or write the order as indented text."
            ) from None
    if _FIVM_HEADER.fullmatch(text.partition("\n")[0]):
        return from_fivm(source)
    return from_text(source)


def to_text(order: VariableOrder) -> str:
    """The order as an indented tree.

    >>> print(to_text(VariableOrder((Node("A", (Node("B", (), ("R", "S")), Node("C", stop_pushdown=True))),))))
    A
      B: R, S
      C !stop
    """
    lines = []
    level = [(root, 0) for root in reversed(order.roots)]
    while level:
        node, depth = level.pop()
        stop = " !stop" if node.stop_pushdown else ""
        names = [_quoted(name) + (" !stop" if name in node.unsummed else "") for name in node.relations]
        relations = ": " + ", ".join(names) if names else ""
        lines.append("  " * depth + _quoted(node.variable) + stop + relations)
        level += [(child, depth + 1) for child in reversed(node.children)]
    return "\n".join(lines)


def from_text(text: str) -> VariableOrder:
    """Read an indented tree; any indentation deeper than the parent's will do, if siblings share it."""
    forest = _Forest()
    open_nodes: list[tuple[int, int]] = []  # (indentation, id) of the last node and of those above it
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line.rstrip())
        if not found:
            if line.lstrip(" ").startswith("\t"):
                raise _error(number, "indented with a tab", "Indent with spaces, two a level.")
            raise _error(
                number,
                f"expected `variable`, `variable !stop` or `variable: Relation, ...`, found {line.strip()!r}",
                "Write a variable a line; put names with other characters in backticks.",
            )
        indent, relations = len(found["indent"]), found["relations"]
        if relations is not None and not _RELATIONS.fullmatch(relations):
            raise _error(
                number, f"expected relations after the colon, found {relations.strip()!r}", "Separate them by commas."
            )
        while open_nodes and open_nodes[-1][0] > indent:
            if len(open_nodes) == 1 or open_nodes[-2][0] < indent:
                raise _error(
                    number, "its indentation fits no line above", "Indent it as the variable it stands beside."
                )
            open_nodes.pop()
        if open_nodes and open_nodes[-1][0] == indent:
            open_nodes.pop()
        written = [(_unquoted(name), bool(mark)) for name, mark in re.findall(_RELATION, relations or "")]
        names, unsummed = tuple(n for n, _ in written), tuple(n for n, mark in written if mark)
        parent = open_nodes[-1][1] if open_nodes else -1
        forest.add(number, number, parent, _unquoted(found["variable"]), names, bool(found["stop"]), unsummed)
        open_nodes.append((indent, number))
    return forest.order()


def to_json(order: VariableOrder) -> dict[str, Any]:
    """The order as plain values: `{"roots": [node, ...]}`; a node leaves out what is empty.

    >>> to_json(VariableOrder((Node("A", (Node("B", (), ("R",)),)),)))
    {'roots': [{'variable': 'A', 'children': [{'variable': 'B', 'relations': ['R']}]}]}
    """
    return {"roots": [_node_to_json(root) for root in order.roots]}


def from_json(value: Any) -> VariableOrder:
    """Read what `to_json` writes."""
    if not isinstance(value, Mapping) or set(value) != {"roots"}:
        raise VariableOrderError(
            "The JSON of a variable order is not an object with the one member `roots`.",
            way_out='Write {"roots": [{"variable": ..., "children": [...], "relations": [...]}]}.',
        )
    return VariableOrder(_nodes_from_json(value["roots"], "roots"))


def to_fivm(order: VariableOrder, query: Hypergraph, types: Mapping[str, str] | None = None) -> str:
    """The completed order as a file of F-IVM; variables without an entry in `types` are `double`.

    Raises
    ------
    VariableOrderError : the order is not one for this query, or F-IVM's files cannot hold it.
    """
    validate(order, query)
    order = completed(order, query)
    for name in [*order.variables, *(relation.name for relation in query.relations)]:
        if re.search(r"[\s,{}]|^$", name):
            raise VariableOrderError(f"F-IVM cannot read the name {name!r}.", way_out="Rename it, or use to_text().")
    if stopped := next((node.variable for node in order.nodes() if node.stop_pushdown), None):
        raise VariableOrderError(
            f"F-IVM has no mark like stop_pushdown, which variable {stopped} has.",
            way_out="Take the mark off, or use to_text().",
        )
    ids = {variable: i for i, variable in enumerate(order.variables)}
    variables, relations = [], []
    for node in order.nodes():
        path = order.path(node.variable)
        parent = ids[path[-1]] if path else -1
        key = ",".join(str(ids[v]) for v in order.dep(query, node.variable))
        kind = (types or {}).get(node.variable, "double")
        variables.append(f"{ids[node.variable]} {node.variable} {kind} {parent} {{{key}}} 0")
        for name in node.relations:
            relations.append(f"{name} {ids[node.variable]} {','.join(query.relation(name).variables)}")
    return "\n".join([f"{len(variables)} {len(relations)}", *variables, *relations])


def from_fivm(text: str) -> VariableOrder:
    """Read a file of F-IVM; types, keys, cache marks and columns are ignored, since the query has them."""
    lines = [
        (n, line.strip()) for n, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1) if line.strip()
    ]
    header = _FIVM_HEADER.fullmatch(lines[0][1]) if lines else None
    if not header:
        raise _error(lines[0][0] if lines else 1, "expected `#variables #relations`", "Start with the two numbers.")
    variables, relations = int(header[1]), int(header[2])
    if len(lines) != 1 + variables + relations:
        raise _error(
            lines[-1][0],
            f"the file ends after {len(lines) - 1} lines, but promises {variables} variables and {relations} relations",
            f"Correct the two numbers of line {lines[0][0]}, or the lines below it.",
        )
    leaves: dict[int, list[str]] = {}
    lines_of_leaves: dict[int, int] = {}
    for number, line in lines[1 + variables :]:
        if not (found := _FIVM_RELATION.fullmatch(line)):
            raise _error(number, f"expected `NAME leaf-id column,...`, found {line!r}", "Write a relation a line.")
        leaves.setdefault(int(found[2]), []).append(found[1])
        lines_of_leaves.setdefault(int(found[2]), number)
    forest = _Forest()
    for number, line in lines[1 : 1 + variables]:
        if not (found := _FIVM_VARIABLE.fullmatch(line)):
            raise _error(
                number, f"expected `id name type parent {{key,...}} cache`, found {line!r}", "Write a variable a line."
            )
        me = int(found[1])
        forest.add(me, number, int(found[4]), found[2], tuple(leaves.pop(me, ())))
    for leaf in leaves:
        raise _error(lines_of_leaves[leaf], f"no variable has the id {leaf}", "Name the id of the lowest variable.")
    return forest.order()


class _Forest:
    """Nodes given one at a time, each with the id of its parent (-1 at a root), in the order of siblings."""

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[str, tuple[str, ...], bool, tuple[str, ...]]] = {}
        self._children: dict[int, list[int]] = {}
        self._line: dict[int, int] = {}

    def add(
        self,
        me: int,
        line: int,
        parent: int,
        variable: str,
        relations: tuple[str, ...],
        stop: bool = False,
        unsummed: tuple[str, ...] = (),
    ) -> None:
        if me in self._nodes:
            raise _error(line, f"id {me} was given on line {self._line[me]} already", "Give each variable its own id.")
        self._nodes[me], self._line[me] = (variable, relations, stop, unsummed), line
        self._children.setdefault(parent, []).append(me)

    def order(self) -> VariableOrder:
        downwards = list(self._children.get(-1, ()))
        for me in downwards:  # the list grows during the loop
            downwards += self._children.get(me, ())
        for parent, children in self._children.items():
            for me in children:
                if parent != -1 and parent not in self._nodes:
                    raise _error(self._line[me], f"no variable has the id {parent} of its parent", "A root has -1.")
        for me in sorted(self._nodes.keys() - set(downwards)):
            raise _error(self._line[me], "it is below itself", "Follow the parents and give one of them -1.")
        built: dict[int, Node] = {}
        for me in reversed(downwards):
            variable, relations, stop, unsummed = self._nodes[me]
            below = tuple(built[child] for child in self._children.get(me, ()))
            built[me] = Node(variable, below, relations, stop, unsummed)
        return VariableOrder(tuple(built[me] for me in self._children.get(-1, ())))


def _node_to_json(node: Node) -> dict[str, Any]:
    value: dict[str, Any] = {"variable": node.variable}
    if node.children:
        value["children"] = [_node_to_json(child) for child in node.children]
    if node.relations:
        value["relations"] = list(node.relations)
    if node.stop_pushdown:
        value["stop_pushdown"] = True
    if node.unsummed:
        value["unsummed"] = list(node.unsummed)
    return value


def _nodes_from_json(values: Any, where: str) -> tuple[Node, ...]:
    return tuple(_node_from_json(value, f"{where}[{i}]") for i, value in enumerate(_sequence(values, where)))


def _node_from_json(value: Any, where: str) -> Node:
    if not isinstance(value, Mapping):
        raise _json_error(where, "an object")
    if unknown := set(value) - {"variable", "children", "relations", "stop_pushdown", "unsummed"}:
        raise VariableOrderError(
            f"{where} of the JSON of a variable order has an unknown member {min(map(str, unknown))}.",
            way_out="A node has variable, children, relations, stop_pushdown and unsummed.",
        )
    variable, stop = value.get("variable"), value.get("stop_pushdown", False)
    if not isinstance(variable, str):
        raise _json_error(f"{where}.variable", "a string")
    if not isinstance(stop, bool):
        raise _json_error(f"{where}.stop_pushdown", "true or false")
    names: dict[str, tuple[str, ...]] = {}
    for member in ("relations", "unsummed"):
        names[member] = tuple(_sequence(value.get(member, ()), f"{where}.{member}"))
        for i, name in enumerate(names[member]):
            if not isinstance(name, str):
                raise _json_error(f"{where}.{member}[{i}]", "a string")
    children = _nodes_from_json(value.get("children", ()), f"{where}.children")
    return Node(variable, children, names["relations"], stop, names["unsummed"])


def _sequence(value: Any, where: str) -> Sequence[Any]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _json_error(where, "a list")
    return value


def _quoted(name: str) -> str:
    if not name or "\n" in name:
        raise VariableOrderError(
            f"The name {name!r} does not fit a line of text.", way_out="Rename it, or use to_json()."
        )
    return name if re.fullmatch(r"[\w.$@-]+", name) else "`" + name.replace("`", "``") + "`"


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _json_error(where: str, expected: str) -> VariableOrderError:
    return VariableOrderError(
        f"{where} of the JSON of a variable order is not {expected}.", way_out="Write it as to_json() does."
    )


def _error(line: int, what: str, way_out: str) -> VariableOrderError:
    return VariableOrderError(f"Line {line} of the variable order: {what}.", way_out=way_out)
