"""Covariance over joins: how fast each strategy keeps it up to date, beside Spark's recomputation.

There is one benchmark per data set of the papers, and one that runs some of them on one core and on more.
"""
