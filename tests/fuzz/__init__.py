"""Fuzzing of everything that reads files which come by mail; ``make fuzz`` runs it."""
