"""Readers of block-layer traces: blktrace, tracepoints, biosnoop."""
