"""What views cost under a memory budget, beside recomputing, keeping everything, and caching by benefit."""
