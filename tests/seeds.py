"""Where random tests begin: at another place for every change of the code, so that each run tries something new.

What is random takes its seeds from here, and from nowhere else. They follow from what was committed of `src` and
`tests`, so two runs of the same code are the same run, whatever else has changed; `HEADRACE_SEED=N` repeats what other
code did. The header of a run and every failure say which.
A case that ever failed is kept: as a seed before those of its suite, or better as a case of its own (as those of
`tests/logic/cases`).
"""

from __future__ import annotations

import os
import random
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def _of_code() -> int:
    asked = ["git", "rev-parse", "HEAD:src", "HEAD:tests"]
    try:
        done = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0  # sources without their history
    return zlib.crc32(done.stdout.encode())


SEED = int(os.environ.get("HEADRACE_SEED") or _of_code())


def drawn(suite: str, count: int, kept: Sequence[int] = ()) -> list[int]:
    """The seeds of a suite: those that failed once, then some of this code."""
    return [*kept, *random.Random(f"{SEED} {suite}").sample(range(2**32), count)]


def seeds(suite: str, count: int, *, check: int = 1, kept: Sequence[int] = ()) -> Any:
    """Let a test have a parameter `seed`, which is each of these; `check` of them are tried by `make check` too."""
    found = drawn(suite, count, kept)
    params = [pytest.param(seed, marks=pytest.mark.check) if i < check else seed for i, seed in enumerate(found)]
    return pytest.mark.parametrize("seed", params)


def share(suite: str, of: Sequence[T], count: int) -> list[T]:
    """Some of these, others for each change of the code."""
    return random.Random(f"{SEED} {suite}").sample(list(of), min(count, len(of)))
