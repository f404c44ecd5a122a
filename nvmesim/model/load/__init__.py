"""Load on the server: requests, replayed traces, flushes, limits of a tenant."""
