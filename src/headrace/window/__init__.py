"""Window joins over late, disordered streams: exact for the rows that have arrived, estimated for those to come."""
