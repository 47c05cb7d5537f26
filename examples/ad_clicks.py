"""Click-through while clicks are still on their way: two streams, a window join, and a picture of how well it guessed.

Run it with `python examples/ad_clicks.py`. Ads are shown, some are clicked, and clicks arrive late: they come from
phones, by way of a queue. A board wants to know how many pairs of an impression and a click of one campaign each 10
seconds have, and it wants to know 5 seconds before they are over. It works in a temporary folder, and ends by itself in
less than half a minute, much of which Spark needs to start. `--svg FILE` writes the picture elsewhere.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import headrace as hr
from headrace.datasets.delays import Drift, Exponential
from headrace.datasets.disorder import Stream, generate
from headrace.window.drawing import to_svg

SECOND = 1_000_000
COLUMNS = "campaign BIGINT, shown_at TIMESTAMP, arrived_at TIMESTAMP"


def streams(minutes: int, seed: int) -> tuple[Stream, Stream]:
    """Impressions, and clicks of which more and more come late: the queue fills up in the middle of the run."""
    length = minutes * 60 * SECOND
    evening = [(0, 40.0), (length // 3, 80.0)]  # impressions a second double when people come home
    impressions = generate(
        length, rate=evening, keys=12, skew=0.6, delays=Exponential(SECOND // 2, 20 * SECOND), seed=seed
    )
    slower = Drift(Exponential(SECOND, 20 * SECOND), Exponential(4 * SECOND, 20 * SECOND), length // 2, 3 * length // 4)
    clicks = generate(length, rate=[(t, r / 4) for t, r in evening], keys=12, skew=0.6, delays=slower, seed=seed + 1)
    return impressions, clicks


def main() -> None:
    """Replay both streams minute by minute, and compare what was said with what was true."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=int, default=20, help="of stream time (default 20)")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--svg", type=Path, default=Path("ad_clicks.svg"), help="where the picture goes")
    given = options.parse_args()
    if given.minutes < 5:
        options.error("--minutes: give at least 5, so that there is something to learn from")
    impressions, clicks = streams(given.minutes, given.seed)
    with tempfile.TemporaryDirectory() as folder, hr.connect(folder) as engine:
        for table in ("impression", "click"):
            engine.table(table, COLUMNS, append_only=True, keep_rows=False)
        asked = {"on": "campaign", "time": "shown_at", "arrival": "arrived_at", "window": "10 s", "emit_after": "5 s"}
        now = engine.window_join("now", "impression", "click", horizon="20 s", **asked)
        end = engine.window_join("in_the_end", "impression", "click", horizon="20 s", revisions="final", **asked)
        print("minute  windows  had arrived  estimate  interval           came to")
        for minute in range(given.minutes):
            between = (minute * 60 * SECOND, (minute + 1) * 60 * SECOND)
            engine.apply({"impression": rows(impressions.between(*between)), "click": rows(clicks.between(*between))})
            known = {row["window_start"]: row["value"] for row in end.to_arrow().to_pylist()}
            told = [row for row in now.to_arrow().to_pylist() if row["window_start"] in known]
            if told:
                last = told[-1]
                span = f"{last['low']:,.0f} to {last['high']:,.0f}"
                print(
                    f"{minute + 1:6}  {len(told):7,}  {last['observed']:11,.0f}  {last['value']:8,.0f}  {span:17}  "
                    f"{known[last['window_start']]:,.0f}"
                )
        report(told, known)
        given.svg.write_text(to_svg("clicks that met an impression", now.to_arrow(), end.to_arrow(), since=5))
        print(f"drawn in {given.svg}")


def rows(stream: Stream) -> object:
    """Rows as a table wants them."""
    table = stream.to_arrow().drop_columns(["value"])
    return table.rename_columns(["campaign", "shown_at", "arrived_at"])


def report(told: list[dict[str, float]], known: dict[float, float]) -> None:
    """Say how far off answers were, beside what had arrived."""
    after = [row for row in told[10:] if known[row["window_start"]]]
    for what, said in (("what had arrived", "observed"), ("the estimate", "value")):
        off = [abs(row[said] - known[row["window_start"]]) / known[row["window_start"]] for row in after]
        print(f"{what} was off by {sum(off) / len(off):.1%}")
    held = sum(row["low"] <= known[row["window_start"]] <= row["high"] for row in after)
    print(f"the interval held {held / len(after):.0%} of {len(after):,} times")


if __name__ == "__main__":
    main()
