"""A model that follows its tables: six tables change, and the prices of houses are learnt from their join.

Run it with `python examples/house_prices.py`. It works in a temporary folder and takes about half a minute. The one
thing that it leaves behind is house_prices.svg, a drawing of how the model is kept.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pyarrow as pa

import headrace as hr
from headrace.datasets import dataset, stream

HOUSING = dataset("housing")  # house, shop, institution, restaurant, demographics and transport, all with a postcode
SCALE = 3  # 25,000 postcodes with 3 houses, 3 shops and 2 restaurants each
BATCH = 40_000
ABOUT_POSTCODES = ("institution", "demographics", "transport")  # one row a postcode, there from the start
# Every house is a house, a flat or unknown. With all three the data could not tell the features apart.
FEATURES = [name for name in HOUSING.features if name not in ("price", "unknown")]
SHOWN = ["livingarea", "nbbedrooms", "garden", "averagesalary"]
JOIN = "house NATURAL JOIN shop NATURAL JOIN institution NATURAL JOIN restaurant"
JOIN += " NATURAL JOIN demographics NATURAL JOIN transport"
COLUMNS = ", ".join(HOUSING.features)


def main() -> None:
    """Stream the tables, and show the model after every step."""
    tables = HOUSING.generate(SCALE)
    with tempfile.TemporaryDirectory(prefix="headrace-prices-") as state, hr.connect(state) as engine:
        for table in HOUSING.tables:
            engine.table(table.name, table.ddl, key=table.key or None)
        over = f"SELECT {COLUMNS} FROM {JOIN}"
        price = engine.model("price", hr.LinearRegression(label="price", features=FEATURES), over)
        moments = engine.covariance("moments", over)  # of all columns, for models that nobody has asked for yet
        gardens = engine.model(
            "by_garden",
            hr.LinearRegression(label="price", features=["livingarea", "averagesalary"]),
            f"SELECT garden, price, livingarea, averagesalary FROM {JOIN} GROUP BY garden",
        )
        engine.apply({name: tables.pop(name) for name in ABOUT_POSTCODES})
        follow(engine, price, tables)
        compare(engine, price)
        ask_again(moments)
        by_group(gardens)
        explain(price)


def follow(engine: hr.Engine, price: hr.Model, tables: dict[str, pa.Table]) -> None:
    """Apply batches that insert and delete. A step keeps all three views; a model is fitted when it is read."""
    names = "".join(f"{name:>15}" for name in SHOWN)
    print(f"{'step':>4} {'changes':>8} {'joined rows':>12} {'R^2':>7}{names} {'step ms':>9} {'refit ms':>9}")
    for changes in stream(tables, BATCH, deletes=0.2):
        step = engine.apply(changes)
        start = time.perf_counter()
        model = price.model
        refit = 1000 * (time.perf_counter() - start)
        coefficient = dict(zip(model.feature_names_, model.coef_, strict=True))
        shown = "".join(f"{coefficient[name]:15,.2f}" for name in SHOWN)
        rows, took = sum(step.rows.values()), 1000 * step.seconds
        print(f"{step.number:4} {rows:8,} {price.count:12,} {price.score():7.4f}{shown} {took:9.1f} {refit:9.1f}")


def compare(engine: hr.Engine, price: hr.Model) -> None:
    """Fit the same model to the rows of the join, which Headrace never made."""
    try:
        from sklearn.linear_model import LinearRegression
    except ImportError:
        print("\nscikit-learn is not installed, so there is nothing to compare with")
        return
    start = time.perf_counter()
    frames = [engine.tables[table.name].to_pandas() for table in HOUSING.tables]
    joined = frames[0]
    for frame in frames[1:]:
        joined = joined.merge(frame, on="postcode")
    peer = LinearRegression().fit(joined[FEATURES], joined["price"])
    took = 1000 * (time.perf_counter() - start)
    apart = max(abs(price.coef_ / peer.coef_ - 1))
    print(f"\nscikit-learn reads the tables, joins them and fits {len(joined):,} rows in {took:.0f} ms;")
    print(f"its coefficients differ by {apart:.0e} of their size at most")
    some = joined.iloc[:: len(joined) // 3]
    print(f"predicted {price.predict(some).round(-3).to_list()}, real {some['price'].round(-3).to_list()}")


def ask_again(moments: hr.Covariance) -> None:
    """Learn other models from the moments that are there; no table is read."""
    kept = moments.moments()
    print("\nother models from the same moments")
    for label, features in [
        ("price", ["livingarea"]),
        ("price", ["livingarea", "averagesalary", "distancecitycentre"]),
        ("crimesperyear", ["unemployment", "averagesalary"]),
    ]:
        start = time.perf_counter()
        model = hr.LinearRegression(label, features).fit(kept)
        took = 1000 * (time.perf_counter() - start)
        print(f"  {label} from {', '.join(features)}: R^2 {model.score(kept):.4f}, fitted in {took:.1f} ms")


def by_group(gardens: hr.Model) -> None:
    """Show one model a group."""
    print("\none model a group")
    print(gardens.to_pandas().round(2).to_string(index=False))


def explain(price: hr.Model) -> None:
    """Say how the model is kept, and draw it."""
    explained = price.explain()
    print(f"\n{explained}")
    Path("house_prices.svg").write_text(explained.to_svg())
    print("\nhouse_prices.svg shows the same as a drawing")


if __name__ == "__main__":
    main()
