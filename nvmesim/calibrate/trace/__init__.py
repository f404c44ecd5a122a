"""A drive fitted to a trace of single requests."""
