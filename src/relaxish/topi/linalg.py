"""Products of matrices and tensors by their axes alone; operators with biases and types are in ``topi.nn``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te, tir
from ..ir.errors import CheckValueError
from ..ir.prim import const_int
from ..tir import Buffer, const, IfThenElse, IterVar, LetStmt, PrimExpr, Stmt, Var
from .loops import in_parallel, loop, loops, read, seq, write
from .nn.dense import matmul as stacked_matmul

__all__ = ["determinant", "einsum", "einsum_extents", "einsum_terms", "matmul", "tensordot"]


def _axis(extent: PrimExpr, name: str) -> IterVar:
    return te.reduce_axis((const(0, str(extent.dtype)), extent), name)


def matmul(a: te.Tensor, b: te.Tensor, transp_a: bool = False, transp_b: bool = False) -> te.Tensor:
    """The product of two matrices (or of stacks of them), either of them transposed first."""
    if len(a.shape) > 2:
        return stacked_matmul(a, b, None, None, transp_a, transp_b)
    rows, inner = (a.shape[1], a.shape[0]) if transp_a else (a.shape[0], a.shape[1])
    cols = b.shape[0] if transp_b else b.shape[1]
    k = _axis(inner, "k")

    def body(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        left = a(k.var, i) if transp_a else a(i, k.var)
        right = b(j, k.var) if transp_b else b(k.var, j)
        return te.sum(left * right, axis=k)

    return te.compute((rows, cols), body, "T_matmul", "matmul")


def tensordot(a: te.Tensor, b: te.Tensor, axes: int | Sequence[int | Sequence[int]]) -> te.Tensor:
    """Sum over pairs of axes: the last ``axes`` of ``a`` with the first of ``b``, or two lists of axes."""
    if isinstance(axes, int):
        left_axes, right_axes = list(range(len(a.shape) - axes, len(a.shape))), list(range(axes))
    else:
        left_axes, right_axes = [[v] if isinstance(v, int) else [*v] for v in axes]
    left_axes, right_axes = [v % len(a.shape) for v in left_axes], [v % len(b.shape) for v in right_axes]
    left_free = [k for k in range(len(a.shape)) if k not in left_axes]
    right_free = [k for k in range(len(b.shape)) if k not in right_axes]
    summed = [_axis(a.shape[v], f"k{n}") for n, v in enumerate(left_axes)]

    def body(*i: PrimExpr) -> PrimExpr:
        left = dict(zip(left_free, i)) | {v: k.var for v, k in zip(left_axes, summed)}
        right = dict(zip(right_free, i[len(left_free) :])) | {v: k.var for v, k in zip(right_axes, summed)}
        product = a(*(left[n] for n in range(len(a.shape)))) * b(*(right[n] for n in range(len(b.shape))))
        return te.sum(product, axis=summed) if summed else product

    shape = [a.shape[k] for k in left_free] + [b.shape[k] for k in right_free]
    return te.compute(shape, body, "T_tensordot", "matmul")


def determinant(a: te.Tensor) -> list[te.Tensor]:
    """The determinants of square matrices ``[count, n, n]``, by elimination with the largest pivot of each column.

    The second and third results are what it works in: the triangles, and the row of each pivot.
    """
    count, size = a.shape[0], a.shape[1]

    def eliminated(work: Buffer, rows: Buffer, out: Buffer, b: PrimExpr, k: PrimExpr) -> Stmt:
        """One column: the largest element below comes up, and all below it become zero."""

        def look(i: PrimExpr) -> Stmt:
            larger = tir.abs(read(work, b, i, k)) > tir.abs(read(work, b, read(rows, b), k))
            return IfThenElse(tir.And(i > k, larger), write(rows, i, b))

        def swap(j: PrimExpr) -> Stmt:
            upper, lower = Var("upper", a.dtype), Var("lower", a.dtype)
            stores = seq(write(work, lower, b, k, j), write(work, upper, b, read(rows, b), j))
            return LetStmt(upper, read(work, b, k, j), LetStmt(lower, read(work, b, read(rows, b), j), stores))

        def reduce_row(i: PrimExpr) -> Stmt:
            share = Var("share", a.dtype)
            taken = loop(
                "j",
                size,
                lambda j: IfThenElse(j > k, write(work, read(work, b, i, j) - share * read(work, b, k, j), b, i, j)),
            )
            return IfThenElse(i > k, LetStmt(share, read(work, b, i, k) / read(work, b, k, k), taken))

        exchange = seq(write(out, -read(out, b), b), loop("j", size, swap))
        return seq(
            write(rows, k, b),
            loop("i", size, look),
            IfThenElse(read(rows, b) != k, exchange),
            write(out, read(out, b) * read(work, b, k, k), b),
            IfThenElse(read(work, b, k, k) != const(0, a.dtype), loop("i", size, reduce_row)),
        )

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        out, work, rows = outs

        def one(at: list[PrimExpr]) -> Stmt:
            b = at[0]
            copy = loops([size, size], lambda ij: write(work, read(ins[0], b, *ij), b, *ij), "c")
            turns = loop("k", size, lambda k: eliminated(work, rows, out, b, k))
            return seq(copy, write(out, const(1, a.dtype), b), turns)

        return in_parallel(loops([count], one, "b"))

    shapes = [(count,), (count, size, size), (count,)]
    return list(te.extern(shapes, [a], body, "determinant", [a.dtype, a.dtype, "int64"]))


def einsum_terms(text: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Per-operand letters and the output letters; ``...`` becomes upper-case letters of its own.

    Raises CheckValueError where the subscripts do not fit operands of these ranks.
    """
    text = text.replace(" ", "")
    inputs, _, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks):
        raise CheckValueError(f"the subscripts '{text}' name {len(terms)} operands, but {len(ranks)} were given")
    widest = max([r - len(t.replace("...", "")) for t, r in zip(terms, ranks) if "..." in t], default=0)
    used = set(text)
    spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in used][:widest]
    expanded = []
    for term, rank in zip(terms, ranks):
        if "..." in term:
            width = rank - len(term.replace("...", ""))
            term = term.replace("...", "".join(spare[len(spare) - width :]))
        if len(term) != rank and rank >= 0:
            raise CheckValueError(f"the subscripts '{term}' do not fit an operand of rank {rank}")
        expanded.append(term)
    if "->" in text:
        result = output.replace("...", "".join(spare))
    else:
        letters = "".join(expanded)
        result = "".join(spare) + "".join(sorted({c for c in letters if letters.count(c) == 1 and c not in spare}))
    return expanded, result


