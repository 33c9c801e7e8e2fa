"""Attention as one kernel: a tile of query rows stays in the first cache from scores to output.

Legalised attention is a chain of fifteen loop nests over whole score matrices. Here, for each head (in parallel)::

    keys transposed, values copied side by side         # once a head
    for each tile of query rows:
        scores = tile of q times keys                   # accumulators in registers
        softmax of the rows, not yet divided            # in the first cache
        out = scores times values / sums

Rows past the end repeat the last one and are not stored, so no inner loop has a condition.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import sqrt

from ...ir.expr import RelaxExpr
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.prim import const_ints
from ...ir.transform import Pass, PassContext, PassInfo
from ...relax.expr import Call, Tuple, is_call_of
from ...relax.expr_functor import PyExprMutator, rewrite_functions
from ...relax.struct_info import TensorStructInfo
from ...script import from_source
from ...target import Target
from ...tir import PrimFunc
from ...ir.plain import plain_float

_NAMES = ("relax.nn.attention", "relax.nn.attention_bias")
# A causal kernel is at most so many times as long as another.
_BANDS = 4
_CALL_TIR = Op.get("relax.call_tir")


class FuseAttention(Pass):
    """Replace attention of constant shape by one scheduled kernel, which computes in float32; see the module."""

    def __init__(self, target: Target) -> None:
        super().__init__(PassInfo(0, "FuseAttention"))
        self.target = target

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The module with its attentions replaced."""
        rewriter = _Rewrite(mod, self.target)
        made = rewrite_functions(rewriter, mod)
        return made if rewriter.found else mod


class _Rewrite(PyExprMutator):
    def __init__(self, mod: IRModule, target: Target) -> None:
        super().__init__(mod)
        self.target = target
        self.found = False

    def visit_call_(self, op: Call) -> RelaxExpr:
        call = super().visit_call_(op)
        if not is_call_of(call, *_NAMES):
            return call
        problem = _problem(call)
        lanes = self.target.vector_bits // 32
        if problem is None or problem.size % lanes or problem.value_size % lanes:
            return call
        wide = self.target.vector_bits == 512 or self.target.features.has_asimd
        self.found = True
        gvar = self.builder_.add_func(attention_kernel(problem, lanes, vectors=4 if wide else 2), "attention")
        return Call(_CALL_TIR, (gvar, Tuple(call.args)), None, (op.struct_info,))


