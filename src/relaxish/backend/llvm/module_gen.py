"""One LLVM module from lowered PrimFuncs: signatures, packed entries, shared declarations and constants."""

from __future__ import annotations

from typing import Any

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.prim import Var
from ...tir.buffer import Buffer
from ...tir.function import PrimFunc
from ..common.signature import returned_dtypes, shape_vars
from .emit import FunctionWriter
from .ltypes import kernel_symbol, quoted, scalar_type
from .module_writer import ModuleWriter
from .scalar_replacement import PromotionConflict
from .packed_calls import has_packed_calls
from .stmt_gen import StmtGen


def generate_function(module: ModuleWriter, name: str, func: PrimFunc) -> None:
    """Add ``i32 @name(...)`` and ``i32 @name__packed(ptr)`` for a lowered PrimFunc."""
    never: set[Any] = set()
    while True:
        made = len(module.functions)
        try:
            _generate(module, name, func, never)
            return
        except PromotionConflict as conflict:
            del module.functions[made:]
            never.add(conflict.buffer_var)


def _generate(module: ModuleWriter, name: str, func: PrimFunc, never: set[Any]) -> None:
    module.current = name
    attrs = func.attrs or {}
    # What a called function gets it may keep, and it sees all memory.
    calls_back = has_packed_calls(func.body)
    noalias = bool(attrs.get("tir.noalias", False)) and not calls_back
    captured = "" if calls_back else "nocapture "
    gen = StmtGen(FunctionWriter(module), module.features, noalias)
    gen.never_promote = never
    gen.plain = bool(attrs.get("relaxish.plain_code", False))
    params: list[str] = []
    types: list[str] = []
    for i, param in enumerate(func.params):
        buffer = func.buffer_map.get(param)
        arg = f"%arg{i}"
        if buffer is not None or dt.is_handle(param.dtype):
            types.append("ptr")
            params.append(f"ptr {'noalias ' if noalias else ''}{captured}{arg}")
            gen.pointers[param] = arg
            if buffer is not None:
                gen.pointers[buffer.data] = arg
                gen.roots[param] = buffer.data
            continue
        types.append("double" if dt.is_float(param.dtype) else "i64")
        params.append(f"{types[-1]} {arg}")
        _bind_scalar(gen, param, arg)
    for var, _, _ in shape_vars(func):
        arg = f"%arg{len(types)}"
        types.append("i64")
        params.append(f"i64 {arg}")
        gen.lin_cache[var] = ({arg: 1}, 0)
        gen.nonneg.add(arg)
        gen.sizes.known.add(var)
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is not None:
            _bind_layout(gen, buffer)
    returns = bool(returned_dtypes(func))
    if returns:
        gen.result = "%result"
        params.append("ptr nocapture %result")
    gen.stmt(func.body)
    gen.finish()
    symbol = kernel_symbol(name)
    module.defined.add(symbol)
    module.functions.append(f"define i32 @{quoted(symbol)}({', '.join(params)}) #0 {{\n{gen.w.text()}\n}}\n")
    _packed_entry(module, name, types, returns)


def _bind_scalar(gen: StmtGen, param: PrimExpr, arg: str) -> None:
    dtype = param.dtype
    if dt.is_float(dtype):
        # Narrow types through float32: no processor converts double to them, and there is no library function.
        value = arg if dtype == "float64" else gen.w.pure(f"fptrunc double {arg} to float", arg)
        gen.vars[param] = value if dtype in ("float32", "float64") else gen.convert(value, "float32", dtype)
    elif dtype in ("int32", "int64"):
        gen.lin_cache[param] = ({arg: 1}, 0)
    elif dtype == "uint64":
        gen.vars[param] = arg
    elif dtype == "bool":
        gen.vars[param] = gen.w.pure(f"icmp ne i64 {arg}, 0", arg)
    else:
        gen.vars[param] = gen.w.pure(f"trunc i64 {arg} to {scalar_type(dtype)}", arg)


def _bind_layout(gen: StmtGen, buffer: Buffer) -> None:
    """Arguments are contiguous and start at element 0: bind stride and offset variables accordingly."""
    offset = buffer.elem_offset
    if isinstance(offset, Var) and offset not in gen.lin_cache:
        gen.lin_cache[offset] = ({}, 0)
    running: Any = ({}, 1)
    for stride, extent in zip(reversed(buffer.strides or ()), reversed(buffer.shape), strict=False):
        if isinstance(stride, Var) and stride not in gen.lin_cache:
            gen.lin_cache[stride] = running
        running = gen._product(gen.lin(extent), running)


def _packed_entry(module: ModuleWriter, name: str, types: list[str], returns: bool) -> None:
    lines = []
    for i, ty in enumerate(types):
        lines.append(f"  %s{i} = getelementptr i64, ptr %slots, i64 {i}")
        lines.append(f"  %v{i} = load {ty}, ptr %s{i}, align 8")
    args = ", ".join(f"{ty} %v{i}" for i, ty in enumerate(types))
    if returns:
        lines.append(f"  %result = getelementptr i64, ptr %slots, i64 {len(types)}")
        args += (", " if args else "") + "ptr %result"
    lines.append(f"  %code = tail call i32 @{quoted(kernel_symbol(name))}({args})")
    lines.append("  ret i32 %code")
    module.defined.add(name + "__packed")
    module.functions.append(
        f"define i32 @{quoted(name + '__packed')}(ptr nocapture %slots) #0 {{\n" + "\n".join(lines) + "\n}\n"
    )
