"""Readers of capture files, one module a format."""
