"""Time the tensor programs of a model one by one, at sampled values of its dynamic shapes (``relaxish.dlight.benchmark``).

>>> from relaxish.dlight.benchmark import benchmark
>>> from relaxish import te
>>> from relaxish.tir import Var
>>> n = Var("n", "int64")
>>> A = te.placeholder((n, 16), name="A")
>>> double = te.create_prim_func([A, te.compute((n, 16), lambda i, j: A[i, j] * 2.0)])
>>> shapes, median, deviation = benchmark(double, [(("n", 16), "float32")] * 2, {"n": 8}, target="llvm")
>>> shapes
[((8, 16), 'float32'), ((8, 16), 'float32')]
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..driver import build
from ..ir.expr import ExprLike
from ..ir.module import IRModule
from ..meta_schedule.runner import EvaluatorConfig
from ..relax import ShapeStructInfo, TensorStructInfo
from ..runtime import Device, Module, cpu
from ..runtime.arrays import ndarray
from ..target import Target
from ..tir import IntImm, PrimFunc
from .kernel_extraction import extract_all_func_info_from_relax, extract_from_relax, extract_prim_func

__all__ = [
    "benchmark", "benchmark_prim_func", "benchmark_relax_func", "default_dym_var_sample_func",
    "extract_all_func_info_from_relax", "extract_from_relax", "extract_prim_func", "populate_input_shape", "print_results",
]  # fmt: skip

InputShapes = list[tuple[tuple[int, ...], str]]
_LEAST, _MOST = 2, 128


def default_dym_var_sample_func(dym_var_dict: Mapping[str, str]) -> dict[str, int]:
    """A random value from 2 to 128 for each variable. Raises TypeError for variables that are not integers."""
    for name, dtype in dym_var_dict.items():
        if dtype not in ("int32", "int64"):
            raise TypeError(f"dynamic shape variable {name} is of type {dtype}; it must be int32 or int64")
    return {name: random.randint(_LEAST, _MOST) for name in dym_var_dict}


def populate_input_shape(input_infos: Sequence[Any], dym_var_sample: Mapping[str, int]) -> InputShapes:
    """Shapes with the sampled values in place of variables; a shape argument becomes ``((value,), "scalar")``.

    >>> populate_input_shape([((1, "n", 4), "float16")], {"n": 3})
    [((1, 3, 4), 'float16')]
    """

    def value(dim: ExprLike) -> int:
        match dim:
            case int():
                return dim
            case IntImm():
                return int(dim.value)
        return dym_var_sample[str(dim)]

    shapes: InputShapes = []
    for info in input_infos:
        if isinstance(info, ShapeStructInfo):
            assert info.values is not None, "the shape must be known"
            shapes.append(((value(info.values[0]),), "scalar"))
            continue
        dims, dtype = (info.shape, info.dtype) if isinstance(info, TensorStructInfo) else info
        shapes.append((tuple(value(d) for d in dims), str(dtype)))
    return shapes


def benchmark(
    mod_or_func: PrimFunc | IRModule,
    args: Sequence[Any],
    dym_var_sample: Mapping[str, int],
    target: str | Target = "llvm -num-cores=4",
    dev: Device | None = None,
    evaluator_config: EvaluatorConfig | None = None,
    rpc_config: None = None,
) -> tuple[InputShapes, float, float]:
    """Time one tensor program on random data: the shapes of its arguments, median and standard deviation in seconds.

    ``args`` are the arguments' struct infos or ``(shape, dtype)`` pairs, with variables or their names as dimensions.
    Raises ValueError for a module with several functions, and for ``rpc_config``: measuring is local.
    """
    if rpc_config is not None:
        raise ValueError("benchmark measures on this machine only; leave rpc_config out")
    if isinstance(mod_or_func, PrimFunc):
        mod = IRModule.from_expr(mod_or_func.with_attr("global_symbol", "main"))
    else:
        mod = mod_or_func
    names = [gv.name_hint for gv in mod.get_global_vars()]
    if len(names) != 1:
        raise ValueError(f"benchmark takes a module with one function, this one has {', '.join(names) or 'none'}")
    shapes = populate_input_shape(args, dym_var_sample)
    device = cpu() if dev is None else dev
    tensors = [ndarray.array(_random(shape, dtype), device) for shape, dtype in shapes if dtype != "scalar"]
    # Programs take their scalars after their buffers.
    scalars = [shape[0] for shape, dtype in shapes if dtype == "scalar"]
    config = EvaluatorConfig._normalized(evaluator_config)
    module = build(mod, target=Target(target))
    assert isinstance(module, Module), "tensor programs build to a module"
    result = module.time_evaluator(
        names[0], device, number=config.number, repeat=config.repeat, min_repeat_ms=config.min_repeat_ms,
        f_preproc="cache_flush_cpu_non_first_arg" if config.enable_cpu_cache_flush else "",
    )(*tensors, *scalars)  # fmt: skip
    return shapes, result.median, result.std


def _random(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    from ..ir.dtype import numpy_dtype

    rng = np.random.default_rng()
    if dtype.startswith(("int", "uint", "bool")):
        return rng.integers(0, 2 if dtype == "bool" else 10, shape).astype(numpy_dtype(dtype))
    return rng.uniform(-1, 1, shape).astype(numpy_dtype(dtype))


def benchmark_prim_func(
    mod_or_func: PrimFunc | IRModule,
    args: Sequence[Any],
    dym_var_dict: Mapping[str, str],
    dym_var_sample_func: Callable[[Mapping[str, str]], dict[str, int]] = default_dym_var_sample_func,
    sample_number: int = 5,
    target: str | Target = "llvm -num-cores=4",
    dev: Device | None = None,
    weight: int | None = 1,
    relax_func_name: str | None = None,
    prim_func_name: str | None = None,
    evaluator_config: EvaluatorConfig | None = None,
    rpc_config: None = None,
    sort_by: str | None = None,
    desc: bool | None = True,
) -> None:
    """Time one tensor program at ``sample_number`` samples of its variables and print a table of the times."""
    count = 1 if weight is None else weight
    rows = []
    for _ in range(sample_number):
        sample = dym_var_sample_func(dym_var_dict)
        _, median, deviation = benchmark(mod_or_func, args, sample, target, dev, evaluator_config, rpc_config)
        row: dict[str, Any] = {"InputInfo": ", ".join(f"{name} = {value}" for name, value in sample.items())}
        row |= {"Time(us)": median * 1e6, "Std(us)": deviation * 1e6}
        if relax_func_name is not None:
            row["RelaxFunc"] = relax_func_name
        if prim_func_name is not None:
            row["PrimFunc"] = prim_func_name
        rows.append(row | {"Weight": count, "WxTime(ms)": count * median * 1e3})
    print_results(rows, sort_by, desc)


def benchmark_relax_func(
    mod: IRModule,
    relax_func: str,
    sample_number: int = 2,
    dym_var_sample_func: Callable[[Mapping[str, str]], dict[str, int]] = default_dym_var_sample_func,
    target: str | Target = "llvm -num-cores=4",
    dev: Device | None = None,
    evaluator_config: EvaluatorConfig | None = None,
    rpc_config: None = None,
) -> None:
    """Time all tensor programs that one Relax function calls, at samples of its variables; a table for each sample.

    ``relax_func`` is a global variable or a name. Raises ValueError if no function of that name calls programs.
    """
    calls, variables = extract_all_func_info_from_relax(mod)
    name = relax_func if isinstance(relax_func, str) else relax_func.name_hint
    found = [gv for gv in calls if gv.name_hint == name]
    if not found:
        raise ValueError(f"no Relax function {name} with calls; there are {', '.join(gv.name_hint for gv in calls)}")
    for _ in range(sample_number):
        sample = dym_var_sample_func(variables[found[0]])
        title = f"InputInfo({', '.join(f'{k}={v}' for k, v in sample.items())})"
        rows = []
        for functor, records in calls[found[0]].items():
            for args, weight in records:
                _, median, _ = benchmark(mod[functor], args, sample, target, dev, evaluator_config, rpc_config)
                rows.append({
                    f"PrimFuncs in {name}": functor.name_hint, title: ", ".join(str(a) for a in args),
                    "Time(us)": median * 1e6, "Weight": weight, "WxTime(ms)": median * weight * 1e3,
                })  # fmt: skip
        print_results(rows)


def print_results(
    bench_results: Sequence[Mapping[str, Any]], sort_by: str | None = "WxTime(ms)", desc: bool | None = True
) -> None:
    """Print rows as a table, sorted by a column if one is named. Raises ValueError if it does not exist."""
    from rich.console import Console
    from rich.table import Table

    columns = list(bench_results[0]) if bench_results else []
    rows = list(bench_results)
    if sort_by is not None and rows:
        if sort_by not in columns:
            raise ValueError(f"there is no column {sort_by}; there are {', '.join(columns)}")
        rows.sort(key=lambda row: row[sort_by], reverse=bool(desc))
    table = Table(*columns)
    for row in rows:
        table.add_row(*(f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row.values()))
    Console().print(table)
