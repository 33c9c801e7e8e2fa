"""C99 from lowered tensor programs.

Before and after::

    def add(A: T.Buffer((4,)), B: T.Buffer((4,))):     int32_t add(float* restrict A, float* restrict B) {
        for i in range(4):                               for (int32_t i = 0; i < 4; ++i) {
            B[i] = A[i] + T.float32(1)                     B[i] = A[i] + 1.0f;

Vectors are computed lane by lane, parallel loops in order; 16-bit floats are stored, and computed with as floats.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...tir.buffer import Buffer
from ...tir.stmt import Allocate, AllocateConst, AssertStmt, AttrStmt
from ...ir import dtype as dt
from ...ir.prim import BinaryOp, Call, Div, IntImm, Mod, Var
from ...runtime.kernels.failures import FIELD, site_text
from ...support.errors import RelaxishError
from ...tir import PrimFunc
from ..common.atomics import ATOMICS
from ..common.csource import Piece, StatementPrinter
from ..common.csource.intrinsics import C_FUNCTIONS
from ..common.csource.pieces import MUL, UNARY, infix, wrapped
from ..common.divisors import is_safe_divisor
from ..common.signature import returned_dtypes, shape_vars
from .helpers import HELPERS, extremum_helper
from ...ir.plain import plain_str

__all__ = ["CPrinter"]

_KEYWORDS = (
    "auto bool break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while "
    "true false main malloc free memcpy result slots y0 y1 yn j0 j1 jn gamma exp log sin cos tan pow abs index"
)
_NARROW = {"float16": "half", "bfloat16": "bfloat16"}
_STACK_BYTES = 1 << 14


class CPrinter(StatementPrinter):
    """One function at a time; ``helpers``, ``externs`` and ``messages`` grow over all functions of a file."""

    language = "C"
    reserved = frozenset(_KEYWORDS.split())
    scalars: ClassVar[dict[str, str]] = {
        **{f"{u}int{b}": f"{u}int{b}_t" for u in ("", "u") for b in (8, 16, 32, 64)},
        "bool": "bool", "float16": "float", "bfloat16": "float", "float32": "float", "float64": "double",
    }  # fmt: skip
    memory_scalars: ClassVar[dict[str, str]] = {"bool": "uint8_t", "float16": "uint16_t", "bfloat16": "uint16_t"}
    functions: ClassVar[dict[str, str]] = {
        **C_FUNCTIONS, "round": "nearbyint", "rsqrt": "rsqrt", "exp10": "exp10",
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.externs: dict[str, str] = {}
        self.messages: list[str] = []
        self.owned: list[str] = []
        self.result = ""
        self.kernel = ""
        self.fails = False

    # -- functions -----------------------------------------------------------------------------------------

    def add(self, name: str, func: PrimFunc) -> str:
        """The text of ``int32_t name(...)`` and of ``int32_t name__packed(slots)``."""
        fresh = CPrinter()
        fresh.helpers, fresh.externs, fresh.messages = self.helpers, self.externs, self.messages
        return fresh._function(name, func)

    def _function(self, name: str, func: PrimFunc) -> str:
        # A name that C or its library has is another one's; callers know the packed form.
        taken = name in self.reserved or bool({name, name.removesuffix("f")} & set(C_FUNCTIONS))
        self.kernel = name
        plain = self.supply.reserve(f"{name}_kernel" if taken else name)
        noalias = "restrict " if (func.attrs or {}).get("tir.noalias") else ""
        params: list[tuple[str, str]] = []
        for param in func.params:
            params.append(self._parameter(param, func.buffer_map.get(param), noalias))
        for var, _, _ in shape_vars(func):
            params.append(("int64_t", self._scalar(var, "int64")))
        for param in func.params:
            if param in func.buffer_map:
                self._bind_layout(func.buffer_map[param])
        returned = returned_dtypes(func)
        if returned:
            self.result = "double" if dt.is_float(returned[0]) else "int64_t"
            params.append((f"{self.result}*", "result"))
        self.visit(func.body)
        declared = ", ".join(f"{kind} {text}" for kind, text in params) or "void"
        begin, end = (["  int32_t rx_code = 0;"], "  return rx_code;") if self.fails else ([], "  return 0;")
        body = "\n".join([f"int32_t {plain}({declared}) {{", *begin, *self.lines, end, "}", ""])
        return body + "\n" + _packed_entry(name, plain, [kind for kind, _ in params], bool(returned))

    def _parameter(self, param: Var, buffer: Buffer | None, noalias: str) -> tuple[str, str]:
        if buffer is None and not dt.is_handle(param.dtype):
            return ("double" if dt.is_float(param.dtype) else "int64_t", self._scalar(param, param.dtype))
        name = self.supply.fresh((buffer or param).name)
        data = param if buffer is None else buffer.data
        self.names[param] = self.names[data] = Piece(name)
        element = "uint8" if buffer is None else dt.element_of(buffer.dtype)
        self.memory_types[param] = self.memory_types[data] = element
        return f"{self.memory_type(element)}*", f"{noalias}{name}"

    def _scalar(self, var: Var, dtype: str) -> str:
        wide = "float64" if dt.is_float(dtype) else "int64"
        if dtype == wide:
            return self.bind(var)
        given = self.supply.fresh(f"{var.name}_given")
        name = self.bind(var)
        self.line(self.declaration(dtype, name, self.cast(Piece(given), wide, dtype)))
        return given

    def _bind_layout(self, buffer: Buffer) -> None:
        """Arguments are contiguous and start at element 0: stride and offset variables follow."""
        if isinstance(buffer.elem_offset, Var) and buffer.elem_offset not in self.names:
            self.names[buffer.elem_offset] = self.constant(0, buffer.elem_offset.dtype)
        running: Any = IntImm("int64", 1)
        for stride, extent in zip(reversed(buffer.strides or ()), reversed(buffer.shape), strict=False):
            if isinstance(stride, Var) and stride not in self.names:
                self.names[stride] = self.cast(self.expr(running), running.dtype, stride.dtype)
            running = self.analyzer.simplify(running * extent.astype("int64"))

    # -- memory --------------------------------------------------------------------------------------------

    def element(self, buffer: Buffer, element: str, index: Piece) -> Piece:
        place = super().element(buffer, element, index)
        return self.call(self._from_library(f"{_NARROW[element]}_to_float"), place) if element in _NARROW else place

    def store(self, buffer: Buffer, element: str, index: Piece, value: Piece) -> None:
        if element in _NARROW:
            value = self.call(self._from_library(f"float_to_{_NARROW[element]}"), value)
        super().store(buffer, element, index, value)

    def visit_Allocate(self, stmt: Allocate) -> None:
        element = dt.element_of(stmt.dtype)
        count: Any = IntImm("int64", dt.lanes(stmt.dtype))
        for extent in stmt.extents:
            count = self.analyzer.simplify(count * extent.astype("int64"))
        name, kind = self.bind(stmt.buffer_var), self.memory_type(element)
        self.memory_types[stmt.buffer_var] = element
        if isinstance(count, IntImm) and count.value * dt.nbytes(element) <= _STACK_BYTES:
            self.line(f"{kind} {name}[{max(1, int(count.value))}];")
            self.visit(stmt.body)
            return
        self.line(f"{kind}* {name} = malloc(sizeof({kind}) * {wrapped(self.expr(count), MUL)});")
        self.owned.append(name)
        self.visit(stmt.body)
        self.owned.pop()
        self.line(f"free({name});")

    def visit_AllocateConst(self, stmt: AllocateConst) -> None:
        name = self.bind(stmt.buffer_var)
        element = dt.element_of(stmt.dtype)
        self.memory_types[stmt.buffer_var] = element
        values = stmt.data_or_idx.numpy().ravel()
        if element in _NARROW:
            texts = [str(int(v)) for v in values.view("uint16")]
        else:
            texts = [str(self.constant(v.item(), element)) for v in values]
        self.line(f"static const {self.memory_type(element)} {name}[{max(1, len(texts))}] = {{{', '.join(texts)}}};")
        self.visit(stmt.body)

    # -- statements ----------------------------------------------------------------------------------------

    def unroll_hint(self) -> None:
        """Compilers know when to; C has no word for it."""

    def visit_AttrStmt(self, stmt: AttrStmt) -> None:
        if stmt.attr_key in ("thread_extent", "virtual_thread"):
            raise RelaxishError("the program binds GPU threads and cannot be compiled for the target c")
        self.visit(stmt.body)

    def visit_AssertStmt(self, stmt: AssertStmt) -> None:
        self.messages.append(plain_str(stmt.message))
        self.line(f"if (!({self.expr(stmt.condition)})) {{ {self._leave(len(self.messages))} }}")
        self.visit(stmt.body)

    def _leave(self, code: int | str) -> str:
        return " ".join([*(f"free({name});" for name in reversed(self.owned)), f"return {code};"])

    def do_ret(self, call: Call) -> None:
        value = self.expr(call.args[0])
        self.line(f"*result = ({self.result}){wrapped(value, UNARY)};")
        self.line(self._leave("rx_code" if self.fails else 0))

    # -- what must hold ------------------------------------------------------------------------------------

    def _site(self, kind: str, *fields: str) -> str:
        """The text of a place that may fail, as C writes it."""
        self.fails = True
        return '"' + site_text(kind, self.kernel, *fields).replace(FIELD, "\\037") + '"'

    def call_check_index(self, e: Call) -> Piece:
        """The index; one that is outside leaves the function, under a condition only once the statement is done."""
        value, offset, span, extent = (self.cast(self.expr(a), a.dtype, "int64") for a in e.args[:4])
        site = self._site("index", *e.args[4].value.split("\n"))
        self._from_library("rx_index")
        checked = f"rx_index({value}, {offset}, {span}, {extent}, {site}, &rx_code)"
        if self.guards:
            return self.cast(Piece(checked), "int64", e.dtype)
        name = self.supply.fresh("at")
        self.line(f"int64_t {name} = {checked};")
        self.line(f"if (rx_code) {{ {self._leave('rx_code')} }}")
        return self.cast(Piece(name), "int64", e.dtype)

    def visit_BinaryOp(self, e: BinaryOp) -> Piece:
        if type(e) not in (Div, Mod) or dt.is_float(e.dtype) or is_safe_divisor(e):
            return super().visit_BinaryOp(e)
        a, b = self.expr(e.a), self.expr(e.b)
        dtype = dt.element_of(e.dtype)
        site = self._site("division", "division" if type(e) is Div else "remainder", dtype)
        self._from_library("rx_divisor")
        if dt.is_int(dtype):
            least = self.constant(dt.min_value(dtype), "int64")
            made = Piece(f"rx_divisor({a}, {b}, {least}, {site}, &rx_code)")
        else:
            made = Piece(f"rx_divisor_u({a}, {b}, {site}, &rx_code)")
        divisor = self.cast(made, "int64" if dt.is_int(dtype) else "uint64", e.dtype)
        return self.narrowed(infix("/" if type(e) is Div else "%", a, divisor, MUL), e.dtype)

    # -- intrinsics ----------------------------------------------------------------------------------------

    def _from_library(self, name: str) -> str:
        needed, text = HELPERS[name]
        for other in needed:
            self._from_library(other)
        return self.helper(name, text)

    def function(self, name: str, dtype: str) -> str | None:
        element = dt.element_of(dtype)
        if name in ("min", "max"):
            kind = self.type_name(element)
            found = f"{name}_{kind}"
            return self.helper(found, extremum_helper(name, found, kind))
        found = self.functions.get(name, "")
        if found and element != "float64":
            found += "f"
        if found in HELPERS:
            return self._from_library(found)
        return found or {"isinf": "isinf", "isfinite": "isfinite"}.get(name)

    def call_popcount(self, e: Call) -> Piece:
        unsigned = f"uint{dt.bits(e.args[0].dtype)}"
        bits = self.cast(self.expr(e.args[0]), e.args[0].dtype, unsigned)
        return self.cast(self.call(self._from_library("popcount_64"), bits), "int32", e.dtype)

    def call_clz(self, e: Call) -> Piece:
        width = dt.bits(e.args[0].dtype)
        bits = self.cast(self.expr(e.args[0]), e.args[0].dtype, f"uint{width}")
        return self.cast(self.call(self._from_library("clz_bits"), bits, str(width)), "int32", e.dtype)

    def call_q_multiply_shift(self, e: Call) -> Piece:
        return self.call(self._from_library("multiply_shift"), *map(self.expr, e.args))

    def call_reinterpret(self, e: Call) -> Piece:
        source, target = e.args[0].dtype, e.dtype
        if {source, target} & set(_NARROW):
            narrow = source if source in _NARROW else target
            way = "float_to_" + _NARROW[narrow] if source in _NARROW else _NARROW[narrow] + "_to_float"
            made = self.call(self._from_library(way), self.expr(e.args[0]))
            return made if target in _NARROW else self.cast(made, "uint16", target)
        a, b = self.type_name(source), self.type_name(target)
        name = self.helper(f"bits_{a}_as_{b}", _reinterpret(a, b))
        return self.call(name, self.expr(e.args[0]))

    def call_call_extern(self, e: Call) -> Piece:
        name = e.args[0].value
        if name == "printf":
            # Its arguments are of any number and types. What was written is to be seen when a later kernel ends the process.
            self.externs.setdefault(name, "#include <stdio.h>")
            written = super().call_call_extern(e)
            return Piece(f"({written}, fflush(stdout))")
        if name in ATOMICS:
            return self.call(self._atomic(name, e.args[2].dtype), *map(self.expr, e.args[1:]))
        kinds = ["void*" if dt.is_handle(a.dtype) else self.type_name(a.dtype) for a in e.args[1:]]
        result = "void" if e.dtype in ("", "void") else "void*" if dt.is_handle(e.dtype) else self.type_name(e.dtype)
        self.externs.setdefault(name, f"{result} {name}({', '.join(kinds) or 'void'});")
        return super().call_call_extern(e)

    call_call_pure_extern = call_call_extern

    def _atomic(self, name: str, dtype: str) -> str:
        """A function that updates an element whatever other threads do. Raises RelaxishError for other types."""
        how, floating = ATOMICS[name], dt.is_float(dtype) or dtype in _NARROW
        if dt.lanes(dtype) != 1 or dt.bits(dtype) not in (8, 16, 32, 64) or (floating and how in ("and", "or", "xor")):
            raise RelaxishError(f"there is no atomic {how} of {dtype}")
        kept, kind = self.memory_type(dtype), self.type_name(dtype)
        read = write = "{}"
        if dtype in _NARROW:
            read = self._from_library(f"{_NARROW[dtype]}_to_float") + "({})"
            write = self._from_library(f"float_to_{_NARROW[dtype]}") + "({})"
        a = read.format("before")
        wrapping = f"({kind})((u{kind}){a} + (u{kind})v)" if dt.is_int(dtype) else f"({kind})({a} + v)"
        made = {
            "add": wrapping, "exch": "v", "and": f"({a} & v)", "or": f"({a} | v)", "xor": f"({a} ^ v)",
            "max": f"({a} > v || {a} != {a} ? {a} : v)", "min": f"({a} < v || {a} != {a} ? {a} : v)",
        }[how]  # fmt: skip
        return self.helper(f"{name}_{dtype}", (
            f"static inline {kind} {name}_{dtype}({kept}* p, {kind} v) {{\n"
            f"  {kept} before = *p, after;\n"
            f"  do after = {write.format(made)};\n"
            f"  while (!__atomic_compare_exchange(p, &before, &after, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));\n"
            f"  return {a};\n}}\n"
        ))  # fmt: skip


def _reinterpret(a: str, b: str) -> str:
    return f"static inline {b} bits_{a}_as_{b}({a} x) {{ {b} y; memcpy(&y, &x, sizeof y); return y; }}\n"


def _packed_entry(name: str, plain: str, kinds: list[str], returns: bool) -> str:
    """The form that takes all arguments from an array of 64-bit slots; a result goes to the slot after them."""
    args = []
    for i, kind in enumerate(kinds):
        if returns and i == len(kinds) - 1:
            args.append(f"({kind})&slots[{i}]")
        elif kind == "double":
            args.append(f"*(double*)&slots[{i}]")
        elif kind.endswith("*"):
            args.append(f"({kind})(intptr_t)slots[{i}]")
        else:
            args.append(f"slots[{i}]")
    return f"int32_t {name}__packed(int64_t* slots) {{\n  return {plain}({', '.join(args)});\n}}\n"
