"""Functional graphs of ATen operators as callables on tensors of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch

from ...ir import IRModule
from ...runtime import cpu, NDArray, VirtualMachine, VMExecutable
from ...runtime.arrays.container import ShapeTuple
from ...runtime.arrays.ndarray import from_dlpack
from .importer import torch_dtype
from .traced import import_traced

__all__ = [
    "CompiledGraph", "Frozen", "Sizes", "is_symbolic", "is_tensor", "output_of", "placeholders", "representable",
]  # fmt: skip

#: Values of symbolic sizes for which computed sizes are remembered.
_KEPT_SIZES = 256
#: Constants of a graph by the name of the placeholder that they stand for.
Frozen = Mapping[str, torch.Tensor]
_T = TypeVar("_T")


def placeholders(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The inputs of a graph, in order."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def output_of(graph: torch.fx.Graph) -> torch.fx.Node:
    """The node that says what a graph returns."""
    return next(node for node in graph.nodes if node.op == "output")


def is_tensor(value: object) -> bool:
    """Whether a node's value is a tensor."""
    return isinstance(value, torch.Tensor)


def is_symbolic(value: object) -> bool:
    """Whether a node's value is a number that depends on the sizes of a call."""
    return isinstance(value, torch.SymInt)


def _is_node(value: object) -> bool:
    return isinstance(value, torch.fx.Node)


def _expression(size: Any) -> Any:
    return size.node.expr if is_symbolic(size) else size


class Sizes:
    """Numbers that follow from the sizes of the arguments of a graph: sizes and strides of what it returns."""

    def __init__(self, inputs: Sequence[torch.fx.Node], wanted: Sequence[Sequence[torch.SymInt | int]]) -> None:
        self._wanted = [[_expression(size) for size in sizes] for sizes in wanted]
        self._is_static = all(size.__class__ is int for sizes in self._wanted for size in sizes)
        # Where each symbol is read: the position of an argument, and its dimension (None for a number).
        self._places: dict[Any, tuple[int, int | None]] = {}
        for position, node in enumerate(inputs):
            value = node.meta.get("val")
            for dim, size in _sizes_of(value):
                expression = _expression(size)
                if getattr(expression, "is_symbol", False):
                    self._places.setdefault(expression, (position, dim))
        self._known: dict[tuple[int, ...], list[list[int]]] = {}

    def of(self, args: Sequence[Any]) -> list[list[int]]:
        """The wanted numbers for these arguments."""
        if self._is_static:
            return self._wanted
        key = tuple(int(args[at]) if dim is None else int(args[at].shape[dim]) for at, dim in self._places.values())
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KEPT_SIZES:
                del self._known[next(iter(self._known))]
            values = dict(zip(self._places, key, strict=True))
            found = self._known[key] = [[_number(size, values) for size in sizes] for sizes in self._wanted]
        return found


def _sizes_of(value: object) -> Iterator[tuple[int | None, torch.SymInt | int]]:
    match value:
        case torch.SymInt():
            yield None, value
        case torch.Tensor():
            yield from enumerate(value.shape)


def _number(size: Any, values: Mapping[Any, int]) -> int:
    return int(size.subs(values)) if hasattr(size, "subs") else int(size)


