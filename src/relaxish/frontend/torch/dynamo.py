"""``torch.compile`` with this compiler, and capturing the graphs that it would compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
import torch

from ...ir import IRModule
from ...relax.expr import Expr
from ...runtime import VirtualMachine, cpu
from ...runtime.ndarray import from_dlpack
from ...support.errors import RelaxishError, first_line
from ...support.log import get_logger
from ..common import build_module, need, Pipeline
from .fx import from_fx
from .traced import import_traced, trace

__all__ = ["dynamo_capture_subgraphs", "relax_dynamo"]

_log = get_logger("frontend.torch")
# Programs compiled for one graph whose shapes change; beyond it the oldest is forgotten.
_KEPT_SHAPES = 64


def _input_info(example_inputs: Sequence[torch.Tensor]) -> list[tuple[tuple[int, ...], str]]:
    return [(tuple(int(d) for d in x.shape), str(x.dtype).removeprefix("torch.")) for x in example_inputs]


def relax_dynamo(pipeline: Pipeline | None = None) -> Callable[..., Any]:
    """A backend for ``torch.compile``.

    ``pipeline`` is a Relax pass (or the name of a pipeline) that takes the place of the default one.

    PyTorch makes the graph functional and derives its backward pass; both are compiled here. Writes to inputs and
    buffers are carried out and results carry gradients, as without compiling. A graph that draws random numbers
    (dropout in training) or has operators that cannot be imported is run by PyTorch itself, which a warning in the log
    tells. A graph of changing shapes is compiled for each of them when it is met.

    ::

        fast = torch.compile(model, backend=relax_dynamo())
    """

    def compiled(graph_module: torch.fx.GraphModule, example_inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
        from torch._functorch.aot_autograd import make_boxed_func

        return make_boxed_func(_graph(graph_module, example_inputs, pipeline))

    def backend(graph_module: torch.fx.GraphModule, example_inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
        need("torch", "torch")
        from torch._dynamo.backends.common import aot_autograd

        made: Callable[..., Any] = aot_autograd(fw_compiler=compiled, bw_compiler=compiled)(
            graph_module, example_inputs
        )
        return made

    return backend


def _graph(
    graph_module: torch.fx.GraphModule, examples: Sequence[Any], pipeline: Pipeline | None
) -> Callable[..., Any]:
    """What runs one graph of ATen operators."""
    random = sorted({str(node.target) for node in graph_module.graph.nodes if _is_random(node)})
    if random:
        return _by_torch(graph_module, f"it draws random numbers ({', '.join(random)})")
    if any(node.meta["val"].device.type != "cpu" for node in graph_module.graph.nodes if _has_device(node)):
        return _by_torch(graph_module, "its tensors are not in the memory of the CPU")
    if all(_is_static(x) for x in examples):
        return _for_shapes(graph_module, pipeline)
    return _ByShape(graph_module, pipeline)


def _is_random(node: torch.fx.Node) -> bool:
    import torch

    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _has_device(node: torch.fx.Node) -> bool:
    return node.op == "placeholder" and hasattr(node.meta.get("val"), "device")


def _is_static(x: object) -> bool:
    return hasattr(x, "shape") and all(isinstance(d, int) for d in x.shape)


def _by_torch(graph_module: torch.fx.GraphModule, reason: str) -> Callable[..., Any]:
    _log.warning("a graph is run by PyTorch: %s", reason)
    forward: Callable[..., Any] = graph_module.forward
    return forward


def _for_shapes(graph_module: torch.fx.GraphModule, pipeline: Pipeline | None) -> Callable[..., Any]:
    """What runs a graph of tensors of known shapes."""
    try:
        mod = import_traced(graph_module)
    except (RelaxishError, ValueError, TypeError, IndexError, NotImplementedError) as err:
        return _by_torch(graph_module, f"it cannot be imported ({first_line(err)})")
    import torch

    run = VirtualMachine(build_module(mod, "llvm", pipeline), cpu())["main"]
    inputs = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    (output,) = (node for node in graph_module.graph.nodes if node.op == "output")
    returned = output.args[0]
    computed = [value for value in returned if value is not None]

    def call(*args: Any) -> Sequence[torch.Tensor]:
        found = run(*[from_dlpack(_plain(a)) for a in args])
        made = dict(zip(computed, map(torch.from_dlpack, found), strict=True)) if computed else {}
        made.update(zip(inputs, args, strict=True))
        return [None if value is None else made[value] for value in returned]

    return call


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor in rows, as the compiled function reads them."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


class _ByShape:
    """Runs a graph whose inputs are sizes or have sizes that change: it is traced anew for every set of them."""

    def __init__(self, graph_module: torch.fx.GraphModule, pipeline: Pipeline | None) -> None:
        self.graph_module, self.pipeline = graph_module, pipeline
        self.programs: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *args: Any) -> Sequence[torch.Tensor]:
        import torch

        is_tensor = [isinstance(a, torch.Tensor) for a in args]
        tensors = [a for a, known in zip(args, is_tensor) if known]
        key = tuple(tuple(a.shape) if known else a for a, known in zip(args, is_tensor))
        if key not in self.programs:
            if len(self.programs) >= _KEPT_SHAPES:
                del self.programs[next(iter(self.programs))]
            self.programs[key] = self._program(args, is_tensor, tensors)
        return self.programs[key](*tensors)

    def _program(self, args: Sequence[Any], is_tensor: Sequence[bool], tensors: Sequence[Any]) -> Callable[..., Any]:
        def specialised(*given: Any) -> Expr:
            rest = iter(given)
            return self.graph_module(*[next(rest) if known else a for a, known in zip(args, is_tensor)])

        made = trace(specialised, tensors)
        (output,) = (node for node in made.graph.nodes if node.op == "output")
        if any(isinstance(value, (int, float)) for value in output.args[0]):
            # Sizes that the backward pass takes: numbers among the results, known now.
            return _with_numbers(made, output.args[0], self.pipeline)
        return _for_shapes(made, self.pipeline)


def _with_numbers(
    graph_module: torch.fx.GraphModule, returned: Sequence[Any], pipeline: Pipeline | None
) -> Callable[..., Any]:
    numbers = {k: value for k, value in enumerate(returned) if isinstance(value, (int, float))}
    (output,) = (node for node in graph_module.graph.nodes if node.op == "output")
    output.args = ([None if k in numbers else value for k, value in enumerate(returned)],)
    run = _for_shapes(graph_module, pipeline)

    def call(*args: Any) -> Sequence[torch.Tensor]:
        return [numbers.get(k, value) for k, value in enumerate(run(*args))]

    return call


def dynamo_capture_subgraphs(model: Callable[..., object], *params: Any, **kwargs: Any) -> IRModule:
    """Run a model once under TorchDynamo and import every graph it captures.

    Returns one module with functions ``subgraph_0``, ``subgraph_1``, ...; ``keep_params_as_input`` is that of
    :func:`from_fx`, other keyword arguments go to the model.
    """
    need("torch", "torch")
    import torch

    keep_params = bool(kwargs.pop("keep_params_as_input", False))
    captured = IRModule()

    def capture(graph_module: torch.fx.GraphModule, example_inputs: Sequence[torch.Tensor]) -> Callable[..., object]:
        mod = from_fx(
            graph_module,
            _input_info(example_inputs),
            keep_params_as_input=keep_params,
            unwrap_unit_return_tuple=True,
        )
        name = f"subgraph_{len(captured.functions)}"
        captured[name] = mod["main"].with_attr("global_symbol", name)
        return graph_module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=capture)(*params, **kwargs)
    return captured
