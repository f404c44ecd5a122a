"""Readers of fio's logs: latency and bandwidth logs, histogram logs, iologs."""
