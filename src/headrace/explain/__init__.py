"""EXPLAIN: reports as values, and the one way to write, draw and store them."""
