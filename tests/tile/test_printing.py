"""``T.print``: the lines are those of Python's own formatting of what NumPy computes, wherever the kernel runs."""

from __future__ import annotations

import numpy as np
import pytest
from test_errors import source
from tile_programs import arrays, run

import relaxish
import relaxish.tile.language as T
from relaxish.support.errors import RelaxishError
from relaxish.target import Target
from relaxish.tir.transform.tiles import TileLoweringError


def printed(func, where, inputs, outputs, capfd):
    """The sorted lines that a run prints, and its outputs."""
    capfd.readouterr()
    found = run(func, where, inputs, outputs)
    return sorted(capfd.readouterr().out.splitlines()), found


@T.prim_func
def main(A: T.Tensor((8, 4), "float16"), B: T.Tensor((8, 4), "float32"), C: T.Tensor((8,), "int64")):
    with T.Kernel(2, threads=32) as bx:
        s = T.alloc_shared((4, 4), "float16")
        f = T.alloc_fragment((4, 4), "float32")
        T.copy(A[bx * 4, 0], s)
        T.copy(s, f)
        T.print(bx, "this is 100%")
        T.print(s)
        T.print(f[1:3, 0:2], msg='"quoted"')
        T.print(C[bx * 4 : bx * 4 + 2])
        for i, j in T.Parallel(4, 4):
            if f[i, j] > 0.5:
                T.print(f[i, j], "large")
            f[i, j] = f[i, j] * 2
        T.copy(f, B[bx * 4, 0])


tiles = main


@pytest.mark.parametrize("where", ["interp", "llvm", "sm_70", "sm_90a"])
def test_lines(where, capfd):
    (a,) = arrays(3, (8, 4), dtype="float16")
    c = np.random.default_rng(4).integers(-(2**40), 2**40, 8)
    wanted = []
    for b in range(2):
        part = a[b * 4 : b * 4 + 4].astype("float64")
        wanted.append(f"block ({b}): this is 100% {b}")
        wanted += [f"block ({b}): s[{i}, {j}] = {part[i, j]:.5g}" for i in range(4) for j in range(4)]
        wanted += [f'block ({b}): "quoted" f[{i}, {j}] = {part[i, j]:.7g}' for i in (1, 2) for j in (0, 1)]
        wanted += [f"block ({b}): C[{b * 4 + i}] = {c[b * 4 + i]}" for i in range(2)]
        # Each iteration prints once, though threads hold copies of the fragment.
        wanted += [f"block ({b}): large {x:.7g}" for x in part.ravel() if x > 0.5]
    lines, (out, _) = printed(tiles, where, [a], [np.zeros((8, 4), "float32"), c], capfd)
    assert lines == sorted(wanted)
    np.testing.assert_array_equal(out, a.astype("float32") * 2)


def test_c_compiler(capfd):
    built = relaxish.tir.build(tiles, target="c")
    (a,) = arrays(3, (8, 4), dtype="float16")
    out = relaxish.nd.array(np.zeros((8, 4), "float32"))
    built["main"](relaxish.nd.array(a), out, relaxish.nd.array(np.arange(8)))
    np.testing.assert_array_equal(out.numpy(), a.astype("float32") * 2)
    assert f"block (1): f[1, 0] = {np.float64(a[5, 0]):.7g}" in capfd.readouterr().out.replace('"quoted" ', "")


def test_threads_print_what_they_have(capfd):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            tx = T.get_thread_binding()
            room = T.alloc_shared((4,), "float32", scope="shared")
            if tx < 4:
                room[tx] = A[tx]
            T.sync_threads()
            if tx % 16 == 3:
                T.print(A[tx], "mine")
            T.print(room, warp_id=1)
            B[tx] = A[tx]

    (a,) = arrays(5, (64,))
    wanted = [f"block (0), thread ({t}): mine {a[t]:.7g}" for t in (3, 19, 35, 51)]
    wanted += [f"block (0): room[{i}] = {a[i]:.7g}" for i in range(4)]
    lines, _ = printed(main, "sm_80", [a], [a], capfd)
    assert lines == sorted(wanted)


def test_sources():
    text = source(tiles, "sm_80")
    assert 'printf("block (%d): this is 100%% %d\\n"' in text and "%lld" in text
    opencl = relaxish.tir.build(tiles, target="opencl").imported_modules[0].get_source()
    assert "printf(" in opencl and "%ld" in opencl and "%lld" not in opencl


def test_the_text_of_a_program_that_prints_is_the_program():
    again = relaxish.script.from_source(tiles.script(show_meta=True))
    relaxish.ir.assert_structural_equal(again, tiles)


def test_what_cannot_print_says_so():
    with pytest.raises(TileLoweringError, match="T.print: kernels of metal"):
        relaxish.tir.build(tiles, target=Target("metal"))
    with pytest.raises(RelaxishError, match="warp_id"):

        @T.prim_func
        def main(A: T.Tensor((8,), "float32")):
            with T.Kernel(1, threads=32) as _bx:
                T.print(A, warp_id=1)