class CompiledGraph:
    """A graph compiled for all the sizes that it allows; called with the values of its placeholders.

    Results have the strides that PyTorch derived for them. ``frozen`` has the values of placeholders that are compiled
    in as constants; what is given for them in a call is not looked at.

    Raises what the importer and the compiler raise; ``reached``, if given, is told every node that is being imported.
    """

    def __init__(
        self,
        module: torch.fx.GraphModule,
        build: Callable[[IRModule], VMExecutable],
        frozen: Frozen | None = None,
        reached: Callable[[torch.fx.Node], None] | None = None,
    ) -> None:
        frozen = frozen or {}
        inputs, output = placeholders(module.graph), output_of(module.graph)
        single = _is_node(output.args[0])
        returned: Sequence[Any] = [output.args[0]] if single else output.args[0]
        self._single = single
        self._inputs = [
            _Input(position, node.meta.get("val"))
            for position, node in enumerate(inputs)
            if node.name not in frozen and any(test(node.meta.get("val")) for test in (is_tensor, is_symbolic))
        ]
        computed = [node for node in _distinct(returned, inputs) if is_tensor(node.meta.get("val"))]
        numbers = [node for node in _distinct(returned, inputs) if node not in computed]
        # Where each result is: ("computed", position), ("number", position), ("given", position) or a constant.
        self._returned = [_place(value, computed, numbers, inputs) for value in returned]
        values = [node.meta["val"] for node in computed]
        self._dense = [_is_static_and_dense(value) for value in values]
        self._sizes = Sizes(
            inputs, [*([*v.shape] for v in values), *([*v.stride()] for v in values), [n.meta["val"] for n in numbers]]
        )
        self._run: Callable[..., Any] | None = None
        if computed:
            output.args = (tuple(computed),)
            try:
                mod = import_traced(module, frozen, reached)
            finally:
                output.args = (returned[0] if single else returned,)
            self._run = VirtualMachine(build(mod), cpu())["main"]

    def __call__(self, *args: Any) -> object:
        """The results, or the only one where the graph returns one by itself."""
        sizes = self._sizes.of(args)
        made: list[torch.Tensor] = []
        if self._run is not None:
            found = self._run(*[given.value(args) for given in self._inputs])
            count = len(found)
            for k, array in enumerate(found):
                tensor = torch.from_dlpack(array)
                made.append(tensor if self._dense[k] else _with_strides(tensor, sizes[k], sizes[count + k]))
        results = [_result(place, made, sizes[-1], args) for place in self._returned]
        return results[0] if self._single else results


def _distinct(returned: Sequence[Any], inputs: Collection[torch.fx.Node]) -> list[torch.fx.Node]:
    """What a graph returns and computes itself, each once."""
    nodes = dict.fromkeys(value for value in returned if _is_node(value))
    return [node for node in nodes if node not in inputs]


def _place(
    value: Any, computed: list[torch.fx.Node], numbers: list[torch.fx.Node], inputs: list[torch.fx.Node]
) -> tuple[str, Any]:
    if not _is_node(value):
        return "constant", value
    for name, nodes in (("computed", computed), ("number", numbers), ("given", inputs)):
        if value in nodes:
            return name, nodes.index(value)
    raise ValueError(f"{value} is returned but not computed")


def _result(place: tuple[str, Any], made: Sequence[Any], numbers: Sequence[int], args: Sequence[Any]) -> object:
    kind, index = place
    return index if kind == "constant" else {"computed": made, "number": numbers, "given": args}[kind][index]


class _Input:
    """One argument of a compiled function: its array, remade only where the tensor is another one."""

    def __init__(self, position: int, value: torch.Tensor | torch.SymInt) -> None:
        self.position = position
        self.is_number = not is_tensor(value)
        self._kept: tuple[Any, int, NDArray] | None = None

    def value(self, args: Sequence[Any]) -> NDArray | ShapeTuple:
        given = args[self.position]
        if self.is_number:
            return ShapeTuple((int(given),))
        kept = self._kept
        if kept is not None and kept[0] is given and kept[1] == given.data_ptr():
            return kept[2]
        array = from_dlpack(_plain(given))
        # Parameters come again in every call; others are let go.
        shared = isinstance(given, torch.nn.Parameter) and array.ptr == given.data_ptr()
        self._kept = (given, array.ptr, array) if shared else None
        return array


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor in rows, as the compiled function reads them."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _is_static_and_dense(value: torch.Tensor) -> bool:
    """Whether a result is known to lie in rows, as compiled functions leave it."""
    if any(map(is_symbolic, (*value.shape, *value.stride()))):
        return False
    return value.is_contiguous()


def _with_strides(tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """A tensor with these elements and strides: others were told that it has them."""
    if tuple(tensor.stride()) == tuple(strides) or tensor.numel() == 0:
        return tensor
    if all(a == b for a, b, size in zip(tensor.stride(), strides, shape, strict=True) if size != 1):
        return tensor.as_strided(shape, strides)
    # Dimensions of stride 0 repeat one element.
    once = tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)]
    room = 1 + sum((size - 1) * stride for size, stride in zip(once.shape, strides, strict=True))
    storage = tensor.new_empty(room)
    storage.as_strided(once.shape, strides).copy_(once)
    return storage.as_strided(shape, strides)


def representable(value: Any) -> bool:
    """Whether a value is a plain tensor in the CPU's memory of a type that there is here, or a number."""
    if not is_tensor(value):
        return value is None or value.__class__ in (int, float, bool, torch.SymInt)
    if value.device.type != "cpu" or value.layout != torch.strided or value.is_complex() or value.is_quantized:
        return False
    try:
        torch_dtype(value.dtype)
    except ValueError:
        return False
    return True
