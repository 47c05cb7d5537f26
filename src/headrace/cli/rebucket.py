"""`headrace rebucket`: another number of buckets for a location, as after a move to a machine with other cores."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.open_engine import check_there, opened
from headrace.cli.screen import Json, guarded, out, print_json, working


@guarded
def rebucket(
    location: Annotated[Path, typer.Argument(help="Folder of the state, as given to `headrace run --location`.")],
    buckets: Annotated[int, typer.Option(help="How many buckets the state shall have: about twice the cores.")],
    as_json: Json = False,
) -> None:
    """Lay the state of a location out for another number of buckets, in one commit."""
    check_there(location)
    with opened(location) as engine:
        start = time.perf_counter()
        with working(f"Moving {engine.buckets} buckets to {buckets}"):
            done = engine.rebucket(buckets)
        seconds = time.perf_counter() - start
    if as_json:
        print_json({"location": str(location), **asdict(done), "seconds": seconds})
        return
    size = f"{done.bytes / 1e6:,.1f} MB"
    out().print(f"{done.before} buckets became {done.after}, with {size} of state, in {seconds:,.1f} s.")
    if done.filled:
        out().print(f"Filled again from their tables: {', '.join(done.filled)}", markup=False, soft_wrap=True)
