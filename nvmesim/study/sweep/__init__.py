"""Many scenarios at once: a grid or samples of a scenario's keys."""
