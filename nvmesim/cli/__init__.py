"""The command `nvmesim`; one module a command, imported when it is used."""

from nvmesim.cli.app import main

__all__ = ["main"]
