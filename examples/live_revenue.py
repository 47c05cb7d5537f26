"""A board of revenue that stays live: a window slides over the orders of TPC-H, and three views of joins follow.

Run it with `python examples/live_revenue.py` after `pip install "headrace[datasets]"`. It works in a temporary folder,
ends by itself in less than half a minute, much of which Spark needs to start. Orders come late at times, so there
are always lineitems that wait for theirs; the board says how many. `--plain` prints a line a step instead.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

import headrace as hr
from headrace.datasets.tpch import TPCH_SCHEMAS, tpch_columns
from headrace.datasets.windows import Updates, fifo_updates
from headrace.testing.oracle import Oracle, assert_same

COLUMNS = {
    "nation": ["n_nationkey", "n_name"],
    "supplier": ["s_suppkey", "s_nationkey"],
    "customer": ["c_custkey", "c_name", "c_nationkey", "c_mktsegment"],
    "part": ["p_partkey", "p_name"],
    "orders": ["o_orderkey", "o_custkey", "o_orderdate"],
    "lineitem": [
        *("l_orderkey", "l_linenumber", "l_partkey", "l_suppkey", "l_quantity", "l_extendedprice", "l_discount"),
        "l_shipdate",
    ],
}

# Query 7 of TPC-H for all pairs of nations. Sums of so few groups would be factorized, had we not asked otherwise.
FLOWS = """
SELECT seller.n_name AS seller, buyer.n_name AS buyer, year(l_shipdate) AS year,
       SUM(l_extendedprice * (1 - l_discount)) AS revenue
FROM lineitem
JOIN supplier ON l_suppkey = s_suppkey JOIN nation seller ON s_nationkey = seller.n_nationkey
JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
JOIN nation buyer ON c_nationkey = buyer.n_nationkey
GROUP BY seller.n_name, buyer.n_name, year(l_shipdate)
"""

# Query 3: what was ordered before a day and not shipped by then. A group is an order: a foreign-key join by itself.
TOP = """
SELECT l_orderkey AS number, c_name AS customer, o_orderdate AS day, SUM(l_extendedprice * (1 - l_discount)) AS revenue
FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
GROUP BY l_orderkey, c_name, o_orderdate
ORDER BY revenue DESC, number LIMIT 10
"""

# The rows of a join, with a condition that compares the nations at the ends of two paths.
ABROAD = """
SELECT l_orderkey AS number, l_linenumber AS line, CAST(l_quantity AS INT) AS units, p_name AS part,
       seller.n_name AS seller, buyer.n_name AS buyer, l_extendedprice AS price
