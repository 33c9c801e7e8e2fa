"""Matrix products by Intel MKL: a worked example of bringing one's own code generator.

The three parts every such backend has: *patterns* say what the library can do (:func:`partition_for_mkl`), the *code
generator* ``relax.ext.mkl`` turns each matched function into a runtime module, and that module (:class:`MKLModule`)
runs it.

    mod = partition_for_mkl(mod)              # matmul(+ bias)(+ relu) become functions with the attribute Codegen="mkl"
    mod = relax.transform.RunCodegen()(mod)   # those become calls of external functions
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), relaxish.cpu())

The library comes with ``pip install mkl``.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..ir.expr import PrimExpr
from ..ir.module import IRModule
from ..ir.prim import const_ints
from ..ir.transform import Sequential
from ..relax.dpl import is_op, wildcard
from ..relax.expr import Call, Constant, Function, ShapeExpr, Var
from ..relax.struct_info import TensorStructInfo
from ..runtime.kernels.kernel import MissingFunctionError
from ..runtime.arrays.ndarray import NDArray
from ..runtime.registry import register_func
from ..support.errors import MissingExtraError, RelaxishError
from ..transform import FuseOpsByPattern, FusionPattern, MergeCompositeFunctions

__all__ = ["MKLModule", "is_available", "partition_for_mkl", "patterns"]

_ROW_MAJOR, _NO_TRANSPOSE, _TRANSPOSE = 101, 111, 112
_SEQUENTIAL = 1


@functools.cache
def _library() -> ctypes.CDLL:
    """MKL's single dynamic library. Raises MissingExtraError if it is not installed."""
    folders = [Path(sys.prefix) / "lib", *(Path(p).parent.parent for p in sys.path if p.endswith("site-packages"))]
    names = [str(f) for folder in folders for f in sorted(folder.glob("libmkl_rt.so*"))]
    found = ctypes.util.find_library("mkl_rt")
    for name in [*names, *([found] if found else [])]:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.MKL_Set_Threading_Layer(_SEQUENTIAL)
        return library
    raise MissingExtraError("mkl", "mkl", "the MKL backend")


def is_available() -> bool:
    """Whether MKL can be loaded."""
    try:
        _library()
    except MissingExtraError:
        return False
    return True


# ---- what the library can do


def _supported(context: Any) -> bool:
    """Float32 matrices (or batches of rows times one matrix) of static shape."""
    product = context.annotated_expr["matmul"]
    lhs, rhs = (a.struct_info for a in product.args)
    infos = [lhs, rhs, product.struct_info]
    if not all(isinstance(i, TensorStructInfo) and i.dtype == "float32" and i.ndim >= 2 for i in infos):
        return False
    static = all(isinstance(i.shape, ShapeExpr) and const_ints(i.shape.values) is not None for i in infos)
    bias = context.annotated_expr.get("bias")
    return static and rhs.ndim == 2 and (bias is None or bias.struct_info.ndim == 1)


def patterns() -> list[FusionPattern]:
    """From the largest pattern to the smallest: the first that matches wins."""
    made = []
    for has_bias, has_relu in ((True, True), (True, False), (False, True), (False, False)):
        lhs, rhs, bias = wildcard(), wildcard(), wildcard()
        product = is_op("relax.matmul")(lhs, rhs)
        out: Any = product
        annotations = {"matmul": product, "lhs": lhs, "rhs": rhs}
        if has_bias:
            out = is_op("relax.add")(out, bias)
            annotations["bias"] = bias
        if has_relu:
            out = is_op("relax.nn.relu")(out)
        name = "mkl.matmul" + ("_bias" if has_bias else "") + ("_relu" if has_relu else "")
        made.append(FusionPattern(name, out, annotations, _supported))
    return made


def partition_for_mkl(mod: IRModule, bind_constants: bool = False) -> IRModule:
    """Group what MKL can do into functions with the attribute ``Codegen="mkl"``."""
    passes = [FuseOpsByPattern(patterns(), bind_constants=bind_constants), MergeCompositeFunctions()]
    out: IRModule = Sequential(passes)(mod)
    return out


