"""A board that stays fresh: files arrive in a folder, a view follows, and each step prints what it changed.

Run it with `python examples/live_board.py`. It needs nothing but Headrace, works in a temporary folder, and ends by
itself after five arrivals.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr

ARRIVALS = 5
GOALS_AN_ARRIVAL = 6
TEAMS = ["Bergen", "Cork", "Delft", "Espoo"]
SCHEMA = "goal BIGINT, team STRING, minute INT"
BOARD = "SELECT team, COUNT(*) AS goals, MAX(minute) AS latest FROM goals GROUP BY team ORDER BY goals DESC, team"


def main() -> None:
    """Run the board until all files have arrived."""
    with tempfile.TemporaryDirectory(prefix="headrace-board-") as scratch:
        incoming = Path(scratch) / "incoming"
        incoming.mkdir()
        with hr.connect(Path(scratch) / "state") as engine:
            engine.table("goals", SCHEMA, key="goal")
            board = engine.view("board", BOARD)
            files = engine.spark.readStream.schema(f"{SCHEMA}, __diff INT").parquet(str(incoming))
            engine.stream("goals", files)
            referee = Referee()
            for number in range(1, ARRIVALS + 1):
                pq.write_table(referee.report(), incoming / f"report-{number}.parquet")
                engine.process_available()
                show(engine.step, board)
            print(f"\nthe board after {engine.step} steps")
            print(board.to_pandas().to_string(index=False))
            if board.to_pandas()["goals"].sum() != len(referee.goals):
                raise SystemExit("the board is wrong")


class Referee:
    """Counts goals, and takes one back now and then: a deletion is the very row, with `__diff` -1."""

    def __init__(self) -> None:
        self.random = random.Random(7)
        self.goals: dict[int, tuple[str, int]] = {}
        self.number = 0

    def report(self) -> pa.Table:
        """Draw the next report: new goals, and one earlier goal that did not count after all."""
        rows = []
        if self.goals:
            wrong = self.random.choice(sorted(self.goals))
            rows.append((wrong, *self.goals.pop(wrong), -1))
        for _ in range(GOALS_AN_ARRIVAL):
            self.number += 1
            self.goals[self.number] = (self.random.choice(TEAMS), self.number)
            rows.append((self.number, *self.goals[self.number], 1))
        goal, team, minute, diff = zip(*rows, strict=True)
        kinds = pa.schema([("goal", pa.int64()), ("team", pa.string()), ("minute", pa.int32()), ("__diff", pa.int32())])
        return pa.table([goal, team, minute, diff], schema=kinds)


def show(step: int, board: hr.View) -> None:
    """Print what the last step changed: `-` rows left the board, `+` rows came."""
    print(f"\nstep {step}")
    for row in sorted(board.changes().to_pylist(), key=lambda row: (row["team"], row["__diff"])):
        sign = "+" if row["__diff"] > 0 else "-"
        print(f"  {sign} {row['team']:<7} {row['goals']} goals, the latest in minute {row['latest']}")


if __name__ == "__main__":
    main()
