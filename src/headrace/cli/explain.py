"""`headrace explain`: how a view is kept up to date, why so, and what it costs; or what all views share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.open_engine import looked, view_of
from headrace.cli.screen import Json, guarded, out, print_json
from headrace.errors import SchemaError

if TYPE_CHECKING:
    from headrace.engine.engine import Handle
    from headrace.explain.report import Report


@guarded
def explain(
    location: Annotated[Path, typer.Argument(help="Folder of the state, as given to `headrace run --location`.")],
    view: Annotated[str | None, typer.Argument(help="Name of the view; without one, what all views share.")] = None,
    svg: Annotated[
        Path | None,
        typer.Option(help="Also draw the plan into this file."),
    ] = None,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Also show what each strategy would cost, and why one won.")
    ] = False,
    cost: Annotated[
        bool, typer.Option("--cost", help="Also show what each operator was estimated to cost, and what it has cost.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show how a view is kept (strategy, why it was chosen, state and cost), or what all views share."""
    if view is None and (analyze or cost):
        raise SchemaError("--analyze and --cost are about one view, and none was named.", way_out="Name a view.")
    report = looked(
        location,
        lambda engine: engine.explain() if view is None else _report(view_of(engine, location, view), analyze, cost),
    )
    if svg is not None:
        svg.write_text(report.to_svg(), encoding="utf-8")
    if as_json:
        print_json(report.to_dict())
    else:
        out().print(str(report), markup=False, soft_wrap=True)


def _report(view: Handle, analyze: bool, cost: bool) -> Report:
    if not analyze:
        return view.explain(cost=cost)
    analysed = getattr(view, "analyze", None)
    if analysed is None:
        raise SchemaError(
            f"{view.name} is no view of SQL, so there are no strategies to compare.", way_out="Leave --analyze out."
        )
    found: Report = analysed()
    return found