def einsum_extents(terms: Sequence[str], shapes: Sequence[Sequence[PrimExpr]]) -> dict[str, Any]:
    """The extent of every letter: dimensions of one are broadcast, a symbolic dimension wins over a number."""
    found: dict[str, Any] = {}
    for term, shape in zip(terms, shapes):
        for letter, dim in zip(term, shape):
            found[letter] = _common_extent(found[letter], dim) if letter in found else dim
    return found


def _common_extent(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    x, y = const_int(a), const_int(b)
    if x is not None and y is not None:
        return b if x == 1 else a
    if x is not None:
        return b
    return a if y is not None else te.max(a, b)


def einsum(subscripts: str, *operand: te.Tensor) -> te.Tensor:
    """An Einstein sum of the operands.

    >>> from relaxish import te, topi
    >>> topi.einsum("ij,jk->ik", te.placeholder((2, 3)), te.placeholder((3, 4))).shape
    (2, 4)
    """
    terms, output = einsum_terms(subscripts, [len(t.shape) for t in operand])
    found = einsum_extents(terms, [t.shape for t in operand])
    # The dimensions of an ellipsis come first, then letters in their order.
    summed = sorted(set("".join(terms)) - set(output), key=lambda c: (c in subscripts, c))
    axes = {c: te.reduce_axis((const(0, str(found[c].dtype)), found[c]), c) for c in summed}

    def element(*indices: PrimExpr) -> PrimExpr:
        where = dict(zip(output, indices)) | {c: a.var for c, a in axes.items()}
        value: Any = None
        for tensor, term in zip(operand, terms):
            at = [
                const(0, "int64") if const_int(d) == 1 and const_int(found[c]) != 1 else where[c]
                for c, d in zip(term, tensor.shape)
            ]
            value = tensor(*at) if value is None else value * tensor(*at)
        return te.sum(value, axis=list(axes.values())) if axes else value

    return te.compute([found[c] for c in output], element, "T_einsum")