# ---- code generation


@register_func("relax.ext.mkl", override=True)
def _codegen(
    functions: Sequence[Function], options: Mapping[str, Any], constant_names: Mapping[Constant, str]
) -> list[MKLModule]:
    """One runtime module with all functions."""
    return [MKLModule({str(f.attrs["global_symbol"]): _program(f) for f in functions})]


# (composite name, operands, result): operands and results are variables or arrays
_Step = tuple[str, list[Any], Any]


def _program(func: Function) -> tuple[list[Var], list[_Step], Any]:
    """A function of composite calls as a list of steps."""
    composites: dict[Any, Function] = {}
    steps: list[_Step] = []
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            match value:
                case Function():
                    composites[binding.var] = value
                case Call() if value.op in composites:
                    composite = composites[value.op]
                    given = dict(zip(composite.params, value.args, strict=True))
                    operands = [_operand(given.get(o, o)) for o in _operands_of(composite)]
                    steps.append((str(composite.attrs["Composite"]), operands, binding.var))
                case _:
                    raise RelaxishError(f"MKL cannot generate code for {value}")
    return list(func.params), steps, func.body.body


def _operand(expr: PrimExpr) -> object:
    return expr.data.numpy() if isinstance(expr, Constant) else expr


def _operands_of(composite: Function) -> list[Any]:
    """Both factors and the bias, wherever the composite has them: parameters, or constants inside it."""
    operands: list[Any] = []
    for block in composite.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if call.op.name == "relax.matmul":
                operands += call.args
                product = binding.var
            elif call.op.name == "relax.add":
                operands.append(call.args[1] if call.args[0] is product else call.args[0])
    return operands


def _sgemm(a: Any, b: Any, out: Any) -> None:
    """``out = a @ b`` for compact float32 matrices."""
    (m, k), n = a.shape, b.shape[1]
    pointer = ctypes.POINTER(ctypes.c_float)
    _library().cblas_sgemm(
        _ROW_MAJOR, _NO_TRANSPOSE, _NO_TRANSPOSE, m, n, k, ctypes.c_float(1.0), a.ctypes.data_as(pointer), k,
        b.ctypes.data_as(pointer), n, ctypes.c_float(0.0), out.ctypes.data_as(pointer), n,
    )  # fmt: skip


def _run_step(name: str, operands: Sequence[Any], out: Any) -> None:
    a, b = operands[0], operands[1]
    rows = out.reshape(-1, b.shape[1])
    _sgemm(np.ascontiguousarray(a.reshape(-1, a.shape[-1])), np.ascontiguousarray(b), rows)
    if "_bias" in name:
        rows += operands[2]
    if name.endswith("_relu"):
        np.maximum(rows, 0, out=rows)


class MKLModule:
    """The compiled functions; each takes its inputs and then the array for its result."""

    type_key = "mkl"

    def __init__(self, programs: Mapping[str, tuple[list[Var], list[_Step], Any]]) -> None:
        self.programs = dict(programs)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a function of that name."""
        return name in self.programs

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., None]:
        """A function by name. Raises AttributeError if there is none."""
        if name not in self.programs:
            raise MissingFunctionError(f"Module has no function '{name}'")
        params, steps, result = self.programs[name]

        def run(*args: NDArray) -> None:
            values: dict[Any, Any] = dict(zip(params, (np.asarray(a) for a in args[:-1]), strict=True))
            final = np.asarray(args[-1])
            for step, operands, var in steps:
                inputs = [o if isinstance(o, np.ndarray) else values[o] for o in operands]
                out = final if var is result else np.empty(_shape_of(var), np.float32)
                _run_step(step, inputs, out)
                values[var] = out

        return run

    __getitem__ = get_function


def _shape_of(var: Var) -> tuple[int, ...]:
    return tuple(int(d.value) for d in var.struct_info.shape.values)
