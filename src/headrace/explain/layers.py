"""Places the boxes of an acyclic graph in layers, so that few arrows cross and no two boxes touch.

A picture of a plan is only of use if one sees what is linked to what. The usual way is taken: what an arrow passes by
has a place of its own in every layer, each layer is put in the order of what it is linked to, and then boxes move
towards their neighbours as far as their layer lets them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_SWEEPS = 8

Link = tuple[str, str]
"""Two places of neighbouring layers, the upper one first."""


@dataclass
class Place:
    """Something in a layer, and where it stands."""

    layer: int
    width: float
    weight: float = 1  # how much it insists on its place, and others on standing straight above or below it
    x: float = 0  # the middle


def arrange(places: Mapping[str, Place], links: Sequence[Link], gap: float) -> None:
    """Give every place an x: none to the left of 0, and those of a layer at least a gap apart."""
    above, below = defaultdict(list), defaultdict(list)
    for upper, lower in links:
        above[lower].append(upper)
        below[upper].append(lower)
    layers = _ordered(places, links, above, below)
    for layer in layers:
        at = -(sum(places[name].width for name in layer) + gap * (len(layer) - 1)) / 2
        for name in layer:
            places[name].x = at + places[name].width / 2
            at += places[name].width + gap
    for _ in range(_SWEEPS):
        for layer in layers:
            _move(places, layer, above, gap)
        for layer in reversed(layers):
            _move(places, layer, below, gap)
    both = {name: above[name] + below[name] for name in places}
    for layer in layers * (4 * _SWEEPS):  # what the last sweep bent is straightened
        _move(places, layer, both, gap)
    left = min(place.x - place.width / 2 for place in places.values())
    for place in places.values():
        place.x -= left


def straighten(places: Sequence[Place], lanes: Sequence[Sequence[Place]], gap: float) -> None:
    """Let lanes, the places that arrows pass on their way through layers, go straight down where there is room.

    Nothing changes sides, and a lane keeps its bends if any place would be nearer to it than a gap.
    """
    for lane in lanes:
        beside = [(own, other) for own in lane for other in places if other.layer == own.layer and other is not own]

        def is_free(x: float, beside: Sequence[tuple[Place, Place]] = beside) -> bool:
            return all(
                (x < other.x) == (own.x < other.x) and abs(x - other.x) >= (own.width + other.width) / 2 + gap
                for own, other in beside
            )

        bends = {x: sum(abs(place.x - x) for place in lane) for x in (place.x for place in lane) if is_free(x)}
        if bends:
            straight = min(bends, key=lambda x: bends[x])
            for place in lane:
                place.x = straight


Neighbours = Mapping[str, list[str]]
Block = tuple[float, float, list[tuple[str, float]]]
"""Where the first of its members stands, its weight, and its members with how far they are from the first."""


def _ordered(
    places: Mapping[str, Place], links: Sequence[Link], above: Neighbours, below: Neighbours
) -> list[list[str]]:
    layers = [
        [name for name in places if places[name].layer == layer]
        for layer in range(1 + max(place.layer for place in places.values()))
    ]
    best, fewest = layers, _crossings(layers, links)
    for sweep in range(_SWEEPS):
        neighbours = above if sweep % 2 == 0 else below
        layers = [list(layer) for layer in layers]
        position = {name: float(i) for layer in layers for i, name in enumerate(layer)}
        for at in range(len(layers)) if neighbours is above else reversed(range(len(layers))):
            layers[at].sort(key=lambda name: _mean([position[n] for n in neighbours[name]], position[name]))
            position.update({name: float(i) for i, name in enumerate(layers[at])})
        if (crossings := _crossings(layers, links)) < fewest:
            best, fewest = layers, crossings
    return best


def _crossings(layers: Sequence[Sequence[str]], links: Sequence[Link]) -> int:
    position = {name: (at, i) for at, layer in enumerate(layers) for i, name in enumerate(layer)}
    ends = sorted((position[upper], position[lower]) for upper, lower in links)
    return sum(a[0][0] == b[0][0] and a[0] < b[0] and a[1] > b[1] for i, a in enumerate(ends) for b in ends[i + 1 :])


def _move(places: Mapping[str, Place], layer: Sequence[str], neighbours: Neighbours, gap: float) -> None:
    """Move a layer's places as near to the middle of their neighbours as their order and their widths allow.

    Places that would overlap form a block, which stands where its members are off by the least, squared.
    """
    blocks: list[Block] = []
    for name in layer:
        place = places[name]
        wanted = _towards(places, neighbours[name], place.x)
        block = (wanted, place.weight, [(name, 0.0)])
        while blocks and blocks[-1][0] + _reach(places, blocks[-1], block, gap) > block[0]:
            block = _joined(places, blocks.pop(), block, gap)
        blocks.append(block)
    for where, _, members in blocks:
        for name, offset in members:
            places[name].x = where + offset


def _reach(places: Mapping[str, Place], left: Block, right: Block, gap: float) -> float:
    """How far the first member of a block is at least from the first member of the block to its left."""
    (last, offset), (first, _) = left[2][-1], right[2][0]
    return offset + (places[last].width + places[first].width) / 2 + gap


def _joined(places: Mapping[str, Place], left: Block, right: Block, gap: float) -> Block:
    reach, weight = _reach(places, left, right, gap), left[1] + right[1]
    where = (left[0] * left[1] + (right[0] - reach) * right[1]) / weight
    return where, weight, [*left[2], *((name, offset + reach) for name, offset in right[2])]


def _towards(places: Mapping[str, Place], neighbours: Sequence[str], otherwise: float) -> float:
    weight = sum(places[name].weight for name in neighbours)
    return sum(places[name].weight * places[name].x for name in neighbours) / weight if neighbours else otherwise


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
