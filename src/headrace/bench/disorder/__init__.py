"""Window joins over late, disordered streams.

Two questions are measured: how wrong are answers that are given before all rows are there, and how many rows per second
does a window join take in? The joins that estimators are compared with live here too.
"""
