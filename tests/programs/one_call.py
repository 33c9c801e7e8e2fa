"""A model of one expression, built and run by any pipeline."""

from __future__ import annotations

from typing import Any

import relaxish
from relaxish import tir
from relaxish.relax import BlockBuilder, TensorStructInfo, Var

PIPELINES = [None, "zero", "default"]


def run(make: Any, args: list[Any], pipeline: str | None, symbols: dict[tuple[int, int], str]) -> Any:
    """The model ``make(*inputs)`` by one pipeline; ``symbols`` names dimensions (input, axis) that are dynamic."""
    named: dict[str, tir.Var] = {}
    inputs = []
    for k, arg in enumerate(args):
        dims = [
            named.setdefault(symbols[k, d], tir.Var(symbols[k, d], "int64")) if (k, d) in symbols else size
            for d, size in enumerate(arg.shape)
        ]
        inputs.append(Var(f"x{k}", TensorStructInfo(dims, str(arg.dtype))))
    builder = BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(make(*inputs)))
        builder.emit_func_output(out)
    mod = builder.get()
    if pipeline == "zero":
        mod, pipeline = relaxish.get_pipeline("zero")(mod), None
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm", relax_pipeline=pipeline), relaxish.cpu())
    return vm["main"](*map(relaxish.nd.array, args)).numpy().astype("float64")
