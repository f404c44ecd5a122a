"""A software stack fitted to CPU figures: cycles to submit, complete, wake up, interrupt."""
