"""A drive fitted to measured points: reads, writes, buffers, episodes and limits."""
