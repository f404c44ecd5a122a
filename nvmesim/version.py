"""The version of this package, and what its optional parts need."""

import re
from importlib import metadata
from typing import Final

__version__ = "0.1.0"
_EXTRA: Final = re.compile("""extra == ['"]([a-z]+)['"]""")


def install_command(extra: str) -> str:
    """Return what installs the packages of *extra* ("ui", "lab", "dask").

    It names the packages themselves, so it works wherever nvmesim came from: an index, a wheel or a
    source tree.

    >>> install_command("dask")
    "pip install 'distributed>=2026.1'"
    """
    try:
        every = metadata.requires("nvmesim") or []
    except metadata.PackageNotFoundError:  # run from a folder, never installed
        every = []
    own = [line for line in every if (found := _EXTRA.search(line)) and found[1] == extra]
    names = [f"'{line.partition(';')[0].strip()}'" for line in own]
    return f"pip install {' '.join(names)}" if names else f"pip install '.[{extra}]'"
