"""Readers of fio's results: JSON, terse and text."""
