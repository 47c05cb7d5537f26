"""What changes cost that come through Spark: micro-batches of a stream, and DataFrames."""
