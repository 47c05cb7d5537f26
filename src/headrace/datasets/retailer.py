"""Retailer: a snowflake around stock counts, whose fact table is nearly all of the data.

Scale 1 is 1,000,000 inventory rows; above it only inventory and weather grow. As in the original about 70 items are
counted per visit (a place and a day), and weather has one row per visit: 14,285 at scale 1. Below scale 1 the
dimensions shrink too. (locn, dateid, ksn) is unique.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.dataset import Columns, Dataset, TableSpec, shrunk

INVENTORY = 1_000_000
ITEMS_A_VISIT = 70
LOCATIONS = 1_317
ZIPS = 1_302
DATES = 1_120
ITEMS = 3_001
_JOIN = ("locn", "dateid", "ksn", "zip")
_RIVALS = ("supertarget", "target", "walmart", "walmartsupercenter")


def _make(scale: float, random: np.random.Generator) -> dict[str, Columns]:
    rows = max(1, round(INVENTORY * scale))
    locations, dates = shrunk(LOCATIONS, scale, least=20, power=0.5), shrunk(DATES, scale, least=40, power=0.5)
    items = _prime(shrunk(ITEMS, scale, least=251, power=0.5))
    zips = max(1, locations * ZIPS // LOCATIONS)
    census = _census(zips, random)
    location = _location(locations, zips, random)
    item: Columns = {
        "ksn": np.arange(items),
        "subcategory": random.integers(0, 31, items),
        "category": random.integers(0, 10, items),
        "categorycluster": random.integers(0, 8, items),
        "prize": random.gamma(2, 12, items),
    }
    # Each visit is another place and day; past all of them (scale 100) visits only get longer.
    visits = min(max(1, rows // ITEMS_A_VISIT), locations * dates)
    place, day = np.divmod(random.choice(locations * dates, visits, replace=False), dates)
    weather = _weather(place, day, random)

    visit = np.sort(random.integers(0, visits, rows))
    nth = np.arange(rows) - np.searchsorted(visit, np.arange(visits))[visit]
    # Steps of one length over a prime number of items come to each item once: no item is counted twice in a visit.
    first, step = random.integers(0, items, visits), random.integers(1, items, visits)
    ksn = (first[visit] + nth * step[visit]) % items
    locn = place[visit]
    demand = (
        12
        + 0.0004 * census["population"][location["zip"]]
        + 0.00015 * location["sell_area_sq_ft"]
        + 0.8 * location["walmartdistance"]
    )
    units = (
        demand[locn]
        + 1.5 * item["category"][ksn]
        - 0.25 * item["prize"][ksn]
        + (0.05 * weather["maxtemp"] - 2 * weather["snow"])[visit]
        + random.normal(0, 4, rows)
    )
    inventory: Columns = {
        "locn": locn,
        "dateid": day[visit],
        "ksn": ksn,
        "inventoryunits": np.maximum(0, units.round()),
    }
    return {"inventory": inventory, "location": location, "census": census, "item": item, "weather": weather}


def _census(zips: int, random: np.random.Generator) -> Columns:
    population = random.gamma(3, 9_000, zips)
    houses = population / random.uniform(2, 3, zips)
    households = houses * random.uniform(0.85, 1, zips)
    males = population * random.uniform(0.47, 0.52, zips)
    shares = random.dirichlet([12, 2, 0.3, 3, 2], zips).T * population
    return {
        "zip": np.arange(zips),
        "population": population.round(),
        "white": shares[0].round(),
        "asian": shares[1].round(),
        "pacific": shares[2].round(),
        "blackafrican": shares[3].round(),
        "medianage": random.normal(38, 5, zips),
        "occupiedhouseunits": households.round(),
        "houseunits": houses.round(),
        "families": (households * random.uniform(0.5, 0.8, zips)).round(),
        "households": households.round(),
        "husbwife": (households * random.uniform(0.3, 0.6, zips)).round(),
        "males": males.round(),
        "females": (population - males).round(),
        "householdschildren": (households * random.uniform(0.2, 0.4, zips)).round(),
        "hispanic": shares[4].round(),
    }


def _location(locations: int, zips: int, random: np.random.Generator) -> Columns:
    area = random.normal(110_000, 15_000, locations)
    columns: Columns = {
        "locn": np.arange(locations),
        # A few places share a zip.
        "zip": random.permutation(np.arange(locations) % zips),
        "rgn_cd": random.integers(0, 8, locations),
        "clim_zn_nbr": random.integers(0, 12, locations),
        "tot_area_sq_ft": area,
        "sell_area_sq_ft": area * random.uniform(0.7, 0.85, locations),
        "avghhi": random.normal(60_000, 12_000, locations),
    }
    for rival in _RIVALS:
        distance = random.gamma(2, 4, locations)
        columns[f"{rival}distance"] = distance
        columns[f"{rival}drivetime"] = 3 + 1.6 * distance + random.normal(0, 1, locations)
    return columns


def _weather(place: NDArray[np.int64], day: NDArray[np.int64], random: np.random.Generator) -> Columns:
    size = len(place)
    maximum = 62 + 22 * np.sin(2 * np.pi * day / 365) + random.normal(0, 8, size)
    return {
        "locn": place,
        "dateid": day,
        "rain": random.random(size) < 0.3,
        "snow": (maximum < 40) & (random.random(size) < 0.3),
        "maxtemp": maximum,
        "mintemp": maximum - random.gamma(6, 3, size),
        "meanwind": random.gamma(3, 3, size),
        "thunder": random.random(size) < 0.05,
    }


def _prime(least: int) -> int:
    """Return the first prime number from `least` on."""
    while any(least % divisor == 0 for divisor in range(2, int(least**0.5) + 1)):
        least += 1
    return least


RETAILER = Dataset(
    name="retailer",
    tables=(
        TableSpec.with_features(
            "inventory",
            "locn BIGINT, dateid BIGINT, ksn BIGINT, inventoryunits DOUBLE",
            apart=_JOIN,
            key=("locn", "dateid", "ksn"),
        ),
        TableSpec.with_features(
            "location",
            "locn BIGINT, zip BIGINT, rgn_cd INT, clim_zn_nbr INT, tot_area_sq_ft DOUBLE, sell_area_sq_ft DOUBLE, "
            "avghhi DOUBLE, " + ", ".join(f"{rival}distance DOUBLE, {rival}drivetime DOUBLE" for rival in _RIVALS),
            apart=_JOIN,
            key=("locn",),
        ),
        TableSpec.with_features(
            "census",
            "zip BIGINT, population DOUBLE, white DOUBLE, asian DOUBLE, pacific DOUBLE, blackafrican DOUBLE, "
            "medianage DOUBLE, occupiedhouseunits DOUBLE, houseunits DOUBLE, families DOUBLE, households DOUBLE, "
            "husbwife DOUBLE, males DOUBLE, females DOUBLE, householdschildren DOUBLE, hispanic DOUBLE",
            apart=_JOIN,
            key=("zip",),
        ),
        TableSpec.with_features(
            "item",
            "ksn BIGINT, subcategory INT, category INT, categorycluster INT, prize DOUBLE",
            apart=_JOIN,
            key=("ksn",),
        ),
        TableSpec.with_features(
            "weather",
            "locn BIGINT, dateid BIGINT, rain INT, snow INT, maxtemp DOUBLE, mintemp DOUBLE, meanwind DOUBLE, "
            "thunder INT",
            apart=_JOIN,
            key=("locn", "dateid"),
        ),
    ),
    label="inventoryunits",
    order="""\
locn
  dateid: weather
    ksn: inventory, item
  zip: location, census""",
    about="stock counts of a chain of shops: a snowflake of 5 tables, nearly all rows in one",
    make=_make,
    categorical=("subcategory", "category", "categorycluster", "rain", "snow", "thunder"),
)
