"""Importing a ``torch.fx.GraphModule``: it is exported first, so both importers share every converter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from ... import tir
from ...ir import IRModule
from ..common import need
from .exported_program import import_program
from .importer import Dim

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["from_fx"]

#: Extents that stand for symbolic dimensions while the graph is exported; 0 and 1 would be taken as fixed.
_FIRST_EXAMPLE_EXTENT = 5


def from_fx(
    model: torch.fx.GraphModule,
    input_info: Sequence[tuple[Sequence[Any], str]],
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: dict[Any, Callable[..., Any]] | None = None,
) -> IRModule:
    """Import a traced graph.

    Parameters
    ----------
    model
        A ``torch.fx.GraphModule``, as ``torch.fx.symbolic_trace`` gives.
    input_info
        Shape and dtype of every input. A dimension that is a ``tir.Var`` or a name becomes symbolic.
    custom_convert_map
        Converters of the user by operator name (``"relu"`` or ``"relu.default"``): called with the node and the
        importer, whose ``env`` maps nodes to expressions and whose ``block_builder`` emits.

    The other options are those of :func:`from_exported_program`, and writes in place are treated as there.  A graph
    that returns one tensor, not a tuple, gives a function that returns one tensor; one that returns the results of one
    node (``torch.split``) returns them as they are, and one that returns a size (``x.size()``) returns a shape.

    >>> import torch
    >>> from relaxish.frontend.torch import from_fx
    >>> graph = torch.fx.symbolic_trace(torch.nn.ReLU())
    >>> mod = from_fx(graph, [((2, 3), "float32")])
    >>> mod["main"].ret_struct_info
    R.Tensor((2, 3), dtype="float32")
    """
    torch = need("torch", "torch")
    symbols = _symbols(input_info)
    inputs = tuple(_example(torch, shape, dtype, symbols) for shape, dtype in input_info)
    with _in_inference(model):
        program = torch.export.export(model, inputs, dynamic_shapes=_dynamic(torch, model, input_info, symbols))
    returned = next(node for node in model.graph.nodes if node.op == "output").args[0]
    single = not isinstance(returned, (tuple, list))
    result = "tuple" if not single else "shape" if _is_shape(returned) else "node"
    return import_program(
        program,
        keep_params=keep_params_as_input,
        unwrap=unwrap_unit_return_tuple or single,
        no_bind=no_bind_return_tuple,
        custom=custom_convert_map,
        result=result,
        symbols=_variables(program, input_info),
    )


def _variables(program: ExportedProgram, input_info: Sequence[tuple[Sequence[Any], str]]) -> dict[str, tir.Var]:
    """The user's variables for the sizes that the exporter has names of its own for."""
    inputs = [node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    out: dict[str, tir.Var] = {}
    for node, (shape, _) in zip(inputs, input_info):
        for size, dim in zip(node.meta["val"].shape, shape):
            name = _name(dim)
            if name is not None and not isinstance(size, int):
                out.setdefault(str(size.node.expr), dim if isinstance(dim, tir.Var) else tir.Var(name, "int64"))
    return out


def _is_shape(node: Any) -> bool:
    """Whether a node is the whole size of a tensor."""
    match node:
        case torch.fx.Node(op="call_method", target="size", args=(_,)) if not node.kwargs:
            return True
        case torch.fx.Node(op="call_function", args=(_, "shape")):
            return node.target is getattr
    return False


@contextmanager
def _in_inference(model: torch.fx.GraphModule) -> Iterator[None]:
    """The modes of all its modules are the user's, and are put back."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _name(dim: str | Dim) -> str | None:
    """The name of a symbolic dimension, None for a number."""
    match dim:
        case tir.Var():
            return str(dim.name)
        case str():
            return dim
    return None


def _symbols(input_info: Sequence[tuple[Sequence[Any], str]]) -> dict[str, int]:
    """An example extent for each symbolic dimension, all different."""
    names = dict.fromkeys(_name(d) for shape, _ in input_info for d in shape if _name(d) is not None)
    return {str(name): _FIRST_EXAMPLE_EXTENT + k for k, name in enumerate(names)}


def _example(torch: ModuleType, shape: Sequence[Any], dtype: str, symbols: dict[str, int]) -> torch.Tensor:
    sizes = [symbols[name] if (name := _name(d)) is not None else int(d) for d in shape]
    return torch.zeros(sizes, dtype=getattr(torch, str(dtype).removeprefix("torch.")))


def _dynamic(
    torch: ModuleType,
    model: torch.fx.GraphModule,
    input_info: Sequence[tuple[Sequence[Any], str]],
    symbols: dict[str, int],
) -> dict[str, dict[int, Any]] | None:
    if not symbols:
        return None
    dims = {name: torch.export.Dim(name) for name in symbols}
    named = [node.target for node in model.graph.nodes if node.op == "placeholder"]
    wanted = [{k: dims[n] for k, d in enumerate(shape) if (n := _name(d)) is not None} for shape, _ in input_info]
    return dict(zip(named, wanted))
