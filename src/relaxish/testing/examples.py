"""Small programs to try schedules on, and a way to print what becomes of them in a few lines.


>>> print(outline(Schedule(chain), "B"))
for i, j in T.grid(16, 8):
    with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] * T.float32(2.0)
"""

from __future__ import annotations

import textwrap
from typing import Any

from ..script import from_source
from ..tir.schedule import Schedule

__all__ = ["Schedule", "chain", "inplace", "matmul", "outline", "padded", "siblings", "window"]

chain: Any = from_source("""
@T.prim_func
def main(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
    B = T.alloc_buffer((16, 8))
    for i, j in T.grid(16, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(16, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + 1.0
""")

matmul: Any = from_source("""
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
    for i, j, k in T.grid(16, 16, 16):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")

padded: Any = from_source("""
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((10,), "float32")):
    for i in range(10):
        with T.block("B"):
            v = T.axis.spatial(10, i)
            B[v] = T.if_then_else(1 <= v and v < 9, A[v - 1], T.float32(0.0))
""")

window: Any = from_source("""
@T.prim_func
def main(A: T.Buffer((10,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((10,))
    for i in range(10):
        with T.block("B"):
            v = T.axis.spatial(10, i)
            B[v] = A[v] * 2.0
    for i, k in T.grid(8, 3):
        with T.block("C"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                C[v] = 0.0
            C[v] = C[v] + B[v + r]
""")

siblings: Any = from_source("""
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            v = T.axis.spatial(8, i)
            B[v] = A[v] * 2.0
    for j in range(8):
        with T.block("C"):
            v = T.axis.spatial(8, j)
            C[v] = A[v] + 1.0
""")

inplace: Any = from_source("""
@T.prim_func
def main(A: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("A"):
            v = T.axis.spatial(8, i)
            A[v] = A[v] * 2.0
""")


def outline(sch: Any, block: str | None = None, regions: bool = False) -> str:
    """The statements of a schedule's function ``main`` (or of a function) as script, without its header.

    With ``block``, only the outermost statement that holds that block; with ``regions``, what blocks declare to read
    and write as well.
    """
    func = sch if hasattr(sch, "params") else sch.mod["main"]
    lines = func.script().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("def ")) + 1
    body = textwrap.dedent("\n".join(lines[start:])).splitlines()
    skipped = (
        ("# with T.block", "T.func_attr(") if regions else ("# with T.block", "T.func_attr(", "T.reads(", "T.writes(")
    )
    kept = [line for line in body if not line.strip().startswith(skipped)]
    if block is None:
        return "\n".join(kept)
    parts: list[list[str]] = []
    for line in kept:
        if line[:1] != " ":
            parts.append([])
        parts[-1].append(line)
    return "\n".join(next(p for p in map("\n".join, parts) if f'T.block("{block}")' in p).splitlines())
