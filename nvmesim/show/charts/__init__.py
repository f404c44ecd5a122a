"""Charts (Altair), readable in grey and without a network; their code without seconds to start."""

import functools
import importlib
import sys
from importlib import metadata
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

from nvmesim import code_cache

_GRAMMAR: Final = "rfc3987_syntax"


def import_jsonschema() -> None:
    """Import jsonschema for Altair without compiling the grammar of IRIs, which takes seconds."""
    if "jsonschema" in sys.modules or _GRAMMAR in sys.modules or find_spec(_GRAMMAR) is None:
        return

    def is_valid_syntax(*args: Any, **kwds: Any) -> Any:
        return importlib.import_module(_GRAMMAR).is_valid_syntax(*args, **kwds)

    placeholder = ModuleType(_GRAMMAR)
    placeholder.__dict__["is_valid_syntax"] = is_valid_syntax
    sys.modules[_GRAMMAR] = placeholder
    try:
        importlib.import_module("jsonschema")
    finally:
        del sys.modules[_GRAMMAR]


def vega_lite_version() -> str:
    """Return the version of Vega-Lite that Altair writes, such as "6.1"."""
    import_jsonschema()
    import altair

    return ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])


@functools.cache
def bundle() -> str:
    """Vega, Vega-Lite and vega-embed of the version that Altair writes; kept once made."""
    made_by, version = metadata.version("vl-convert-python"), vega_lite_version()
    name = f"charts-{made_by}-{version}.js"
    kept = code_cache.load(name)
    if kept is not None:
        return kept.decode("utf-8")
    import vl_convert

    made: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", version)
    code = made.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    code_cache.save(name, code.encode("utf-8"), keep=2)
    return code


import_jsonschema()
