"""`headrace verify` and `headrace repair`: whether every file of a location is whole, and what to do if one is not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.screen import Json, guarded, out, print_json, working

Place = Annotated[Path, typer.Argument(help="Folder of the state, as given to `headrace run --location`.")]


@guarded
def verify(location: Place, as_json: Json = False) -> None:
    """Check every file of a location by its checksums; exit code 1 on damage. Changes nothing, and needs no Spark."""
    from headrace.engine.repair import verified

    with working("Checking every file"):
        looked = verified(location)
    found = looked.problems
    if as_json:
        print_json({"location": str(location), "problems": found, "unsafe": looked.unsafe})
    elif not found:
        out().print("Every file is sound.", style="green")
        if looked.unsafe:
            out().print(looked.unsafe, style="yellow", markup=False, soft_wrap=True)
    else:
        for problem in found:
            out().print(problem, style="red", markup=False, soft_wrap=True)
        out().print("-> headrace repair goes back to the last state that is whole", markup=False, soft_wrap=True)
    if found:
        raise typer.Exit(1)


@guarded
def repair(location: Place, as_json: Json = False) -> None:
    """Go back to the last state of a location that is whole, and say what is gone. Needs no Spark."""
    from headrace.engine.repair import repair as repaired

    with working("Looking for the last state that is whole"):
        done = repaired(location)
    if as_json:
        print_json(done.to_dict())
    else:
        out().print(str(done), markup=False, soft_wrap=True)
