"""ExtractPrimFuncConstants: constant data moves from functions into an attribute of the module."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.module import IRModule, functions_of
from ....ir.prim import IntImm
from ....runtime.arrays.ndarray import NDArray
from ...function import PrimFunc
from ...stmt import AllocateConst, Stmt
from ..base import StmtMutator
from ....ir.declared_pass import ModuleRewrite


def _array(data: NDArray | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return data if isinstance(data, np.ndarray) else data.numpy()


class _Extract(StmtMutator):
    def __init__(self, constants: list[Any]) -> None:
        self.constants = constants

    def visit_AllocateConst(self, stmt: AllocateConst) -> Stmt:
        body = self.visit(stmt.body)
        data = stmt.data_or_idx
        if isinstance(data, (int, IntImm)):
            return stmt if body is stmt.body else stmt.with_fields(body=body)
        index = self._index(data)
        annotations = {**stmt.annotations, "irmod_storage_idx": IntImm("int32", index)}
        return stmt.with_fields(data_or_idx=data, body=body, annotations=annotations)

    def _index(self, data: NDArray | np.ndarray[Any, Any]) -> int:
        mine = _array(data)
        for i, known in enumerate(self.constants):
            other = _array(known)
            if other.dtype == mine.dtype and other.shape == mine.shape and np.array_equal(other, mine):
                return i
        self.constants.append(data)
        return len(self.constants) - 1


class ExtractPrimFuncConstants(ModuleRewrite, name="tir.ExtractPrimFuncConstants"):
    """Collect the data of ``T.allocate_const`` in the module's ``constants``; equal data is kept once.

    Before::

        K = T.allocate_const([1.0, 2.0], "float32", [2])

    After (module attribute ``constants = [K's data]``)::

        K = T.allocate_const([1.0, 2.0], "float32", [2], annotations={"irmod_storage_idx": 0})
    """

    def rewrite(self, mod: IRModule) -> IRModule:
        constants = list(mod.get_attr("constants") or ())
        count = len(constants)
        extract = _Extract(constants)
        out = mod.clone()
        for var, func in functions_of(mod, PrimFunc):
            body = extract.visit(func.body)
            if body is not func.body:
                out.update_func(var, func.with_body(body))
        return out.with_attr("constants", constants) if len(constants) > count else out
