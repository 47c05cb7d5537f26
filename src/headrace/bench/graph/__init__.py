"""Joins of an edge table with itself: triangles and paths, kept by each strategy over the same change batches."""
