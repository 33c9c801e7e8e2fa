"""Calling convention of compiled functions of all backends: see "Kernel ABI" in docs/architecture.md."""

from __future__ import annotations

from typing import Any

from ...arith.functor import free_vars
from ...ir.expr import PrimExpr
from ...ir.op import op_name_of
from ...ir.functor import Visitor, all_nodes
from ...ir.prim import Call, IntImm, Var, is_call_of, const_int
from ...runtime.kernels.kernel import KernelSpec, ParamSpec, ShapeVarSource
from ...support.sequences import of_kind
from ...tir.buffer import Buffer
from ...tir.function import PrimFunc
from ...tir.functor import substitute
from ...tir.stmt import Block, BufferStore

__all__ = ["WRITTEN", "kernel_spec", "returned_dtypes", "shape_vars", "written_params"]

WRITTEN = "relaxish.written_params"
"""Attribute of functions whose :func:`written_params` were found before they were lowered, when blocks still said."""


def kernel_spec(name: str, func: Any) -> KernelSpec:
    """Signature of a PrimFunc."""
    params = []
    named = _Renamed()
    in_shapes = {v for b in func.buffer_map.values() for extent in b.shape for v in free_vars(extent)}
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is None:
            kind = "tensor" if param.dtype == "handle" else "scalar"
            params.append(ParamSpec(kind, param.dtype, (named(param).name,) if param in in_shapes else ()))
            continue
        shape = tuple(_extent(substitute(extent, named)) for extent in buffer.shape)
        params.append(ParamSpec("tensor", buffer.dtype, shape))
    sources = tuple(ShapeVarSource(named(var).name, index, dim) for var, index, dim in shape_vars(func))
    returned = returned_dtypes(func)
    return KernelSpec(name, tuple(params), sources, returned[0] if returned else "", written_params(func))


class _Renamed:
    """Variables under names of their own: two of one name are different dimensions all the same."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}
        self.taken: set[str] = set()

    def __call__(self, var: Var) -> Var:
        if var not in self.known:
            name, count = var.name, 0
            while name in self.taken:
                count += 1
                name = f"{var.name}_{count}"
            self.taken.add(name)
            self.known[var] = var if name == var.name else Var(name, var.dtype)
        return self.known[var]


class _Writes(Visitor):
    """Which of the data pointers are stored to, and which go where that cannot be seen."""

    def __init__(self, pointers: set[Any]) -> None:
        self.pointers = pointers
        self.written: set[Any] = set()
        self.escaped: set[Any] = set()
        self.declared: set[Any] = set()

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.written.add(store.buffer.data)
        self.default_visit(store)

    def visit_Block(self, block: Block) -> None:
        self.written.update(region.buffer.data for region in block.writes)
        before = self.declared
        self.declared = before | {region.buffer.data for region in (*block.reads, *block.writes)}
        self.visit(block.body)
        if block.init is not None:
            self.visit(block.init)
        self.declared = before

    def visit_Call(self, call: Call) -> None:
        name = op_name_of(call)
        if name == "tir.tvm_access_ptr" and isinstance(call.args[4], IntImm):
            if call.args[4].value & 2:
                self.written.add(call.args[1])
            return
        if name == "tir.address_of" and hasattr(call.args[0], "buffer"):
            self.escape(call.args[0].buffer.data)
        self.default_visit(call)

    def visit_Buffer(self, buffer: Buffer) -> None:
        """Skip declarations: uses of a buffer are in the statements."""

    def visit_Var(self, var: Var) -> None:
        if var in self.pointers:
            self.escape(var)

    def escape(self, pointer: Var) -> None:
        if pointer not in self.declared:
            self.escaped.add(pointer)


def written_params(func: PrimFunc) -> tuple[int, ...] | None:
    """Numbers of the parameters whose memory a function writes; None where pointers go where that cannot be seen."""
    noted = (func.attrs or {}).get(WRITTEN)
    if noted is not None:
        return tuple(int(i) for i in noted)
    if any(p not in func.buffer_map and p.dtype == "handle" for p in func.params):
        return None
    pointers = {i: func.buffer_map[p].data for i, p in enumerate(func.params) if p in func.buffer_map}
    finder = _Writes(set(pointers.values()))
    finder.visit(func.body)
    if (finder.escaped & finder.pointers) - finder.written:
        return None
    return tuple(i for i, pointer in pointers.items() if pointer in finder.written)


def returned_dtypes(func: PrimFunc) -> list[str]:
    """The types of the values that the function returns by ``T.ret``."""
    calls = (item for item in of_kind(all_nodes(func.body), Call) if item.args)
    return [call.args[0].dtype for call in calls if is_call_of(call, "tir.ret")]


def _extent(extent: PrimExpr) -> int | str:
    value = const_int(extent)
    if value is not None:
        return value
    name = getattr(extent, "name", None)
    return name if isinstance(name, str) else str(extent)


def shape_vars(func: Any) -> list[tuple[Any, int, int]]:
    """Free shape variables: (variable, parameter index, dimension) in order of first appearance."""
    params = set(func.params)
    found: dict[Any, tuple[int, int]] = {}
    for index, param in enumerate(func.params):
        buffer = func.buffer_map.get(param)
        if buffer is None:
            continue
        for dim, extent in enumerate(buffer.shape):
            if isinstance(extent, Var) and extent not in params:
                found.setdefault(extent, (index, dim))
    for param in func.params:
        buffer = func.buffer_map.get(param)
        for extent in buffer.shape if buffer is not None else ():
            for var in free_vars(extent):
                if var not in params and var not in found:
                    raise ValueError(f"shape variable {var.name} of {buffer.name} cannot be read from any argument")
    return [(var, index, dim) for var, (index, dim) in found.items()]
