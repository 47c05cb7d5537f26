"""Which share of its final work each query of a set wants: drawn at random, the same for all, or given one by one.

The thesis draws goals ("Thrifty Query Processing", 4.4.2), gives all queries the same (Table 4.1), or fixes one query
of a pair and varies the other (Figure 4.18). In the last form, shares stand in the order of the queries of the set.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

RANDOM, UNIFORM, LISTED = "random", "uniform", "listed"
_SHARES = (1.0, 0.5, 0.2, 0.1)


def kind_of(goals: str) -> str:
    """Which of the three forms goals have.

    >>> kind_of("random"), kind_of("0.2"), kind_of("1.0,0.1")
    ('random', 'uniform', 'listed')
    """
    return RANDOM if goals.startswith(RANDOM) else LISTED if "," in goals else UNIFORM


def goals_of(queries: Mapping[str, str], goals: str, seed: int) -> dict[str, float]:
    """The share of final work that each query wants."""
    if goals == RANDOM:
        rng = random.Random(seed)
        return {name: rng.choice(_SHARES) for name in queries}
    shares = [float(share) for share in goals.split(",")]
    return dict(zip(queries, shares * len(queries) if len(shares) == 1 else shares, strict=True))


def problem_of(goals: str, cases: Mapping[str, Sequence[str]]) -> str:
    """What is wrong with goals for some sets of queries, and what to give; empty if nothing is.

    >>> problem_of("1.0,0.1", {"ten": ["q4", "q5", "q7"]})
    "--goals 1.0,0.1 has 2 shares, and the case 'ten' has 3 queries: give one share for each of q4, q5, q7"
    >>> problem_of("1.5", {})
    "--goals 1.5: give 'random', a share above 0 and up to 1, or one such share per query, as in 1.0,0.1"
    """
    if goals == RANDOM:
        return ""
    shares = [_share(text) for text in goals.split(",")]
    if None in shares:
        return (
            f"--goals {goals}: give 'random', a share above 0 and up to 1, or one such share per query, as in 1.0,0.1"
        )
    for case, queries in cases.items():
        if len(shares) not in (1, len(queries)):
            return (
                f"--goals {goals} has {len(shares)} shares, and the case {case!r} has {len(queries)} queries: "
                f"give one share for each of {', '.join(queries)}"
            )
    return ""


def _share(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 < share <= 1 else None
