"""Tensor programs as Python source: one statement of the program, one of Python.

Buffers live in flat NumPy arrays; an access computes its flat offset. Integers are Python integers, wrapped where
they are stored or converted; floats are NumPy scalars of their type, so that rounding happens as on a machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.prim import is_call_of, is_zero, const_int, uncast
from .. import tir
from ..ir import dtype as dt
from ..ir.functor import Visitor
from ..ir.op import Op, op_name_of
from ..ir.plain import plain_int
from ..ir.prim import BinaryOp
from ..tir import Buffer, PrimExpr, Stmt
from .intrinsics import Value
from .threads import COLLECTIVE
from ..support.sequences import of_kind

__all__ = ["Compiler"]

_BINARY = {
    tir.Add: "+", tir.Sub: "-", tir.Mul: "*", tir.EQ: "==", tir.NE: "!=", tir.LT: "<", tir.LE: "<=", tir.GT: ">",
    tir.GE: ">=", tir.FloorDiv: "//", tir.FloorMod: "%",
}  # fmt: skip


_REGISTERS = ("local", "wmma.", "m16n8k8.", "metal.")
"""Memory that is private to a thread, wherever it is allocated."""


def _is_matrix_core(node: tir.Call) -> bool:
    """Whether a call is a matrix instruction that the lanes of a wave execute together."""
    return is_call_of(node, "tir.call_llvm_pure_intrin") and str(getattr(node.args[0], "value", "")).startswith(
        "llvm.amdgcn.mfma."
    )


class _HasSync(Visitor):
    """Whether threads meet inside a statement."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def visit_Call(self, node: tir.Call) -> None:
        name = op_name_of(node).removeprefix("tir.")
        if name in COLLECTIVE or _is_matrix_core(node) or name in ("tvm_storage_sync", "tvm_thread_allreduce"):
            self.found = True
        self.default_visit(node)


def has_sync(stmt: Stmt) -> bool:
    """Whether threads meet inside a statement."""
    visitor = _HasSync()
    visitor.visit(stmt)
    return visitor.found


