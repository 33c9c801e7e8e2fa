"""Attention as one kernel: a tile of query rows stays in the first cache from scores to output.

Legalised attention is a chain of fifteen loop nests over whole score matrices. Here, for each head (in parallel)::

    keys transposed, values copied side by side         # once a head
    for each tile of query rows:
        scores = tile of q times keys                   # accumulators in registers
        softmax of the rows, not yet divided            # in the first cache
        out = scores times values / sums

Rows past the end repeat the last one and are not stored, so no inner loop has a condition. A single tile of rows reads keys
and values where they are: copies would cost more than they save. Permutations of positions and heads around the operator, as
models of other conventions have them, become the order in which the kernel reads and writes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, NamedTuple

from ...ir.expr import RelaxExpr
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.prim import const_ints
from ...ir.transform import Pass, PassContext, PassInfo
from ...relax.expr import Call, Tuple, Var, is_call_of
from ...relax.expr_functor import PyExprMutator, rewrite_functions
from ...relax.struct_info import StructInfo, TensorStructInfo
from ...script import from_source
from ...target import Target
from ...tir import PrimFunc
from ...ir.plain import plain_float, plain_int

_NAMES = ("relax.nn.attention", "relax.nn.attention_bias")
# A causal kernel is at most so many times as long as another.
_BANDS = 4
# Rows of a tile.
_ROWS = 6
_CALL_TIR = Op.get("relax.call_tir")


class FuseAttention(Pass):
    """Replace attention of constant shape by one scheduled kernel, which computes in float32; see the module."""

    def __init__(self, target: Target) -> None:
        super().__init__(PassInfo(0, "FuseAttention"))
        self.target = target

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The module with its attentions replaced."""
        rewriter = _AttentionRewriter(mod, self.target)
        made = rewrite_functions(rewriter, mod)
        return made if rewriter.found else mod


