"""Random calls, valid and hostile, of models that take indices and divisors from data.

    RELAXISH_CHECK=2 python -m relaxish.testing.fuzz --kind hostile --seconds 3600

A case is a random operator that indexes or divides by data, often with other operators before and behind it, built for
static or dynamic shapes, and a row of calls of it. NumPy says what each is due: an array, or an error. A wrong array, an
error where none is due, none where one is due, and a process that dies are findings; with ``RELAXISH_CHECK=2`` so is
every access that leaves its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import relax, tir
from ...driver import build
from ...ir.module import IRModule
from ...relax import TensorStructInfo
from ...runtime import VirtualMachine, cpu
from ...support.errors import MemoryCheckError, RelaxishError

__all__ = ["HostileCase", "make_hostile_case", "run_hostile_case"]

Rng = np.random.Generator
Array = np.ndarray


class _Due(Exception):
    """The call is due an error; where no element is read or written by the bad index, a result will do, too."""

    def __init__(self, instead: Array | None = None) -> None:
        super().__init__()
        self.instead = instead


@dataclass
class HostileCase:
    """A program, what NumPy makes of its arguments, and how to draw them."""

    number: int
    name: str
    mod: Any
    expect: Callable[..., Array]
    draw: Callable[[Rng, bool], list[Array]]

    @property
    def may_refuse(self) -> bool:
        """Whether an error will do where NumPy cuts bounds to what there is."""
        return self.name == "dynamic_strided_slice"


def _checked(index: Array, size: int) -> Array:
    if ((index < 0) | (index >= size)).any():
        raise _Due
    return index.astype("int64")


def _from_end(index: Array, size: int) -> Array:
    return _checked(np.where(index < 0, index.astype("int64") + size, index), size)


def _hostile_index(rng: Rng, dtype: str, size: int) -> int:
    info = np.iinfo(dtype)
    values = [size, size + 1, -1, -size, -size - 1, 10**8, -7, info.min, info.max, info.max // max(1, size) + 1]
    if dtype == "int64":
        values += [2**32, 2**33 + 1, -(2**32), 2**62, -(2**62), 2**63 // max(1, 4 * size) + 1, 2**31]
    return int(np.clip(values[rng.integers(len(values))], info.min, info.max))


def _indices(rng: Rng, shape: tuple[int, ...], dtype: str, size: int, hostile: bool) -> Array:
    made = rng.integers(0, max(1, size), shape).astype(dtype)
    if hostile and made.size:
        for _ in range(int(rng.integers(1, 3))):
            made.flat[rng.integers(made.size)] = _hostile_index(rng, dtype, size)
    return made


def _function(params: list[Any], body: Callable[..., Any]) -> IRModule:
    bb = relax.BlockBuilder()
    with bb.function("main", params):
        with bb.dataflow():
            out = bb.emit_output(bb.emit(body(bb, *params)))
        bb.emit_func_output(out)
    return bb.get()


def _var(name: str, shape: tuple[Any, ...], dtype: str) -> relax.Var:
    return relax.Var(name, TensorStructInfo(shape, dtype))


def _symbolic(shape: tuple[int, ...], dynamic: bool, stem: str) -> tuple[Any, ...]:
    return tuple(tir.Var(f"{stem}{i}", "int64") for i in range(len(shape))) if dynamic else shape


# ---- operators: each gives (name, parameters, body, expect, draw)

_Program = tuple[str, list[Any], Callable[..., Any], Callable[..., Array], Any]
Family = Callable[[Rng, bool], _Program]


def _shape(rng: Rng, rank: int, least: int = 1) -> tuple[int, ...]:
    return tuple(int(v) for v in rng.integers(least, 8, rank))


def _take(rng: Rng, dynamic: bool) -> _Program:
    shape = _shape(rng, int(rng.integers(1, 4)), 0 if rng.random() < 0.1 else 1)
    axis = int(rng.integers(len(shape)))
    picked = _shape(rng, int(rng.integers(0, 3)))
    dtype = str(rng.choice(["int32", "int64"]))
    params = [_var("x", _symbolic(shape, dynamic, "n"), "float32"), _var("i", _symbolic(picked, dynamic, "m"), dtype)]

    def draw(r: Rng, hostile: bool) -> list[Array]:
        return [r.standard_normal(shape).astype("float32"), _indices(r, picked, dtype, shape[axis], hostile)]

    def expect(x: Array, i: Array) -> Array:
        nothing = np.zeros((*shape[:axis], *picked, *shape[axis + 1 :]), "float32")
        if not nothing.size:
            if i.size and not shape[axis]:  # NumPy looks at indices by which nothing is taken
                raise _Due(nothing)
            return nothing
        return np.take(x, _checked(i, shape[axis]), axis)

    return "take", params, lambda bb, x, i: relax.op.take(x, i, axis=axis), expect, draw


def _gather_elements(rng: Rng, dynamic: bool) -> _Program:
    shape = _shape(rng, 2)
    axis = int(rng.integers(2))
    picked = tuple(int(rng.integers(1, 7)) if a == axis else s for a, s in enumerate(shape))
    dtype = str(rng.choice(["int32", "int64"]))
    params = [_var("x", shape, "float32"), _var("i", picked, dtype)]

    def draw(r: Rng, hostile: bool) -> list[Array]:
        return [r.standard_normal(shape).astype("float32"), _indices(r, picked, dtype, shape[axis], hostile)]

    def expect(x: Array, i: Array) -> Array:
        return np.take_along_axis(x, _checked(i, shape[axis]), axis)

    return "gather_elements", params, lambda bb, x, i: relax.op.gather_elements(x, i, axis=axis), expect, draw


def _columns(rng: Rng, sizes: tuple[int, ...], rows: int, dtype: str, hostile: bool) -> Array:
    columns = [_indices(rng, (rows,), dtype, s, False) for s in sizes]
    if hostile:
        at = int(rng.integers(len(sizes)))
        columns[at] = _indices(rng, (rows,), dtype, sizes[at], True)
    return np.ascontiguousarray(np.stack(columns, 1))


def _gather_nd(rng: Rng, dynamic: bool) -> _Program:
    shape = _shape(rng, int(rng.integers(2, 4)))
    depth, rows = int(rng.integers(1, len(shape) + 1)), int(rng.integers(1, 6))
    params = [_var("x", _symbolic(shape, dynamic, "n"), "float32"), _var("i", (rows, depth), "int64")]

    def draw(r: Rng, hostile: bool) -> list[Array]:
        return [r.standard_normal(shape).astype("float32"), _columns(r, shape[:depth], rows, "int64", hostile)]

    def expect(x: Array, i: Array) -> Array:
        made: Array = x[tuple(_checked(i[:, d], shape[d]) for d in range(depth))]
        return made

    return "gather_nd", params, lambda bb, x, i: relax.op.gather_nd(x, i), expect, draw


def _scatter_nd(rng: Rng, dynamic: bool) -> _Program:
    shape = _shape(rng, int(rng.integers(2, 4)))
    depth, rows = int(rng.integers(1, len(shape) + 1)), int(rng.integers(1, 6))
    dtype = str(rng.choice(["int32", "int64"]))
    new = (rows, *shape[depth:])
    params = [
        _var("x", _symbolic(shape, dynamic and depth == len(shape), "n"), "float32"),
        _var("i", (rows, depth), dtype), _var("u", new, "float32"),
    ]  # fmt: skip

    def draw(r: Rng, hostile: bool) -> list[Array]:
        index = _columns(r, shape[:depth], rows, dtype, hostile)
        return [r.standard_normal(shape).astype("float32"), index, r.standard_normal(new).astype("float32")]

    def expect(x: Array, i: Array, u: Array) -> Array:
        out = x.copy()
        places = tuple(_checked(i[:, d], shape[d]) for d in range(depth))
        np.add.at(out, places, u)
        return out

    def body(bb: Any, x: Any, i: Any, u: Any) -> relax.Expr:
        return relax.op.scatter_nd(x, i, u, "add")

    return "scatter_nd", params, body, expect, draw


def _scatter_elements(rng: Rng, dynamic: bool) -> _Program:
    shape = _shape(rng, 2)
    axis = int(rng.integers(2))
    picked = tuple(int(rng.integers(1, 7)) if a == axis else s for a, s in enumerate(shape))
    dtype = str(rng.choice(["int32", "int64"]))
    params = [_var("x", shape, "float32"), _var("i", picked, dtype), _var("u", picked, "float32")]

    def draw(r: Rng, hostile: bool) -> list[Array]:
        new = r.standard_normal(picked).astype("float32")
        return [r.standard_normal(shape).astype("float32"), _indices(r, picked, dtype, shape[axis], hostile), new]

    def expect(x: Array, i: Array, u: Array) -> Array:
        out, at = x.copy(), _from_end(i, shape[axis])
        for place in np.ndindex(*picked):
            target = list(place)
            target[axis] = at[place]
            out[tuple(target)] += u[place]
        return out

    def body(bb: Any, x: Any, i: Any, u: Any) -> relax.Expr:
        return relax.op.scatter_elements(x, i, u, axis=axis, reduction="add")

    return "scatter_elements", params, body, expect, draw


def _slice(rng: Rng, dynamic: bool) -> _Program:
    shape = _shape(rng, 2)
    params = [_var("x", shape, "float32"), *(_var(n, (2,), "int64") for n in "bes")]

    def draw(r: Rng, hostile: bool) -> list[Array]:
        begin = np.array([r.integers(0, s) for s in shape])
        end = np.array([r.integers(b, s + 1) for b, s in zip(begin, shape, strict=True)])
        bounds = [begin, end, r.integers(1, 4, 2)]
        if hostile:
            which = bounds[r.integers(2)]
            which[r.integers(2)] = _hostile_index(r, "int64", shape[0])
        return [r.standard_normal(shape).astype("float32"), *bounds]

    def expect(x: Array, b: Array, e: Array, s: Array) -> Array:
        return x[int(b[0]) : int(e[0]) : int(s[0]), int(b[1]) : int(e[1]) : int(s[1])]

    return "dynamic_strided_slice", params, lambda bb, *a: relax.op.dynamic_strided_slice(*a), expect, draw


_DIVISIONS: dict[str, Callable[[int, int], int]] = {
    "floor_divide": lambda a, b: a // b,
    "floor_mod": lambda a, b: a % b,
    "divide": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
}


def _divide(rng: Rng, dynamic: bool) -> _Program:
    shape = _shape(rng, int(rng.integers(1, 4)))
    dtype = str(rng.choice(["int8", "int16", "int32", "int64", "uint8", "uint32"]))
    name = str(rng.choice(list(_DIVISIONS)))
    masked = bool(rng.random() < 0.4)
    info = np.iinfo(dtype)
    kinds = _symbolic(shape, dynamic, "n")
    params = [_var("a", kinds, dtype), _var("b", kinds, dtype)]

    def draw(r: Rng, hostile: bool) -> list[Array]:
        a = r.integers(info.min, info.max, shape, dtype, endpoint=True)
        b = r.integers(1, 9, shape).astype(dtype)
        if hostile:
            b.flat[r.integers(b.size)] = 0
            if info.min < 0 and r.random() < 0.5:
                at = r.integers(b.size)
                a.flat[at], b.flat[at] = info.min, -1
        return [a, b]

    def expect(a: Array, b: Array) -> Array:
        out = np.zeros(shape, dtype)
        for at in np.ndindex(*shape):
            x, y = int(a[at]), int(b[at])
            if y == 0 or (y == -1 and x == info.min < 0):
                raise _Due
            out[at] = _DIVISIONS[name](x, y)
        return out

    def body(bb: Any, a: Any, b: Any) -> relax.Expr:
        made = bb.emit(getattr(relax.op, name)(a, b))
        return relax.op.maximum(made, made) if masked else made

    return name, params, body, expect, draw


FAMILIES: tuple[Family, ...] = (
    _take, _gather_elements, _gather_nd, _scatter_nd, _scatter_elements, _slice, _divide,
)  # fmt: skip


def make_hostile_case(number: int) -> HostileCase:
    """The case of a number."""
    rng = np.random.default_rng(number)
    family = FAMILIES[int(rng.integers(len(FAMILIES)))]
    name, params, body, expect, draw = family(rng, bool(rng.random() < 0.4))
    before, after = rng.random(2) < 0.4
    floats = params[0].struct_info.dtype == "float32"

    def whole(bb: Any, x: Any, *rest: Any) -> relax.Expr:
        if before and floats:
            x = bb.emit(relax.op.multiply(x, relax.const(np.float32(2))))
        made = body(bb, x, *rest)
        return relax.op.abs(bb.emit(made)) if after and floats else made

    def due(x: Array, *rest: Array) -> Array:
        made = expect(x * np.float32(2) if before and floats else x, *rest)
        return np.abs(made) if after and floats else made

    return HostileCase(number, name, _function(params, whole), due, draw)


def run_hostile_case(number: int, calls: int = 12) -> list[str]:
    """Descriptions of the failures of a case's calls; nothing if all is well."""
    case = make_hostile_case(number)
    rng = np.random.default_rng(number + 1_000_000_007)
    run = VirtualMachine(build(case.mod, "llvm -num-cores=2"), cpu())["main"]
    wrong = []
    for call in range(calls):
        args = case.draw(rng, bool(call % 2))
        want: Array | None
        try:
            want, must_fail = case.expect(*args), False
        except _Due as error:
            want, must_fail = error.instead, True
        try:
            got = run(*args).numpy()
        except MemoryCheckError as err:
            wrong.append(f"call {call}: {err}")
            continue
        except RelaxishError as err:
            if not must_fail and not (call % 2 and case.may_refuse):
                wrong.append(f"call {call}: {type(err).__name__}: {err}")
            continue
        if want is None:
            wrong.append(f"call {call}: an error is due")
        elif got.shape != want.shape or not np.allclose(got, want, rtol=1e-5, atol=1e-6):
            wrong.append(f"call {call}: a wrong result")
    return wrong
