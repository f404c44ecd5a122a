"""Short runs made before a run: where its slow states (bitmap, rebuild, write buffers) will be.

Each pilot is a function of the scenario alone. `found` asks all of them, and remembers the answer:
every command that runs one scenario starts it from the same state.
"""

from nvmesim.predict.pilots.slow import SlowStates, found

__all__ = ["SlowStates", "found"]
