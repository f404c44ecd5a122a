"""Predicted against measured: published measurements, calibrated on their inputs alone.

A set is a folder of `calibration/published`: ``set.toml``, ``rows.csv``, ``scenario.toml`` and a
generated ``report.md``. `published` reads it, a `Question` is without the targets' values, `answer`
calibrates and predicts, `score` compares.
"""
