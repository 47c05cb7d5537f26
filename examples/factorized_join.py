"""A join that is much larger than its tables, kept as the views that it factorizes into.

Run it with `python examples/factorized_join.py`. A film has actors, tags and reviews, and the join of the three has a
row for every combination. Two engines take the same steps: one keeps the rows of the join factorized, and one lists
them all. The first rows are read before the others exist, all answers are compared, and the views are drawn into
`factorized_join.svg`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.testing.oracle import assert_same

TABLES = {
    "casts": "film BIGINT, actor STRING",
    "tags": "film BIGINT, tag STRING",
    "reviews": "film BIGINT, reviewer BIGINT, stars INT",
}
JOIN = "SELECT film, actor, tag, reviewer, stars FROM casts NATURAL JOIN tags NATURAL JOIN reviews"
ACTORS, TAGS, REVIEWS = 12, 10, 15  # that a film gets


def main() -> None:
    """Keep the join twice, and say what each way took."""
    options = parse()
    with tempfile.TemporaryDirectory(prefix="headrace-films-") as folder:
        ways = {way: opened(Path(folder) / way, way) for way in ("factorized", "listing")}
        seconds = dict.fromkeys(ways, 0.0)
        for step in steps(options.films, options.steps):
            for way, (engine, _) in ways.items():
                start = time.perf_counter()
                engine.apply(step)
                seconds[way] += time.perf_counter() - start
        films, rows = (view for _, view in ways.values())
        print(f"the join has {films.count():,} rows, counted without listing them")
        start = time.perf_counter()
        first = list(islice(films.enumerate(), 3))
        print(f"its first {len(first)} rows took {1e3 * (time.perf_counter() - start):.1f} ms")
        for row in first:
            print("  ", *row.values())
        for way, (_, view) in ways.items():
            print(f"{way}: {1e3 * seconds[way]:,.0f} ms in steps, {view.explain().state_bytes:,} bytes")
        said = films.explain()["result"]
        print(f"{said['kept_values']:,} values are kept, of {said['listing_values']:,} in all rows")
        assert_same(films.to_arrow(), rows.to_arrow())
        print("both have the same rows")
        print(films.explain())
        Path("factorized_join.svg").write_text(films.explain().to_svg(), encoding="utf-8")
        for engine, _ in ways.values():
            engine.close()


def parse() -> argparse.Namespace:
    """Read how much is to be played."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--films", type=int, default=200, help="films (default 200)")
    made.add_argument("--steps", type=int, default=5, help="steps in which their rows come (default 5)")
    options = made.parse_args()
    if min(options.films, options.steps) < 1:
        made.error("--films and --steps take numbers from 1 on")
    return options


def opened(location: Path, representation: str) -> tuple[hr.Engine, hr.View]:
    """Open an engine with the tables, and the join as one view."""
    engine = hr.connect(location)
    for table, schema in TABLES.items():
        engine.table(table, schema)
    return engine, engine.view("films", JOIN, representation=representation)


def steps(films: int, count: int) -> Iterator[dict[str, pa.Table]]:
    """Changes: rows of all films in random order, and now and then a review that is taken back."""
    rng = np.random.default_rng(1)
    names = {"actor": np.array([f"actor {i}" for i in range(99)]), "tag": np.array([f"tag {i}" for i in range(40)])}
    gone = pa.table({})
    for step in range(count):
        some = np.arange(step, films, count)
        reviews = {"film": np.repeat(some, REVIEWS), "reviewer": rng.integers(0, 1_000, REVIEWS * len(some))}
        reviews |= {"stars": pa.array(rng.integers(1, 6, REVIEWS * len(some)), pa.int32())}
        rows = pa.table({**reviews, "__diff": np.ones(REVIEWS * len(some), np.int64)})
        yield {
            "casts": pa.table(
                {"film": np.repeat(some, ACTORS), "actor": rng.choice(names["actor"], ACTORS * len(some))}
            ),
            "tags": pa.table({"film": np.repeat(some, TAGS), "tag": rng.choice(names["tag"], TAGS * len(some))}),
            "reviews": rows if step == 0 else pa.concat_tables([rows, gone]),
        }
        few = rows.slice(0, 20)
        gone = few.set_column(3, "__diff", pa.array(np.full(few.num_rows, -1)))


if __name__ == "__main__":
    main()
