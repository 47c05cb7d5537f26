"""How many faults were injected, steps played and answers compared: one line per count, in a file that runs add to."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

FILE = "HEADRACE_TALLY"


def record(what: Mapping[str, int]) -> None:
    """Add counts to the table at the end of a nightly run, if this is one."""
    if path := os.environ.get(FILE):
        with Path(path).open("a") as file:
            file.write(json.dumps({name: count for name, count in what.items() if count}) + "\n")


def total(path: Path) -> Counter[str]:
    """The sums of all that was recorded."""
    counts: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        counts.update(json.loads(line))
    return counts


def table(counts: Mapping[str, int]) -> str:
    """Counts as lines of text, faults with their sum at the end."""
    width = max(map(len, [*counts, "faults in all"]))
    faults = sum(count for name, count in counts.items() if name.startswith("fault: "))
    lines = [f"{name:<{width}}  {count:>9,}" for name, count in sorted(counts.items()) if count]
    return "\n".join([*lines, f"{'faults in all':<{width}}  {faults:>9,}"])
