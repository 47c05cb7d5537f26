"""Moments with categorical features over the joins of the papers: kept up to date, and recomputed."""
