"""Housing: a star of six tables on the postcode, the papers' smallest training join.

Scale s from 1 up keeps 25,000 postcodes, with s houses, s shops and 2s/3 restaurants (rounded, at least 1) each, and
one institution, demography and transport: 150,000 rows at scale 1, 1,400,000 at 20, 6,750,000 at 100. (With s
restaurants it would be 1,575,000 at 20; the papers count 1,400,000.) Below 1 there are fewer postcodes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.dataset import Columns, Dataset, TableSpec, shrunk

POSTCODES = 25_000
_JOIN = ("postcode",)


def _make(scale: float, random: np.random.Generator) -> dict[str, Columns]:
    postcodes = np.arange(shrunk(POSTCODES, scale, least=10), dtype=np.int64)
    size = len(postcodes)
    # Hidden from the tables: how well off a postcode is. It makes columns of different tables correlate.
    wealth = random.normal(0, 1, size)
    distance = random.gamma(2, 4, size)
    demographics: Columns = {
        "postcode": postcodes,
        "averagesalary": 30_000 + 6_000 * wealth + random.normal(0, 2_000, size),
        "crimesperyear": np.maximum(0, 200 - 40 * wealth + random.normal(0, 30, size)),
        "unemployment": np.clip(6 - 1.5 * wealth + random.normal(0, 1, size), 0, 30),
        "nbhospitals": random.poisson(1.2, size),
    }
    transport: Columns = {
        "postcode": postcodes,
        "nbbuslines": random.poisson(2 + 20 / (1 + distance)),
        "nbtrainstations": random.poisson(1 + 2 / (1 + distance)),
        "distancecitycentre": distance,
    }
    institution: Columns = {
        "postcode": postcodes,
        "typeeducation": random.integers(0, 5, size),
        "sizeinstitution": random.gamma(3, 150, size),
    }
    houses = np.repeat(postcodes, max(1, round(scale)))
    shops = np.repeat(postcodes, max(1, round(scale)))
    restaurants = np.repeat(postcodes, max(1, round(2 * scale / 3)))
    brand = random.integers(0, 4, len(shops))
    # What all houses of a postcode share of their prices.
    local = 1.5 * demographics["averagesalary"] - 120 * demographics["crimesperyear"] - 1_500 * distance
    return {
        "house": _house(houses, local, random),
        "shop": {
            "postcode": shops,
            "openinghoursshop": random.uniform(6, 24, len(shops)),
            "pricerangeshop": np.clip(3 + wealth[shops] + random.normal(0, 1, len(shops)), 1, 5),
            "sainsburys": brand == 0,
            "tesco": brand == 1,
            "ms": brand == 2,
        },
        "institution": institution,
        "restaurant": {
            "postcode": restaurants,
            "openinghoursrest": random.uniform(4, 16, len(restaurants)),
            "pricerangerest": np.clip(3 + wealth[restaurants] + random.normal(0, 1, len(restaurants)), 1, 5),
        },
        "demographics": demographics,
        "transport": transport,
    }


def _house(postcode: NDArray[np.int64], local: NDArray[np.float64], random: np.random.Generator) -> Columns:
    size = len(postcode)
    area = random.gamma(6, 18, size)
    bedrooms = 1 + random.poisson(area / 45)
    bathrooms = 1 + random.poisson(area / 120)
    kitchen = 5 + 0.08 * area + random.normal(0, 2, size)
    kind = random.choice(3, size, p=[0.6, 0.3, 0.1])
    garden, parking = random.random(size) < 0.5, random.random(size) < 0.4
    price = (
        local[postcode]
        + 1_800 * area
        + 9_000 * bedrooms
        + 12_000 * bathrooms
        + 700 * kitchen
        + 25_000 * (kind == 0)
        + 15_000 * garden
        + 8_000 * parking
        + random.normal(0, 15_000, size)
    )
    return {
        "postcode": postcode,
        "livingarea": area,
        "price": price,
        "nbbedrooms": bedrooms,
        "nbbathrooms": bathrooms,
        "kitchensize": kitchen,
        "house": kind == 0,
        "flat": kind == 1,
        "unknown": kind == 2,
        "garden": garden,
        "parking": parking,
    }


HOUSING = Dataset(
    name="housing",
    tables=(
        TableSpec.with_features(
            "house",
            "postcode BIGINT, livingarea DOUBLE, price DOUBLE, nbbedrooms INT, nbbathrooms INT, kitchensize DOUBLE, "
            "house INT, flat INT, unknown INT, garden INT, parking INT",
            apart=_JOIN,
        ),
        TableSpec.with_features(
            "shop",
            "postcode BIGINT, openinghoursshop DOUBLE, pricerangeshop DOUBLE, sainsburys INT, tesco INT, ms INT",
            apart=_JOIN,
        ),
        TableSpec.with_features(
            "institution", "postcode BIGINT, typeeducation INT, sizeinstitution DOUBLE", apart=_JOIN, key=_JOIN
        ),
        TableSpec.with_features(
            "restaurant", "postcode BIGINT, openinghoursrest DOUBLE, pricerangerest DOUBLE", apart=_JOIN
        ),
        TableSpec.with_features(
            "demographics",
            "postcode BIGINT, averagesalary DOUBLE, crimesperyear DOUBLE, unemployment DOUBLE, nbhospitals INT",
            apart=_JOIN,
            key=_JOIN,
        ),
        TableSpec.with_features(
            "transport",
            "postcode BIGINT, nbbuslines INT, nbtrainstations INT, distancecitycentre DOUBLE",
            apart=_JOIN,
            key=_JOIN,
        ),
    ),
    label="price",
    order="postcode: house, shop, institution, restaurant, demographics, transport",
    about="houses and what is around them: a star of 6 tables on the postcode",
    make=_make,
    categorical=(
        *("nbbedrooms", "nbbathrooms", "house", "flat", "unknown", "garden", "parking"),
        *("sainsburys", "tesco", "ms", "typeeducation", "sizeinstitution"),
    ),
)
