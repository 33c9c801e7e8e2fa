"""``T.Pipelined(order=, stage=, group=, sync=)``: statements overlap as the program says, and results stay what they are."""

from __future__ import annotations

import pytest
from test_errors import lower_for_device, source
from tile_programs import arrays, check

import relaxish
import relaxish.tile.language as T
from relaxish.ir import assert_structural_equal
from relaxish.script import from_source
from relaxish.support.errors import RelaxishError
from relaxish.tir.transform.tiles import TileLoweringError


def product(turns=5, dtype="float16", by_name=False, **pipeline):
    """A product in three statements a turn: two copies and the multiplication."""
    k = turns * 16
    shape = T.dynamic("k") if by_name else k

    @T.prim_func
    def main(A: T.Tensor((64, shape), dtype), B: T.Tensor((shape, 64), dtype), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            a = T.alloc_shared((64, 16), dtype)
            b = T.alloc_shared((16, 64), dtype)
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for turn in T.Pipelined(T.ceildiv(shape, 16), **pipeline):
                T.copy(A[0, turn * 16], a)
                T.copy(B[turn * 16, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    return main


def operands(turns, dtype="float16"):
    a, b = arrays(turns, (64, turns * 16))[0].astype(dtype), arrays(turns + 1, (turns * 16, 64))[0].astype(dtype)
    return [a, b], a.astype("float32") @ b.astype("float32")


PIPELINES = [
    {"stage": [0, 0, 2]}, {"stage": [0, 1, 2]}, {"stage": [0, 1, 3], "order": [2, 1, 0]}, {"stage": [0, 0, 0]},
    {"stage": [3, 3, 4], "order": [1, 2, 0]}, {"stage": [0, 0, 1], "group": [[0], [1]]},
    {"num_stages": 3, "group": [[0], [1, 2]]}, {"num_stages": 2, "order": [2, 1, 0]},
    {"num_stages": 2, "sync": [[0, 2]]}, {"stage": [0, 1, 1], "order": [0, 1, 2], "group": [[1], [0]]},
]  # fmt: skip


@pytest.mark.parametrize("pipeline", PIPELINES, ids=str)
@pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_90a"])
def test_results(pipeline, arch):
    """As many turns as there are, fewer than stages included; races would be errors."""
    for turns in (2, 6):
        inputs, wanted = operands(turns)
        check(product(turns, **pipeline), inputs, wanted, where=(arch,), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("pipeline", [PIPELINES[1], PIPELINES[2], PIPELINES[5]], ids=str)
def test_loops_of_unknown_length(pipeline):
    func = product(by_name=True, **pipeline)
    for turns in (1, 4):
        inputs, wanted = operands(turns)
        check(func, inputs, wanted, where=("sm_80",), rtol=1e-3, atol=1e-3)


def test_everywhere_else():
    for pipeline in PIPELINES[1:2]:
        inputs, wanted = operands(3)
        check(product(3, **pipeline), inputs, wanted, where=("interp", "llvm", "sm_61"), rtol=1e-3, atol=1e-3)


def loop_of(text):
    """What a turn does, in the loop over turns, by first letters: c(opy), k (a group ends), w(ait), s(ync), m(atrix)."""
    body = text[text.index("for (int turn") :]
    words = {"copy_async": "c", "commit_copies": "k", "wait_copies": "w", "__syncthreads": "s", "ldmatrix": "m"}
    found, depth = "", 0
    for line in body.splitlines():
        depth += line.count("{") - line.count("}")
        if depth <= 0:
            break
        for word, letter in words.items():
            if word in line and not found.endswith(letter):
                found += letter
    return found


def kernel(func, arch="sm_80"):
    text = source(func, arch)
    return text[text.rindex("__global__") :]


def test_emitted_order():
    """Groups end where they are said to, statements stand in the order asked for, and waits leave what they may."""
    plain = kernel(product(6, stage=[0, 0, 2]))
    assert loop_of(plain) == "sckwsm" and "wait_copies<2>" in plain
    apart = kernel(product(6, stage=[0, 0, 2], group=[[0], [1]]))
    assert loop_of(apart) == "sckckwsm" and "wait_copies<4>" in apart
    behind = kernel(product(6, stage=[0, 0, 2], order=[1, 2, 0]))
    assert loop_of(behind) == "wsmsck" and "wait_copies<1>" in behind
    # Slots of shared memory: as many as stages lie between, and one.
    sizes = {n: int(_shared(product(6, stage=[0, 0, n]))) for n in (1, 2, 3)}
    assert sizes[2] - sizes[1] == sizes[3] - sizes[2] > 0


def _shared(func):
    mod = relaxish.IRModule({"main": func.with_attr("global_symbol", "main")})
    _, device = lower_for_device(mod, relaxish.Target({"kind": "cuda", "arch": "sm_80"}))
    found = []

    def look(node):
        if type(node).__name__ == "Allocate" and node.buffer_var.name == "arena":
            found.append(node.extents[0].value)

    for f in device.functions.values():
        relaxish.tir.stmt_functor.post_order_visit(f.body, look)
    return found[0]


def test_sync_is_a_barrier():
    few = kernel(product(6, num_stages=0)).count("__syncthreads")
    more = kernel(product(6, num_stages=0, sync=[[0, 1]])).count("__syncthreads")
    assert more == few + 1


def test_hopper_keeps_its_unit_where_it_can():
    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), B: T.Tensor((64, 256), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for turn in T.Pipelined(4, stage=[0, 0, 2]):
                T.copy(A[0, turn * 64], a)
                T.copy(B[0, turn * 64], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C)

    assert "wgmma" in source(main, "sm_90a")
    a, b = (arrays(s, (64, 256), dtype="float16")[0] for s in (1, 2))
    check(main, [a, b], a.astype("float32") @ b.astype("float32").T, where=("sm_90a",), rtol=1e-3, atol=1e-3)
    assert "wgmma" not in source(product(6, stage=[0, 1, 2]), "sm_90a")


def test_statements_of_other_kinds():
    """Stages of element-wise statements and reductions, with a tile that two later stages read."""

    @T.prim_func
    def main(A: T.Tensor((7, 64), "float32"), B: T.Tensor((7, 64), "float32"), D: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_shared((64,), "float32")
            y = T.alloc_shared((64,), "float32")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for turn in T.Pipelined(7, stage=[0, 1, 2, 3], order=[3, 2, 1, 0]):
                T.copy(A[turn, 0], x)
                for i in T.Parallel(64):
                    y[i] = x[63 - i] * 2
                for i in T.Parallel(64):
                    total[i] += x[i] + y[i]
                T.copy(y, B[turn, 0])
            T.copy(total, D)

    (a,) = arrays(3, (7, 64))
    twice = a[:, ::-1] * 2
    check(main, [a], [twice, (a + twice).sum(0)], where=("interp", "llvm", "sm_70", "sm_80"), atol=1e-4)


def test_text_keeps_what_was_asked_for():
    func = product(5, stage=[0, 1, 2], order=[0, 2, 1], group=[[0, 1]], sync=[[0, 2]])
    assert_structural_equal(from_source(func.script()), func)


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ({"stage": [0, 1]}, "needs a number from 0 for each of the loop's 3 statements"),
        ({"order": [0, 0, 1]}, "needs a place of its own"),
        ({"stage": [1, 0, 0]}, "stages of later statements are not smaller"),
        ({"stage": [0, 0, 0], "order": [1, 2, 0]}, "order= exchanges them"),
        ({"num_stages": 2, "group": [[0], [0, 1]]}, "at most once"),
        ({"num_stages": 2, "sync": [[0, 7]]}, "names statements of 3"),
    ],
    ids=str,
)
def test_errors(pipeline, message):
    with pytest.raises(TileLoweringError, match=message):
        source(product(4, **pipeline), "sm_80")


def test_what_cannot_wait_for_a_later_stage():
    def carried(scope):
        @T.prim_func
        def main(A: T.Tensor((4, 64), "float32"), B: T.Tensor((4, 64), "float32")):
            with T.Kernel(1, threads=32) as _bx:
                x = T.alloc_fragment((64,), "float32") if scope == "fragment" else T.alloc_shared((64,), "float32")
                T.clear(x)
                for turn in T.Pipelined(4, stage=[0, 1]):
                    if scope == "part":
                        for i in T.Parallel(32):
                            x[i] = A[turn, i]
                    elif scope == "sum":
                        for i in T.Parallel(64):
                            x[i] += A[turn, i]
                    else:
                        T.copy(A[turn, 0], x)
                    T.copy(x, B[turn, 0])

        return main

    for scope, message in (
        ("fragment", "lie in shared memory"), ("part", "not wholly written"), ("sum", "carries values from turn to turn"),
        ("outside", "used outside of the loop"),
    ):  # fmt: skip
        with pytest.raises(TileLoweringError, match=message):
            source(carried(scope), "sm_80")
    with pytest.raises(RelaxishError, match="takes pairs"):
        product(4, sync=[[1]])
