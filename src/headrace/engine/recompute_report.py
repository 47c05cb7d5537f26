"""The report on a view that Spark recomputes in every step that changes one of its tables."""

from __future__ import annotations

from dataclasses import replace

from headrace.engine.definition import ViewTreeChoice
from headrace.engine.recompute import F_SQL, Recomputed
from headrace.explain.graph import Edge, Graph, Node
from headrace.explain.parts import Fact, Outline, Section
from headrace.explain.report import THEORY, Arrangement, Report, Subject, last_step
from headrace.explain.words import counted, one_line
from headrace.factorized.order_text import from_json, to_text

_SHOWN = 240  # characters of the statement that the report shows; the whole may be as long as a book


def report(kernel: Recomputed, subject: Subject, chosen: ViewTreeChoice | None) -> Report:
    """Report on a recomputed view.

    Parameters
    ----------
    chosen : for a query whose aggregates are pushed past joins (F/SQL), the variable order that it follows.
    """
    strategy, state = subject.strategy, subject.size(kernel.part)
    tables = {table: sorted(columns) for table, columns in kernel.reads.items()}
    rows = sum(subject.rows.get(table, 0) for table in kernel.tables)
    order = None if chosen is None or chosen.order is None else to_text(from_json(chosen.order))
    order_why = None if chosen is None else chosen.order_why
    how = "one SQL query, its aggregates pushed past the joins" if strategy == F_SQL else "the query as it stands"
    statement = one_line(kernel.statement)
    shown = f"{statement[:_SHOWN]}... ({len(statement):,} characters)" if len(statement) > _SHOWN else statement
    theory = (
        ()
        if order is None
        else (
            Fact("order", f"of variables: {order_why}"),
            Outline(tuple((0, line) for line in order.splitlines())),
        )
    )
    return Report.of(
        replace(subject, why=f"{subject.why or 'it was asked for'}: {how}"),
        how=f"recomputed by Spark ({strategy})",
        kept=f"{counted(state.live, 'row')} of the answer and nothing else, {state.bytes:,} bytes",
        step=(
            f"that changes {' or '.join(kernel.tables)} has Spark read all their rows ({rows:,} now) "
            "and recompute the whole answer"
        ),
        arrangements=[Arrangement.of("", kernel.part, "(all columns)", "count", "the answer is read from it", state)],
        sections=[
            Section(
                "plan",
                (
                    *(
                        Fact("reads", f"{t} ({', '.join(columns) or 'the number of its rows'})")
                        for t, columns in tables.items()
                    ),
                    Fact("Spark runs", shown),
                ),
            ),
            last_step(subject.last_step),
            Section(THEORY, theory),
        ],
        graph=Graph(
            (
                Node("answer", "kept", 0, ("answer",), (f"{state.bytes:,} bytes kept",), "the answer as Spark gave it"),
                Node("query", "not kept", 1, ("Spark", how), (), statement),
                *(
                    Node(f"table {t}", "table", 2, (t, counted(subject.rows.get(t, 0), "row")), (), ", ".join(columns))
                    for t, columns in tables.items()
                ),
            ),
            (Edge("answer", "query"), *(Edge("query", f"table {table}") for table in tables)),
        ),
        values={
            "tables": tables,  # each with the columns that are read
            "rows_read": rows,
            "order": order,
            "order_why": order_why,
            "statement": kernel.statement,
            "answer_rows": state.live,
        },
    )
