"""`headrace bench`: run one benchmark of the package, with its peers, and print the ratios."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Annotated

import typer

from headrace.bench import BENCHMARKS
from headrace.cli.screen import Json, err, grid, guarded, out, print_json, telling
from headrace.errors import HeadraceError


@guarded
def bench(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Name of the benchmark; leave it out to list them.")] = None,
    as_json: Json = False,
) -> None:
    """Run a benchmark against its peers. Further options are the benchmark's own: `headrace bench step -- --help`."""
    if name is None:
        _list(as_json)
        return
    if name not in BENCHMARKS:
        known = ", ".join(sorted(BENCHMARKS))
        raise HeadraceError(f"There is no benchmark {name}.", way_out=f"The benchmarks are: {known}.")
    from headrace.engine.calibrating import SWITCH  # here, because it loads Spark

    os.environ.setdefault(SWITCH, "0")  # nothing runs beside what is measured, and plans are the same every time
    # Only names of the registry get here, so no other module can be imported this way.
    found = BENCHMARKS[name]
    module = import_module(f"headrace.bench.{found.module}")
    with telling(f"Running benchmark {name}") as tell:
        result = module.run([*found.arguments, *context.args], tell)
    if as_json:
        print_json(result)
    else:
        out().print(module.table(result))
    if any("wrong" in row for row in result.get("results", [])):
        raise typer.Exit(1)


def _list(as_json: bool) -> None:
    if as_json:
        print_json({name: found.about for name, found in BENCHMARKS.items()})
        return
    table = grid("benchmark", "what it measures")
    for name, found in BENCHMARKS.items():
        table.add_row(name, found.about)
    out().print(table)
    err().print("Run one with `headrace bench NAME`.", markup=False)
