"""Differential fuzzing of importers, passes and pipelines: ONNX Runtime and 64-bit references judge.

    python -m relaxish.testing.fuzz --kind onnx --seconds 600

A case is a random graph, a random way to compile it (static or dynamic shapes, one of the pipelines, some passes that
keep the meaning before it), and random inputs. Import, build and run happen in a child process, so that a crash or a
hang is a finding. An output is wrong if it differs from the 64-bit reference by much more than ONNX Runtime's does.
"""

from __future__ import annotations

import dataclasses
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TYPE_CHECKING

import numpy as np

from ...ir.module import IRModule
from ...support.errors import OpNotImplemented
from .child import in_child
from .onnx_graphs import Array, Dim, Graph, GraphInput, Value, random_graph
from .onnx_model import draw_inputs, exact_outputs, other_sizes, peer_outputs, to_model

if TYPE_CHECKING:
    from ...runtime.vm.executable import VMExecutable
    from ...runtime.kernels.module import Module
    from ...runtime.exports.machines import MachinePrograms

__all__ = ["GraphCase", "GraphFailure", "Route", "check_graph", "make_graph_case", "regression_test", "shrink_graph"]

PIPELINES = ("default", "zero", "default_build", "static_shape_tuning")
PASSES = (
    "AdjustMatmulOrder", "CanonicalizeBindings", "CombineParallelMatmul", "ConvertLayout", "ConvertToDataflow",
    "DeadCodeElimination", "DecomposeOpsForInference", "EliminateCommonSubexpr", "ExpandMatmulOfSum",
    "FoldBatchnormToConv2D", "FoldConstant", "LegalizeOps", "Normalize", "RemoveRedundantReshape",
    "ReorderPermuteDimsAfterConcat", "ReorderTakeAfterMatmul", "ToNonDataflow", "TopologicalSort", "FuseOps+FuseTIR",
    "FuseTransposeMatmul",
)  # fmt: skip


@dataclass(frozen=True)
class Route:
    """One way to compile a graph."""

    dynamic: bool
    pipeline: str
    passes: tuple[str, ...] = ()
    exec_mode: str = "bytecode"

    def __str__(self) -> str:
        shapes = "dynamic" if self.dynamic else "static"
        return f"{shapes} {'+'.join((*self.passes, self.pipeline))} {self.exec_mode}"


@dataclass
class GraphCase:
    """A graph, what it is asked for, a way to compile it, and the sizes it runs with."""

    graph: Graph
    outputs: list[Value]
    route: Route
    sizes: dict[str, int]
    fed: dict[str, Array] = field(default_factory=dict)

    def inputs(self) -> dict[str, Array]:
        """The arrays the case runs on; cut edges of a shrunk graph are fed what they held.

        Where a graph interpolates, infinities are numbers: the peer multiplies an infinite neighbour with a weight of
        zero, so that its NaN says nothing.
        """
        drawn = draw_inputs(self.graph, self.sizes, 0)
        fed = {n: self.fed.get(n, a) for n, a in drawn.items()}
        if any(node[0] == "Resize" and node[3].get("mode", "nearest") != "nearest" for node in self.graph.nodes):
            return {n: np.where(np.isinf(a), a.dtype.type(3), a) if a.dtype.kind == "f" else a for n, a in fed.items()}
        return fed


@dataclass
class GraphFailure:
    """Failure of a case: its ``stage`` (import, build, run, crash, wrong) and the reason."""

    case: GraphCase
    stage: str
    reason: str

    def __str__(self) -> str:
        import onnx

        model = to_model(self.case.graph, self.case.outputs, dynamic=self.case.route.dynamic)
        text = onnx.printer.to_text(model.graph)
        head = f"graph {self.case.graph.number}, {self.case.route}, fails at '{self.stage}': {self.reason}"
        return f"{head}\nsizes {self.case.sizes}\n{text}"


