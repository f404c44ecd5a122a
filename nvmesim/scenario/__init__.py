"""Scenario files: read, checked, and resolved to everything that a prediction depends on."""
