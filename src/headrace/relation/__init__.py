"""Relations over rings without Spark: schemas, change batches, keys, runs and the arrangements made of them."""