def make_graph_case(number: int, nodes: int = 12) -> GraphCase:
    """Case ``number``: graph, outputs, route and sizes all follow from it."""
    rng = Random(f"route {number}")
    graph = random_graph(number, nodes)
    dynamic = rng.random() < 0.5
    pipeline = rng.choice(PIPELINES[:3] if dynamic else PIPELINES)
    if rng.random() < 0.4:
        pipeline = "default"
    passes = tuple(rng.sample(PASSES, rng.choice([0, 0, 1, 2, 3])))
    route = Route(dynamic, pipeline, passes, rng.choice(["bytecode", "bytecode", "compiled"]))
    inner = {name for _, read, _, _ in graph.nodes for name in read}
    made = {name for _, _, written, _ in graph.nodes for name in written}
    produced = [v for v in graph.values if v.name in made]
    outputs = [v for v in produced if v.name not in inner or rng.random() < 0.1]
    sizes = other_sizes(graph, 0) if dynamic and rng.random() < 0.7 else dict(graph.sizes)
    return GraphCase(graph, outputs[-6:], route, sizes)


# ---- compiling and running


def _apply_passes(mod: IRModule, passes: Sequence[str]) -> IRModule:
    from ... import transform

    for name in passes:
        if name == "ConvertLayout":
            mod = transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})(mod)
        elif name == "FuseOps+FuseTIR":
            for each in ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR"):
                mod = getattr(transform, each)()(mod)
        else:
            mod = getattr(transform, name)()(mod)
    return mod


def compile_route(mod: IRModule, route: Route) -> VMExecutable | Module | MachinePrograms:
    """The executable of a module by one route."""
    from ...transform.kernel_origins import unrecorded

    # Nothing is taken back to operators: the kernels of each route are what is tested.
    with unrecorded():
        return _compiled(_apply_passes(mod, route.passes), route)


def _compiled(mod: IRModule, route: Route) -> Any:
    from ... import driver, pipeline
    from ...meta_schedule.database import MemoryDatabase
    from ...target import Target

    named: Any = None
    if route.pipeline == "zero":
        mod = pipeline.zero_pipeline()(mod)
    elif route.pipeline == "static_shape_tuning":
        with Target("llvm -num-cores 1"), MemoryDatabase():
            mod = pipeline.static_shape_tuning_pipeline(0, "llvm -num-cores 1", cpu_weight_prepack=True)(mod)
    elif route.pipeline == "default_build":
        named = pipeline.default_build_pipeline()
    return driver.build(mod, "llvm", relax_pipeline=named, exec_mode=route.exec_mode)


def _ours(model: Any, route: Route, inputs: Mapping[str, Array]) -> tuple[str, Any]:
    """("ok", results) or (stage, reason)."""
    from ...frontend.onnx import from_onnx
    from ...runtime import cpu, nd
    from ...runtime.vm.machine import VirtualMachine

    stage = "import"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mod = from_onnx(model)
            stage = "build"
            built = compile_route(mod, route)
            stage = "run"
            machine = VirtualMachine(built, cpu())
            result = machine["main"](*[nd.array(a) for a in inputs.values()])
        parts = list(result) if isinstance(result, (list, tuple)) or type(result).__name__ == "ADT" else [result]
        return "ok", [p.numpy() for p in parts]
    except OpNotImplemented as error:
        return "unsupported", str(error)
    except Exception as error:  # whatever fails is a finding
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{frames[-1].filename.rpartition('relaxish/')[2]}:{frames[-1].lineno}"
        return stage, f"{type(error).__name__}: {str(error)[:400]} ({where})"


