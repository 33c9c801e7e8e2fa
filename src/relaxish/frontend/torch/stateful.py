"""Exported programs called as PyTorch calls them: what they write to is written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
import torch

from ... import relax
from ...runtime import cpu, NDArray, VirtualMachine
from ...runtime.arrays.ndarray import from_dlpack
from ...support.errors import RelaxishError
from ..common import build_module, detach_params, need, Pipeline
from .exported_program import from_exported_program, returned_values
from .mutation import functional

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["ExportedModel"]


class ExportedModel:
    """A compiled exported program with PyTorch's semantics of writes.

    The imported function is pure: it returns the new values of inputs and buffers that the program writes to. This
    writes them back: to the tensors it is called with, and to ``buffers``, which later calls see.

    >>> import torch
    >>> from relaxish.frontend.torch import ExportedModel
    >>> class Doubled(torch.nn.Module):
    ...     def forward(self, x):
    ...         x.mul_(2)
    ...         return x.sum()
    >>> model = ExportedModel(torch.export.export(Doubled(), (torch.ones(3),)))
    >>> x = torch.arange(3.0)
    >>> model(x)
    tensor(6.)
    >>> x
    tensor([0., 2., 4.])
    """

    def __init__(self, program: ExportedProgram, pipeline: Pipeline | None = None) -> None:
        need("torch", "torch")
        program = functional(program)
        nodes, added, places = returned_values(program)
        signature = program.graph_signature
        self._outputs = len(nodes) - added
        mod = from_exported_program(program, keep_params_as_input=True)
        func = mod["main"]
        arrays = dict(zip([p.name_hint for p in func.params[int(func.attrs["num_input"]) :]], func.attrs["params"]))
        names = {target: name for name, target in signature.inputs_to_buffers.items()}
        state = {target: names[target] for target in places if target in names}
        self.buffers: dict[str, Any] = {
            target: _tensor(arrays.pop(placeholder)).clone() for target, placeholder in state.items()
        }
        mod, _ = detach_params(mod)
        mod = relax.transform.BindParams("main", arrays)(mod)
        params = [p.name_hint for p in mod["main"].params]
        self._inputs = [name for name in params if name not in state.values()]
        self._order = [next((t for t, n in state.items() if n == name), None) for name in params]
        self._places = places
        self._run = VirtualMachine(build_module(mod, "llvm", pipeline), cpu())["main"]

    def __call__(self, *args: Any) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The outputs of the program: one tensor, or a tuple of them."""
        if len(args) != len(self._inputs):
            raise RelaxishError(f"the program takes {len(self._inputs)} tensors, {len(args)} are given")
        given = iter(args)
        values = [next(given) if target is None else self.buffers[target] for target in self._order]
        found = [_tensor(v) for v in self._run(*[from_dlpack(v.detach().contiguous()) for v in values])]
        for target, place in self._places.items():
            if target in self.buffers:
                self.buffers[target] = found[place].clone()
            else:
                args[self._inputs.index(target)].detach().copy_(found[place])
        outputs = found[: self._outputs]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _tensor(value: NDArray) -> torch.Tensor:
    import torch

    return torch.from_dlpack(value)
