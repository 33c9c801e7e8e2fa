"""``torch.compile`` with this compiler, and capturing the graphs that it would compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir import IRModule
from ...runtime import VirtualMachine, cpu
from ...runtime.ndarray import from_dlpack
from ..common import build_module, need
from .fx import from_fx

__all__ = ["dynamo_capture_subgraphs", "relax_dynamo"]


def _input_info(example_inputs: Any) -> list[tuple[tuple[int, ...], str]]:
    return [(tuple(int(d) for d in x.shape), str(x.dtype).removeprefix("torch.")) for x in example_inputs]


def relax_dynamo(pipeline: Any = None) -> Callable[..., Any]:
    """A backend for ``torch.compile``.

    ``pipeline`` is a Relax pass (or the name of a pipeline) that takes the place of the default one.

    ::

        fast = torch.compile(model, backend=relax_dynamo())
    """

    def backend(graph_module: Any, example_inputs: Any) -> Callable[..., Any]:
        torch = need("torch", "torch")
        if any(not isinstance(x, torch.Tensor) for x in example_inputs):
            raise ValueError("relax_dynamo compiles static shapes: call torch.compile(..., dynamic=False)")
        graph_module.graph.eliminate_dead_code()
        mod = from_fx(graph_module, _input_info(example_inputs))
        run = VirtualMachine(build_module(mod, "llvm", pipeline), cpu())["main"]

        def call(*args: Any) -> Any:
            return _to_torch(torch, run(*[from_dlpack(a.detach().contiguous()) for a in args]))

        return call

    return backend


def _to_torch(torch: Any, value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_to_torch(torch, v) for v in value)
    return torch.from_dlpack(value)


def dynamo_capture_subgraphs(model: Any, *params: Any, **kwargs: Any) -> IRModule:
    """Run a model once under TorchDynamo and import every graph it captures.

    Returns one module with functions ``subgraph_0``, ``subgraph_1``, ...; ``keep_params_as_input`` is that of
    :func:`from_fx`, other keyword arguments go to the model.
    """
    torch = need("torch", "torch")
    keep_params = bool(kwargs.pop("keep_params_as_input", False))
    captured = IRModule()

    def capture(graph_module: Any, example_inputs: Any) -> Any:
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
