"""Scalar and vector expressions as CUDA C++: what differs from the other languages of ``common/csource``.

Every operation is in parentheses, and vectors are computed whole: ``Vec<T, n>`` of the preamble has all operators.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any, ClassVar

from ....tir.expr import BufferLoad
from ....tir.buffer import Buffer
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.op import op_name_of
from ....ir.prim import BinaryOp, Broadcast, Call, Cast, Let, Not, Ramp, Select, is_consecutive, is_zero
from ....support.errors import RelaxishError
from ...common.csource import KernelPrinter, Piece
from ...common.csource.names import NameSupply
from ...common.csource.pieces import ATOM
from .narrow import narrowed
from .reserved import reserved_names
from .table import PRINTERS
from .types import constant, is_nibble, section_of, size_of, type_name

__all__ = ["CudaExpressions"]

_FUNCTIONS = {"Min": "least", "Max": "greatest", "FloorDiv": "floordiv", "FloorMod": "floormod"}
_WIDEST = "uint8x16"
_NARROW = ("int8", "uint8", "int16", "uint16", "int4", "uint4")


class CudaExpressions(KernelPrinter):
    """Expressions of a kernel; ``features`` are the sections of the preamble that its text needs."""

    language: ClassVar[str] = "CUDA"

    def __init__(self) -> None:
        super().__init__()
        self.supply = NameSupply(reserved_names())
        self.volatile: set[Any] = set()
        self.kept: dict[Any, str] = {}
        self.nibbles: set[Any] = set()
        self.pointer_alignments: dict[Any, int] = {}

    # -- what printers use -----------------------------------------------------------------------------------

    def expr(self, node: PrimExpr) -> Piece:
        self.uses(node.dtype)
        return self.visit(node)

    def uses(self, dtype: str) -> None:
        """Note that the text uses a type: its section of the preamble is included."""
        section = section_of(dtype)
        if section is not None:
            self.features.add(section)

    def need(self, *sections: str) -> None:
        """Include device functions: the sections ``preamble_<name>.cuh``."""
        self.features.update(sections)

    def address(self, base: PrimExpr, offset: Any = None) -> str:
        """An address: ``base`` is a pointer variable or a call that makes a pointer, ``offset`` counts its elements."""
        at = self.expr(base)
        if offset is None or is_zero(offset):
            return at
        if base in self.nibbles:
            return f"({at} + ({self.index(offset)}) / 2)"
        return f"({at} + {self.index(offset)})"

    def index(self, place: PrimExpr) -> Piece:
        return self.expr(self.narrow(place))

    def narrow(self, index: PrimExpr) -> PrimExpr:
        """An index as it is computed: in 32 bits where they suffice."""
        return narrowed(index, self.analyzer)

    def type_name(self, dtype: str) -> str:
        return type_name(dtype)

    def constant(self, value: float | int, dtype: str) -> Piece:
        return Piece(constant(value, dtype))

    # -- operators -----------------------------------------------------------------------------------------

    def operation(self, operator: str, a: Piece, b: Piece, level: int) -> Piece:
        return Piece(f"({a} {operator} {b})")

    def visit_BinaryOp(self, e: BinaryOp) -> Piece:
        kind, element = type(e).__name__, dt.element_of(e.a.dtype)
        if kind == "Mod" and dt.is_float(element):
            function = "fmodf" if element != "float64" else "fmod"
            return self.apply(e.dtype, [e.a, e.b], lambda x, y: f"{function}({x}, {y})")
        if kind not in _FUNCTIONS:
            return super().visit_BinaryOp(e)
        return self.narrowed(self.call(_FUNCTIONS[kind], self.expr(e.a), self.expr(e.b)), e.dtype)

    def narrowed(self, value: Piece, dtype: str) -> Piece:
        return Piece(f"(({type_name(dtype)}){value})") if dtype in _NARROW else value

    def visit_CmpOp(self, e: BinaryOp) -> Piece:
        sides = self.narrow(e.a), self.narrow(e.b)
        # Bounds of what is accessed are compared in 32 bits where the access is computed in 32 bits.
        return self.visit_BinaryOp(type(e)(*sides) if e.a.dtype == "int64" and sides[0].dtype == sides[1].dtype else e)

    def visit_Not(self, e: Not) -> Piece:
        return Piece(f"(!{self.expr(e.a)})")

    def visit_Cast(self, e: Cast) -> Piece:
        if type(e.value) is Cast and e.value.dtype == "int64" and e.dtype == e.value.value.dtype == "int32":
            return self.expr(e.value.value)
        return super().visit_Cast(e)

    def cast(self, value: Piece, source: str, target: str) -> Piece:
        target, lanes, source = dt.element_of(target), dt.lanes(target), dt.element_of(source)
        name = type_name(target)
        if lanes != 1:
            return Piece(f"vcast<{name}>({value})")
        if section_of(target) is None and section_of(source) is None or {target, source} <= {"float16", "float32"}:
            return Piece(f"(({name}){value})")
        if dt.bits(target) == 4 and not dt.is_float(target):
            return Piece(f"Nibble<{name}>::from((unsigned int){value})")
        return Piece(f"cast_to<{name}>({value})")

    def visit_Select(self, e: Select) -> Piece:
        return self.conditional(e.condition, e.true_value, e.false_value)

    def conditional(self, condition: PrimExpr, true_value: PrimExpr, false_value: PrimExpr) -> Piece:
        """With a scalar condition only the chosen value is computed, with a vector one both are."""
        c, a, b = self.expr(condition), self.expr(true_value), self.expr(false_value)
        return Piece(f"vselect({c}, {a}, {b})" if dt.lanes(condition.dtype) != 1 else f"({c} ? {a} : {b})")

    def visit_Let(self, e: Let) -> Piece:
        value = self.expr(e.value)
        name = self.bind(e.var)
        return Piece(f"([&]({type_name(e.value.dtype)} {name}) {{ return {self.expr(e.body)}; }}({value}))")

    # -- vectors ---------------------------------------------------------------------------------------------

    def visit_Broadcast(self, e: Broadcast) -> Piece:
        if dt.lanes(e.value.dtype) != 1:
            raise RelaxishError("CUDA code generation does not broadcast vectors")
        return Piece(f"{type_name(e.dtype)}::all({self.expr(e.value)})")

    def visit_Ramp(self, e: Ramp) -> Piece:
        return Piece(f"{type_name(e.dtype)}::ramp({self.expr(e.base)}, {self.expr(e.stride)})")

    def visit_Shuffle(self, e: Any) -> Piece:
        names = [f"s{i}" for i in range(len(e.vectors))]
        lanes = [f"{name}[{i}]" if dt.lanes(v.dtype) != 1 else name
                 for name, v in zip(names, e.vectors, strict=True) for i in range(dt.lanes(v.dtype))]  # fmt: skip
        picked = [lanes[int(i.value)] for i in e.indices]
        made = picked[0] if len(picked) == 1 else f"{type_name(e.dtype)}{{{{{', '.join(picked)}}}}}"
        params = ", ".join(f"{type_name(v.dtype)} {name}" for name, v in zip(names, e.vectors, strict=True))
        return Piece(f"[]({params}) {{ return {made}; }}({', '.join(self.expr(v) for v in e.vectors)})")

    def apply(self, dtype: str, args: list[Any], form: Callable[..., str]) -> Piece:
        """Apply ``form``, a text of scalars, to each lane of vectors; scalar operands are broadcast."""
        texts = [self.expr(a) for a in args]
        if dt.lanes(dtype) == 1:
            return Piece(form(*texts))
        names = ["a", "b", "c"][: len(args)]
        wide = [(n, t, a) for n, t, a in zip(names, texts, args, strict=True) if dt.lanes(a.dtype) != 1]
        inner = form(*[n if dt.lanes(a.dtype) != 1 else t for n, t, a in zip(names, texts, args, strict=True)])
        params = ", ".join(f"{type_name(dt.element_of(a.dtype))} {n}" for n, _, a in wide)
        function = "vmap" if len(wide) == 1 else "vzip"
        return Piece(f"{function}({', '.join(t for _, t, _ in wide)}, [&]({params}) {{ return {inner}; }})")

    # -- memory ----------------------------------------------------------------------------------------------

    def memory(self, buffer: Buffer) -> Piece:
        """A pointer to elements of the buffer's type; types of 4 bits are seen as bytes."""
        self.uses(buffer.dtype)
        at = self.pointer(buffer.data, "uint8" if is_nibble(buffer.dtype) else buffer.dtype)
        return at if at.level == ATOM else Piece(f"({at})")

    def alignment(self, buffer: Buffer, base: PrimExpr, dtype: str) -> int:
        """Bytes by which the address of ``buffer[base]`` can be divided, as far as one can tell; at most 16."""
        known = self.analyzer.modular_set(base)
        step = size_of(buffer.dtype) * gcd(known.coeff, known.base) if known.coeff or known.base else 16
        if is_nibble(buffer.dtype):
            step = gcd(known.coeff, known.base) // 2 if known.coeff or known.base else 16
        declared = int(buffer.data_alignment) if int(buffer.data_alignment) > 0 else 64
        at_most = gcd(self.pointer_alignments.get(buffer.data, declared), 16)
        return gcd(step, gcd(at_most, size_of(dtype)))

    def address_alignment(self, pointer: Any, element: str) -> int:
        """Bytes by which the value of a pointer can be divided, as far as one can tell; at most 16."""
        name = op_name_of(pointer)
        if name == "tir.address_of":
            load = pointer.args[0]
            start = self.consecutive(load.buffer, load.indices[0]) or load.indices[0]
            return self.alignment(load.buffer, start, _WIDEST) if dt.lanes(start.dtype) == 1 else size_of(element)
        if name == "tir.tvm_access_ptr":
            known = self.analyzer.modular_set(pointer.args[2])
            step = gcd(known.coeff, known.base)
            return gcd(size_of(pointer.args[0].dtype) * step, 16) if step else 16
        return size_of(element)

    def visit_BufferLoad(self, e: BufferLoad) -> Piece:
        return Piece(self._load(e, self.narrow(e.indices[0])))

    def _load(self, e: BufferLoad, index: PrimExpr) -> str:
        pointer, lanes = self.memory(e.buffer), dt.lanes(index.dtype)
        if is_nibble(e.buffer.dtype):
            return self._load_nibbles(e, pointer, index)
        if e.predicate is not None:
            return f"gather({pointer}, {self.expr(index)}, {self.expr(e.predicate)})"
        if lanes == 1:
            if e.buffer.data in self.volatile:
                return f"load_volatile({self.at(pointer, index)})"
            if e.buffer.data in self.kept:
                return f"load_kept<{type_name(e.dtype)}>({self.at(pointer, index)}, {self.kept[e.buffer.data]})"
            return f"{pointer}[{self.expr(index)}]"
        start = self.consecutive(e.buffer, index)
        if start is None:
            return self._gather(e, pointer, index)
        kind, natural = self.aligned_vector(e.buffer, e.dtype, start)
        if e.buffer.data in self.kept:
            return f"load_kept<{kind}{natural}>({self.at(pointer, start)}, {self.kept[e.buffer.data]})"
        return f"load<{kind}{natural}>({self.at(pointer, start)})"

    def at(self, pointer: str, start: PrimExpr) -> str:
        """The address of an element."""
        return pointer if is_zero(start) else f"{pointer} + {self.expr(start)}"

    def consecutive(self, buffer: Buffer, index: PrimExpr) -> PrimExpr | None:
        """The first of consecutive indices, if they are; volatile memory is accessed by single elements."""
        if is_consecutive(index):
            return None if buffer.data in self.volatile else index.base
        return None

    def aligned_vector(self, buffer: Buffer, dtype: str, start: PrimExpr) -> tuple[str, str]:
        """(type of a vector, template argument for its alignment) of consecutive elements."""
        align = self.alignment(buffer, start, dtype)
        natural = _natural_alignment(dtype)
        if align == 0:
            raise RelaxishError(f"elements of {buffer.name} are not whole bytes at {start}")
        return type_name(dtype), "" if align == natural else f", {align}"

    def _gather(self, e: BufferLoad, pointer: str, index: PrimExpr) -> str:
        inner = dt.lanes(e.buffer.dtype)
        if inner == 1:
            return f"gather({pointer}, {self.expr(index)})"
        raise RelaxishError(f"CUDA code generation does not gather vectors from {e.buffer.name}")

    def _load_nibbles(self, e: PrimExpr, pointer: str, index: PrimExpr) -> str:
        kind = type_name(dt.element_of(e.dtype))
        if dt.lanes(e.dtype) == 1:
            return f"load_nibble<{kind}>({pointer}, {self.expr(index)})"
        return f"unpacked<{kind}, {dt.lanes(e.dtype)}>({self.packed_nibbles(e, index)})"

    def packed_nibbles(self, e: Any, index: PrimExpr) -> str:
        """The bytes of a vector of elements of 4 bits."""
        start, lanes = self.nibble_start(e.buffer, index), dt.lanes(e.dtype)
        align = self.alignment(e.buffer, start, e.dtype)
        return f"load<Vec<unsigned char, {lanes // 2}>, {align}>({self.memory(e.buffer)} + ({self.expr(start)}) / 2)"

    def nibble_start(self, buffer: Buffer, index: Any) -> PrimExpr:
        """The first of consecutive elements of 4 bits. Raises RelaxishError if they do not fill whole bytes."""
        inner = dt.lanes(buffer.dtype)
        if dt.lanes(index.dtype) == 1:
            start = index * inner
        else:
            start = index.base * inner if self.consecutive(buffer, index) is not None else None
        if start is None or dt.lanes(index.dtype) * inner % 2 or self.alignment(buffer, start, f"uint4x{32}") == 0:
            raise RelaxishError(f"vectors of {buffer.dtype} must fill whole bytes of {buffer.name}")
        return start

    # -- calls ---------------------------------------------------------------------------------------------

    def visit_Call(self, e: Call) -> Piece:
        if not op_name_of(e):
            raise RelaxishError(f"a kernel calls {e.op}, which is no intrinsic")
        printer = PRINTERS.get(e.op.name)
        if printer is None:
            raise RelaxishError(f"CUDA code generation does not know the intrinsic {e.op.name.removeprefix('tir.')}")
        return Piece(printer(self, e))


def _natural_alignment(dtype: str) -> int:
    """What ``alignof`` gives for the type."""
    size, element = size_of(dtype), max(1, dt.bits(dtype) // 8)
    return element if size & (size - 1) else min(size, 16)
