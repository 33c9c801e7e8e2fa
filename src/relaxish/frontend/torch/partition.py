"""Partition of a graph into parts that are compiled and parts that PyTorch runs itself."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ...ir import IRModule
from ...runtime import VMExecutable
from ...support.errors import RelaxishError, first_line
from ...support.log import get_logger
from .compiled_graph import CompiledGraph, Frozen, is_symbolic, is_tensor, representable
from .exported_program import name_of
from .table import find

__all__ = ["compile_graph", "forget_warnings"]

_log = get_logger("frontend.torch")
# What importing and building raise for programs that they cannot take.
_REFUSALS = (RelaxishError, ValueError, TypeError, IndexError, KeyError, AttributeError, NotImplementedError)
_PART = "compiled_part_"
_told: set[str] = set()


def forget_warnings() -> None:
    """Tell again of operators that PyTorch runs."""
    _told.clear()


def compile_graph(
    module: torch.fx.GraphModule, build: Callable[[IRModule], VMExecutable], frozen: Frozen | None = None
) -> Callable[..., Any]:
    """A callable for a functional graph of ATen operators.

    Operators that have no converter, draw random numbers, or work on what there is no counterpart of (complex numbers,
    other devices, sizes that depend on values) are run by PyTorch, and so is a part that cannot be imported or built.
    The rest is compiled, as few and as large parts as possible. One warning in the log names each such operator.
    """
    return _Compiler(module, build, frozen or {}).run()


class _Compiler:
    def __init__(self, module: torch.fx.GraphModule, build: Callable[[IRModule], VMExecutable], frozen: Frozen) -> None:
        self.module, self.build, self.frozen = module, build, frozen
        for node in module.graph.nodes:
            if node.op == "get_attr" and "val" not in node.meta:
                node.meta["val"] = operator.attrgetter(node.target)(module)
        # Nodes left to PyTorch by name, with the reason.
        self.left = {node.name: reason for node in _calls(module.graph) if (reason := _obstacle(node)) is not None}
        self.parts: dict[str, CompiledGraph] = {}

    def run(self) -> Callable[..., Any]:
        while True:
            before = len(self.left)
            made = self._attempt()
            if len(self.left) == before:
                break
        self._warn()
        return made

    def _attempt(self) -> Callable[..., Any]:
        """A callable for the graph; nodes that turn out to have no way here are added to those left."""
        if not self.left:
            whole = self._compiled(self.module)
            return whole if whole is not None else self.module
        split = _split(copy.deepcopy(self.module), self.left)
        for name, part in list(split.named_children()):
            if name.startswith(_PART):
                compiled = self._compiled(part)
                if compiled is not None:
                    setattr(split, name, _Part(compiled))
        split.recompile()
        forward: Callable[..., Any] = split.forward
        return forward

    def _compiled(self, part: torch.fx.GraphModule) -> CompiledGraph | None:
        """The compiled part, or None where it cannot be had and some of its nodes were added to those left."""
        names = ",".join(node.name for node in _calls(part.graph))
        if names in self.parts:
            return self.parts[names]
        last: list[torch.fx.Node] = []
        constants = {name: value for name, value in self.frozen.items()}
        try:
            made = CompiledGraph(part, self.build, constants, last.append)
        except _REFUSALS as err:
            reached = last[-1] if last else None
            importing = reached is not None and reached.op == "call_function"
            reason = first_line(err)
            guilty = [reached] if importing and reached is not None else _calls(part.graph)
            self.left.update({node.name: reason for node in guilty})
            return None
        self.parts[names] = made
        return made

    def _warn(self) -> None:
        reasons: dict[str, str] = {}
        for node in _calls(self.module.graph):
            if node.name in self.left and node.target is not operator.getitem:
                reasons.setdefault(str(node.target), self.left[node.name])
        fresh = {name: reason for name, reason in reasons.items() if name not in _told}
        _told.update(fresh)
        if fresh:
            listed = "; ".join(f"{name} ({reason})" for name, reason in sorted(fresh.items()))
            _log.warning("operators run by PyTorch: %s", listed)


class _Part(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """A compiled part in its place in a graph."""

    def __init__(self, compiled: CompiledGraph) -> None:
        super().__init__()
        self._compiled = compiled

    def forward(self, *args: Any) -> object:
        return self._compiled(*args)


def _calls(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    return [node for node in graph.nodes if node.op in ("call_function", "call_method", "call_module")]


def _values(node: torch.fx.Node) -> list[Any]:
    value = node.meta.get("val")
    match value:
        case list() | tuple():
            return list(value)
    return [value]


def _obstacle(node: torch.fx.Node) -> str | None:
    """Why a node cannot be compiled; None for one that can, as far as is known before it is imported."""
    if node.op != "call_function":
        return f"a node of kind {node.op}"
    if node.target is operator.getitem:
        (source,) = node.all_input_nodes
        return _obstacle(source) if source.op == "call_function" else None
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return "it runs graphs of its own"
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return "it draws random numbers"
    if find(name_of(node.target)) is None:
        return "there is no converter"
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.is_mutable:
        return "it writes to its arguments"
    if "val" not in node.meta:
        return "what it gives is not known"
    around = [value for source in node.all_input_nodes for value in _values(source)] + _values(node)
    if not all(representable(value) for value in around):
        return "there is no counterpart of its tensors"
    if any(_depends_on_values(value) for value in around):
        return "sizes that depend on values"
    return None


def _depends_on_values(value: Any) -> bool:
    if value.__class__ in (torch.SymFloat, torch.SymBool):
        return True
    sizes = [value] if is_symbolic(value) else getattr(value, "shape", ())
    symbols = [symbol for size in filter(is_symbolic, sizes) for symbol in size.node.expr.free_symbols]
    return any(str(symbol).startswith(("u", "zuf")) for symbol in symbols)


def _split(module: torch.fx.GraphModule, left: Mapping[str, str]) -> torch.fx.GraphModule:
    """The graph with the largest stretches of nodes not in ``left`` as modules of their own."""
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import create_op_support

    def compiled(_: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        return node.op == "call_function" and node.name not in left

    partitioner = CapabilityBasedPartitioner(module, create_op_support(compiled), allows_single_node_partition=True)
    parts = [part for part in partitioner.propose_partitions() if any(map(_computes, part.nodes))]
    return partitioner.fuse_partitions(parts, prefix=_PART)


_VIEWS = ("view", "_unsafe_view", "reshape", "t", "transpose", "permute", "unsqueeze", "squeeze", "expand", "slice",
          "select", "alias", "detach", "as_strided", "split", "unbind", "getitem", "sym_size")  # fmt: skip


def _computes(node: torch.fx.Node) -> bool:
    """Whether a node makes new elements: views cost PyTorch nothing."""
    return name_of(node.target).partition(".")[0] not in _VIEWS and any(map(is_tensor, _values(node)))
