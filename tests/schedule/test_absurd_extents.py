"""Loops that nobody could write out are refused at once, wherever the mark comes from."""

from __future__ import annotations

import pytest

from relaxish.driver import build_tir
from relaxish.ir import IRModule
from relaxish.ir.transform import PassContext
from relaxish.script import from_source
from relaxish.support.errors import RelaxishError, ScheduleError
from relaxish.tir import transform
from relaxish.tir.schedule import Schedule


def program(*loops, store="B[{0}] = A[{0}] + 1.0"):
    """A copy of 2 ** 40 numbers in nested loops, each a kind and an extent."""
    names = [f"i{n}" for n in range(len(loops))]
    place = ""
    for name, (_, extent) in zip(names, loops, strict=True):
        place = f"({place}) * {extent} + {name}" if place else name
    lines = [
        "@T.prim_func",
        'def main(A: T.Buffer((1099511627776,), "float32"), B: T.Buffer((1099511627776,), "float32")):',
    ]
    for depth, (name, (kind, extent)) in enumerate(zip(names, loops, strict=True), 1):
        lines.append(f"{'    ' * depth}for {name} in {kind}({extent}):")
    lines.append("    " * (len(loops) + 1) + store.format(place))
    return from_source("\n".join(lines) + "\n")


def scheduled(*extents):
    """The same with a block, its loops as a schedule gives them."""
    grid = ", ".join(map(str, extents))
    names = [f"i{n}" for n in range(len(extents))]
    text = f"""@T.prim_func
def main(A: T.Buffer(({grid},), "float32"), B: T.Buffer(({grid},), "float32")):
    for {", ".join(names)} in T.grid({grid}):
        with T.block("B"):
            {", ".join("v" + n for n in names)} = T.axis.remap("{"S" * len(names)}", [{", ".join(names)}])
            B[{", ".join("v" + n for n in names)}] = A[{", ".join("v" + n for n in names)}] + 1.0
"""
    sch = Schedule(from_source(text))
    return sch, sch.get_loops("B")


def test_one_loop_is_too_long():
    sch, (i, j) = scheduled(1 << 20, 1 << 20)
    with pytest.raises(ScheduleError, match="1048576 lanes"):
        sch.vectorize(j)
    with pytest.raises(ScheduleError, match="1048576 statements"):
        sch.unroll(i)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_nested_loops_count_together(order):
    for method, error in (("vectorize", "lanes"), ("unroll", "statements")):
        sch, loops = scheduled(64, 64, 64)
        getattr(sch, method)(loops[order[0]])
        getattr(sch, method)(loops[order[1]])
        before = sch.mod
        with pytest.raises(ScheduleError, match=f"262144 {error}"):
            getattr(sch, method)(loops[order[2]])
        assert sch.mod is before


def test_usual_extents_are_fine():
    sch, (i, j, k) = scheduled(16, 64, 256)
    sch.unroll(i)
    sch.unroll(j)
    sch.vectorize(k)


@pytest.mark.parametrize(
    "loops",
    [
        [("T.unroll", 10**9)],
        [("range", 4), ("T.unroll", 1000), ("range", 2), ("T.unroll", 1000)],
        [("T.vectorized", 1 << 20)],
        [("T.vectorized", 1000), ("T.vectorized", 1000)],
    ],
)
def test_marked_programs_are_refused(loops):
    func = program(*loops)
    with pytest.raises(RelaxishError, match="split the loop"):
        build_tir(func, "llvm")
    lowering = transform.VectorizeLoop() if "vectorized" in loops[0][0] else transform.UnrollLoop()
    with pytest.raises(RelaxishError, match="split the loop"):
        lowering(IRModule({"main": func}))


def test_permissions_are_not_taken_beyond_reason():
    func = program(("range", 64), ("range", 1000), ("range", 1000))
    options = {"auto_max_step": 1 << 40, "auto_max_extent": 1 << 40, "auto_max_depth": 9, "explicit_unroll": True}
    with PassContext(config={"tir.UnrollLoop": options}):
        lowered = transform.UnrollLoop()(IRModule({"main": func}))["main"]
        build_tir(func, "llvm")
    assert len(lowered.script().splitlines()) < 3000


@pytest.mark.parametrize("kind", ["explicit", "implicit"])
def test_unroll_annotations_are_not_taken_beyond_reason(kind):
    sch, (i, j) = scheduled(1 << 12, 1 << 12)
    sch.annotate(i, "pragma_auto_unroll_max_step", 1 << 30)
    sch.annotate(i, "pragma_unroll_explicit", int(kind == "explicit"))
    build_tir(sch.mod["main"], "llvm")
