"""Answers about many designs: tables, pages, terminal."""
