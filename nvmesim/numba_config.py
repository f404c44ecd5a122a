"""Numba takes settings from ``.numba_config.yaml`` in the current folder: here it does not.

Who unpacks a stranger's captures and works in their folder would run with the stranger's settings:
without compilation, with other caches or libraries, or not at all where the file is not YAML. The
variables NUMBA_... hold as ever; they are the user's own.

Numba has no switch for it. So its module of settings is loaded without YAML at hand, and is then
told a name that is not a file. A Numba that was imported before nvmesim is left as it is.
"""

import importlib.machinery
import os
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

MODULE: Final = "numba.core.config"


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads Numba's settings without a file of settings."""

    def exec_module(self, module: ModuleType) -> None:
        before = sys.modules.get("yaml")
        sys.modules["yaml"] = None  # type: ignore[assignment]  # what makes an import fail
        try:
            with warnings.catch_warnings():  # that there is a file, and no YAML
                warnings.simplefilter("ignore")
                super().exec_module(module)
        finally:
            del sys.modules["yaml"]
            if before is not None:
                sys.modules["yaml"] = before
        setattr(module, "_config_fname", os.devnull)  # noqa: B010 - Numba has no types


class _Finder:
    """Finds that one module, once."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> Any:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def ignore_file() -> None:
    """Keep a Numba that is imported later from reading a file of the current folder."""
    if MODULE not in sys.modules and not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
