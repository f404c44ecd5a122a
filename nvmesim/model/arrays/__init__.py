"""RAID volumes as stations: their engine, what it shares, and work beside the load."""
