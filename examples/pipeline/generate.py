"""Write input files for `sales.sql`: Parquet files of sales, of which later ones also correct and delete earlier sales.

Run it with `python examples/pipeline/generate.py [FOLDER] [--files N]`; each run adds files after those that are there.
"""

from __future__ import annotations

import argparse
import datetime
import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 1_000
SHOPS = ["Aarhus", "Bergen", "Cork", "Delft"]
SCHEMA = pa.schema(
    [
        ("sale_id", pa.int64()),
        ("shop", pa.string()),
        ("day", pa.date32()),
        ("quantity", pa.int32()),
        ("price", pa.decimal128(10, 2)),
        ("__diff", pa.int64()),
    ]
)
Sale = tuple[int, str, datetime.date, int, Decimal]


def main() -> None:
    """Write files behind those that are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent / "incoming")
    parser.add_argument("--files", type=int, default=3, help="how many files to add (default 3)")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    there = len(list(options.folder.glob("sales-*.parquet")))
    for number in range(there, there + options.files):
        rows = [(*sale, 1) for sale in new_sales(number)]
        if number:
            rows += corrections(number)
        path = options.folder / f"sales-{number:04d}.parquet"
        columns = list(zip(*rows, strict=True))
        # Under another name first: a running pipeline must not see half a file. Spark skips names with a dot.
        partial = path.with_name(f".{path.name}")
        pq.write_table(pa.table(columns, schema=SCHEMA), partial)
        partial.rename(path)
        print(f"{path.name}: {len(rows):,} changes")


def new_sales(number: int) -> list[Sale]:
    """Draw the new sales of one file; the number is the seed, so they can be drawn again."""
    drawn = random.Random(number)
    first = datetime.date(2025, 1, 1)
    return [
        (
            number * ROWS + i,
            drawn.choice(SHOPS),
            first + datetime.timedelta(days=drawn.randrange(365)),
            drawn.randint(1, 5),
            Decimal(drawn.randint(100, 9_999)).scaleb(-2),
        )
        for i in range(ROWS)
    ]


def corrections(number: int) -> list[tuple[object, ...]]:
    """Change a few sales of the file before: some get another price (a deletion and an insertion), some go."""
    rows: list[tuple[object, ...]] = []
    for i, sale in enumerate(new_sales(number - 1)[:20]):
        rows.append((*sale, -1))
        if i % 2:
            rows.append((*sale[:-1], sale[-1] + 1, 1))
    return rows


if __name__ == "__main__":
    main()
