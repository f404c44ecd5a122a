"""Inference: from simulated points to an optimum and to the distribution of parameters."""