FROM lineitem
JOIN supplier ON l_suppkey = s_suppkey JOIN nation seller ON s_nationkey = seller.n_nationkey
JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
JOIN nation buyer ON c_nationkey = buyer.n_nationkey
JOIN part ON l_partkey = p_partkey
WHERE l_extendedprice > 80000 AND seller.n_name <> buyer.n_name
"""

SHOWN = 10  # orders and nations on the board
CHANGED = 3  # shipments that came, and as many that went
BAR = 8
WIDE = 100  # columns of a terminal from which on there is room for everything


def main() -> None:
    """Slide the window, and show the board after every step."""
    options = parse()
    console = Console()
    plain = options.plain or not console.is_terminal
    try:
        with console.status(f"making TPC-H at scale {options.scale:g}"):
            updates = fifo_updates(tpch_columns(options.scale, COLUMNS), options.window, shuffle=7)
            batches = updates.batches(options.batch)
        with tempfile.TemporaryDirectory(prefix="headrace-revenue-") as state:
            with console.status("starting Spark"):
                engine = hr.connect(state)
            with engine:
                board = Board(engine, updates, options)
                (print_steps if plain else show_steps)(console, board, itertools.islice(batches, options.steps))
                console.print(board.summary, highlight=False, soft_wrap=True)
                if options.check:
                    check(engine)
                    console.print("all three answers equal what Spark computes from the rows that are left")
    except hr.HeadraceError as error:
        raise SystemExit(str(error)) from error


def parse() -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.01, help="TPC-H's scale factor (default 0.01)")
    parser.add_argument("--window", type=int, default=20_000, help="lineitems that stay (default 20,000)")
    parser.add_argument("--batch", type=int, default=5_000, help="updates a step (default 5,000)")
    parser.add_argument(
        "--steps", type=int, default=None, help="stop after so many steps (default: when all have come)"
    )
    parser.add_argument("--plain", action="store_true", help="print a line a step, as when the output is no terminal")
    parser.add_argument("--check", action="store_true", help="have Spark compute the answers at the end, and compare")
    options = parser.parse_args()
    if options.steps is not None and options.steps < 1:
        parser.error("--steps must be 1 or more")
    return options


def register(engine: hr.Engine, updates: Updates, window: int) -> None:
    """Register the tables with their keys, and with what they refer to of the tables that are used."""
    kept = min(1.0, window / updates.tables["lineitem"].num_rows)
    for name, rows in updates.tables.items():
        share = kept if name in ("orders", "lineitem") else 1.0
        references = {
            columns: other
            for columns, other in TPCH_SCHEMAS[name].references
            if other in COLUMNS and isinstance(columns, str) and columns in COLUMNS[name]
        }
        engine.table(
            name,
            rows.schema,
            key=TPCH_SCHEMAS[name].key,
            references=references,
            expected_rows=round(share * rows.num_rows),  # the tables are empty now, and sizes decide where rows meet
        )


def check(engine: hr.Engine) -> None:
    """Have Spark run the three queries over the rows of the tables, and compare."""
    oracle = Oracle(engine.spark)
    oracle.set_rows({name: table.to_arrow() for name, table in engine.tables.items()})
    for name, view in engine.views.items():
        assert isinstance(view, hr.View)
        try:
            assert_same(view.to_arrow(), oracle.answer(view.sql))
        except AssertionError as error:
            raise SystemExit(f"view {name} is wrong: {error}") from error


@dataclass
class Board:
    """The three views, and what the last step did to them."""

    engine: hr.Engine
    updates: Updates
    options: argparse.Namespace
    done: int = 0  # updates so far
    seconds: float = 0
    step: hr.Step | None = None
    nations: list[tuple[str, Decimal, Decimal]] = field(default_factory=list)  # with what each sold and bought
    top: list[dict[str, Any]] = field(default_factory=list)
    new: set[int] = field(default_factory=set)  # numbers of orders that were not on the board a step ago
    came: list[dict[str, Any]] = field(default_factory=list)  # shipments
    went: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        register(self.engine, self.updates, self.options.window)
        self.flows = self.engine.view("flows", FLOWS, strategy="foreign-key")
        self.orders = self.engine.view("top", TOP)
        self.abroad = self.engine.view("abroad", ABROAD)

    @property
    def steps(self) -> int:
        """How many steps there will be."""
        every = -(-self.updates.total // self.options.batch)
        return every if self.options.steps is None else min(every, self.options.steps)

    def apply(self, changes: dict[str, pa.Table]) -> None:
        """Make a step, and read what is shown: answers, and what the step changed of them."""
        self.step = self.engine.apply(changes)
        self.done += sum(self.step.rows.values())
        self.seconds += self.step.seconds
        self.nations = by_nation(self.flows.to_arrow())
        self.top = self.orders.to_arrow().to_pylist()
        changed = self.orders.changes().to_pylist()
        gone = {row["number"] for row in changed if row["__diff"] < 0}
        self.new = {row["number"] for row in changed if row["__diff"] > 0} - gone
        moved = sorted(self.abroad.changes().to_pylist(), key=lambda row: (-row["price"], row["number"], row["line"]))
        self.came = [row for row in moved if row["__diff"] > 0]
        self.went = [row for row in moved if row["__diff"] < 0]

    @property
    def headline(self) -> str:
        """Where we are, and how fast."""
        assert self.step is not None
        rows, seconds = sum(self.step.rows.values()), self.step.seconds
        return (
            f"step {self.step.number} of {self.steps}: {rows:,} updates in {1000 * seconds:,.0f} ms, "
            f"{rows / seconds:,.0f} a second"
        )

    @property
    def window(self) -> str:
        """What is in the window, and what of it waits for a row that it refers to."""
        operators = self.flows.explain()["operators"]
        found = [alive for o in operators if (alive := o.extra.get("alive")) and alive.source == "lineitem"]
        waiting = sum(alive.rows - alive.alive for alive in found)
        orders = self.engine.tables["orders"].rows
        return f"{max(alive.rows for alive in found):,} lineitems of {orders:,} orders; {waiting:,} wait for others"

    @property
    def summary(self) -> str:
        """What all steps came to."""
        assert self.step is not None
        state = self.step.state_bytes / 1e6
        return (
            f"{self.done:,} updates in {self.step.number} steps: {self.seconds:,.1f} s, "
            f"{self.done / self.seconds:,.0f} a second; {state:,.1f} MB of state"
        )


def by_nation(flows: pa.Table) -> list[tuple[str, Decimal, Decimal]]:
    """Sum the flows between nations to what each sold and bought, the largest seller first."""
    sides = []
    for side in ("seller", "buyer"):
        summed = flows.group_by(side).aggregate([("revenue", "sum")])
        sides.append(dict(zip(summed[side].to_pylist(), summed["revenue_sum"].to_pylist(), strict=True)))
    sold, bought = sides
    nations = sorted({*sold, *bought}, key=lambda name: (-sold.get(name, Decimal(0)), name))
    return [(name, sold.get(name, Decimal(0)), bought.get(name, Decimal(0))) for name in nations]


# -- how it looks -----------------------------------------------------------------------------------------------------


def print_steps(console: Console, board: Board, batches: Iterator[dict[str, pa.Table]]) -> None:
    """Print a line a step, and the board at the end."""
    for view in (board.flows, board.orders, board.abroad):
        explained = view.explain()
        console.print(f"view {view.name}: {explained.strategy}, because {explained.why}", soft_wrap=True)
    for changes in batches:
        board.apply(changes)
        moved = f"top orders +{len(board.new)}; abroad +{len(board.came)} -{len(board.went)}"
        console.print(f"{board.headline}; {board.window}; {moved}", soft_wrap=True, highlight=False)
    console.print(drawn(board, console.width))


def show_steps(console: Console, board: Board, batches: Iterator[dict[str, pa.Table]]) -> None:
    """Draw the board anew after every step."""
    with Live(console=console, auto_refresh=False) as live:
        for changes in batches:
            board.apply(changes)
            live.update(drawn(board, console.width), refresh=True)


def drawn(board: Board, width: int) -> RenderableType:
    """The whole board, for a terminal of so many columns."""
    wide = width >= WIDE
    sides = Table.grid(expand=True, padding=(0, 2))
    sides.add_column(ratio=5 if wide else 1)
    sides.add_column(ratio=4 if wide else 1)
    sides.add_row(drawn_orders(board, wide), drawn_nations(board, wide))
    head = Text.assemble((board.headline, "bold"), "\n", (board.window, "dim"))
    return Group(head, sides, "", drawn_changes(board))


def titled(title: str) -> Table:
    """A table without lines, so that the board fits a terminal of 80 columns and 24 lines."""
    return Table(title=title, title_justify="left", title_style="bold", box=None, expand=True, pad_edge=False)


def drawn_orders(board: Board, wide: bool) -> Table:
    """The largest orders that are not shipped; those that have just come to the top are green."""
    table = titled("largest unshipped orders")
    table.add_column("order", justify="right", no_wrap=True)
    if wide:
        table.add_column("customer", no_wrap=True)
    table.add_column("day", no_wrap=True)
    table.add_column("revenue", justify="right", no_wrap=True)
    for row in board.top:
        cells = [str(row["number"]), row["customer"], str(row["day"]), f"{row['revenue']:,.2f}"]
        table.add_row(*(cells if wide else cells[:1] + cells[2:]), style="green" if row["number"] in board.new else "")
    for _ in range(SHOWN - len(board.top)):  # so that the board keeps its height
        table.add_row("")
    return table


def drawn_nations(board: Board, wide: bool) -> Table:
    """What suppliers and customers of each nation sold and bought."""
    table = titled("revenue by nation, millions")
    table.add_column("nation", no_wrap=True)
    table.add_column("sold", justify="right", no_wrap=True)
    if wide:
        table.add_column("", no_wrap=True)
    table.add_column("bought", justify="right", no_wrap=True)
    most = board.nations[0][1] if board.nations else Decimal(0)
    for name, sold, bought in board.nations[:SHOWN]:
        bar = "▇" * round(BAR * sold / most) if most else ""
        cells = [name, f"{sold / 1_000_000:,.2f}", f"[cyan]{bar}[/]", f"{bought / 1_000_000:,.2f}"]
        table.add_row(*(cells if wide else cells[:2] + cells[3:]))
    for _ in range(SHOWN - len(board.nations)):
        table.add_row("")
    return table


def drawn_changes(board: Board) -> Table:
    """What the step changed of the shipments abroad: rows of the join that appeared and disappeared."""
    table = titled(f"large shipments abroad: {len(board.came)} came, {len(board.went)} went")
    table.show_header = False
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for sign, rows, style in (("+", board.came, "green"), ("-", board.went, "red")):
        for row in rows[:CHANGED]:
            way = f"{row['seller'].title()} to {row['buyer'].title()}"
            table.add_row(sign, f"{row['price']:,.2f}", way, f"{row['units']} x {row['part']}", style=style)
        for _ in range(CHANGED - len(rows)):
            table.add_row(sign, style="dim")
    return table


if __name__ == "__main__":
    main()
