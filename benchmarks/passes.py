"""Time of each graph pass on a graph of 2,000 operators. Bars: every pass at most 2 s, the default ones 10 s together.

python benchmarks/passes.py [--operators 2000]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import common

from relaxish import relax, transform
from relaxish.ir.transform import Pass
from relaxish.relax.dpl import is_op, wildcard
from relaxish.relax.op_table import op_function
from relaxish.script import relax as R


def model(operators: int) -> Any:
    """Layers of matmul, bias, activation and residual sums, with weights as parameters."""
    add, relu, matmul = op_function("add"), R.nn.relu, op_function("matmul")
    info = relax.TensorStructInfo((8, 8), "float32")
    x = relax.Var("x", info)
    weights = [relax.Var(f"w{i}", info) for i in range(operators // 4)]
    bias = relax.const([0.5] * 8, "float32")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, *weights], attrs={"num_input": 1}):
        with builder.dataflow():
            value: Any = x
            for weight in weights:
                hidden = builder.emit(relu(builder.emit(add(builder.emit(matmul(value, weight)), bias))))
                value = builder.emit(add(hidden, value))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return builder.finalize()


def graph_passes() -> list[tuple[str, Callable[[], Pass]]]:
    """Passes on operators, each measured on the model itself."""
    relu = is_op("relax.nn.relu")(wildcard())
    return [
        ("CanonicalizeBindings", transform.CanonicalizeBindings),
        ("EliminateCommonSubexpr", transform.EliminateCommonSubexpr),
        ("DeadCodeElimination", transform.DeadCodeElimination),
        ("DecomposeOpsForInference", transform.DecomposeOpsForInference),
        ("FoldBatchnormToConv2D", transform.FoldBatchnormToConv2D),
        ("ConvertLayout", lambda: transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})),
        ("ToMixedPrecision", transform.ToMixedPrecision),
        ("FuseOpsByPattern", lambda: transform.FuseOpsByPattern([("x.relu", relu)])),
        ("CombineParallelMatmul", transform.CombineParallelMatmul),
        ("AdjustMatmulOrder", transform.AdjustMatmulOrder),
        ("ExpandMatmulOfSum", transform.ExpandMatmulOfSum),
        ("LiftTransformParams", transform.LiftTransformParams),
        ("BundleModelParams", transform.BundleModelParams),
        ("TopologicalSort", transform.TopologicalSort),
        ("LazyGetInput", transform.LazyGetInput),
        ("Normalize", transform.Normalize),
    ]


def default_passes() -> list[tuple[str, Callable[[], Pass]]]:
    """The default build, each pass on the result of the one before."""
    names = """LegalizeOps AnnotateTIROpPattern FoldConstant FuseOps FuseTIR RewriteDataflowReshape ToNonDataflow
     RemovePurityChecking CallTIRRewrite StaticPlanBlockMemory LowerAllocTensor KillAfterLastUse LowerRuntimeBuiltin
     ComputePrimValue VMShapeLower AttachGlobalSymbol""".split()
    return [(name, getattr(transform, name)) for name in names]


def seconds(make: Callable[[], Pass], mod: Any) -> tuple[float, Any]:
    """Time of one run, and its result."""
    run = make()
    start = time.perf_counter()
    out = run(mod)
    return time.perf_counter() - start, out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", type=int, default=2000)
    mod = model(parser.parse_args().operators)
    rows: dict[str, float] = {}
    for name, make in graph_passes():
        rows[name], _ = seconds(make, mod)
    chain = mod
    together = 0.0
    for name, make in default_passes():
        rows[name], chain = seconds(make, chain)
        together += rows[name]
    for name, taken in rows.items():
        print(f"{name:28s} {taken:8.3f} s{'' if taken < 2 else '   over the bar of 2 s'}")
    print(f"{'default passes together':28s} {together:8.3f} s")
    common.save("passes", [{"pass": name, "seconds": taken} for name, taken in {**rows, "default": together}.items()])


if __name__ == "__main__":
    main()
