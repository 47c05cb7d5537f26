"""Locations that are elsewhere, in an object store or in HDFS: a folder of this machine stands for each (`mirror`)."""