class Compiler(Visitor[Any]):
    """Writes the Python source of one function."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[int, str] = {}
        self.keep: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.views: dict[int, tuple[str, list[str], str]] = {}
        self.counter = 0
        self.thread_vars: list[tuple[Any, str]] = []
        self.reducers: list[Any] = []
        self.in_threads = False
        self.registers: list[str] = []  # allocations around threads of which each thread has its own

    # Text.

    def line(self, text: str) -> None:
        """One line of Python."""
        self.lines.append("    " * self.depth + text)

    def fresh(self, hint: str) -> str:
        """A new Python name."""
        self.counter += 1
        clean = "".join(c if c.isalnum() and c.isascii() else "_" for c in hint)
        return f"{clean}_{self.counter}"

    def var(self, var: tir.Var) -> str:
        """The Python name of a variable."""
        name = self.names.get(id(var))
        if name is None:
            name = self.names[id(var)] = self.fresh(var.name or "v")
            self.keep.append(var)
        return name

    def constant(self, value: Value) -> str:
        """A name for a Python object."""
        name = self.fresh("const")
        self.constants[name] = value
        return name

    # Expressions.

    def expr(self, node: PrimExpr) -> str:
        """An expression as Python text."""
        text: str = self.visit(node)
        return text

    def visit_Var(self, node: tir.Var) -> str:
        return self.var(node)

    def visit_IntImm(self, node: tir.IntImm) -> str:
        return str(bool(node.value)) if node.dtype == "bool" else str(node.value)

    def visit_FloatImm(self, node: tir.FloatImm) -> str:
        from .intrinsics import np_dtype

        return self.constant(np_dtype(node.dtype).type(node.value))

    def visit_StringImm(self, node: tir.StringImm) -> str:
        return repr(node.value)

    def visit_BinaryOp(self, node: BinaryOp) -> str:
        a, b = self.expr(node.a), self.expr(node.b)
        kind = type(node)
        vector = dt.lanes(node.dtype) != 1
        if kind in _BINARY:
            text = f"({a} {_BINARY[kind]} {b})"
            element = dt.element_of(node.dtype)
            if kind in (tir.Add, tir.Sub, tir.Mul) and not vector and (dt.is_int(element) or dt.is_uint(element)):
                if dt.bits(element) < 32:
                    text = f"wrap_int({text}, {dt.bits(element)}, {dt.is_int(element)})"
            return text
        if kind in (tir.Min, tir.Max):
            function = "minimum" if kind is tir.Min else "maximum"
            if vector or dt.is_float(node.dtype):
                return f"np.{function}({a}, {b})"
            return f"{'min' if kind is tir.Min else 'max'}({a}, {b})"
        if kind is tir.And:
            return f"np.logical_and({a}, {b})" if vector else f"({a} and {b})"
        if kind is tir.Or:
            return f"np.logical_or({a}, {b})" if vector else f"({a} or {b})"
        if kind is tir.Div:
            return f"({a} / {b})" if dt.is_float(node.dtype) else f"trunc_div({a}, {b})"
        if kind is tir.Mod:
            return f"trunc_mod({a}, {b})"
        raise NotImplementedError(kind.__name__)

    def visit_Not(self, node: tir.Not) -> str:
        a = self.expr(node.a)
        return f"np.logical_not({a})" if dt.lanes(node.dtype) != 1 else f"(not {a})"

    def visit_Cast(self, node: tir.Cast) -> str:
        return f"cast({self.expr(node.value)}, {node.value.dtype!r}, {node.dtype!r})"

    def visit_Select(self, node: tir.Select) -> str:
        c, t, f = self.expr(node.condition), self.expr(node.true_value), self.expr(node.false_value)
        return f"np.where({c}, {t}, {f})" if dt.lanes(node.condition.dtype) != 1 else f"({t} if {c} else {f})"

    def visit_Ramp(self, node: tir.Ramp) -> str:
        n = plain_int(node.lanes)
        return f"({self.expr(node.base)} + {self.expr(node.stride)} * {self._arange(n)})"

    def _arange(self, n: int) -> str:
        import numpy as np

        return self.constant(np.arange(n))

    def visit_Broadcast(self, node: tir.Broadcast) -> str:
        element = dt.element_of(node.value.dtype)
        return f"broadcast({self.expr(node.value)}, {plain_int(node.lanes)}, {element!r})"

    def visit_Shuffle(self, node: tir.Shuffle) -> str:
        vectors = ", ".join(f"np.atleast_1d({self.expr(v)})" for v in node.vectors)
        indices = ", ".join(self.expr(i) for i in node.indices)
        text = f"np.concatenate([{vectors}])[[{indices}]]"
        return f"{text}[0]" if len(node.indices) == 1 else text

    def visit_Let(self, node: tir.Let) -> str:
        return f"(lambda {self.var(node.var)}: {self.expr(node.body)})({self.expr(node.value)})"

    def offset(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> str:
        """The flat offset of an element."""
        texts = [self.expr(i) for i in indices]
        view = self.views.get(id(buffer))
        if view is not None:
            base, strides, _ = view
            return " + ".join([base, *[f"{i} * {s}" for i, s in zip(texts, strides)]])
        elem = "" if is_zero(buffer.elem_offset) else (f" + {self.expr(buffer.elem_offset)}")
        if buffer.layout_strides:
            terms = [f"{i} * {self.expr(s)}" for i, s in zip(texts, buffer.strides)]
            return (" + ".join(terms) or "0") + elem
        out = "0"
        for text, extent in zip(texts, buffer.shape):
            out = text if out == "0" else f"({out}) * {self.expr(extent)} + {text}"
        return out + elem

    def place(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> str:
        """The flat offset of an element or of those of a vector; NumPy would take a negative one from the end."""
        text = self.offset(buffer, indices)
        if text.isdecimal() or any(dt.lanes(i.dtype) != 1 for i in indices):
            return text
        name = self.fresh("at")
        return f"({name} if ({name} := {text}) >= 0 else out_of_bounds({buffer.name!r}, {name}))"

    def memory(self, buffer: Buffer) -> str:
        """The flat array of a buffer, in the buffer's dtype."""
        view = self.views.get(id(buffer))
        name = view[2] if view is not None else self.var(buffer.data)
        kind = getattr(buffer.data.type_annotation, "element_type", None)
        stored = getattr(kind, "dtype", buffer.dtype)
        if stored in (buffer.dtype, "void", "") or {stored, buffer.dtype} == {"int8", "bool"}:
            return name
        return f"retype({name}, {buffer.dtype!r})"

    def _vectors(self, buffer: Buffer) -> str:
        """The array of a buffer whose elements are vectors, one to a row."""
        return f"{self.memory(buffer)}.reshape(-1, {dt.lanes(buffer.dtype)})"

    def visit_BufferLoad(self, node: tir.BufferLoad) -> str:
        if dt.lanes(node.buffer.dtype) != 1:
            return f"{self._vectors(node.buffer)}[{self.offset(node.buffer, node.indices)}].reshape(-1)"
        if node.predicate is not None:
            return f"load_masked({self.memory(node.buffer)}, {self.offset(node.buffer, node.indices)}, " \
                   f"{self.expr(node.predicate)})"  # fmt: skip
        text = f"{self.memory(node.buffer)}[{self.place(node.buffer, node.indices)}]"
        if dt.lanes(node.dtype) == 1:
            if node.dtype == "bool":
                return f"bool({text})"
            if not dt.is_float(node.dtype):
                return f"int({text})"
        return text

    def visit_Call(self, node: tir.Call) -> str:
        if not isinstance(node.op, Op):
            args = ", ".join(self.expr(a) for a in node.args)
            return f"call_global({node.op.name_hint!r}, [{args}])"
        name = node.op.name.removeprefix("tir.")
        if name == "if_then_else":
            c, t, f = (self.expr(a) for a in node.args)
            return f"({t} if {c} else {f})"
        if _is_matrix_core(node) and self.in_threads:
            self.counter += 1
            return f"(yield ('mfma', {self.counter}, ({', '.join(self.expr(a) for a in node.args)},)))"
        if name in ("call_extern", "call_pure_extern", "call_llvm_intrin", "call_llvm_pure_intrin"):
            args = ", ".join(self.expr(a) for a in node.args[1:])
            return f"extern({node.args[0].value!r}, {node.dtype!r}, [{args}])"
        if name == "reinterpret":
            return f"reinterpret({self.expr(node.args[0])}, {node.args[0].dtype!r}, {node.dtype!r})"
        if name == "address_of":
            load = node.args[0]
            return f"Pointer({self.memory(load.buffer)}, {self.offset(load.buffer, load.indices)})"
        if name == "tvm_access_ptr":
            return f"Pointer({self.expr(node.args[1])}, {self.expr(node.args[2])})"
        if name == "clz":
            return f"intrinsic('clz')({self.expr(node.args[0])}, {dt.bits(node.args[0].dtype)})"
        if name == "popcount" and dt.lanes(node.dtype) == 1:
            # The bits of the type, of negative numbers too.
            return f"intrinsic('popcount')(wrap_int({self.expr(node.args[0])}, {dt.bits(node.args[0].dtype)}, False))"
        if name == "ret":
            return self.expr(node.args[0])
        args = ", ".join(self.expr(a) for a in node.args)
        if name == "ptx_cp_async":
            return self._copy(node)
        if name == "tvm_load_matrix_sync":
            # Which operand it is, is said by the memory it goes to.
            args += f", {node.args[0].type_annotation.storage_scope!r}"
        text = f"intrinsic({name!r})({args})"
        if name in COLLECTIVE and self.in_threads:
            self.counter += 1
            text = f"(yield ({name!r}, {self.counter}, ({args}{',' if node.args else ''})))"
        if name == "shift_left" and dt.lanes(node.dtype) == 1:
            text = f"wrap_int({text}, {dt.bits(node.dtype)}, {dt.is_int(node.dtype)})"
        if dt.is_float(node.dtype) and dt.lanes(node.dtype) == 1:
            return f"as_float({text}, {node.dtype!r})"
        return text

    # Statements.

    def block_of(self, stmt: Stmt) -> None:
        """A statement, indented."""
        self.depth += 1
        before = len(self.lines)
        self.visit(stmt)
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    def visit_SeqStmt(self, node: tir.SeqStmt) -> None:
        for item in node.seq:
            self.visit(item)

    def visit_Evaluate(self, node: tir.Evaluate) -> None:
        value = node.value
        if isinstance(value, tir.Call):
            name = op_name_of(value)
            if name == "tir.tvm_storage_sync":
                if self.in_threads and value.args[0].value == "warp":
                    self.counter += 1
                    self.line(f"yield ('warp_sync', {self.counter}, ())")
                elif self.in_threads:
                    self.line("yield")
                return
            if name == "tir.ret":
                self.line(f"return {self.expr(value.args[0])}")
                return
            if name == "tir.tvm_thread_allreduce":
                self._all_reduce(value)
                return
            self.line(self.expr(value))

    def _copy(self, node: tir.Call) -> str:
        """A copy to shared memory, done at once; what a predicate leaves out becomes zero."""
        target, at, source, start, size, *predicate = (self.expr(a) for a in node.args)
        mask = predicate[0] if predicate else "True"
        return f"copy_bytes({target}, {at}, {source}, {start}, {size}, {mask})"

    def _all_reduce(self, node: tir.Call) -> None:
        """Threads that differ only in the reduced axes combine their values; each gets the result."""
        if not self.in_threads or not self.reducers:
            raise NotImplementedError("tvm_thread_allreduce outside of threads or of a reduce_scope")
        reducer = self.reducers[-1]
        size = len(reducer.result)
        values = [self.expr(a) for a in node.args[1 : size + 1]]
        condition = self.expr(node.args[size + 1])
        start = [self.expr(e) for e in reducer.identity_element]
        cells: list[Any] = [uncast(a) for a in node.args[size + 2 : 2 * size + 2]]
        axes = [uncast(a) for a in node.args[2 * size + 2 :]]
        reduced = list(of_kind(axes, tir.Var))
        group = ", ".join(name for var, name in self.thread_vars if not any(var is r for r in reduced))
        # The combiner takes two tuples; inner names keep their own scope.
        left = ", ".join(self.var(v) for v in reducer.lhs)
        right = ", ".join(self.var(v) for v in reducer.rhs)
        result = ", ".join(self.expr(e) for e in reducer.result)
        combine = f"lambda _a, _b: (lambda {left}, {right}: ({result},))(*_a, *_b)"
        self.counter += 1
        mine = f"({', '.join(values)},) if {condition} else ({', '.join(start)},)"
        out = self.fresh("reduced")
        self.line(f'{out} = yield ("allreduce", {self.counter}, (({group}{"," if group else ""}), {combine}, {mine}))')
        for i, cell in enumerate(cells):
            self.line(f"{self.memory(cell.buffer)}[{self.offset(cell.buffer, cell.indices)}] = {out}[{i}]")

    def visit_BufferStore(self, node: tir.BufferStore) -> None:
        memory, offset = self.memory(node.buffer), self.offset(node.buffer, node.indices)
        value = self.expr(node.value)
        lanes = dt.lanes(node.buffer.dtype)
        if lanes != 1:
            self.line(f"{self._vectors(node.buffer)}[{offset}] = np.reshape({value}, (-1, {lanes}))")
            return
        if node.predicate is not None:
            self.line(f"store_masked({memory}, {offset}, {value}, {self.expr(node.predicate)})")
            return
        element = dt.element_of(node.buffer.dtype)
        if (dt.is_int(element) or dt.is_uint(element)) and dt.lanes(node.value.dtype) == 1:
            value = f"wrap_int({value}, {dt.bits(element)}, {dt.is_int(element)})"
        self.line(f"{memory}[{self.place(node.buffer, node.indices)}] = {value}")

    def visit_For(self, node: tir.For) -> None:
        var = self.var(node.loop_var)
        low, extent = self.expr(node.min), self.expr(node.extent)
        tag = node.thread_binding.thread_tag if node.thread_binding is not None else ""
        if tag.startswith("threadIdx") and not self.in_threads and has_sync(node.body):
            self._threads(node.body, [(node.loop_var, var, f"range({low}, {low} + {extent})", tag)])
            return
        self.line(f"for {var} in range({low}, {low} + {extent}):")
        self.block_of(node.body)

    def _threads(self, body: Stmt, loops: list[tuple[Any, str, str, str]]) -> None:
        """Threads that meet at barriers: each is a generator, and all run in turns."""
        while True:
            match body:
                case tir.For() if body.thread_binding is not None:
                    low, extent = self.expr(body.min), self.expr(body.extent)
                    bounds = f"range({low}, {low} + {extent})"
                    loops.append((body.loop_var, self.var(body.loop_var), bounds, body.thread_binding.thread_tag))
                    body = body.body
                case tir.AttrStmt() if body.attr_key == "thread_extent":
                    axis: Any = body.node
                    loops.append((axis.var, self.var(axis.var), f"range({self.expr(body.value)})", axis.thread_tag))
                    body = body.body
                case _:
                    break
        # Neighbours in x are neighbours in a warp.
        loops.sort(key=lambda item: item[3], reverse=True)
        name = self.fresh("thread")
        names = ", ".join(v for _, v, _, _ in loops)
        saved, self.thread_vars = self.thread_vars, [(var, v) for var, v, _, _ in loops]
        self.line("shared = {}")
        self.line(f"def {name}({names}):")
        self.in_threads = True
        self.depth += 1
        for own in self.registers:
            self.line(own)
        self.depth -= 1
        self.block_of(body)
        self.depth += 1
        self.line("return")
        self.line("yield")
        self.depth -= 1
        self.in_threads = False
        self.thread_vars = saved
        generators = " ".join(f"for {v} in {r}" for _, v, r, _ in loops)
        self.line(f"run_threads([{name}({names}) {generators}])")

    def visit_AttrStmt(self, node: tir.AttrStmt) -> None:
        if node.attr_key in ("thread_extent", "virtual_thread"):
            tag = node.node.thread_tag
            if tag.startswith("threadIdx") and not self.in_threads and has_sync(node.body):
                self._threads(node, [])
                return
            self.line(f"for {self.var(node.node.var)} in range({self.expr(node.value)}):")
            self.block_of(node.body)
            return
        if node.attr_key == "reduce_scope":
            self.reducers.append(node.node)
            self.visit(node.body)
            self.reducers.pop()
            return
        self.visit(node.body)

    def visit_While(self, node: tir.While) -> None:
        self.line(f"while {self.expr(node.condition)}:")
        self.block_of(node.body)

    def visit_IfThenElse(self, node: tir.IfThenElse) -> None:
        self.line(f"if {self.expr(node.condition)}:")
        self.block_of(node.then_case)
        if node.else_case is not None:
            self.line("else:")
            self.block_of(node.else_case)

    def visit_LetStmt(self, node: tir.LetStmt) -> None:
        self.line(f"{self.var(node.var)} = {self.expr(node.value)}")
        self.visit(node.body)

    def visit_AssertStmt(self, node: tir.AssertStmt) -> None:
        self.line(f"if not ({self.expr(node.condition)}): raise AssertionError({self.expr(node.message)})")
        self.visit(node.body)

    def _allocate(self, var: tir.Var, dtype: str, extents: list[str]) -> None:
        size = " * ".join(f"({e})" for e in extents) or "1"
        scope = getattr(var.type_annotation, "storage_scope", "")
        made = f"allocate({size}, {dtype!r})"
        name = self.var(var)
        if self.in_threads and scope.startswith("shared"):
            # All threads of a block see one allocation.
            made = f"shared.setdefault({name!r}, {made})"
        self.line(f"{name} = {made}")
        if not self.in_threads and scope.startswith(_REGISTERS):
            self.registers.append(f"{name} = {made}")

    def visit_Allocate(self, node: tir.Allocate) -> None:
        known = len(self.registers)
        self._allocate(node.buffer_var, node.dtype, [self.expr(e) for e in node.extents])
        self.visit(node.body)
        del self.registers[known:]

    def visit_AllocateConst(self, node: tir.AllocateConst) -> None:
        data = node.data_or_idx
        data = data.numpy() if hasattr(data, "numpy") else data
        self.line(f"{self.var(node.buffer_var)} = {self.constant(data)}.reshape(-1)")
        self.visit(node.body)

    def visit_DeclBuffer(self, node: tir.DeclBuffer) -> None:
        self.visit(node.body)

    def visit_BufferRealize(self, node: tir.BufferRealize) -> None:
        known = len(self.registers)
        self._allocate(node.buffer.data, node.buffer.dtype, [self.expr(e) for e in node.buffer.shape])
        self.visit(node.body)
        del self.registers[known:]

    def visit_BlockRealize(self, node: tir.BlockRealize) -> None:
        block = node.block
        for iter_var, value in zip(block.iter_vars, node.iter_values):
            self.line(f"{self.var(iter_var.var)} = {self.expr(value)}")
        predicate = node.predicate
        guarded = not const_int(predicate, 0)
        if guarded:
            self.line(f"if {self.expr(predicate)}:")
            self.depth += 1
        self._block(block)
        if guarded:
            self.depth -= 1

    def _block(self, block: tir.Block) -> None:
        known = len(self.registers)
        for buffer in block.alloc_buffers:
            size = [self.expr(e) for e in buffer.shape]
            if buffer.layout_strides:
                size = [f"({self.expr(buffer.shape[0])}) * ({self.expr(buffer.strides[0])})"]
            self._allocate(buffer.data, buffer.dtype, size)
            if isinstance(buffer.elem_offset, tir.Var):
                self.line(f"{self.var(buffer.elem_offset)} = 0")
        for match in block.match_buffers:
            self._match(match)
        reduced = [iv for iv in block.iter_vars if iv.iter_type == 2]
        before = len(self.lines)
        if block.init is not None:
            if reduced:
                first = " and ".join(f"{self.var(iv.var)} == {self.expr(iv.dom.min)}" for iv in reduced)
                self.line(f"if {first}:")
                self.block_of(block.init)
            else:
                self.visit(block.init)
        self.visit(block.body)
        del self.registers[known:]
        if len(self.lines) == before:
            self.line("pass")

    def _match(self, match: tir.MatchBufferRegion) -> None:
        """A view: its base and strides are those of the region it shows."""
        source, target = match.source.buffer, match.buffer
        base = self.fresh(f"{target.name}_base")
        self.line(f"{base} = {self.offset(source, [r.min for r in match.source.region])}")
        strides = self.strides(source)[len(source.shape) - len(target.shape) :]
        names = []
        for stride in strides:
            name = self.fresh(f"{target.name}_stride")
            self.line(f"{name} = {stride}")
            names.append(name)
        view = self.views.get(id(source))
        memory = view[2] if view is not None else self.var(source.data)
        self.views[id(target)] = (base, names, memory)
        self.keep.append(target)
        self.line(f"{self.var(target.data)} = {memory}")
        if isinstance(target.elem_offset, tir.Var):
            self.line(f"{self.var(target.elem_offset)} = {base}")
        for stride_var, name in zip(target.strides, names):
            if isinstance(stride_var, tir.Var):
                self.line(f"{self.var(stride_var)} = {name}")
        offset = len(match.source.region) - len(target.shape)
        for extent, item in zip(target.shape, match.source.region[offset:]):
            if isinstance(extent, tir.Var):
                self.line(f"{self.var(extent)} = {self.expr(item.extent)}")

    def strides(self, buffer: Buffer) -> list[str]:
        """The strides of a buffer, written out."""
        view = self.views.get(id(buffer))
        if view is not None:
            return list(view[1])
        if buffer.layout_strides:
            return [self.expr(s) for s in buffer.strides]
        out: list[str] = []
        running = "1"
        for extent in reversed(buffer.shape):
            out.insert(0, running)
            running = f"({running}) * ({self.expr(extent)})"
        return out
