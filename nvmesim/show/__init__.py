"""What people see: words, terminal, pages, charts and pictures of results, fits and sweeps."""
