"""Tables of single requests: pairing, depth, statistics in flat memory."""
