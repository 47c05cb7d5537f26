"""What several benchmarks measure with: peak memory, processes bound to cores, and tables of named numbers."""
