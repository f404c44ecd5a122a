"""Predicted against measured: published measurements, calibrated on their inputs alone.

A set is a folder of `calibration/published`: ``set.toml``, ``rows.csv``, ``scenario.toml`` and a
generated ``report.md``. `published` reads it, a `Question` is without the targets' values, `answer`
calibrates and predicts, `score` compares.
"""

from nvmesim.study.validate.answer import Prediction, answer
from nvmesim.study.validate.published import Published, Question, find_sets, read_set
from nvmesim.study.validate.score import Line, Score, score

__all__ = [
    "Line",
    "Prediction",
    "Published",
    "Question",
    "Score",
    "answer",
    "find_sets",
    "read_set",
    "score",
]
