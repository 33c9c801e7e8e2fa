"""Printed text, to the letter: the files in ``golden/`` hold it. ``pytest --update-golden`` rewrites them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relaxish import tir
from relaxish.ir import Range
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T


@T.prim_func
def matmul(a: T.handle, B: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
    T.func_attr({"tir.noalias": True, "target": T.target({"kind": "cuda", "arch": "sm_80"})})
    n = T.int32()
    A = T.match_buffer(a, (n, 16), "float32", strides=["s", 1], offset_factor=8)
    for i0, j in T.grid(4, 16):
        for i1 in T.thread_binding(4, thread="threadIdx.x", annotations={"pragma_unroll": 1}):
            for k in T.serial(16, annotations={"software_pipeline_stage": [0, 1]}):
                with T.block("C"):
                    vi = T.axis.spatial(16, i0 * 4 + i1)
                    vj, vk = T.axis.remap("SR", [j, k])
                    T.where(i0 * 4 + i1 < 15)
                    T.block_attr({"tiles": [T.int64(2), 3], "name": "C"})
                    with T.init():
                        C[vi, vj] = 0.0
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func(private=True)
def lowered(A: T.Buffer((64,), "float16"), n: T.int32):
    bx = T.launch_thread("blockIdx.x", 4)
    tx = T.env_thread("threadIdx.x")
    T.launch_thread(tx, 16)
    data = T.allocate([64], "float16", "shared")
    S = T.decl_buffer((64,), "float16", data=data, scope="shared")
    with T.attr(S.data, "volatile_scope", 1):
        x: T.int32 = bx * 16 + tx
        S[x] = T.if_then_else(x < n, A[x], T.float16("inf"))
        T.tvm_storage_sync("shared")
        while x < n:
            A[x] = T.max(S[63 - x], T.float16(1.5)) + T.Select(x % 2 == 0, S[x], T.float16(-2))
    A[0:4] = A[4:8] + T.Broadcast(T.float16(1), 4)
    T.evaluate(T.call_packed("f", A.data, T.int64(3), "text"))
    assert n > 0, "n must be positive"


@I.ir_module
class Module:
    I.module_attrs({"version": 1})
    I.module_global_infos({"vdevice": [I.vdevice("cuda", 1), I.vdevice("cuda", 0)]})

    @T.prim_func(private=True)
    def double(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("B"):
                v = T.axis.spatial(4, i)
                B[v] = A[v] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        n = T.int64()
        R.func_attr({"num_input": 1})
        cls = Module
        with R.dataflow():
            a = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((4,), "float32"))
            b: R.Tensor((n, 4), "float32") = R.add(y, a)
            c = R.nn.softmax(b, axis=-1)
            R.output(c)
        return c


PROGRAMS: dict[str, Any] = {"matmul": matmul, "lowered": lowered, "module": Module}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no_sugar": {"syntax_sugar": False},
    "prefixes": {"ir_prefix": "ir", "tir_prefix": "tir", "relax_prefix": "rx", "module_alias": "mod"},
    "dtypes": {"int_dtype": "int64", "float_dtype": "float32", "buffer_dtype": "float16"},
    "indent": {"indent_spaces": 2, "print_line_numbers": True},
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.parametrize("options", sorted(OPTIONS))
def test_program_text(name: str, options: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}_{options}", PROGRAMS[name].script(**OPTIONS[options]))


def _expressions() -> dict[str, Any]:
    x, y, flag = tir.Var("x", "int32"), tir.SizeVar("y", "int64"), tir.Var("flag", "bool")
    buffer = tir.decl_buffer((8, 8), "float16", "A")
    return {
        "division": [tir.Div(x, x), tir.Mod(x, x), tir.FloorDiv(x, x), tir.FloorMod(x, x), tir.Div(tir.const(1), tir.const(2))],
        "logic": [tir.And(flag, x < 3), tir.Not(flag), tir.Or(tir.EQ(x, 1), tir.NE(x, 2))],
        "vectors": [tir.Ramp(x, 1, 4), tir.Broadcast(x, 4 * tir.vscale()), tir.Shuffle([x, x], [0])],
        "constants": [tir.const(v, d) for v, d in ((1, "int8"), (True, "bool"), (1e-5, "float32"), (2, "float64"))],
        "types": [tir.Cast("float64", x), y, tir.Let(x, 1, x + 1), buffer[1, x], tir.BufferRegion(buffer, [Range(0, 4), Range(2, 3)])],
        "calls": [tir.exp(tir.const(1.0, "float32")), tir.call_extern("int32", "f", x), tir.if_then_else(x < 1, x, 2)],
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(_expressions()))
def test_expression_text(name: str, golden: Callable[[str, str], None]) -> None:
    parts = [item.script(verbose_expr=True) for item in _expressions()[name]]
    golden(f"expr_{name}", "\n---\n".join(parts))