def wrong(actual: Array, peer: Array, exact: Array | None, value: Value) -> str | None:
    """Description of an output's difference from its references beyond rounding; None if there is none."""
    if tuple(actual.shape) != tuple(peer.shape):
        return f"{value.name}: shape {tuple(actual.shape)} for {tuple(peer.shape)}"
    if actual.dtype != peer.dtype:
        return f"{value.name}: type {actual.dtype} for {peer.dtype}"
    if not value.is_float:
        bad = np.argwhere(np.atleast_1d(actual != peer))
        return None if not len(bad) else f"{value.name}: {len(bad)} elements differ, first at {bad[0].tolist()}"
    have, other = actual.astype("float64"), peer.astype("float64")
    judge = other if exact is None or exact.shape != peer.shape else exact.astype("float64")
    finite = np.isfinite(other) & np.isfinite(judge)
    with np.errstate(all="ignore"):
        spread = float(np.max(np.abs(other - judge)[finite], initial=0.0))
        scale = float(np.max(np.abs(judge)[finite], initial=0.0))
        slack = 10 * spread + 2e-5 * max(scale, 1e-3)
        close = np.abs(have - other) <= slack
        same = (have == other) | (np.isnan(have) & np.isnan(other)) | (np.isfinite(other) & close)
        # Judges that disagree on NaN (pooling, say) leave the choice. Beyond float32 an infinity may be a large number.
        same |= np.isnan(have) & np.isnan(judge) | ~np.isfinite(other) & np.isfinite(judge)
    bad = np.argwhere(np.atleast_1d(~same))
    if not len(bad):
        return None
    at = tuple(bad[0])
    pair = f"{np.atleast_1d(have)[at]:g} for {np.atleast_1d(other)[at]:g}"
    return f"{value.name}: {len(bad)} of {have.size} elements differ, first at {bad[0].tolist()}: {pair}"


def check_graph(case: GraphCase, seconds: int = 60, *, apart: bool = True) -> GraphFailure | str:
    """The failure of a case, or "ok", "unsupported" (an operator without converter), "refused" (by the peer).

    What is imported runs in a child process for at most ``seconds``, unless ``apart`` is false: for callers that are one.
    """
    inputs = case.inputs()
    peer = peer_outputs(to_model(case.graph, case.outputs, dynamic=case.route.dynamic), inputs)
    if peer is None:
        return "refused"
    exact = exact_outputs(to_model(case.graph, case.outputs, dynamic=False, double=True), inputs)
    model = to_model(case.graph, case.outputs, dynamic=case.route.dynamic)
    if apart:
        found = in_child(lambda: _ours(model, case.route, inputs), seconds)
    else:
        found = _ours(model, case.route, inputs)
    if isinstance(found, str):
        return GraphFailure(case, "crash", found)
    stage, result = found
    if stage == "unsupported":
        return "unsupported"
    if stage != "ok":
        return GraphFailure(case, stage, result)
    if len(result) != len(peer):
        return GraphFailure(case, "wrong", f"{len(result)} results for {len(peer)}")
    for i, value in enumerate(case.outputs):
        why = wrong(np.asarray(result[i]), np.asarray(peer[i]), None if exact is None else exact[i], value)
        if why is not None:
            return GraphFailure(case, "wrong", why)
    return "ok"


# ---- shrinking


def _needed(graph: Graph, outputs: Sequence[Value]) -> Graph:
    """The part of a graph that its outputs read."""
    wanted = {o.name for o in outputs}
    nodes = []
    for node in reversed(graph.nodes):
        if wanted & set(node[2]):
            nodes.append(node)
            wanted |= set(node[1])
    return dataclasses.replace(
        graph,
        nodes=nodes[::-1],
        inputs=[i for i in graph.inputs if i.name in wanted],
        initializers={n: a for n, a in graph.initializers.items() if n in wanted},
    )


def _fails_alike(case: GraphCase, stage: str) -> GraphFailure | None:
    found = check_graph(case, 30)
    return found if isinstance(found, GraphFailure) and found.stage == stage else None


