"""The report on a product of matrices: in which order it is multiplied, what is kept, and what a change costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.explain.graph import Edge, Graph, Node
from headrace.explain.parts import Fact, Outline, Section
from headrace.explain.report import THEORY, Arrangement, Report, Subject, last_step, state
from headrace.factorized.chain_view import PARTS, ChainView
from headrace.factorized.dense import most_factors

_HELD = {
    "rows": ("(row)", "the numbers of the row"),
    "left": ("(product)", "left factor of an outer product"),
    "right": ("(product)", "right factor of an outer product"),
}


def report(kernel: ChainView, subject: Subject) -> Report:
    """Report on a product of matrices."""
    kept = [
        Arrangement.of(node.name, what, *_HELD[what], _why(kernel, number), subject.size(part))
        for number, node in enumerate(kernel.nodes)
        for what, part in zip(PARTS, node.parts(number), strict=True)
    ]
    root = kernel.nodes[kernel.root]
    size = sum(arrangement.bytes for arrangement in kept)
    views = {
        node.name: {
            "rows": node.shape[0],
            "columns": node.shape[1],
            "factors": subject.size(node.parts(number)[1]).live,
            "most_factors": most_factors(node.shape),
        }
        for number, node in enumerate(kernel.nodes)
    }
    return Report.of(
        replace(subject, why=subject.why or "it was asked for: the product of a chain of matrices"),
        how=f"a chain of {len(kernel.tables)} matrices kept as a tree of products",
        kept=f"{size:,} bytes: {len(kernel.tables)} matrices and {len(kernel.nodes) - len(kernel.tables)} products",
        step=(
            "a change of rank r (r outer products, or r rows or columns) takes r products of a vector and a matrix "
            "per view above; never a product of two matrices, as long as r is small"
        ),
        arrangements=kept,
        sections=[
            Section(
                "plan",
                (
                    Fact("product", f"{root.name}: {root.shape[0]:,} by {root.shape[1]:,}"),
                    Fact(
                        "order",
                        f"{kernel.multiplications:,.0f} multiplications for the whole product: the fewest of all "
                        "orders, by dynamic programming",
                    ),
                    Fact(
                        "tables",
                        "of matrices keep no rows: the content of a matrix is in the leaf of its chain",
                    ),
                ),
            ),
            Section("state", (state(kept),)),
            last_step(subject.last_step),
            Section(
                THEORY,
                (
                    Fact("changes", "d(L R) += dL R, then L dR; an outer product u v' goes on as u (v' R) or (L u) v'"),
                    Outline(tuple(_formulas(kernel))),
                    Fact(
                        "factors",
                        "of outer products are kept as they are, until there are so many that one dense sum is "
                        "smaller: "
                        + ", ".join(f"{name}: {v['factors']} of {v['most_factors']}" for name, v in views.items()),
                    ),
                ),
            ),
        ],
        graph=_graph(kernel),
        values={"order": root.name, "multiplications": kernel.multiplications, "views": views},
    )


def _why(kernel: ChainView, number: int) -> str:
    if number == kernel.root:
        return "it is the answer"
    above = next(node for node in kernel.nodes if number in node.children)
    other = next(kernel.nodes[child].name for child in above.children if child != number)
    return f"changes of {other} are multiplied with it"


def _formulas(kernel: ChainView) -> Iterator[tuple[int, str]]:
    for node in kernel.nodes:
        if node.children:
            left, right = (kernel.nodes[child].name for child in node.children)
            yield 0, f"d{node.name} += d{left} * {right} + {left} * d{right}"


def _graph(kernel: ChainView) -> Graph:
    layer = {kernel.root: 0}
    for number in range(kernel.root, -1, -1):
        for child in kernel.nodes[number].children:
            layer[child] = layer[number] + 1
    nodes = [
        Node(f"{i}", "kept", layer[i], (node.name, f"{node.shape[0]:,} by {node.shape[1]:,}"))
        for i, node in enumerate(kernel.nodes)
    ]
    edges = [Edge(f"{i}", f"{child}") for i, node in enumerate(kernel.nodes) for child in node.children]
    return Graph(tuple(nodes), tuple(edges))
