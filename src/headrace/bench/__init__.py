"""The benchmarks, part of the package so that `headrace bench` runs them after a plain install.

A benchmark is a module here with `run(argv, tell) -> dict`, which runs Headrace and its peers in one invocation, and
`table(result)`, which shows the result as a Rich table. Its name must stand in `BENCHMARKS` to be found.
"""

from __future__ import annotations

BENCHMARKS = {"step": "one-table views: step cost against recomputation"}