@dataclass(frozen=True)
class AttentionShape:
    """All that decides the kernel: sizes, factor of the scores, shape of the bias, corner of the causal mask."""

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

    def wide(self, load: str) -> str:
        """The text of an element of an input as float32."""
        return load if self.dtype == "float32" else f'T.Cast("float32", {load})'

    def head(self, kept: int | None) -> str:
        """Which of ``kept`` heads of keys or values (None: as many as of queries) serves head ``vb % heads``."""
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
def attention_kernel(shape: AttentionShape, lanes: int, rows: int = 6, vectors: int = 4) -> PrimFunc:
    """The kernel for one shape: tiles of ``rows`` x ``vectors`` accumulators of ``lanes`` numbers."""
    s = shape
    rows = min(rows, s.queries)
    padded = -(-s.keys // lanes) * lanes
    key = s.wide(f"k[vb // {s.heads}, j, {s.head(s.key_heads)}, d]")
    value = s.wide(f"v[vb // {s.heads}, j, {s.head(s.value_heads)}, d]")
    lines = [
        *_signature(s),
        f"    for bh in T.parallel({s.batch * s.heads}):",
        '        with T.block("head"):',
        f"            vb = T.axis.spatial({s.batch * s.heads}, bh)",
        f'            KT = T.alloc_buffer(({s.size}, {padded}), "float32")',
        f'            VP = T.alloc_buffer(({s.keys}, {s.value_size}), "float32")',
        f"            for d, j in T.grid({s.size}, {s.keys}):",
        f"                KT[d, j] = {key}",
        f"            for j, d in T.grid({s.keys}, {s.value_size}):",
        f"                VP[j, d] = {value}",
        *(line for band in _bands(s, rows, lanes) for line in _rows_of(s, rows, lanes, vectors, band)),
    ]
    func: PrimFunc = from_source("\n".join(lines) + "\n")
    return func


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
    padded, seen, tiles = -(-s.keys // lanes) * lanes, -(-band.keys // lanes) * lanes, -(-s.queries // rows)
    row = f"T.min(vi * {rows} + ii, {s.queries - 1})"
    query = s.wide(f"q[vb // {s.heads}, {row}, vb % {s.heads}, d]")
    result = "O[ii, d] / L[ii]" if s.dtype == "float32" else f'T.Cast("{s.dtype}", O[ii, d] / L[ii])'
    inputs = _inputs(s)
    kept = [("KT", (s.size, padded)), ("VP", (s.keys, s.value_size))]
    return [
        f"            for io in range({band.tiles}):",
        '                with T.block("rows"):',
        f"                    vi = T.axis.spatial({tiles}, io + {band.first})",
        f"                    T.reads({', '.join(name + _everything(dims) for name, dims in [*inputs, *kept])})",
        f"                    T.writes(out{_everything(inputs[0][1][:3] + (s.value_size,))})",
        f'                    QP = T.alloc_buffer(({rows}, {s.size}), "float32")',
        f'                    S = T.alloc_buffer(({rows}, {seen}), "float32")',
        f'                    O = T.alloc_buffer(({rows}, {s.value_size}), "float32")',
        f'                    M = T.alloc_buffer(({rows},), "float32")',
        f'                    L = T.alloc_buffer(({rows},), "float32")',
        f"                    for ii, d in T.grid({rows}, {s.size}):",
        f"                        QP[ii, d] = {query} * T.float32({float(s.scale)!r})",
        *_product("S", "QP", "KT", rows, s.size, seen, lanes, vectors),
        *_softmax(s, rows, row, band.keys),
        *_product("O", "S", "VP", rows, band.keys, s.value_size, lanes, vectors),
        f"                    for ii in range(T.min({rows}, {s.queries} - vi * {rows})):",
        f"                        for d in range({s.value_size}):",
        f"                            out[vb // {s.heads}, vi * {rows} + ii, vb % {s.heads}, d] = {result}",
    ]


def _inputs(s: AttentionShape) -> list[tuple[str, tuple[int, ...]]]:
    keys = (s.batch, s.keys, s.key_heads or s.heads, s.size)
    values = (s.batch, s.keys, s.value_heads or s.heads, s.value_size)
    bias = [("bias", s.bias)] if s.bias is not None else []
    return [("q", (s.batch, s.queries, s.heads, s.size)), ("k", keys), ("v", values), *bias]


def _everything(dims: tuple[int, ...]) -> str:
    return "[" + ", ".join(f"0:{extent}" for extent in dims) + "]"


def _signature(s: AttentionShape) -> list[str]:
    shapes = [*_inputs(s), ("out", (s.batch, s.queries, s.heads, s.value_size))]
    params = [f'{name}: T.Buffer(({", ".join(map(str, dims))}), "{s.dtype}")' for name, dims in shapes]
    return [
        "@T.prim_func(private=True)",
        f"def attention({', '.join(params)}):",
        '    T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "op_pattern": 8})',
    ]


def _product(
    out: str, left: str, right: str, rows: int, depth: int, columns: int, lanes: int, vectors: int
) -> list[str]:
    """``out = left @ right`` in register tiles: as many full tiles as fit, then one narrower."""
    full, rest = divmod(columns // lanes, vectors)
    lines: list[str] = []
    for count, width, start in ((full, vectors, 0), (1, rest, full * vectors * lanes)):
        if not count or not width:
            continue
        column = f"{start} + vj * {width * lanes} + jv * {lanes} + jl"
        tile = [
            f"for ii in T.unroll({rows}):",
            f"    for jv in T.unroll({width}):",
            f"        for jl in T.vectorized({lanes}):",
        ]
        acc = f"acc[ii, jv * {lanes} + jl]"
        lines += [
            f"for jo in range({count}):",
            f'    with T.block("{out}_tile"):',
            f"        vj = T.axis.spatial({count}, jo)",
            f"        T.reads({left}[0:{rows}, 0:{depth}], {right}[0:{depth}, 0:{columns}])",
            f"        T.writes({out}[0:{rows}, 0:{columns}])",
            f'        acc = T.alloc_buffer(({rows}, {width * lanes}), "float32")',
            *("        " + t for t in tile),
            f"                    {acc} = T.float32(0)",
            f"        for p in range({depth}):",
            *("            " + t for t in tile),
            f"                        {acc} = {acc} + {left}[ii, p] * {right}[p, {column}]",
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
