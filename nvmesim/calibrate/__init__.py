"""Captures to profiles, with the evidence for every number."""