class _AttentionRewriter(PyExprMutator):
    def __init__(self, mod: IRModule, target: Target) -> None:
        super().__init__(mod)
        self.target = target
        self.found = False

    def visit_call_(self, op: Call) -> RelaxExpr:
        call = super().visit_call_(op)
        if not is_call_of(call, *_NAMES):
            return call
        problem = _problem(call)
        if problem is None:
            return call
        args = list(call.args)
        for i, name in enumerate("qkv"):
            source = self._turned(args[i])
            if source is not None:
                args[i] = source
                problem = replace(problem, heads_first=problem.heads_first | {name})
        self.found = True
        return self._kernel(problem, args, op.struct_info)

    def _kernel(self, problem: AttentionShape, args: list[RelaxExpr], info: StructInfo) -> Call:
        wide = self.target.vector_bits == 512 or self.target.features.has_asimd
        kernel = attention_kernel(problem, self.target.vector_bits // 32, vectors=4 if wide else 2)
        return Call(_CALL_TIR, (self.builder_.add_func(kernel, "attention"), Tuple(args)), None, (info,))

    def _turned(self, arg: RelaxExpr) -> RelaxExpr | None:
        """What an operand is the permutation of, with positions and heads exchanged."""
        bound = self.builder_.lookup_binding(arg) if isinstance(arg, Var) else arg
        if is_call_of(bound, "relax.permute_dims") and _exchanges(bound):
            source: RelaxExpr = bound.args[0]
            return source
        return None


def _exchanges(call: Call) -> bool:
    """Whether a permutation exchanges positions and heads."""
    axes = call.attrs.axes
    return axes is not None and [plain_int(a) for a in axes] == [0, 2, 1, 3]


@dataclass(frozen=True)
class AttentionShape:
    """All that decides the kernel: sizes, factor of the scores, shape of the bias, corner of the causal mask, and the
    tensors (of ``q``, ``k``, ``v``, ``out``) that have their heads before their positions.
    """

    batch: int
    queries: int
    keys: int
    heads: int
    size: int
    value_size: int
    scale: float
    bias: tuple[int, ...] | None = None
    causal: str | None = None
    key_heads: int | None = None
    value_heads: int | None = None
    dtype: str = "float32"
    heads_first: frozenset[str] = frozenset()

    def at(self, name: str, *place: str | int) -> str:
        """The text of a place (batch, position, head, element) of a tensor."""
        return f"{name}[{', '.join(map(str, self.dims(name, *place)))}]"

    def dims(self, name: str, batch: Any, position: Any, head: Any, last: Any) -> tuple[Any, ...]:
        """Those of a tensor in its own order."""
        return (batch, head, position, last) if name in self.heads_first else (batch, position, head, last)

    @property
    def direct(self) -> bool:
        """Whether one tile of rows reads keys and values where they are."""
        return self.queries <= _ROWS

    def key(self, position: str) -> str:
        """The text of element ``d`` of a key as float32."""
        return self.wide(self.at("k", f"vb // {self.heads}", position, self.head(self.key_heads), "d"))

    def value(self, position: str, column: str) -> str:
        """The text of an element of a value as float32."""
        return self.wide(self.at("v", f"vb // {self.heads}", position, self.head(self.value_heads), column))

    def wide(self, load: str) -> str:
        """The text of an element of an input as float32."""
        return load if self.dtype == "float32" else f'T.Cast("float32", {load})'

    def head(self, kept: int | None) -> str:
        """Head of keys or values, of ``kept`` ones (None: as many as of queries), that serves head ``vb % heads``."""
        group = self.heads // (kept or self.heads)
        return f"vb % {self.heads}" + (f" // {group}" if group > 1 else "")


def _problem(call: Call) -> AttentionShape | None:
    dtype = getattr(call.args[0].struct_info, "dtype", None)
    if dtype not in ("float32", "float16", "bfloat16"):
        return None
    shapes = [constant_shape(arg, dtype) for arg in call.args]
    if any(shape is None for shape in shapes) or call.attrs.get("window_size") is not None:
        return None
    q, k, v = shapes[:3]
    assert q is not None and k is not None and v is not None
    scale = call.attrs.get("scale")
    factor = 1 / sqrt(q[3]) if scale is None else plain_float(scale)
    bias = shapes[3] if len(shapes) > 3 else None
    causal = call.attrs.get("causal_mask")
    return AttentionShape(q[0], q[1], k[1], q[2], q[3], v[3], factor, bias, causal, k[2], v[2], dtype)


def constant_shape(expr: RelaxExpr, dtype: str = "float32") -> tuple[int, ...] | None:
    """The shape of a tensor of one dtype; None for another dtype, or when a size is not a constant."""
    info = expr.struct_info
    values = getattr(info.shape, "values", None) if isinstance(info, TensorStructInfo) else None
    if values is None or info.dtype != dtype or const_ints(values) is None:
        return None
    return tuple(v.value for v in values)


# ---- the kernel


@functools.lru_cache(maxsize=64)
def attention_kernel(shape: AttentionShape, lanes: int, rows: int = _ROWS, vectors: int = 4) -> PrimFunc:
    """The kernel for one shape: tiles of ``rows`` x ``vectors`` accumulators of ``lanes`` numbers."""
    s = shape
    rows = min(rows, s.queries)
    lines = [
        *_signature(s),
        f"    for bh in T.parallel({s.batch * s.heads}):",
        '        with T.block("head"):',
        f"            vb = T.axis.spatial({s.batch * s.heads}, bh)",
        *([] if s.direct else _copies(s, lanes)),
        *(line for band in _bands(s, rows, lanes) for line in _rows_of(s, rows, lanes, vectors, band)),
    ]
    func: PrimFunc = from_source("\n".join(lines) + "\n")
    return func


def _whole(count: int, lanes: int) -> int:
    """The first multiple of ``lanes`` that is not less."""
    return -(-count // lanes) * lanes


def _copies(s: AttentionShape, lanes: int) -> list[str]:
    """Keys transposed and values side by side, in whole vectors."""
    return [
        f'            KT = T.alloc_buffer(({s.size}, {_whole(s.keys, lanes)}), "float32")',
        f'            VP = T.alloc_buffer(({s.keys}, {_whole(s.value_size, lanes)}), "float32")',
        f"            for d, j in T.grid({s.size}, {s.keys}):",
        f"                KT[d, j] = {s.key('j')}",
        f"            for j, d in T.grid({s.keys}, {s.value_size}):",
        f"                VP[j, d] = {s.value('j', 'd')}",
    ]


@dataclass(frozen=True)
class _Band:
    """Tiles of rows, ``first`` and so many more, none of which sees more than the first ``keys``."""

    first: int
    tiles: int
    keys: int


def _bands(s: AttentionShape, rows: int, lanes: int) -> list[_Band]:
    """All tiles of rows: under a causal mask in several bands, so that most of what is hidden is not computed."""
    tiles = -(-s.queries // rows)
    if s.causal is None:
        return [_Band(0, tiles, s.keys)]
    count = max(1, min(_BANDS, tiles, s.keys // (2 * lanes)))
    ends = [tiles * (i + 1) // count for i in range(count)]
    seen = [min(end * rows, s.queries) + _ahead(s) for end in ends]
    whole = [min(s.keys, -(-keys // lanes) * lanes) for keys in seen]
    return [_Band(a, b - a, keys) for a, b, keys in zip([0, *ends], ends, whole, strict=False)]


def _ahead(s: AttentionShape) -> int:
    """How many more keys a row sees than rows are before it, and itself."""
    return abs(s.keys - s.queries) if s.causal == "BottomRight" else 0


def _rows_of(s: AttentionShape, rows: int, lanes: int, vectors: int, band: _Band) -> list[str]:
    """The loop over the tiles of a band."""
    padded, seen, tiles = _whole(s.keys, lanes), _whole(band.keys, lanes), -(-s.queries // rows)
    row = f"T.min(vi * {rows} + ii, {s.queries - 1})"
    query = s.wide(s.at("q", f"vb // {s.heads}", row, f"vb % {s.heads}", "d"))
    result = "O[ii, d] / L[ii]" if s.dtype == "float32" else f'T.Cast("{s.dtype}", O[ii, d] / L[ii])'
    inputs, columns = _inputs(s), _whole(s.value_size, lanes)
    output = s.dims("out", s.batch, s.queries, s.heads, s.value_size)
    kept = [] if s.direct else [("KT", (s.size, padded)), ("VP", (s.keys, columns))]
    if s.direct:
        values = _Operands("S", s.value, [("S", (rows, seen)), inputs[2]])
        scores, columns = _dots(s, rows, band.keys), s.value_size
    else:
        keys = _Operands("QP", lambda p, column: f"KT[{p}, {column}]", [("QP", (rows, s.size)), kept[0]])
        values = _Operands("S", lambda p, column: f"VP[{p}, {column}]", [("S", (rows, seen)), kept[1]])
        scores = _product("S", keys, rows, s.size, seen, lanes, vectors)
    results = _product("O", values, rows, band.keys, columns, lanes, vectors)
    return [
        f"            for io in range({band.tiles}):",
        '                with T.block("rows"):',
        f"                    vi = T.axis.spatial({tiles}, io + {band.first})",
        f"                    T.reads({', '.join(name + _everything(dims) for name, dims in [*inputs, *kept])})",
        f"                    T.writes(out{_everything(output)})",
        f'                    QP = T.alloc_buffer(({rows}, {s.size}), "float32")',
        f'                    S = T.alloc_buffer(({rows}, {seen}), "float32")',
        f'                    O = T.alloc_buffer(({rows}, {columns}), "float32")',
        f'                    M = T.alloc_buffer(({rows},), "float32")',
        f'                    L = T.alloc_buffer(({rows},), "float32")',
        f"                    for ii, d in T.grid({rows}, {s.size}):",
        f"                        QP[ii, d] = {query} * T.float32({float(s.scale)!r})",
        *scores,
        *_softmax(s, rows, row, band.keys),
        *results,
        f"                    for ii in range(T.min({rows}, {s.queries} - vi * {rows})):",
        f"                        for d in range({s.value_size}):",
        f"                            {s.at('out', f'vb // {s.heads}', f'vi * {rows} + ii', f'vb % {s.heads}', 'd')} = {result}",
    ]


def _inputs(s: AttentionShape) -> list[tuple[str, tuple[int, ...]]]:
    keys = s.dims("k", s.batch, s.keys, s.key_heads or s.heads, s.size)
    values = s.dims("v", s.batch, s.keys, s.value_heads or s.heads, s.value_size)
    bias = [("bias", s.bias)] if s.bias is not None else []
    return [("q", s.dims("q", s.batch, s.queries, s.heads, s.size)), ("k", keys), ("v", values), *bias]


def _everything(dims: tuple[int, ...]) -> str:
    return "[" + ", ".join(f"0:{extent}" for extent in dims) + "]"


def _signature(s: AttentionShape) -> list[str]:
    shapes = [*_inputs(s), ("out", s.dims("out", s.batch, s.queries, s.heads, s.value_size))]
    params = [f'{name}: T.Buffer(({", ".join(map(str, dims))}), "{s.dtype}")' for name, dims in shapes]
    return [
        "@T.prim_func(private=True)",
        f"def attention({', '.join(params)}):",
        '    T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "op_pattern": 8})',
    ]


def _dots(s: AttentionShape, rows: int, keys: int) -> list[str]:
    """The scores of few rows: each a sum along a key."""
    lines = [
        f"for j, ii in T.grid({keys}, {rows}):",
        "    S[ii, j] = T.float32(0)",
        f"    for d in range({s.size}):",
        f"        S[ii, j] = S[ii, j] + QP[ii, d] * {s.key('j')}",
    ]
    return [" " * 20 + line for line in lines]


class _Operands(NamedTuple):
    """Those of a product: the name of the left one, the text of an element of the right one, and what is read."""

    left: str
    right: Callable[[str, str], str]
    reads: list[tuple[str, tuple[int, ...]]]


def _product(out: str, operands: _Operands, rows: int, depth: int, columns: int, lanes: int, vectors: int) -> list[str]:
    """``out = left @ right`` in register tiles: as many full tiles as fit, then narrower ones."""
    left, right, reads = operands
    full, rest = divmod(columns // lanes, vectors)
    last, tail = columns // lanes * lanes, columns % lanes
    lines: list[str] = []
    pieces = ((full, vectors, 0, lanes), (1, rest, full * vectors * lanes, lanes), (1, 1 if tail else 0, last, tail))
    for count, width, start, wide in pieces:
        if not count or not width:
            continue
        column = f"{start} + vj * {width * wide} + jv * {wide} + jl"
        tile = [
            f"for ii in T.unroll({rows}):",
            f"    for jv in T.unroll({width}):",
            f"        for jl in T.vectorized({wide}):",
        ]
        acc = f"acc[ii, jv * {wide} + jl]"
        lines += [
            f"for jo in range({count}):",
            f'    with T.block("{out}_tile"):',
            f"        vj = T.axis.spatial({count}, jo)",
            f"        T.reads({', '.join(name + _everything(dims) for name, dims in reads)})",
            f"        T.writes({out}[0:{rows}, 0:{columns}])",
            f'        acc = T.alloc_buffer(({rows}, {width * wide}), "float32")',
            *("        " + t for t in tile),
            f"                    {acc} = T.float32(0)",
            f"        for p in range({depth}):",
            *("            " + t for t in tile),
            f"                        {acc} = {acc} + {left}[ii, p] * {right('p', column)}",
            *("        " + t for t in tile),
            f"                    {out}[ii, {column}] = {acc}",
        ]
    return [" " * 20 + line for line in lines]


def _softmax(s: AttentionShape, rows: int, row: str, keys: int) -> list[str]:
    """The first ``keys`` of rows of ``S`` to exponentials of their distance from the largest; the sums go to ``L``."""
    lines = [f"for ii in range({rows}):"]
    if s.bias is not None:
        place = ", ".join(
            "0" if extent == 1 else index
            for extent, index in zip(s.bias, (f"vb // {s.heads}", f"vb % {s.heads}", row, "j"), strict=True)
        )
        added = s.wide(f"bias[{place}]")
        lines += [f"    for j in range({keys}):", f"        S[ii, j] = S[ii, j] + {added}"]
    if s.causal is not None:
        lines += [
            f"    for j in range({keys}):",
            f"        S[ii, j] = T.Select(j <= {row} + {_ahead(s)}, S[ii, j], T.float32('-inf'))",
        ]
    lines += [
        "    M[ii] = T.float32(-3.4028234663852886e38)",
        f"    for j in range({keys}):",
        "        M[ii] = T.max(M[ii], S[ii, j])",
        # Where all are hidden, infinities must not cancel.
        "    M[ii] = T.Select(M[ii] < T.float32(-3.4028234663852886e38), T.float32(-3.4028234663852886e38), M[ii])",
        f"    for j in range({keys}):",
        "        S[ii, j] = T.exp(S[ii, j] - M[ii])",
        "    L[ii] = T.float32(0)",
        f"    for j in range({keys}):",
        "        L[ii] = L[ii] + S[ii, j]",
        # A row that sees no key: zeros divided by one.
        "    L[ii] = T.Select(L[ii] == T.float32(0), T.float32(1), L[ii])",
    ]
    return [" " * 20 + line for line in lines]
