"""Graphs of ATen operators that PyTorch's compiler made, imported without exporting them once more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from ...ir import IRModule
from .exported_program import import_program

__all__ = ["TracedProgram", "import_traced"]


@dataclass
class TracedProgram:
    """Importer's view of an exported program, for a functional graph; ``state_dict`` has the values of the placeholders
    that are constants."""

    graph_module: Any
    state_dict: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)

    @property
    def graph(self) -> torch.fx.Graph:
        """The graph of ATen operators."""
        return self.graph_module.graph

    @property
    def graph_signature(self) -> SimpleNamespace:
        """All outputs are the user's, and all inputs that are no constants."""
        constant, given, returned = (SimpleNamespace(name=n) for n in ("PARAMETER", "USER_INPUT", "USER_OUTPUT"))
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        (output,) = (node for node in self.graph.nodes if node.op == "output")
        kinds = [constant if node.name in self.state_dict else given for node in inputs]
        return SimpleNamespace(
            input_specs=[SimpleNamespace(kind=k, arg=node, target=node.name) for k, node in zip(kinds, inputs)],
            output_specs=[SimpleNamespace(kind=returned, arg=node, target=None) for node in output.args[0]],
        )


def import_traced(
    graph_module: torch.fx.GraphModule,
    constants: Mapping[str, torch.Tensor] | None = None,
    reached: Callable[[torch.fx.Node], None] | None = None,
) -> IRModule:
    """Import a functional graph of ATen operators that all have converters.

    The function takes the placeholders that have no value in ``constants`` and are tensors or symbolic sizes, and
    returns a tuple of all results. ``reached`` is told every node before it is converted. Raises OpNotImplemented as
    the importer does.
    """
    from torch.utils._python_dispatch import _disable_current_modes

    # PyTorch's compiler calls with its own tensors without values in force; constants of the graph have values.
    with _disable_current_modes():
        program = TracedProgram(graph_module, dict(constants or {}))
        return import_program(program, keep_params=False, unwrap=False, no_bind=False, reached=reached)
