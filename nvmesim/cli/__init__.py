"""The command `nvmesim`; modules of commands are imported when one is used."""

from nvmesim.cli.main import main

__all__ = ["main"]
