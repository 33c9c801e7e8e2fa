"""Running a torch program both ways: what tests of the torch frontend share."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

import relaxish
from relaxish.frontend.torch import from_exported_program


class Lambda(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def export(function: Any, *inputs: Any, **options: Any) -> Any:
    """The exported program of a module or a function."""
    module = function if isinstance(function, torch.nn.Module) else Lambda(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(module, tuple(x.clone() for x in inputs), **options)


def imported(mod: Any, *inputs: Any) -> list[np.ndarray]:
    """Outputs of ``main``, compiled."""
    machine = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    out = machine["main"](*[relaxish.nd.array(x.contiguous().numpy()) for x in inputs])
    return [part.numpy() for part in (out if isinstance(out, (list, tuple)) or hasattr(out, "__len__") else [out])]


def same(found: Any, wanted: Any, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """Equal in shape and type, close in value."""
    wanted = wanted.detach().numpy()
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def check(function: Any, *inputs: Any, rtol: float = 1e-5, atol: float = 1e-5, **options: Any) -> Any:
    """Compare all outputs of a function of the inputs, which it may write to; gives the imported module.

    The new values of inputs and buffers are compared where the importer adds them.
    """
    program = export(function, *inputs, **options)
    mod = from_exported_program(program)
    found = imported(mod, *inputs)
    given = tuple(x.clone() for x in inputs)
    module = program.module()
    with torch.no_grad():
        wanted = module(*given)
    wanted = list(wanted) if isinstance(wanted, (tuple, list)) else [wanted]
    for have, want in zip(found, wanted):
        same(have, want, rtol, atol)
    names = [var.name_hint for var in mod["main"].params]
    state = {**dict(module.named_buffers()), **dict(zip(names, given))}
    mutated = {str(k): int(v) for k, v in (mod["main"].attrs or {}).get("mutated", {}).items()}
    assert len(found) == len({*range(len(wanted)), *mutated.values()})
    for name, position in mutated.items():
        same(found[position], state[name], rtol, atol)
    return mod
