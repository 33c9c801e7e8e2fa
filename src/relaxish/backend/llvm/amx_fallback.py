"""The tile multiplications of AMX as vector code: one internal function each, sixteen result rows in registers.

Each 32-bit word of A holds two bf16 or four 8-bit values; row ``k`` of B holds the words of sixteen columns. So every
step is a word of A, the same for all lanes, against a row of B.
"""

from __future__ import annotations


from .module_writer import ModuleWriter

__all__ = ["fallback_function"]

_I = "<16 x i32>"
_F = "<16 x float>"
_ROWS = 16


def _splat(value: int) -> str:
    return "<" + ", ".join([f"i32 {value}"] * 16) + ">"


class _Body:
    """Writes the lines of the function."""

    def __init__(self, module: ModuleWriter, name: str) -> None:
        self.module = module
        self.name = name
        self.lines: list[str] = []
        self.count = 0

    def value(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %t{self.count} = {text}")
        return f"%t{self.count}"

    def broadcast(self, word: str) -> str:
        one = self.value(f"insertelement {_I} poison, i32 {word}, i64 0")
        return self.value(f"shufflevector {_I} {one}, {_I} poison, <16 x i32> zeroinitializer")

    def call(self, result: str, name: str, *typed: str) -> str:
        types = ", ".join(t.split(">")[0] + ">" for t in typed)
        self.module.declare(f"declare {result} @{name}({types})")
        return self.value(f"call {result} @{name}({', '.join(typed)})")

    # ---- one step: what is prepared once for a row of B, and its use for a word of A

    def prepare(self, row: str) -> list[str]:
        """Values that all rows of A share."""
        if self.name == "tdpbf16ps":
            if "avx512bf16" in self.module.features:
                return [self.value(f"bitcast {_I} {row} to <32 x bfloat>")]
            low = self.value(f"shl {_I} {row}, {_splat(16)}")
            high = self.value(f"and {_I} {row}, {_splat(-65536)}")
            return [self.value(f"bitcast {_I} {x} to {_F}") for x in (low, high)]
        if "avx512vnni" not in self.module.features:
            signed = self.name in ("tdpbssd", "tdpbusd")
            return [self.byte(row, j, signed) for j in range(4)]
        if self.name == "tdpbssd":
            # Unsigned A' = A + 128 gives 128 * (sum of B) too much, the same for all rows of A.
            extra = self.dot("zeroinitializer", _splat(-2139062144), row)
            return [row, extra]
        if self.name == "tdpbuud":
            return [self.value(f"xor {_I} {row}, {_splat(-2139062144)}")]
        return [row]

    def byte(self, word: str, j: int, signed: bool) -> str:
        up = self.value(f"shl {_I} {word}, {_splat(24 - 8 * j)}")
        return self.value(f"{'ashr' if signed else 'lshr'} {_I} {up}, {_splat(24)}")

    def dot(self, total: str, a: str, b: str) -> str:
        return self.call(_I, "llvm.x86.avx512.vpdpbusd.512", f"{_I} {total}", f"{_I} {a}", f"{_I} {b}")

    def step(self, total: str, word: str, shared: list[str]) -> str:
        """The totals of one row after one word of A."""
        if self.name == "tdpbf16ps":
            return self.step_bf16(total, word, shared)
        wide = self.broadcast(word)
        if "avx512vnni" not in self.module.features:
            signed = self.name in ("tdpbssd", "tdpbsud")
            for j, b in enumerate(shared):
                product = self.value(f"mul {_I} {self.byte(wide, j, signed)}, {b}")
                total = self.value(f"add {_I} {total}, {product}")
            return total
        if self.name == "tdpbusd":
            return self.dot(total, wide, shared[0])
        if self.name == "tdpbsud":
            return self.dot(total, shared[0], wide)
        if self.name == "tdpbssd":
            unsigned = self.value(f"xor {_I} {wide}, {_splat(-2139062144)}")
            total = self.value(f"sub {_I} {total}, {shared[1]}")
            return self.dot(total, unsigned, shared[0])
        # Both unsigned: signed B' = B - 128 lacks 128 * (sum of A), which is twice 64 * (sum of A).
        half = _splat(0x40404040)
        total = self.dot(self.dot(total, wide, half), wide, half)
        return self.dot(total, wide, shared[0])

    def step_bf16(self, total: str, word: str, shared: list[str]) -> str:
        if len(shared) == 1:
            pair = self.value(f"bitcast {_I} {self.broadcast(word)} to <32 x bfloat>")
            return self.call(
                _F,
                "llvm.x86.avx512bf16.dpbf16ps.512",
                f"{_F} {total}",
                f"<32 x bfloat> {pair}",
                f"<32 x bfloat> {shared[0]}",
            )
        for part, b in zip((f"shl i32 {word}, 16", f"and i32 {word}, -65536"), shared, strict=True):
            a = self.value(f"bitcast {_I} {self.broadcast(self.value(part))} to {_F}")
            total = self.call(_F, "llvm.fma.v16f32", f"{_F} {a}", f"{_F} {b}", f"{_F} {total}")
        return total


def fallback_function(module: ModuleWriter, name: str) -> str:
    """The symbol of the function for ``name`` (such as ``tdpbf16ps``), written into the module when it is new.

    It takes the addresses and row strides (in bytes) of C, A and B, and how many multiplications into C follow one
    another, with the bytes that A and B move on between them.
    """
    symbol = f"relaxish.amx.{name}"
    if symbol in module.defined:
        return symbol
    module.defined.add(symbol)
    ty = _F if name == "tdpbf16ps" else _I
    body = _Body(module, name)
    rows = []
    for i in range(_ROWS):
        at = body.value(f"mul i64 %cs, {i}")
        rows.append(body.value(f"getelementptr i8, ptr %c, i64 {at}"))
    starts = [body.value(f"load {ty}, ptr {row}, align 4") for row in rows]
    total = body.value("shl i64 %count, 4")
    body.lines += ["  br label %step", "step:"]
    body.lines.append("  %i = phi i64 [ 0, %entry ], [ %next, %step ]")
    slots = len(body.lines)
    body.lines += [
        "  %k = and i64 %i, 15",
        "  %tile = lshr i64 %i, 4",
        "  %ta = mul i64 %tile, %astep",
        "  %tb = mul i64 %tile, %bstep",
        "  %pa = getelementptr i8, ptr %a, i64 %ta",
        "  %pb = getelementptr i8, ptr %b, i64 %tb",
    ]
    at = body.value("mul i64 %bs, %k")
    row = body.value(f"load {_I}, ptr {body.value(f'getelementptr i8, ptr %pb, i64 {at}')}, align 4")
    column = body.value("getelementptr i32, ptr %pa, i64 %k")
    shared = body.prepare(row)
    ends = []
    for i in range(_ROWS):
        line = body.value(f"mul i64 %as, {i}")
        word = body.value(f"load i32, ptr {body.value(f'getelementptr i8, ptr {column}, i64 {line}')}, align 4")
        ends.append(body.step(f"%acc{i}", word, shared))
    phis = [f"  %acc{i} = phi {ty} [ {starts[i]}, %entry ], [ {ends[i]}, %step ]" for i in range(_ROWS)]
    body.lines[slots:slots] = phis
    body.lines += [
        "  %next = add nuw i64 %i, 1",
        f"  %more = icmp ult i64 %next, {total}",
        "  br i1 %more, label %step, label %done",
        "done:",
    ]
    body.lines += [f"  store {ty} {value}, ptr {row}, align 4" for value, row in zip(ends, rows, strict=True)]
    body.lines.append("  ret void")
    params = "ptr noalias %c, i64 %cs, ptr noalias %a, i64 %as, ptr noalias %b, i64 %bs, i64 %count, i64 %astep"
    params += ", i64 %bstep"
    text = "\n".join(body.lines)
    module.functions.append(f'define internal void @"{symbol}"({params}) #1 {{\nentry:\n{text}\n}}\n')
    return symbol
