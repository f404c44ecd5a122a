"""Engines: what both promise (contract), the SimPy reference, and the compiled kernel."""
