"""Answers as blocks: captures, fits, scores, and studies of many designs."""
