"""The process that reads beside the writer, from before its first step to the end of the run.

Every step leaves as many orders as there were, so an answer that counts others is not that of a step.
"""

from __future__ import annotations

import random
import select
import sys
import time

from headrace.bench.soak.workload import GOALS, ORDERS
from headrace.bench.soak.writer import tell
from headrace.engine.engine import Engine
from headrace.errors import HeadraceError
from headrace.runtime.session import local_session

_PAUSE = 0.5


def main() -> None:
    """Read a view again and again until told to stop."""
    spark = local_session(1, "512m")
    chosen = random.Random(1)
    with Engine(spark, sys.argv[1], read_only=True) as engine:
        tell(ready=engine.step)
        while not select.select([sys.stdin], [], [], _PAUSE)[0]:
            name = chosen.choice(sorted(engine.views))
            start = time.perf_counter()
            try:
                if name == "rating":
                    assert len(engine.views[name].coef_) == 2  # type: ignore[union-attr]
                else:
                    answer = engine.views[name].to_arrow()  # type: ignore[union-attr]
                    counted = sum(answer.column("n").to_pylist()) if name in ("by_shop", "shared_two") else ORDERS
                    if counted != ORDERS and name not in GOALS:
                        tell(wrong=f"the reader found {counted} orders in {name}")
            except (HeadraceError, KeyError) as error:
                if name in engine.views and not name.startswith("guest_"):
                    tell(wrong=f"the reader could not read {name}: {error}")
            tell(read=name, seconds=time.perf_counter() - start)
    spark.stop()


if __name__ == "__main__":
    main()
