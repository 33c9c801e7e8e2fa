"""Argument specifications of a candidate program: data type and shape of each, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir import IRModule
from ..support.errors import MalformedDataError
from ..support.untrusted import malformed
from ..tir import PrimFunc
from .verdicts.legal_values import Values, legal_values
from ..ir.plain import plain

__all__ = ["ArgInfo", "TensorInfo"]


class ArgInfo:
    """One argument; today always a tensor."""

    def as_json(self) -> list[Any]:
        """Plain lists for JSON."""
        raise NotImplementedError

    @staticmethod
    def from_json(json_obj: Sequence[Any]) -> ArgInfo:
        """The argument :meth:`as_json` described. Raises MalformedDataError for anything else."""
        with malformed("the description of an argument"):
            kind, dtype, shape = json_obj
            if kind != "TENSOR":
                raise MalformedDataError(f"unknown argument description {json_obj!r}")
            return TensorInfo(dtype, shape)

    @staticmethod
    def from_prim_func(func: PrimFunc) -> list[ArgInfo]:
        """The arguments of a function, in order."""
        infos: list[ArgInfo] = []
        legal = legal_values(func)
        for position, param in enumerate(func.params):
            buffer = func.buffer_map.get(param)
            if buffer is None:
                raise ValueError(f"argument {param.name} of the function is not a buffer")
            shape = []
            for extent in buffer.shape:
                value = plain(extent)
                if not isinstance(value, int):
                    raise ValueError(
                        f"argument {param.name} has the dynamic extent {extent}; tuning needs static shapes"
                    )
                shape.append(value)
            infos.append(TensorInfo(buffer.dtype, shape, values=legal.get(position)))
        return infos

    @staticmethod
    def from_entry_func(mod: IRModule, remove_preproc: bool = True) -> list[ArgInfo]:
        """The arguments of a module's only function, after dropping weight layout blocks if asked to."""
        if remove_preproc:
            from .analysis.schedules import remove_weight_layout_rewrite

            mod = remove_weight_layout_rewrite(mod)
        return ArgInfo.from_prim_func(entry_func(mod))


class TensorInfo(ArgInfo):
    """A tensor argument: ``dtype`` and ``shape``, and which ``values`` integers may take (not part of its identity)."""

    def __init__(self, dtype: str, shape: Sequence[int], *, values: Values | None = None) -> None:
        self.dtype = str(dtype)
        self.shape = tuple(int(x) for x in shape)
        self.values = values

    def as_json(self) -> list[Any]:
        return ["TENSOR", self.dtype, list(self.shape)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorInfo) and (self.dtype, self.shape) == (other.dtype, other.shape)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape))

    def __str__(self) -> str:
        return f'TensorInfo("{self.dtype}", {list(self.shape)})'

    __repr__ = __str__


def entry_func(mod: IRModule) -> PrimFunc:
    """The function a tuning module is about: its only one, ``main``, or the one marked as entry."""
    funcs = {gv.name_hint: f for gv, f in mod.functions.items() if isinstance(f, PrimFunc)}
    if len(funcs) == 1:
        return next(iter(funcs.values()))
    if "main" in funcs:
        return funcs["main"]
    for func in funcs.values():
        if func.attrs is not None and func.attrs.get("tir.is_entry_func"):
            return func
    raise ValueError(f"cannot tell which of the functions {sorted(funcs)} is the entry; name it 'main'")
