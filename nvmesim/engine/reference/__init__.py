"""The reference engine: a network in SimPy processes, to be read and extended."""
