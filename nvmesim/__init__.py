"""Predict how NVMe storage scales before the hardware is bought."""

__version__ = "0.1.0"
