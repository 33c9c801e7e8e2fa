"""Builds for CPUs show their lowering passes to instruments, and lower as they do without."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish as rx
from relaxish import te, topi
from relaxish.ir.instrument import PrintAfterAll, PrintBeforeAll, pass_instrument
from relaxish.tir.transform.pipeline import lower_for_cpu


@pass_instrument
class _Names:
    def __init__(self) -> None:
        self.names: list[str] = []

    def run_before_pass(self, mod: rx.IRModule, info: object) -> None:
        self.names.append(info.name)  # type: ignore[attr-defined]


def _softmax() -> rx.IRModule:
    a = te.placeholder((4, 33), name="A")
    return rx.IRModule({"main": te.create_prim_func([a, topi.nn.softmax(a)]).with_attr("global_symbol", "main")})


def test_passes_are_seen_and_change_nothing() -> None:
    names = _Names()
    target = rx.target.Target("llvm")
    plain = lower_for_cpu(_softmax(), target)
    with rx.transform.PassContext(instruments=[names]):
        watched = lower_for_cpu(_softmax(), target)
    rx.ir.assert_structural_equal(plain, watched, map_free_vars=True)
    order = [
        "tir.LowerInitBlock",
        "tir.CompactBufferAllocation",
        "tir.FlattenBuffer",
        "tir.VectorizeLoop",
        "tir.RemoveNoOp",
    ]
    assert [n for n in names.names if n in order] == order


@pytest.mark.parametrize("kind", ["Before", "After"])
def test_modules_are_printed_in_builds(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with rx.transform.PassContext(instruments=[PrintBeforeAll() if kind == "Before" else PrintAfterAll()]):
        built = rx.compile(_softmax(), target="llvm")
    shown = capsys.readouterr().out
    assert shown.count(f"{kind} Running Pass:") > 10
    assert "pass name: tir.FlattenBuffer" in shown and "def main" in shown
    x = np.random.default_rng(3).standard_normal((4, 33)).astype("float32")
    out = rx.nd.empty((4, 33))
    built["main"](rx.nd.array(x), out)
    powers = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), powers / powers.sum(1, keepdims=True), rtol=1e-5)
