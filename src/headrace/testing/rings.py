"""Hold a ring to its laws: what to call in the tests of a ring of your own.

Everything Headrace does with a payload rests on the laws of groups and rings, and nothing else does, so a ring that
passes can be used anywhere.
"""

from __future__ import annotations

import numpy as np

from headrace.rings import Monoid
from headrace.rings.laws import violations


def check_ring(ring: Monoid, seed: int = 0, rounds: int = 20) -> None:
    """Raise AssertionError, listing the laws that fail, unless a ring (or group) obeys all of them.

    Parameters
    ----------
    ring : the ring, or a semiring; its own `sample` draws the elements.
    seed : the same seed draws the same elements.
    rounds : how many times 64 triples of elements are drawn.

    >>> from headrace.rings import Integer, Product, Compensated
    >>> check_ring(Product((Integer(2), Compensated())))
    >>> class Forgetful(Integer):
    ...     def negate(self, payload):
    ...         return payload
    >>> check_ring(Forgetful())
    Traceback (most recent call last):
    ...
    AssertionError: Forgetful(limbs=1) breaks 4 laws:
      is_zero(a - a) is false
      a - a = 0: (array([2]),) != (array([0]),)
      insert then delete changes nothing: (array([3]),) != (array([1]),)
      scaling by -1 negates: (array([-1]),) != (array([1]),)
    """
    rng = np.random.default_rng(seed)
    found: dict[str, str] = {}
    for _ in range(rounds):
        for line in violations(ring, rng):
            found.setdefault(line.partition(":")[0], line)
    if found:
        laws = "law" if len(found) == 1 else "laws"
        raise AssertionError(
            f"{ring!r} breaks {len(found)} {laws}:" + "".join(f"\n  {line}" for line in found.values())
        )
