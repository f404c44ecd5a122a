"""Predicted against measured: published measurements, calibrated on their inputs alone.

A set is a folder of `calibration/published`: ``set.toml``, ``rows.csv``, ``scenario.toml`` and a
generated ``report.md``. `published` reads it, `question` takes the targets' values away, `answer`
calibrates and predicts, `score` compares.
"""

from nvmesim.validate.answer import Prediction, answer
from nvmesim.validate.published import Published, find_sets, read_set
from nvmesim.validate.question import Question
from nvmesim.validate.score import Line, Score, score

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
