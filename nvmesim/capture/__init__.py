"""Readers of captures: one registry, one common table."""
