"""Words, terminal output, pages, charts and pictures of results, fits and sweeps."""
