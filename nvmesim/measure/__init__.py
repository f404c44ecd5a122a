"""Run control and statistics: warm-up, batch means, latency, stations, groups."""
