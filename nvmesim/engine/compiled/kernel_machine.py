"""The processor here, and how the compiled loop is entered: known to whom makes and loads it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

ENTRY: Final = "nvmesim_advance"
"""Name of the function in the object file."""
ARRAY_WORDS: Final = 4
"""Words of an array in the table that the function takes: its address, and up to three lengths."""


@cache
def machine_here() -> Any:
    """LLVM's view of this processor, with the options that Numba takes."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    reloc = "static" if target.name.startswith("x86") else "default"
    cpu, features = processor()
    return target.create_target_machine(
        cpu=cpu, features=features, opt=3, reloc=reloc, codemodel="jitdefault", jit=True
    )


@cache
def processor() -> tuple[str, str]:
    """Return the name and the features of this processor, as LLVM has them."""
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
