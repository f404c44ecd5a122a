"""The server as a picture (SVG)."""
