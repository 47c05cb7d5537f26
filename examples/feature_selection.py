"""Which columns say something of one another: a Chow-Liu tree over a join that changes, and what it is good for.

Couriers bring meals. Orders, shops and couriers are three tables; whether a meal comes late is known for each order.
After every step, the tree over all columns shows what hangs together, the ranking says what tells late orders from
others, and a naive Bayes model predicts them from three columns. Half way, it begins to rain.

    python examples/feature_selection.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import headrace as hr

FEATURES = ["late", "weather", "vehicle", "distance", "district", "cuisine", "hour"]
OVER = f"SELECT {', '.join(FEATURES)} FROM orders JOIN shop USING (shop) JOIN courier USING (courier)"
SHOPS, COURIERS, ORDERS = 300, 120, 20_000


def main() -> None:
    """Stream orders, and show what the models learn from them."""
    rng = np.random.default_rng(3)
    shop, courier = shops(rng), couriers(rng)
    first = orders(rng, 0, shop, courier, rain=0.02)
    bins = hr.equal_bins(first, ["distance", "hour"], 6)  # numbers become categories, by these edges from now on
    with tempfile.TemporaryDirectory(prefix="headrace-features-") as state, hr.connect(state) as engine:
        engine.table("shop", "shop BIGINT, cuisine STRING, district STRING", key="shop")
        engine.table("courier", "courier BIGINT, vehicle STRING", key="courier")
        columns = "id BIGINT, shop BIGINT, courier BIGINT, weather STRING, distance DOUBLE, hour INT, late BOOLEAN"
        engine.table("orders", columns, key="id")
        tree = engine.model("tree", hr.ChowLiuTree(FEATURES, bins=bins), OVER)
        ranked = engine.model("ranked", hr.MutualInformation(FEATURES[1:], label="late", bins=bins), OVER)
        best = engine.model("best", hr.NaiveBayes("late", ["weather", "vehicle", "distance"], bins=bins), OVER)
        engine.apply({"shop": shop, "courier": courier})
        for step, rain in enumerate([0.02, 0.02, 0.4, 0.6]):
            batch = first if step == 0 else orders(rng, step, shop, courier, rain)
            done = engine.apply({"orders": batch})
            print(f"\n{done}")
            show(tree, ranked)
            told = batch.merge(shop, on="shop").merge(courier, on="courier")
            print(f"  right predictions of this batch's orders: {best.score(told):.1%}")
        Path("features.svg").write_text(tree.to_svg("What hangs together"))
        Path("features.dot").write_text(tree.to_dot())
        print("\nfeatures.svg shows the tree, features.dot is for Graphviz")
        compare(ranked, engine)


def show(tree: hr.Model, ranked: hr.Model) -> None:
    """Print the tree, what changed in it, and the columns that say most of the label."""
    for a, b, information in tree.edges_:
        print(f"  {a:>9} - {b:9} {information:.4f} nats")
    if tree.changes_:
        print("  new edges:", ", ".join(f"{a} - {b}" for a, b, _ in tree.changes_.added))
        print("  gone:", ", ".join(f"{a} - {b}" for a, b, _ in tree.changes_.removed))
    print("  late orders are told by", ", ".join(f"{name} ({value:.4f})" for name, value in ranked.ranking_[:3]))


def compare(ranked: hr.Model, engine: hr.Engine) -> None:
    """Compute one number of the matrix from the rows of the join, which Headrace never made."""
    try:
        from sklearn.metrics import mutual_info_score
    except ImportError:
        print("scikit-learn is not installed, so there is nothing to compare with")
        return
    frames = [engine.tables[name].to_pandas() for name in ("orders", "shop", "courier")]
    joined = frames[0].merge(frames[1], on="shop").merge(frames[2], on="courier")
    names = ranked.feature_names_
    ours = ranked.matrix_[names.index("late"), names.index("vehicle")]
    theirs = mutual_info_score(joined["late"], joined["vehicle"])
    print(f"late and vehicle share {ours:.6f} nats; scikit-learn, over {len(joined):,} joined rows: {theirs:.6f}")


def shops(rng: np.random.Generator) -> pd.DataFrame:
    """Shops in districts; what they cook has something to do with where they are."""
    district = rng.choice(["centre", "harbour", "hills"], SHOPS, p=[0.5, 0.3, 0.2])
    liked = {"centre": [0.5, 0.3, 0.2], "harbour": [0.2, 0.3, 0.5], "hills": [0.3, 0.6, 0.1]}
    cuisine = [rng.choice(["noodles", "pizza", "fish"], p=liked[name]) for name in district]
    return pd.DataFrame({"shop": range(SHOPS), "cuisine": cuisine, "district": district})


def couriers(rng: np.random.Generator) -> pd.DataFrame:
    """Couriers with vehicles."""
    return pd.DataFrame({"courier": range(COURIERS), "vehicle": rng.choice(["bike", "scooter", "car"], COURIERS)})


def orders(rng: np.random.Generator, step: int, shop: pd.DataFrame, courier: pd.DataFrame, rain: float) -> pd.DataFrame:
    """Orders of some days: the hills are far, and bikes are slow in the rain, so that many of them stay at home."""
    made = pd.DataFrame({"id": np.arange(ORDERS) + step * ORDERS, "shop": rng.integers(0, SHOPS, ORDERS)})
    made["weather"] = np.where(rng.random(ORDERS) < rain, "rain", "dry")
    dry = courier["courier"].to_numpy()[courier["vehicle"] == "car"]
    by_car = (made["weather"] == "rain") & (rng.random(ORDERS) < rain)
    made["courier"] = np.where(by_car, rng.choice(dry, ORDERS), rng.integers(0, COURIERS, ORDERS))
    district = shop["district"].to_numpy()[made["shop"]]
    far = pd.Series(district).map({"centre": 1.5, "harbour": 3.0, "hills": 6.0}).to_numpy()
    made["distance"] = (far * rng.gamma(6, 1 / 6, ORDERS)).round(2)
    made["hour"] = rng.integers(11, 23, ORDERS)
    bike = courier["vehicle"].to_numpy()[made["courier"]] == "bike"
    trouble = 0.5 * made["distance"] + 2.5 * (bike & (made["weather"] == "rain")) + 0.5 * bike - 3.5
    made["late"] = rng.random(ORDERS) < 1 / (1 + np.exp(-trouble))
    return made


if __name__ == "__main__":
    main()
