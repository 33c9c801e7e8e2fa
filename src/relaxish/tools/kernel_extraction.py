"""Extraction of kernels: the tensor programs that a Relax module calls, their arguments, and self-contained scripts
that time one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..ir import structural_hash
from ..ir.expr import GlobalVar
from ..ir.module import IRModule, functions_of
from ..relax import Call, Function, SeqExpr, ShapeStructInfo, TensorStructInfo, Tuple
from ..support.sequences import of_kind
from ..target import Target
from ..tir import PrimFunc, Var
from ..ir.prim import const_int

__all__ = [
    "extract_all_func_info_from_relax", "extract_from_relax", "extract_prim_func",
]  # fmt: skip

Records = list[tuple[list[Any], int]]
Calls = dict[GlobalVar, dict[GlobalVar, Records]]

_SCRIPT = '''"""Times {prim_func_name} of {model_name}, called {weight} times by {relax_func_name}."""

import relaxish
from relaxish.dlight.benchmark import benchmark_prim_func
from relaxish.script import ir as I
from relaxish.script import tir as T

MODEL_NAME = {model_name!r}
RELAX_FUNC_NAME = {relax_func_name!r}
PRIM_FUNC_NAME = {prim_func_name!r}
FUNC_HASH = {func_hash}
WEIGHT = {weight}
SAMPLE_NUMBER = {sample_number}
INPUT_ARGS = {input_args!r}
DYM_VAR_DICT = {dym_var_dict!r}


{func_script}


if __name__ == "__main__":
    print("Input args:", INPUT_ARGS)
    benchmark_prim_func(
        main,
        args=INPUT_ARGS,
        dym_var_dict=DYM_VAR_DICT,
        sample_number=SAMPLE_NUMBER,
        target=relaxish.target.Target({target!r}),
        dev={dev},
        weight=WEIGHT,
        relax_func_name=RELAX_FUNC_NAME,
        prim_func_name=PRIM_FUNC_NAME,
    )
'''
_DEVICES = {"cuda": "relaxish.cuda()", "llvm": "relaxish.cpu()"}


def extract_all_func_info_from_relax(mod: IRModule) -> tuple[Calls, dict[GlobalVar, dict[str, str]]]:
    """For each Relax function: the programs it calls, with the struct infos of arguments and how often; its variables.

    >>> from relaxish.script import ir as I, relax as R, tir as T
    >>> @I.ir_module
    ... class Twice:
    ...     @T.prim_func(private=True)
    ...     def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    ...         for i in range(4):
    ...             with T.block("B"):
    ...                 vi = T.axis.spatial(4, i)
    ...                 B[vi] = A[vi] * T.float32(2)
    ...     @R.function
    ...     def main(x: R.Tensor((4,), "float32")):
    ...         y = R.call_tir(Twice.double, (x,), out_sinfo=R.Tensor((4,), "float32"))
    ...         z = R.call_tir(Twice.double, (y,), out_sinfo=R.Tensor((4,), "float32"))
    ...         return z
    >>> calls, variables = extract_all_func_info_from_relax(Twice)
    >>> [(gv.name_hint, [count for _, count in records]) for gv, records in calls[Twice.get_global_var("main")].items()]
    [('double', [2])]
    """
    calls: Calls = {}
    for gvar, func in functions_of(mod, Function):
        if not isinstance(func.body, SeqExpr):
            continue
        for block in func.body.blocks:
            for binding in block.bindings:
                call = getattr(binding, "value", None)
                callee = call.args[0] if isinstance(call, Call) and call.args else None
                if isinstance(callee, GlobalVar) and isinstance(mod.functions.get(callee), PrimFunc):
                    assert isinstance(call, Call)
                    infos = _infos(call.args[1:]) + _infos(call)
                    _count(calls.setdefault(gvar, {}).setdefault(callee, []), infos)
    return calls, {gvar: _variables(programs) for gvar, programs in calls.items()}


def _infos(arg: Any) -> list[Any]:
    match arg:
        case tuple() | list():
            return [info for item in arg for info in _infos(item)]
        case Tuple():
            return _infos(list(arg.fields))
    return [arg.struct_info]


def _count(records: Records, infos: list[Any]) -> None:
    for index, (known, count) in enumerate(records):
        if known == infos:
            records[index] = (known, count + 1)
            return
    records.append((infos, 1))


def _variables(programs: Mapping[GlobalVar, Records]) -> dict[str, str]:
    """Names and dtypes of the variables in all arguments."""
    found: dict[str, str] = {}
    for records in programs.values():
        for infos, _ in records:
            for info in infos:
                found.update((str(dim), dim.dtype) for dim in of_kind(_dims(info), Var))
    return found


def _dims(info: TensorStructInfo | ShapeStructInfo) -> Sequence[Any]:
    match info:
        case TensorStructInfo() if info.shape is not None:
            return tuple(info.shape.values)
        case ShapeStructInfo() if info.values is not None:
            return tuple(info.values)
    raise NotImplementedError(f"cannot make arguments of {info}")


def _plain(info: Any) -> object:
    """An argument as ``(shape, dtype)`` of plain values."""
    if isinstance(info, tuple):
        return info
    dims = tuple(const_int(d, str(d)) for d in _dims(info))
    return dims, "scalar" if isinstance(info, ShapeStructInfo) else str(info.dtype)


def extract_prim_func(
    model_name: str,
    relax_func_name: str,
    prim_func_name: str,
    func: PrimFunc,
    func_args: Sequence[Any],
    dym_var_dict: Mapping[str, str],
    weight: int,
    sample_number: int = 5,
    target: str | Target = "llvm -num-cores=4",
) -> str:
    """The text of a script that times ``func``. Raises NotImplementedError for targets other than cuda and llvm."""
    if not isinstance(target, (str, Target)):
        raise TypeError(f"target must be a string or a Target, not {type(target).__name__}")
    device = _DEVICES.get(Target(target).kind.name)
    if device is None:
        raise NotImplementedError(f"no device for target {target}; there are {', '.join(_DEVICES)}")
    return _SCRIPT.format(
        model_name=model_name, relax_func_name=relax_func_name, prim_func_name=prim_func_name,
        func_hash=structural_hash(func), weight=weight, sample_number=sample_number,
        input_args=[_plain(a) for a in func_args], dym_var_dict=dict(dym_var_dict),
        func_script=func.with_attr("global_symbol", "main").script(), target=str(target), dev=device,
    )  # fmt: skip


def extract_from_relax(mod: IRModule, model_name: str, file_path: str) -> None:
    """Write one script for each tensor program that each Relax function calls, as ``<function>_<program>.py``."""
    calls, variables = extract_all_func_info_from_relax(mod)
    folder = Path(file_path)
    folder.mkdir(parents=True, exist_ok=True)
    for relax_func, programs in calls.items():
        for program, records in programs.items():
            for infos, weight in records:
                text = extract_prim_func(
                    model_name,
                    relax_func.name_hint,
                    program.name_hint,
                    mod[program],
                    infos,
                    variables[relax_func],
                    weight,
                )
                (folder / f"{relax_func.name_hint}_{program.name_hint}.py").write_text(text, encoding="utf-8")
