"""Foreign-key joins of TPC-H under a window that slides: updates per second, beside Flink SQL and Pathway."""
