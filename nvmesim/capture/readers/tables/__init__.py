"""Readers of tables: points typed from datasheets, and published block traces."""
