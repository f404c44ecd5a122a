"""Commands that predict: run, sweep, compare, choose, size, validate."""
