"""Studies of many predictions: sweep, rank, sensitivity, choose, size, validate."""
