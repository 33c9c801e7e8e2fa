"""Loads and stores: contiguous, strided, broadcast and scattered vector accesses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...support.errors import RelaxishError
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad
from .emit import FunctionWriter
from ...arith.polynomial import add as add_terms
from .index_gen import Lin, Terms, scale_terms, VecLin, Offset
from .ltypes import element_bytes, llvm_type, memory_type, scalar_type, takes_whole_byte, vector_type


class MemoryGen:
    """Mixin of the expression generator: element access to buffers."""

    w: FunctionWriter
    pointers: dict[Any, str]
    merged_params: bool = False
    private: set[Any]
    # The buffers, by variable, whose accesses may be neither merged nor left out.
    volatile: set[Any]
    promoted: dict[Any, Any]
    # Whether every access is checked, the buffer of the one at hand, and the scalars that allocations have room for.
    checked: bool = False
    accessed: Any = None
    room: dict[Any, Lin]

    # ---- supplied by the other mixins

    def visit(self, expr: PrimExpr) -> str:
        raise NotImplementedError

    def lin(self, expr: PrimExpr) -> Lin:
        raise NotImplementedError

    def vec_lin(self, expr: PrimExpr) -> VecLin | None:
        raise NotImplementedError

    def element_pointer(self, base: str, dtype: str, terms: Terms, const: int) -> str:
        raise NotImplementedError

    # ---- buffers

    def base_pointer(self, var: PrimExpr) -> str:
        """The pointer a buffer variable stands for."""
        pointer = self.pointers.get(var)
        return pointer if pointer is not None else self.visit(var)

    def alias_key(self, var: PrimExpr) -> PrimExpr | str:
        """Identity of the memory behind ``var``, for the question whether a store may change a load."""
        root = self.roots.get(var, var)
        if self.merged_params and root not in self.private:
            return "shared"
        return root

    roots: dict[Any, Any]

    def offset_of(self, buffer: Buffer, indices: Sequence[Any]) -> Offset:
        """Element offset of an access: linear with constant lanes, or a list of one scalar offset a lane."""
        lanes = 1
        for index in indices:
            lanes = max(lanes, dt.lanes(index.dtype))
        forms = [form for form in map(self.vec_lin, indices) if form is not None]
        if len(forms) < len(indices):
            return self._scattered_offsets(buffer, indices, lanes)
        strides = self._strides(buffer)
        terms: Terms = {}
        consts = [0] * lanes
        for form, stride in zip(forms, strides, strict=True):
            t, c = form
            if len(c) == 1:
                c = c * lanes
            st, sc = stride
            if not st:
                terms = add_terms(terms, scale_terms(t, sc))
                consts = [x + y * sc for x, y in zip(consts, c, strict=True)]
                continue
            if len(set(c)) != 1:
                return self._scattered_offsets(buffer, indices, lanes)
            product = self._product((t, c[0]), stride)
            terms = add_terms(terms, product[0])
            consts = [x + product[1] for x in consts]
        start_terms, start_const = self._start(buffer)
        return add_terms(terms, start_terms), tuple(x + start_const for x in consts)

    def _start(self, buffer: Buffer) -> Lin:
        offset = getattr(buffer, "elem_offset", None)
        if offset is None:
            return {}, 0
        return self.lin(offset)

    def _strides(self, buffer: Buffer) -> list[Lin]:
        if buffer.strides:
            return [self.lin(s) for s in buffer.strides]
        strides: list[Lin] = [({}, 1)]
        for extent in reversed(buffer.shape[1:]):
            strides.append(self._product(self.lin(extent), strides[-1]))
        return strides[::-1][-len(buffer.shape) :] if buffer.shape else []

    def _product(self, a: Lin, b: Lin) -> Lin:
        if not a[0]:
            return scale_terms(b[0], a[1]), a[1] * b[1]
        if not b[0]:
            return scale_terms(a[0], b[1]), a[1] * b[1]
        x, y = self.materialize(a), self.materialize(b)
        return {self.w.pure(f"mul nsw i64 {x}, {y}", x, y, hint="p"): 1}, 0

    def materialize(self, lin: Lin) -> str:
        raise NotImplementedError

    def _scattered_offsets(self, buffer: Buffer, indices: Sequence[Any], lanes: int) -> list[Lin]:
        strides = self._strides(buffer)
        columns: list[list[str]] = []
        for index in indices:
            columns.append(self._lane_values(index, lanes))
        start = self._start(buffer)
        out: list[Lin] = []
        for lane in range(lanes):
            total: Lin = start
            for column, stride in zip(columns, strides, strict=True):
                text = column[lane]
                part: Lin = ({text: 1}, 0) if text.startswith("%") else ({}, int(text))
                product = self._product(part, stride)
                total = add_terms(total[0], product[0]), total[1] + product[1]
            out.append(total)
        return out

    def _lane_values(self, index: PrimExpr, lanes: int) -> list[str]:
        count = dt.lanes(index.dtype)
        if count == 1:
            text = self.materialize(self.lin(index))
            return [text] * lanes
        form = self.vec_lin(index)
        if form is not None:
            return [self.materialize((form[0], c)) for c in form[1]]
        value = self.visit(index)
        ty = llvm_type(index.dtype)
        scalar = scalar_type(index.dtype)
        out = []
        for lane in range(lanes):
            item = self.w.pure(f"extractelement {ty} {value}, i64 {lane}", value)
            out.append(item if scalar == "i64" else self.w.pure(f"sext {scalar} {item} to i64", item))
        return out

    # ---- checks of all memory

    def check_access(self, what: str, buffer: Buffer, terms: Terms, const: int, lanes: int) -> None:
        """Go on only where ``lanes`` scalars at an offset, in scalars, belong to the buffer's memory."""
        inner = dt.lanes(buffer.dtype)
        room = self.room.get(buffer.data)
        if room is None:
            room = {}, inner
            for extent in buffer.shape:
                room = self._product(room, self.lin(extent))
            start = self._start(buffer)
            room = add_terms(room[0], scale_terms(start[0], inner)), room[1] + start[1] * inner
        self.require_access(
            (what, buffer.name, str(buffer.shape)), self.materialize((terms, const)), lanes, self.materialize(room)
        )

    def require_access(self, fields: tuple[str, ...], offset: str, lanes: int, room: str) -> None:
        """Go on only where ``offset`` to ``offset + lanes`` lie in ``room``."""
        raise NotImplementedError

    def promoted_slot(self, promotion: Any, offset: Offset, dtype: str) -> str:
        """The stack slot that stands for an access of a promoted buffer; loops, which promote, know it."""
        raise NotImplementedError

    # ---- loads

    def visit_BufferLoad(self, expr: BufferLoad) -> str:
        buffer = expr.buffer
        if expr.predicate is not None:
            return self.load_masked(expr, expr.predicate)
        promotion = self.promoted.get(buffer.data)
        if promotion is not None:
            slot = self.promoted_slot(promotion, self.offset_of(buffer, expr.indices), expr.dtype)
            return self.w.effect(f"load {llvm_type(expr.dtype)}, ptr {slot}, align 64")
        return self.load_elements(buffer, self.offset_of(buffer, expr.indices), expr.dtype)

    # ---- under a predicate

    def _masked_pointers(self, buffer: Buffer, offset: Offset, lanes: int) -> tuple[str, bool]:
        """The address of the first of ``lanes`` elements in a row, or a vector of the addresses of all."""
        if buffer.data in self.volatile:
            raise RelaxishError(f"a masked access of {buffer.name} cannot be volatile; access it lane by lane")
        element = buffer.dtype
        base = self.base_pointer(buffer.data)
        places = [(t, c) for t, c in offset] if isinstance(offset, list) else [(offset[0], c) for c in offset[1]]
        if dt.lanes(element) != 1 or len(places) != lanes:
            raise RelaxishError(f"a predicate masks single elements, which those of {buffer.name} ({element}) are not")
        if not isinstance(offset, list) and _runs(offset[1]) == [(offset[1][0], lanes)]:
            return self.element_pointer(base, element, *places[0]), True
        return self.from_lanes([self.element_pointer(base, element, *place) for place in places], "ptr"), False

    def load_masked(self, expr: BufferLoad, mask: PrimExpr) -> str:
        """The elements where the mask holds, and zeros elsewhere, where memory is not touched."""
        lanes, ty = dt.lanes(expr.dtype), memory_type(expr.dtype)
        pointer, dense = self._masked_pointers(expr.buffer, self.offset_of(expr.buffer, expr.indices), lanes)
        place, suffix = ("ptr", "p0") if dense else (f"<{lanes} x ptr>", f"v{lanes}p0")
        name = f"llvm.masked.{'load' if dense else 'gather'}.{_mangled(ty)}.{suffix}"
        self.w.module.declare(f"declare {ty} @{name}({place}, i32, <{lanes} x i1>, {ty})")
        width = element_bytes(expr.dtype)
        text = f"{place} {pointer}, i32 {width}, <{lanes} x i1> {self.visit(mask)}, {ty} zeroinitializer"
        made = self.w.effect(f"call {ty} @{name}({text})")
        return made if ty == llvm_type(expr.dtype) else self.w.effect(f"trunc {ty} {made} to {llvm_type(expr.dtype)}")

    def store_masked(self, buffer: Buffer, offset: Offset, value: str, dtype: str, mask: PrimExpr) -> None:
        """Store the elements where the mask holds; the others stay as they are."""
        lanes, ty = dt.lanes(dtype), memory_type(dtype)
        pointer, dense = self._masked_pointers(buffer, offset, lanes)
        if ty != llvm_type(dtype):
            value = self.w.effect(f"zext {llvm_type(dtype)} {value} to {ty}")
        place, suffix = ("ptr", "p0") if dense else (f"<{lanes} x ptr>", f"v{lanes}p0")
        name = f"llvm.masked.{'store' if dense else 'scatter'}.{_mangled(ty)}.{suffix}"
        self.w.module.declare(f"declare void @{name}({ty}, {place}, i32, <{lanes} x i1>)")
        held = self.visit(mask)
        if scalar_type(dtype).startswith("i"):
            held = self._opaque(held, lanes)
        text = f"{ty} {value}, {place} {pointer}, i32 {element_bytes(dtype)}, <{lanes} x i1> {held}"
        self.w.line(f"call void @{name}({text})")
        self.w.touch(self.alias_key(buffer.data))

    def _opaque(self, mask: str, lanes: int) -> str:
        """``mask`` in a form that LLVM cannot fold.

        A masked store of truncated integers whose mask is one known lane becomes a store of that whole wide integer in
        LLVM 22 on x86, over the neighbours of its place (LLVM issue 179489).
        """
        words = -(-lanes // 64)
        word = max(8, 1 << (lanes - 1).bit_length()) if words == 1 else 64
        bits, held = f"i{lanes}", f"i{words * word}"
        made = self.w.pure(f"bitcast <{lanes} x i1> {mask} to {bits}", mask)
        if held != bits:
            made = self.w.pure(f"zext {bits} {made} to {held}", made)
        vector = f"<{words} x i{word}>"
        made = self.w.pure(f"bitcast {held} {made} to {vector}", made)
        for i in range(words):
            part = self.w.pure(f"extractelement {vector} {made}, i64 {i}", made)
            part = self.w.pure(f'call i{word} asm "", "=r,0"(i{word} {part})', part)
            made = self.w.pure(f"insertelement {vector} {made}, i{word} {part}, i64 {i}", made, part)
        made = self.w.pure(f"bitcast {vector} {made} to {held}", made)
        if held != bits:
            made = self.w.pure(f"trunc {held} {made} to {bits}", made)
        return self.w.pure(f"bitcast {bits} {made} to <{lanes} x i1>", made)

    def load_elements(self, buffer: Buffer, offset: Offset, dtype: str) -> str:
        """Load the elements at ``offset``; ``dtype`` is that of the result."""
        element = buffer.dtype
        base = self.base_pointer(buffer.data)
        key = self.alias_key(buffer.data)
        inner = dt.lanes(element)
        offset = _in_scalars(offset, inner)
        self.accessed = buffer if self.checked else None
        if isinstance(offset, list):
            parts = [self._load_at(base, key, element, terms, const) for terms, const in offset]
            return self._lanes_to_vector(parts, inner, element)
        terms, consts = offset
        if inner > 1 or len(consts) == 1:
            parts = [self._load_at(base, key, element, terms, c) for c in consts]
            return self._lanes_to_vector(parts, inner, element)
        lanes = len(consts)
        if all(c == consts[0] for c in consts):
            one = self._load_at(base, key, element, terms, consts[0])
            return self.splat_value(one, scalar_type(element), lanes)
        steps = {b - a for a, b in zip(consts, consts[1:], strict=False)}
        if steps == {1}:
            return self._load_at(base, key, dt.with_lanes(element, lanes), terms, consts[0])
        if len(steps) == 1 and 2 <= (step := steps.pop()) <= 4:
            return self._load_strided(base, key, element, terms, consts[0], lanes, step)
        return self._load_runs(base, key, element, terms, consts)

    def splat_value(self, value: str, scalar: str, lanes: int) -> str:
        raise NotImplementedError

    def _lanes_to_vector(self, parts: list[str], inner: int, element: str) -> str:
        if len(parts) == 1:
            return parts[0]
        if inner == 1:
            return self.from_lanes(parts, scalar_type(element))
        return self.concat(parts, [inner] * len(parts), element)

    def _load_at(self, base: str, key: PrimExpr | str, dtype: str, terms: Terms, const: int) -> str:
        if self.accessed is not None:
            self.check_access("load", self.accessed, terms, const, dt.lanes(dtype))
        pointer = self.element_pointer(base, dt.element_of(dtype), terms, const)
        ty = memory_type(dtype)
        value = self.w.load(key, f"load {ty}, ptr {pointer}, align {element_bytes(dtype)}", pointer)
        if dt.is_bool(dtype):
            zero = "0" if dt.lanes(dtype) == 1 else "zeroinitializer"
            # Produced in place: the loaded register may itself have been hoisted, which this follows.
            return self.w.pure(f"icmp ne {ty} {value}, {zero}", value)
        if takes_whole_byte(dtype):
            return self.w.pure(f"trunc {ty} {value} to {llvm_type(dtype)}", value)
        return value

    def _load_strided(
        self, base: str, key: PrimExpr | str, element: str, terms: Terms, first: int, lanes: int, step: int
    ) -> str:
        # Whole vectors, the last one moved back so that nothing beyond the last element is read.
        span = (lanes - 1) * step + 1
        scalar = scalar_type(element)
        starts = [min(i * lanes, span - lanes) for i in range((span + lanes - 1) // lanes)]
        parts = [self._load_at(base, key, dt.with_lanes(element, lanes), terms, first + s) for s in starts]
        picks = []
        for i in range(lanes):
            position = i * step
            which = min(position // lanes, len(starts) - 1)
            picks.append(which * lanes + position - starts[which])
        if len(parts) > 2:
            # Merge pairwise; positions inside the concatenation do not change.
            pairs = [self.concat(parts[j : j + 2], [lanes] * 2, element) for j in range(0, len(parts) - 1, 2)]
            return self._pick_from_pairs(parts, pairs, lanes, scalar, picks)
        if len(parts) == 1:
            return self.shuffle(parts[0], lanes, scalar, picks)
        ty = f"<{lanes} x {scalar}>"
        mask = ", ".join(f"i32 {p}" for p in picks)
        return self.w.pure(f"shufflevector {ty} {parts[0]}, {ty} {parts[1]}, <{lanes} x i32> <{mask}>", *parts)

    def _pick_from_pairs(self, parts: list[str], pairs: list[str], lanes: int, scalar: str, picks: list[int]) -> str:
        if len(parts) % 2:
            ty = f"<{lanes} x {scalar}>"
            mask = ", ".join(f"i32 {i}" for i in range(2 * lanes))
            last = parts[-1]
            pairs = [
                *pairs,
                self.w.pure(f"shufflevector {ty} {last}, {ty} poison, <{2 * lanes} x i32> <{mask}>", last),
            ]
        wide = f"<{2 * lanes} x {scalar}>"
        mask = ", ".join(f"i32 {p}" for p in picks)
        return self.w.pure(f"shufflevector {wide} {pairs[0]}, {wide} {pairs[1]}, <{lanes} x i32> <{mask}>", *pairs)

    def _load_runs(self, base: str, key: PrimExpr | str, element: str, terms: Terms, consts: tuple[int, ...]) -> str:
        parts, sizes = [], []
        for start, count in _runs(consts):
            parts.append(self._load_at(base, key, dt.with_lanes(element, count), terms, start))
            sizes.append(count)
        if max(sizes) == 1:
            return self.from_lanes(parts, scalar_type(element))
        return self.concat(parts, sizes, element)

    # ---- vector assembly

    def from_lanes(self, values: list[str], scalar: str) -> str:
        """A vector built from scalars."""
        ty = f"<{len(values)} x {scalar}>"
        acc = "poison"
        for lane, value in enumerate(values):
            acc = self.w.pure(f"insertelement {ty} {acc}, {scalar} {value}, i64 {lane}", acc, value)
        return acc

    def shuffle(self, value: str, lanes: int, scalar: str, picks: Sequence[int]) -> str:
        """Lanes of one vector in a new order."""
        ty = f"<{lanes} x {scalar}>"
        mask = ", ".join(f"i32 {p}" for p in picks)
        return self.w.pure(f"shufflevector {ty} {value}, {ty} poison, <{len(picks)} x i32> <{mask}>", value)

    def concat(self, values: list[str], sizes: list[int], dtype: str) -> str:
        """One vector of all lanes of several vectors or scalars."""
        scalar = scalar_type(dtype)
        values = [
            v if n > 1 else self.w.pure(f"insertelement <1 x {scalar}> poison, {scalar} {v}, i64 0", v)
            for v, n in zip(values, sizes, strict=True)
        ]
        while len(values) > 1:
            merged, merged_sizes = [], []
            for i in range(0, len(values), 2):
                if i + 1 == len(values):
                    merged.append(values[i])
                    merged_sizes.append(sizes[i])
                    continue
                merged.append(self._join(values[i], sizes[i], values[i + 1], sizes[i + 1], scalar))
                merged_sizes.append(sizes[i] + sizes[i + 1])
            values, sizes = merged, merged_sizes
        return values[0]

    def _join(self, a: str, na: int, b: str, nb: int, scalar: str) -> str:
        wide = max(na, nb)
        a = self._widen(a, na, wide, scalar)
        b = self._widen(b, nb, wide, scalar)
        picks = [*range(na), *range(wide, wide + nb)]
        ty = f"<{wide} x {scalar}>"
        mask = ", ".join(f"i32 {p}" for p in picks)
        return self.w.pure(f"shufflevector {ty} {a}, {ty} {b}, <{na + nb} x i32> <{mask}>", a, b)

    def _widen(self, value: str, lanes: int, wide: int, scalar: str) -> str:
        if lanes == wide:
            return value
        ty = f"<{lanes} x {scalar}>"
        mask = ", ".join(f"i32 {i}" if i < lanes else "i32 poison" for i in range(wide))
        return self.w.pure(f"shufflevector {ty} {value}, {ty} poison, <{wide} x i32> <{mask}>", value)

    # ---- stores

    def store_elements(self, buffer: Buffer, offset: Offset, value: str, dtype: str) -> None:
        """Store ``value`` of ``dtype`` at ``offset``."""
        promotion = self.promoted.get(buffer.data)
        if promotion is not None:
            slot = self.promoted_slot(promotion, offset, dtype)
            self.w.line(f"store {llvm_type(dtype)} {value}, ptr {slot}, align 64")
            return
        element = buffer.dtype
        base = self.base_pointer(buffer.data)
        key = self.alias_key(buffer.data)
        inner = dt.lanes(element)
        scalar = scalar_type(element)
        lanes = dt.lanes(dtype)
        offset = _in_scalars(offset, inner)
        self.accessed = buffer if self.checked else None
        if isinstance(offset, list):
            for lane, (terms, const) in enumerate(offset):
                self._store_at(base, element, terms, const, self._slice(value, lanes, lane * inner, inner, scalar))
        else:
            terms, consts = offset
            if len(consts) == 1 or inner > 1:
                for i, const in enumerate(consts):
                    part = value if len(consts) == 1 else self._slice(value, lanes, i * inner, inner, scalar)
                    self._store_at(base, element, terms, const, part)
            else:
                at = 0
                for start, count in _runs(consts):
                    part = self._slice(value, lanes, at, count, scalar)
                    self._store_at(base, dt.with_lanes(element, count), terms, start, part)
                    at += count
        self.w.touch(key)

    def _slice(self, value: str, lanes: int, start: int, count: int, scalar: str) -> str:
        if lanes == count:
            return value
        if lanes == 1:
            return value
        ty = f"<{lanes} x {scalar}>"
        if count == 1:
            return self.w.pure(f"extractelement {ty} {value}, i64 {start}", value)
        return self.shuffle(value, lanes, scalar, range(start, start + count))

    def _store_at(self, base: str, dtype: str, terms: Terms, const: int, value: str) -> None:
        if self.accessed is not None:
            self.check_access("store", self.accessed, terms, const, dt.lanes(dtype))
        pointer = self.element_pointer(base, dt.element_of(dtype), terms, const)
        ty = memory_type(dtype)
        if takes_whole_byte(dtype):
            value = self.w.pure(f"zext {llvm_type(dtype)} {value} to {ty}", value)
        self.w.line(f"store {ty} {value}, ptr {pointer}, align {element_bytes(dtype)}")


def _in_scalars(offset: Offset, inner: int) -> Offset:
    """An offset in elements that are vectors of ``inner`` scalars, counted in scalars."""
    if inner == 1:
        return offset
    if isinstance(offset, list):
        return [(scale_terms(terms, inner), const * inner) for terms, const in offset]
    return scale_terms(offset[0], inner), tuple(c * inner for c in offset[1])


def _mangled(ty: str) -> str:
    """How LLVM names a vector type in an intrinsic: ``v8f32`` for ``<8 x float>``."""
    count, _, scalar = ty.strip("<>").partition(" x ")
    return f"v{count}" + {"half": "f16", "float": "f32", "double": "f64"}.get(scalar, scalar)


def _runs(consts: Sequence[int]) -> list[tuple[int, int]]:
    """Split lane offsets into (start, count) runs of consecutive elements."""
    runs: list[tuple[int, int]] = []
    for c in consts:
        if runs and runs[-1][0] + runs[-1][1] == c:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((c, 1))
    return runs


__all__ = ["MemoryGen", "vector_type"]
