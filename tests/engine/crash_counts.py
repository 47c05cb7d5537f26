"""How many crashes were simulated, and what came of them: counted by the tests, said at their end (`make crashes`)."""

from __future__ import annotations

import os
from collections import Counter

CRASHES = int(os.environ.get("HEADRACE_CRASHES", "2000"))
"""Power cuts in all, over the tests that cut at random; those that cut everywhere do as many as there are places."""

COUNTED: Counter[str] = Counter()


def said() -> str:
    """What was counted, one line each."""
    return "\n".join(f"{COUNTED[name]:8,} {name}" for name in COUNTED)
