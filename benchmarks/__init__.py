"""How fast the engines are, against other simulators and a C program: `python -m benchmarks`."""
