"""From one ring of numbers into another, so that factors of different types can be multiplied.

Integers go into wider integers, and into compensated doubles, to all their digits. Going into fewer limbs is exact
too, as long as the number fits in the end: it is arithmetic modulo a smaller power of two.
"""

from __future__ import annotations

import numpy as np

from headrace.rings.base import Payload
from headrace.rings.double import Compensated
from headrace.rings.integer import Integer

Number = Integer | Compensated


def embed(source: Number, target: Number, payload: Payload) -> Payload:
    """Bring elements of one ring into another.

    >>> embed(Integer(1), Integer(2), (np.array([-1]),))[1]
    array([18446744073709551615], dtype=uint64)
    >>> Compensated().values(embed(Integer(2), Compensated(), Integer(2).lift(np.array([-3]))))
    array([-3.])
    """
    if source == target:
        return payload
    if isinstance(source, Compensated):
        raise TypeError("a sum of doubles has no exact integer")
    if isinstance(target, Compensated):
        return _to_doubles(target, payload)
    if target.limbs == 1:
        return (payload[0].view(np.int64),)
    limbs = [column.view(np.uint64) for column in payload]
    sign = (payload[-1].view(np.int64) >> 63).view(np.uint64)
    return tuple((limbs + [sign] * target.limbs)[: target.limbs])


def _to_doubles(ring: Compensated, payload: Payload) -> Payload:
    # Halves of 32 bits are exact doubles; each step shifts what is there and adds the next half.
    half = np.uint64(0xFFFFFFFF)
    top = payload[-1].view(np.int64)
    total = ring.lift((top >> 32).astype(np.float64))
    shift = ring.lift(np.full(len(top), 2.0**32))
    halves = [(payload[-1].view(np.uint64) & half)]
    for column in reversed(payload[:-1]):
        limb = column.view(np.uint64)
        halves += [limb >> np.uint64(32), limb & half]
    for part in halves:
        total = ring.add(ring.multiply(total, shift), ring.lift(part.astype(np.float64)))
    return total
