"""The `headrace` command: gathers its subcommands, one per file of this folder.

Nothing here or at the top of those files imports Spark, Arrow or NumPy, so that `--help` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.bench import bench
from headrace.cli.data import data
from headrace.cli.demo import demo
from headrace.cli.explain import explain
from headrace.cli.read import read
from headrace.cli.rebucket import rebucket
from headrace.cli.repair import repair, verify
from headrace.cli.run import run
from headrace.cli.status import status

app = typer.Typer(
    help="Keep the answers of SQL queries fresh on Apache Spark, at the cost of the change rather than of the data.",
    epilog="New here? Run `headrace demo`. Errors in full: HEADRACE_DEBUG=1.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    if version:
        import headrace

        typer.echo(f"headrace {headrace.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command()(demo)
app.command()(run)
app.command()(read)
app.command()(explain)
app.command()(status)
app.command()(verify)
app.command()(repair)
app.command()(rebucket)
app.command()(data)
# Further options are passed on to the benchmark.
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(bench)
