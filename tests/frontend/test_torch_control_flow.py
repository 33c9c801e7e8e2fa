"""Branches, loops and scopes of exported programs, against PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import relaxish
from relaxish.frontend.torch import from_exported_program
from torch_checks import check, export, same


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def machine(function: Any, *inputs: torch.Tensor, **options: Any) -> relaxish.VirtualMachine:
    mod = from_exported_program(export(function, *inputs, **options))
    return relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())


def agree(vm: relaxish.VirtualMachine, function: Any, *inputs: torch.Tensor) -> None:
    """The program and PyTorch's own run of the function give the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = function(*inputs)
    wanted = list(wanted) if isinstance(wanted, (tuple, list)) else [wanted]
    found = vm["main"](*[relaxish.nd.array(x.numpy()) for x in inputs])
    for have, want in zip(found, wanted, strict=True):
        same(have.numpy(), want)


def test_branches_by_a_value() -> None:
    def choose(p: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.cond(p, lambda a, b: (a.sin() + b, a * b), lambda a, b: (a.cos() * b, b - a), (x, y))

    x, y = rows(4, 3), rows(3, 4).T.contiguous()
    vm = machine(choose, torch.tensor(True), x, y)
    for taken in (True, False):
        agree(vm, choose, torch.tensor(taken), x, y)


def test_branches_by_a_size() -> None:
    def choose(x: torch.Tensor) -> Any:
        return torch.cond(x.shape[0] > 4, lambda a: a * 2, lambda a: a.exp(), (x,))

    vm = machine(choose, rows(5, 3), dynamic_shapes={"args": ({0: torch.export.Dim("n", min=2, max=64)},)})
    for count in (3, 4, 5, 9):
        agree(vm, choose, rows(count, 3))


def test_branches_within_branches() -> None:
    def inner(a: torch.Tensor) -> torch.Tensor:
        return torch.cond(a.sum() > 0, lambda b: b + 1, lambda b: b - 1, (a,))

    def choose(x: torch.Tensor) -> Any:
        return torch.cond(x.max() > 1, inner, lambda b: b.abs(), (x,)) * 2

    vm = machine(choose, rows(6))
    for x in (rows(6), rows(6) + 3, rows(6) - 9, torch.tensor([2.0, -9, 0, 0, 0, 0])):
        agree(vm, choose, x)


def test_a_loop_until_a_value() -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> Any:
        def going(turn: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
            return (turn < 9) & (a.abs().max() < 50)

        def turn(turn: torch.Tensor, a: torch.Tensor) -> Any:
            return turn + 1, a @ w + a

        return while_loop(going, turn, (torch.tensor(0), x))

    vm = machine(run, rows(4, 3), rows(3, 3))
    for scale in (0.001, 1.0, 90.0):
        agree(vm, run, rows(4, 3) * scale, rows(3, 3))


def test_a_loop_that_counts_in_numbers() -> None:
    def run(x: torch.Tensor) -> Any:
        return while_loop(lambda i, a: i < a.shape[0], lambda i, a: (i + 1, a * 1.5 + i), (0, x))[1]

    vm = machine(run, rows(4, 3), dynamic_shapes={"args": ({0: torch.export.Dim("n", min=2, max=64)},)})
    for count in (2, 4, 7):
        x = rows(count, 3)
        wanted = x.clone()
        for turn in range(count):
            wanted = wanted * 1.5 + turn
        (found,) = vm["main"](relaxish.nd.array(x.numpy()))
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
def test_scans(dynamic: bool) -> None:
    class Run(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(rows(3, 3))

        def forward(self, x: torch.Tensor) -> Any:
            return stepped(self.w, x)

    def stepped(w: torch.Tensor, x: torch.Tensor) -> Any:
        def turn(state: torch.Tensor, row: torch.Tensor) -> Any:
            after = torch.tanh(state @ w + row)
            return after, after * 2 - row

        return scan(turn, x[0] * 0.5, x, dim=0)

    model = Run()
    vm = machine(
        model,
        rows(5, 2, 3),
        **({"dynamic_shapes": {"x": {0: torch.export.Dim("n", min=2, max=64)}}} if dynamic else {}),
    )
    for count in (2, 5, 11) if dynamic else (5,):
        agree(vm, model, rows(count, 2, 3))


def test_maps() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch_map(lambda row, z: (row * z + row.sum(), row.max()), x, y)

    vm = machine(run, rows(4, 3), rows(3))
    agree(vm, run, rows(4, 3), rows(3))


def test_operators_without_converters_inside_of_branches() -> None:
    def choose(p: torch.Tensor, x: torch.Tensor) -> Any:
        return torch.cond(p, lambda a: torch.special.xlog1py(a, a.abs()), lambda a: torch.nn.functional.mish(a), (x,))

    vm = machine(choose, torch.tensor(True), rows(4, 3))
    for taken in (True, False):
        agree(vm, choose, torch.tensor(taken), rows(4, 3))


def test_scopes_without_gradients_are_as_if_not_there() -> None:
    class Part(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                scale = self.layer(x).abs() + 1
            return self.layer(x) / scale

    torch.manual_seed(1)
    check(Part(), rows(4, 3), dynamic_shapes={"x": {0: torch.export.Dim("n", min=2, max=9)}})


def test_scopes_of_mixed_precision_round_as_pytorch_does() -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ w
        return y.float() + 1

    check(run, rows(5, 64), rows(64, 7), rtol=1e-2, atol=1e-2)
