"""Products of matrices under changes of low rank, beside multiplying them again."""
