"""What asks: requests, replayed traces, flushes, limits of a tenant."""
