"""Graphs of ATen operators that PyTorch's compiler made, imported without exporting them once more."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
import torch

from ...ir import IRModule
from .exported_program import import_program

__all__ = ["TracedProgram", "import_traced", "trace"]


def trace(
    graph_module: torch.fx.GraphModule, inputs: Sequence[Any], decompositions: dict[Any, Any] | None = None
) -> torch.fx.GraphModule:
    """The graph that a callable runs through on inputs of these shapes, by ATen operators; nothing is computed."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch

        examples = [torch.empty_strided(tuple(x.shape), x.stride(), dtype=x.dtype, device=x.device) for x in inputs]
    return make_fx(graph_module, decomposition_table=decompositions or {}, tracing_mode="real")(*examples)


@dataclass
class TracedProgram:
    """What the importer asks of an exported program, for a functional graph without weights of its own."""

    graph_module: Any
    state_dict: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)

    @property
    def graph(self) -> torch.fx.Graph:
        """The graph of ATen operators."""
        return self.graph_module.graph

    @property
    def graph_signature(self) -> SimpleNamespace:
        """All inputs and outputs are the user's."""
        kind = SimpleNamespace(name="USER_INPUT"), SimpleNamespace(name="USER_OUTPUT")
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        (output,) = (node for node in self.graph.nodes if node.op == "output")
        return SimpleNamespace(
            input_specs=[SimpleNamespace(kind=kind[0], arg=node, target=None) for node in inputs],
            output_specs=[SimpleNamespace(kind=kind[1], arg=node, target=None) for node in output.args[0]],
        )

    def run_decompositions(self, table: dict[Any, Any]) -> TracedProgram:
        """The program with operators of the table taken apart."""
        inputs = [node.meta["val"] for node in self.graph.nodes if node.op == "placeholder"]
        return TracedProgram(trace(self.graph_module, inputs, table))


def import_traced(graph_module: torch.fx.GraphModule) -> IRModule:
    """Import a functional graph of ATen operators whose inputs are tensors of known shapes.

    The function returns a tuple of all results that are tensors. Raises OpNotImplemented as the importer does.
    """
    from torch.utils._python_dispatch import _disable_current_modes

    # PyTorch's compiler calls with its own tensors without values in force; constants of the graph have values.
    with _disable_current_modes():
        return import_program(TracedProgram(graph_module), keep_params=False, unwrap=False, no_bind=False)