def shrink_graph(failure: GraphFailure) -> GraphFailure:
    """Fewer outputs, fewer passes, fewer nodes: cut edges become inputs that hold what ONNX Runtime computed."""
    best = failure
    for output in list(failure.case.outputs):
        case = dataclasses.replace(best.case, graph=_needed(failure.case.graph, [output]), outputs=[output])
        smaller = _fails_alike(case, failure.stage)
        if smaller is not None:
            best = smaller
            break
    for name in best.case.route.passes:
        route = dataclasses.replace(best.case.route, passes=tuple(p for p in best.case.route.passes if p != name))
        best = _fails_alike(dataclasses.replace(best.case, route=route), failure.stage) or best
    for plain in (Route(False, "default"), Route(False, best.case.route.pipeline), Route(True, "default")):
        simpler = dataclasses.replace(best.case, route=dataclasses.replace(plain, passes=best.case.route.passes))
        found = _fails_alike(simpler, failure.stage) if plain != best.case.route else None
        if found is not None:
            best = found
            break
    return _cut_edges(best)


def _cut_edges(best: GraphFailure) -> GraphFailure:
    by_name = {v.name: v for v in best.case.graph.values}
    for name in [w for node in best.case.graph.nodes for w in node[2]]:
        case = best.case
        if name not in {w for node in case.graph.nodes for w in node[2]} or name in {o.name for o in case.outputs}:
            continue
        value = by_name.get(name)
        if value is None:
            continue
        held = peer_outputs(to_model(case.graph, [value], dynamic=case.route.dynamic), case.inputs())
        if held is None:
            continue
        nodes = [n for n in case.graph.nodes if name not in n[2]]
        inputs = [*case.graph.inputs, GraphInput(name, value.dtype, value.shape, "real")]
        cut = _needed(dataclasses.replace(case.graph, nodes=nodes, inputs=inputs), case.outputs)
        smaller = dataclasses.replace(case, graph=cut, fed={**case.fed, name: held[0]})
        best = _fails_alike(smaller, best.stage) or best
    return best


def regression_test(failure: GraphFailure) -> str:
    """A test that holds the failing graph, its route and its inputs."""
    case = failure.case
    graph = case.graph
    lines = [f"    graph = Graph(Random(0), {graph.number}, {graph.opset}, {case.sizes!r}, special=False)"]
    for given in graph.inputs:
        lines.append(f"    graph.inputs.append({_source(given)})")
    for node in graph.nodes:
        lines.append(f"    graph.nodes.append({node!r})")
    arrays = {**graph.initializers}
    for name, array in arrays.items():
        lines.append(f"    graph.initializers[{name!r}] = {_array_source(array)}")
    fed = ", ".join(f"{n!r}: {_array_source(a)}" for n, a in case.inputs().items())
    outputs = ", ".join(_source(o) for o in case.outputs)
    body = "\n".join(lines)
    return f'''"""Found by the differential fuzzer (graph {graph.number}), at '{failure.stage}'."""

from random import Random

import numpy as np
from numpy import array, float32, inf, int32, int64, int8, nan, uint8  # noqa: F401

from relaxish.testing.fuzz.differential import GraphCase, Route, check_graph
from relaxish.testing.fuzz.onnx_graphs import Dim, Graph, GraphInput, Value  # noqa: F401


def test_graph_{graph.number}():
{body}
    fed = {{{fed}}}
    case = GraphCase(graph, [{outputs}], {case.route!r}, {case.sizes!r}, fed)
    assert check_graph(case) == "ok"
'''


def _source(item: GraphInput | Value) -> str:
    return repr(item)


def _array_source(array: Array) -> str:
    text = np.array2string(array, separator=", ", threshold=10**9, floatmode="unique", max_line_width=10**9)
    if array.size == 0:
        return f"np.zeros({array.shape!r}, {str(array.dtype)!r})"
    return f"np.array({text}, {str(array.dtype)!r})".replace("\n", "")


def symbols_of(shape: Sequence[Dim]) -> set[str]:
    """The named sizes that dimensions depend on."""
    return {name for dim in shape for name, _ in dim.terms}
