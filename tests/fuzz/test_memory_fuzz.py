"""Random loops that read and write a few buffers and views of them at clashing places: compiled against interpreted."""

from __future__ import annotations

import random

import numpy as np
import pytest

import relaxish
from relaxish.driver import build_tir
from relaxish.interp import run_primfunc
from relaxish.script import from_source

_SIZE = 24
_PARAMS = ("A", "B", "C")


class Writer:
    """Script text of one program; all values stay small, so that nothing overflows."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.count = 0
        self.locals = ["L", "M"] if rng.random() < 0.6 else []
        self.lines = [
            "@T.prim_func",
            f"def main({', '.join(f'{b}: T.Buffer(({_SIZE},), {chr(34)}int32{chr(34)})' for b in _PARAMS)}):",
        ]
        if rng.random() < 0.5:
            self.line(1, 'T.func_attr({"tir.noalias": True})')
        for name in self.locals:
            self.line(1, f'{name} = T.decl_buffer(({_SIZE},), "int32")')
        self.sizes = dict.fromkeys([*_PARAMS, *self.locals], _SIZE)
        if rng.random() < 0.4:
            self.line(1, f'V = T.decl_buffer((4, 6), "int32", data={rng.choice(_PARAMS)}.data)')
            self.sizes["V"] = 0
        if rng.random() < 0.3:
            offset = rng.randint(1, 5)
            memory = rng.choice(_PARAMS)
            self.line(1, f'W = T.decl_buffer(({_SIZE - offset},), "int32", data={memory}.data, elem_offset={offset})')
            self.sizes["W"] = _SIZE - offset
        for name in self.locals:
            self.line(1, f"for z in range({_SIZE}):")
            self.line(2, f"{name}[z] = {rng.choice(_PARAMS)}[z]")
        for _ in range(rng.randint(1, 3)):
            self.body([], rng.randint(1, 3), 1)

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def index(self, loops: list[str]) -> str:
        v, w, c = self.rng.choice(loops), self.rng.choice(loops), self.rng.randint(0, 5)
        forms = (
            v, f"({v} + {c}) % {_SIZE}", f"({_SIZE - 1} - {v}) % {_SIZE}", f"{v} // 2", f"({v} * 2) % {_SIZE}", str(c),
            f"T.max({v} - {c}, 0)", f"T.min({v} + {c}, {_SIZE - 1})", f"({v} * {c} + {w}) % {_SIZE}",
        )  # fmt: skip
        return self.rng.choice(forms)

    def place(self, loops: list[str]) -> str:
        """An element of any buffer."""
        name = self.rng.choice(list(self.sizes))
        size = self.sizes[name]
        if size == 0:
            return f"{name}[({self.index(loops)}) // 6 % 4, ({self.index(loops)}) % 6]"
        if self.rng.random() < 0.08:
            return f"{name}[T.floormod({self.place(loops)}, {size})]"
        return f"{name}[({self.index(loops)}) % {size}]"

    def condition(self, loops: list[str], depth: int) -> str:
        rng = self.rng
        left = self.value(loops, depth - 1) if rng.random() < 0.5 else rng.choice(loops)
        made = f"{left} {rng.choice(('<', '<=', '>', '>=', '==', '!='))} {rng.randint(-4, 12)}"
        if depth > 0 and rng.random() < 0.4:
            return f"({made} {rng.choice(('and', 'or'))} {self.condition(loops, depth - 1)})"
        return f"({made})"

    def value(self, loops: list[str], depth: int) -> str:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.15:
            return rng.choice((self.place(loops), self.place(loops), str(rng.randint(-4, 4)), rng.choice(loops)))
        a, b = self.value(loops, depth - 1), self.value(loops, depth - 1)
        forms = (
            f"T.floormod({a} + {b}, 97)", f"({a} - {b}) % 53", f"T.floormod({a}, 11) * T.floormod({b}, 7)",
            f"T.floordiv({a}, {rng.choice((-3, -2, 2, 3, 4, 7, 8))})", f"T.floormod({a}, {rng.choice((-5, 2, 3, 4, 8))})",
            f"T.truncdiv({a}, {rng.choice((-3, 2, 4, 5))})", f"T.truncmod({a}, {rng.choice((-3, 2, 4, 5))})",
            f"T.max({a}, {b})", f"T.min({a}, {b})", f"T.shift_right({a}, {rng.randint(0, 4)})",
            f"T.Select({self.condition(loops, 1)}, {a}, {b})", f"T.if_then_else({self.condition(loops, 1)}, {a}, {b})",
            f"T.bitwise_and({a}, {rng.choice((7, 255, -4))})", f'T.Cast("int32", T.Cast("int8", T.floormod({a}, 100)))',
        )  # fmt: skip
        return rng.choice(forms)

    def store(self, loops: list[str], depth: int) -> None:
        here, made = self.place(loops), self.value(loops, self.rng.randint(1, 3))
        if self.rng.random() < 0.25:
            made = f"{here} + {made}"
        self.line(depth, f"{here} = T.floormod({made}, 1009) - 500")

    def body(self, loops: list[str], nest: int, depth: int) -> None:
        rng = self.rng
        for _ in range(rng.choice((1, 1, 2))):
            kind = rng.random()
            if nest > 0 and (kind < 0.55 or not loops):
                self.count += 1
                name, extent = f"i{self.count}", rng.choice((_SIZE, _SIZE, 5, 8, 3))
                run = "T.unroll" if extent < 10 and rng.random() < 0.25 else "range"
                self.line(depth, f"for {name} in {run}({extent}):")
                self.body([*loops, name], nest - 1, depth + 1)
            elif loops and kind < 0.75:
                self.line(depth, f"if {self.condition(loops, 1)}:")
                self.store(loops, depth + 1)
                if rng.random() < 0.5:
                    self.line(depth, "else:")
                    self.store(loops, depth + 1)
            elif loops:
                self.store(loops, depth)
            else:
                self.line(depth, "T.evaluate(0)")


def check(seed: int) -> None:
    text = "\n".join(Writer(seed).lines) + "\n"
    func = from_source(text)
    rng = np.random.default_rng(seed)
    given = [rng.integers(-50, 50, _SIZE).astype("int32") for _ in _PARAMS]
    want = [a.copy() for a in given]
    run_primfunc(func, *want)
    arrays = [relaxish.nd.array(a) for a in given]
    build_tir(func, "llvm")(*arrays)
    for have, expected in zip(arrays, want, strict=True):
        np.testing.assert_array_equal(have.numpy(), expected, err_msg=f"program {seed}:\n{text}")


@pytest.mark.parametrize("start", [0, 10, 20])
def test_programs(start):
    for seed in range(start, start + 10):
        check(seed)


@pytest.mark.slow
def test_many_programs():
    for seed in range(1000, 1300):
        check(seed)
