"""Changes of a drive during a capture: buffers that fill, episodes, pauses, rate limits."""
