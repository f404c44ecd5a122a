"""Sliders in a notebook, and the local web app."""
