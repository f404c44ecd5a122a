"""Measuring a drive while it is fitted: which row to measure next, and doing it without harm."""
