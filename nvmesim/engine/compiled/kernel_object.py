"""Makes machine code of the loop, for `native.py` to keep on disk and to load without Numba.

Numba compiles the loop behind an entry that takes one pointer, to the addresses and shapes of all
arrays; LLVM makes an object file of it. Loading that takes 3 ms, importing Numba and its own cache
350 ms.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ir
from numba import cfunc
from numba.core import cgutils as _cgutils
from numba.core import types as _types
from numba.extending import intrinsic

from nvmesim.engine.compiled.kernel import _advance
from nvmesim.engine.compiled.kernel_draws import LEAN
from nvmesim.engine.compiled.kernel_state import ARRAY_WORDS, ENTRY, ROWS, EngineRun, Net, Room

cgutils: Any = _cgutils  # Numba has no types
types: Any = _types
_WORD = ir.IntType(64)
_CALL = types.int64(types.voidptr, types.int64, types.int64)


def _typed(kind: Any) -> Any:
    """Numba's type of `Net`, `EngineRun` or `Room`."""
    arrays = [types.Array(types.int64, 1 + len(ROWS.get(f, ())), "C") for f in kind._fields]
    return types.NamedTuple(arrays, kind)


_ALL = types.Tuple([_typed(kind) for kind in (Net, EngineRun, Room)])


@intrinsic
def _arrays_at(_context: Any, _table: Any) -> Any:
    """Return (Net, Run, Room) of the arrays whose addresses and shapes stand in a table."""

    def code(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        table = builder.bitcast(args[0], _WORD.as_pointer())
        groups, first = [], 0
        for group in _ALL:
            fields = zip(group.instance_class._fields, group, strict=True)
            arrays = []
            for name, kind in fields:
                arrays.append(_array(context, builder, kind, ROWS.get(name, ()), table, first))
                first += ARRAY_WORDS
            groups.append(context.make_tuple(builder, group, arrays))
        return context.make_tuple(builder, _ALL, groups)

    return _ALL(types.voidptr), code


def _array(context: Any, builder: Any, kind: Any, row: Any, table: Any, first: int) -> Any:
    """Return the array whose address and shape begin at word *first* of *table*."""

    def word(i: int) -> Any:
        return builder.load(builder.gep(table, [ir.Constant(_WORD, first + i)]))

    array = cgutils.create_struct_proxy(kind)(context, builder)
    array.data = builder.inttoptr(word(0), array.data.type)
    known = enumerate(row, start=2)
    shape = [word(1), *(word(i) if n is None else ir.Constant(_WORD, n) for i, n in known)]
    stride = array.itemsize = ir.Constant(_WORD, 8)
    strides = []
    for length in reversed(shape):
        strides.append(stride)
        stride = builder.mul(stride, length)
    array.shape = cgutils.pack_array(builder, shape)
    array.strides = cgutils.pack_array(builder, strides[::-1])
    array.nitems = builder.udiv(stride, array.itemsize)
    return array._getvalue()


def object_code(machine: Any) -> bytes:
    """Compile the loop for LLVM's *machine*; return the object file whose `ENTRY` is to be called.

    That is int32 (int64 *returned, void *unused, table, completions, until).
    """
    arrays_at: Any = _arrays_at

    @cfunc(_CALL, **LEAN)
    def entry(table, target, until):  # type: ignore[no-untyped-def]
        net, run, room = arrays_at(table)
        return _advance(net, run, room, target, until)

    module = llvm.parse_assembly(entry.inspect_llvm())
    module.get_function(entry.native_name).linkage = "internal"
    module.get_function(entry.native_name.removeprefix("cfunc.")).name = ENTRY
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.PipelineTuningOptions()))
    return bytes(machine.emit_object(module))
