"""Readers of DiskSpd's results: XML and text."""
