"""Rings: the algebra of payloads. One ring per file; `base` has the protocols, `laws` what they must obey."""

from headrace.rings.base import Gathering, Group, Monoid, Payload, Ring, Semiring, concatenate, gathers, take
from headrace.rings.covariance import Covariance
from headrace.rings.double import Compensated
from headrace.rings.integer import COUNT, Integer
from headrace.rings.laws import LAWS, violations
from headrace.rings.mixed import MixedCovariance
from headrace.rings.parity import PARITY, Parity
from headrace.rings.product import Product
from headrace.rings.relational import Relational
from headrace.rings.vector import Vector

__all__ = [
    "COUNT",
    "LAWS",
    "PARITY",
    "Compensated",
    "Covariance",
    "Gathering",
    "Group",
    "Integer",
    "MixedCovariance",
    "Monoid",
    "Parity",
    "Payload",
    "Product",
    "Relational",
    "Ring",
    "Semiring",
    "Vector",
    "concatenate",
    "gathers",
    "take",
    "violations",
]
