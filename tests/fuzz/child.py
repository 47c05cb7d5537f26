"""Opens damaged copies of a location, without Spark, in a process that may crash: `child.py FOLDER FIRST COUNT SEED`.

FOLDER has a location (`location`), its answers by step (`answers.json`) and room for copies. It prints a line before
each case, so that whoever started this knows in which case it died, and a line of JSON after it.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from tests.fuzz.damage import OUTSIDE, by_accident, on_purpose

from headrace.engine.looking import Look
from headrace.engine.repair import problems
from headrace.engine.spark_needed import SparkNeeded
from headrace.engine.store import Store
from headrace.errors import HeadraceError
from headrace.runtime.location import Location
from headrace.runtime.openruns import OPEN

SECONDS = 60  # a case that takes longer hangs
MEMORY = 8 << 30


class WrongAnswer(Exception):
    """What a damaged location answers is the answer of no step."""


def read_all(root: Path) -> tuple[int, dict[str, list[str]], list[str]]:
    """The step of a location, the answers that it gives, and what it refuses."""
    answers, refused = {}, []
    with Look(root) as look:
        handles: list[tuple[str, Any]] = list(look._access.catalogue.table_handles.items())
        step = look._store.snapshot.step
        for name in look.views:
            try:
                handles.append((name, look.views[name]))
            except (HeadraceError, SparkNeeded) as error:
                refused.append(f"{name}: {error}")
        for name, handle in handles:
            try:
                answers[name] = said(handle)
            except (HeadraceError, SparkNeeded) as error:
                refused.append(f"{name}: {error}")
        for report in (look.status, look.explain, look.verify):
            try:
                report()
            except (HeadraceError, SparkNeeded) as error:
                refused.append(str(error))
    return step, answers, refused


def said(handle: Any) -> list[str]:
    """An answer as text, in any order."""
    return sorted(map(repr, handle.to_arrow().to_pylist()))


def examine(root: Path, *, first: bool = True) -> list[tuple[int, dict[str, list[str]]]]:
    """Look at a location (if `first`), verify it, open it as a writer does, and look again."""
    found = []
    if first:
        step, answers, _ = read_all(root)
        found.append((step, answers))
    problems(root)
    store = Store(Location(root))
    store.open(None, 4, {})
    store.close()
    step, answers, _ = read_all(root)
    found.append((step, answers))
    return found


def run(folder: Path, number: int, seed: str, truth: dict[str, dict[str, list[str]]]) -> dict[str, Any]:
    """One case; returns what was done and what came of it."""
    rng, case = random.Random(f"{seed} {number}"), folder / "case"
    shutil.rmtree(case, ignore_errors=True)
    shutil.copytree(folder / "location", case / "state", copy_function=os.link)
    (case / "state" / "lock").unlink(missing_ok=True)
    outside = case / OUTSIDE
    outside.mkdir()
    keep = {"keep.run": b"not yours", "x.commit": b"nor this"}
    for name, data in keep.items():
        (outside / name).write_bytes(data)
    accident = rng.random() < 0.6
    done = (by_accident if accident else on_purpose)(case / "state", rng)
    result = {"case": number, "accident": accident, "done": done, "outcome": "answered"}
    signal.alarm(SECONDS)
    try:
        for step, answers in examine(case / "state", first=rng.random() < 0.5):
            for name, rows in answers.items():
                if accident and rows != truth[str(step)].get(name):
                    raise WrongAnswer(f"{name} at step {step}: {rows[:3]}")
    except (HeadraceError, SparkNeeded) as error:
        result |= {"outcome": "refused", "error": str(error)[:300]}
    except Exception as error:
        # A record with right checksums may hold anything; what is read of it late may say so in Python's words.
        is_python = isinstance(error, KeyError | TypeError | ValueError | AttributeError) and not accident
        result |= {"outcome": "unclear" if is_python else "failed", "error": traceback.format_exc()[-3000:]}
    finally:
        signal.alarm(0)
        OPEN.forget_all(str(case / "state"))
    if {path.name: path.read_bytes() for path in outside.iterdir()} != keep:
        result |= {"outcome": "failed", "error": f"outside: {[path.name for path in outside.iterdir()]}"}
    return result


def main() -> None:
    folder, first, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    truth = json.loads((folder / "answers.json").read_text())
    for number in range(first, first + count):
        print(f"case {number}", flush=True)
        print(json.dumps(run(folder, number, seed, truth)), flush=True)


if __name__ == "__main__":
    main()
