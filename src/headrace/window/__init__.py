"""Window joins over late and disordered streams: exact as far as rows have come, estimated beyond that."""
