"""A tree of features as a picture: the root on the left, a box per feature, and edges as thick as their weights."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.explain import svg
from headrace.explain.svg import CHAR, FAINT, HEAD, INK, KEPT, MARGIN, PAD

Edge = tuple[str, str, float]

_ROW, _GAP = 34, 96  # from one leaf to the next, and between a node and its children
_BOX = 22
_THIN, _THICK = 1.2, 9.0


def dot(names: Sequence[str], edges: Sequence[Edge]) -> str:
    """The tree in the language of Graphviz.

    >>> print(dot(["a", "b"], [("a", "b", 0.25)]))
    graph "Chow-Liu tree" {
      "a";
      "b";
      "a" -- "b" [label="0.2500"];
    }
    """
    nodes = [f"  {_text(name)};" for name in names]
    lines = [f'  {_text(a)} -- {_text(b)} [label="{weight:.4f}"];' for a, b, weight in edges]
    return "\n".join(['graph "Chow-Liu tree" {', *nodes, *lines, "}"])


def _text(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def drawn(names: Sequence[str], edges: Sequence[Edge], title: str, below: str) -> str:
    """The tree as SVG, with a title and a line below it."""
    children: dict[str, list[tuple[str, float]]] = {name: [] for name in names}
    for a, b, weight in edges:
        children[a].append((b, weight))
    places = _placed(names[0], children)
    largest = max((weight for _, _, weight in edges), default=0.0) or 1.0
    parts = []
    for a, b, weight in edges:
        (x, y, wide), (to_x, to_y, _) = places[a], places[b]
        parts.append(_edge(x + wide, y, to_x, to_y, weight, largest, f"{a} and {b}: {weight:.6f}"))
    for name, (x, y, wide) in places.items():
        parts.append(svg.rect(KEPT, x, y - _BOX / 2, wide, _BOX, 6))
        parts.append(svg.text(x + wide / 2, y + 4, svg.cut(name, svg.WIDEST), 12, INK, middle=True))
    head = [(title, 15), (below, 12)]
    width = max(2 * MARGIN + svg.head_width(head), max(x + wide for x, _, wide in places.values()) + MARGIN)
    height = max(y for _, y, _ in places.values()) + _BOX / 2 + MARGIN
    return svg.document(width, height, head, parts)


def _placed(root: str, children: dict[str, list[tuple[str, float]]]) -> dict[str, tuple[float, float, float]]:
    """Where each node is (left, middle, width): leaves below one another, a parent in the middle of its children."""
    order, depth = [root], {root: 0}
    for name in order:  # grows while it is gone through, so that deep trees need no recursion
        for child, _ in children[name]:
            depth[child] = depth[name] + 1
            order.append(child)
    wide = {name: min(svg.length(name), svg.WIDEST) * CHAR + 2 * PAD for name in order}
    lefts = [float(MARGIN)]
    for level in range(max(depth.values())):
        lefts.append(lefts[-1] + _GAP + max(wide[name] for name in order if depth[name] == level))
    middle: dict[str, float] = {}
    stack, next_leaf = [root], HEAD + MARGIN + _BOX / 2
    while stack:
        name = stack.pop()
        if not children[name]:
            middle[name] = next_leaf
            next_leaf += _ROW
        stack += [child for child, _ in reversed(children[name])]
    for name in reversed(order):
        if children[name]:
            first, last = children[name][0][0], children[name][-1][0]
            middle[name] = (middle[first] + middle[last]) / 2
    return {name: (lefts[depth[name]], middle[name], wide[name]) for name in order}


def _edge(x: float, y: float, to_x: float, to_y: float, weight: float, largest: float, about: str) -> str:
    half = (to_x - x) / 2
    width = _THIN + (_THICK - _THIN) * weight / largest
    path = f"M{x:.1f} {y:.1f} C{x + half:.1f} {y:.1f} {to_x - half:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
    label = svg.text(to_x - 5 * CHAR - 8, to_y - 5, f"{weight:.3f}", 11, FAINT)
    return (
        f'<path class="edge" d="{path}" fill="none" stroke="{KEPT.stroke}" stroke-opacity="0.45" '
        f'stroke-width="{width:.1f}"><title>{svg.escaped(about)}</title></path>{label}'
    )
