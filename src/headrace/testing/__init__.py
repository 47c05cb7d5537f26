"""What the tests of Headrace, and of anything built on it, check with."""

from headrace.testing.rings import check_ring

__all__ = ["check_ring"]
