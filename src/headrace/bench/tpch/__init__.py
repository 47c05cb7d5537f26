"""The 22 queries of TPC-H as views: what filling a view and each step cost, beside running the query with Spark."""
