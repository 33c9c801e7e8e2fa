"""BlockBuilder: writes graph programs binding by binding, inferring struct info as it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ClassVar

from ..ir.expr import BaseFunc, GlobalVar, PrimExpr
from ..ir.module import IRModule
from ..ir.prim import Var as TirVar
from ..ir.structural import structural_equal, structural_hash
from ..tir.function import PrimFunc
from . import normalizer
from .analysis.struct_info import definable_tir_vars_in_struct_info, erase_struct_info
from .expr import (
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,

    Function,
    MatchCast,
    SeqExpr,
    Tuple,
    Var,
    VarBinding,
    is_leaf,
)
from .scalars import fresh_analyzer
from .struct_info import ShapeStructInfo, StructInfo, as_struct_info
from .utils import convert_to_expr

__all__ = ["BlockBuilder", "DataflowScope", "FunctionScope", "TestingScope"]


class _FunctionState:
    """What is known of the function being built."""

    __slots__ = ("attrs", "blocks", "emitted", "name", "params", "scoped")

    def __init__(self, name: str, params: tuple[Var, ...] | None, attrs: dict[str, Any]) -> None:
        self.name = name
        self.params = params
        self.attrs = attrs
        self.blocks: list[BindingBlock] = []
        self.emitted = False
        self.scoped = False


class FunctionScope:
    """``with bb.function(...)``."""

    def __init__(self, builder: BlockBuilder, state: _FunctionState) -> None:
        self._bb = builder
        self._state = state

    def __enter__(self) -> FunctionScope:
        self._bb._enter_function(self._state)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bb._exit_function(kind)


class DataflowScope:
    """``with bb.dataflow()``."""

    def __init__(self, builder: BlockBuilder) -> None:
        self._bb = builder

    def __enter__(self) -> DataflowScope:
        self._bb._flush_block()
        self._bb.begin_dataflow_block()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bb._flush_block()
        self._bb.begin_binding_block()


class TestingScope:
    """``with bb.testing_scope(def_vars=[n])``: symbolic variables that count as defined."""

    __test__ = False

    def __init__(self, builder: BlockBuilder, def_vars: Sequence[TirVar]) -> None:
        self._bb = builder
        self._vars = [Var("sv", ShapeStructInfo(list(def_vars)))]

    def __enter__(self) -> TestingScope:
        self._bb.begin_scope(self._vars)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bb.end_scope()


class _Frame:
    """A block under construction; ``parts`` holds finished pieces when a nested sequence split it.

    ``normalized`` remembers the variables of arguments bound here, so that an expression used twice is bound once.
    """

    __slots__ = ("bindings", "dataflow", "normalized", "parts")

    def __init__(self, dataflow: bool) -> None:
        self.dataflow = dataflow
        self.bindings: list[Any] = []
        self.normalized: dict[Any, Var] = {}
        self.parts: list[BindingBlock] = []

    def close(self) -> list[BindingBlock]:
        """All pieces; at least one, possibly empty."""
        if self.bindings or not self.parts:
            self.parts.append((DataflowBlock if self.dataflow else BindingBlock)(self.bindings))
            self.bindings = []
        return self.parts


class BlockBuilder:
    """Builds functions and modules in A-normal form.

    ::

        bb = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorStructInfo([n, 8], "float32"))
        with bb.function("main", [x]):
            with bb.dataflow():
                y = bb.emit(relax.op.nn.relu(x))
                out = bb.emit_output(y)
            bb.emit_func_output(out)
        mod = bb.finalize()
    """

    _stack: ClassVar[list[BlockBuilder]] = []

    def __init__(self, mod: IRModule | None = None) -> None:
        self._mod = mod.clone() if mod is not None else IRModule()
        self._frames: list[_Frame] = []
        self._scopes: list[dict[TirVar, PrimExpr]] = []
        self._bound: dict[Var, Any] = {}
        self._names: dict[str, int] = {}
        self._dedup: dict[tuple[type, int], list[GlobalVar]] = {}
        self._hashes: dict[GlobalVar, tuple[type, int]] = {}
        self._analyzer: Any = None
        self._non_negative: list[PrimExpr] = []
        self._func: _FunctionState | None = None

    # --- scopes ---------------------------------------------------------------------------------------------------

    @staticmethod
    def current() -> BlockBuilder | None:
        """The builder whose function scope is open innermost, or None."""
        return BlockBuilder._stack[-1] if BlockBuilder._stack else None

    def function(
        self,
        name: str,
        params: Var | Sequence[Var] | Tuple | None = None,
        attrs: dict[str, Any] | None = None,
        private: bool = False,
    ) -> FunctionScope:
        """Open a function. Unless ``private`` it gets the attribute ``global_symbol``."""
        if isinstance(params, Var):
            params = [params]
        checked: tuple[Var, ...] | None = None
        if params is not None:
            checked = tuple(params)
            for param in checked:
                if not isinstance(param, Var):
                    raise TypeError(
                        f"each element of function parameters must be of type relax.Var, but got: {type(param)}"
                    )
        attrs = dict(attrs or {})
        if "global_symbol" in attrs and attrs["global_symbol"] != name:
            raise ValueError(f"the attribute global_symbol, {attrs['global_symbol']}, differs from the name {name}")
        if not private:
            attrs["global_symbol"] = name
        return FunctionScope(self, _FunctionState(name, checked, attrs))

    def _enter_function(self, state: _FunctionState) -> None:
        if BlockBuilder.current() is not None:
            raise RuntimeError("BlockBuilder does not allow nested functions.")
        BlockBuilder._stack.append(self)
        self._func = state
        if state.params is not None:
            self.begin_scope(state.params)
            state.scoped = True
        self.begin_binding_block()

    def _exit_function(self, error: type[BaseException] | None) -> None:
        state = self._func
        assert state is not None
        BlockBuilder._stack.pop()
        self._func = None
        if error is not None:
            self._frames.clear()
            self._scopes.clear()
        elif not state.emitted:
            self._frames.clear()
            self._scopes.clear()
            raise RuntimeError("emit_func_output must be called in a relax function.")

    @contextmanager
    def aside(self) -> Iterator[BlockBuilder]:
        """A second builder, for another function of the same module while one is open here."""
        inner = BlockBuilder(self._mod)
        inner._names = self._names
        waiting, BlockBuilder._stack = BlockBuilder._stack, []
        try:
            yield inner
        finally:
            BlockBuilder._stack = waiting
        self._dedup = {}
        self._hashes = {}
        for var, func in inner._mod.functions.items():
            self._mod.update_func(var, func)

    def testing_scope(self, def_vars: Sequence[TirVar]) -> TestingScope:
        """A scope for unit tests in which the given symbolic variables are defined."""
        return TestingScope(self, def_vars)

    def dataflow(self) -> DataflowScope:
        """Open a dataflow block."""
        return DataflowScope(self)

    def begin_scope(self, params: Sequence[Var] | None = None) -> None:
        """Open a scope whose symbolic variables are those that ``params`` define."""
        scope: dict[TirVar, PrimExpr] = {}
        for param in params or ():
            for symbol in definable_tir_vars_in_struct_info(param.struct_info):
                scope[symbol] = symbol
                self._assume_non_negative(symbol)
        self._scopes.append(scope)

    def begin_inner_scope(self) -> None:
        """Open a scope that inherits what is defined around it."""
        self._scopes.append(dict(self._scopes[-1]) if self._scopes else {})

    def end_scope(self) -> None:
        """Close the innermost scope."""
        self._scopes.pop()

    def _assume_non_negative(self, symbol: PrimExpr) -> None:
        self._non_negative.append(symbol)
        if self._analyzer is not None:
            _mark(self._analyzer, symbol)

    def get_analyzer(self) -> Any:
        """The arithmetic analyzer that knows this builder's symbolic variables."""
        if self._analyzer is None:
            self._analyzer = fresh_analyzer()
            for symbol in self._non_negative:
                _mark(self._analyzer, symbol)
        return self._analyzer

    def erase_for_scope(self, info: StructInfo) -> StructInfo:
        """``info`` without what the innermost scope does not define."""
        scope = self._scopes[-1] if self._scopes else {}
        return erase_struct_info(info, scope.get)

    # --- blocks ---------------------------------------------------------------------------------------------------

    def begin_binding_block(self) -> None:
        """Open an ordinary block."""
        self._frames.append(_Frame(False))

    def begin_dataflow_block(self) -> None:
        """Open a dataflow block."""
        self._frames.append(_Frame(True))

    def end_block(self) -> BindingBlock:
        """Close the innermost block and return it."""
        parts = self._frames.pop().close()
        return parts[0] if len(parts) == 1 else BindingBlock([b for p in parts for b in p.bindings])

    def end_block_parts(self) -> list[BindingBlock]:
        """Close the innermost block; a nested sequence may have split it into several."""
        return self._frames.pop().close()

    def splice_block(self, block: BindingBlock) -> None:
        """Append the bindings of a nested block, keeping its kind where that matters."""
        frame = self._frames[-1]
        inner_dataflow = isinstance(block, DataflowBlock)
        if inner_dataflow and not frame.dataflow:
            if frame.bindings:
                frame.close()
            frame.parts.extend(normalizer._block(self, block))
            return
        for binding in block.bindings:
            normalizer._binding(self, binding)

    def in_block(self) -> bool:
        """Whether a block is open."""
        return bool(self._frames)

    def current_block_is_dataflow(self) -> bool:
        """Whether the innermost open block is a dataflow block."""
        return bool(self._frames) and self._frames[-1].dataflow

    def _flush_block(self) -> None:
        assert self._func is not None
        self._func.blocks.extend(b for b in self.end_block_parts() if b.bindings)

    # --- emitting -------------------------------------------------------------------------------------------------

    def normalize(self, expr: Any) -> Any:
        """``expr`` in A-normal form with struct info; parts that must be bound go to the current block."""
        return normalizer.normalize(self, expr)

    def emit(self, expr: Any, name_hint: str = "") -> Var:
        """Bind ``expr`` to a fresh variable (a DataflowVar in a dataflow block) and return it."""
        return self.bind_value(self.normalize(convert_to_expr(expr)), name_hint)

    def bind_value(self, value: Any, name_hint: str = "", *, output: bool = False) -> Var:
        """Bind an already normalised value."""
        frame = self._frame()
        kind: type[Var] = DataflowVar if frame.dataflow and not output else Var
        name = self.get_unique_name(name_hint or ("lv" if frame.dataflow and not output else "gv"))
        while isinstance(value, SeqExpr):
            for block in value.blocks:
                self.splice_block(block)
            value = value.body
        var = kind(name, value.struct_info_)
        frame.bindings.append(VarBinding(var, value))
        self._bound[var] = value
        return var

    def bound_argument(self, arg: Any) -> Var | None:
        """The variable that this very expression was bound to as an argument in the open block, or None."""
        return self._frames[-1].normalized.get(arg) if self._frames else None

    def bind_argument(self, arg: Any, value: Any) -> Var:
        """Bind ``value``, the normal form of the argument ``arg``, once for all its uses in the open block."""
        var = self.bind_value(value)
        self._frame().normalized[arg] = var
        return var

    def _frame(self) -> _Frame:
        if not self._frames:
            raise RuntimeError("there is no open block to emit into; use bb.function(...) or begin_binding_block()")
        return self._frames[-1]

    def call_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
        """Make a PrimFunc of a TE function and return the ``call_tir`` to it, unbound.

        ``primfunc_name_hint`` and ``primfunc_attrs`` name and mark the PrimFunc; other keyword arguments go to ``func``.
        """
        from .te_bridge import call_te

        return call_te(self, func, args, kwargs)

    def call_te_with_grad(
        self,
        func: Callable[..., Any],
        *args: Any,
        te_grad_name: str,
        te_grad_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Call:
        """Like :meth:`call_te`, as a ``call_tir_with_grad`` that names its registered TE gradient."""
        from .te_bridge import call_te_with_grad

        return call_te_with_grad(self, func, args, kwargs, te_grad_name, te_grad_kwargs)

    def emit_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
        """:meth:`call_te` and bind the result."""
        name_hint = kwargs.pop("name_hint", "")
        return self.emit(self.call_te(func, *args, **kwargs), name_hint)

    def match_cast(self, value: Any, struct_info: StructInfo, name_hint: str = "") -> Var:
        """Emit a MatchCast: a run-time check that also defines the symbolic variables in ``struct_info``."""
        frame = self._frame()
        struct_info = as_struct_info(struct_info)
        value = self.normalize(convert_to_expr(value))
        if not is_leaf(value):
            value = self.bind_value(value)
        kind: type[Var] = DataflowVar if frame.dataflow else Var
        var = kind(self.get_unique_name(name_hint or ("lv" if frame.dataflow else "gv")), struct_info)
        self.emit_normalized(MatchCast(var, value, struct_info))
        return var

    def emit_output(self, output: Any, name_hint: str = "") -> Var:
        """Bind a result of the open dataflow block to a variable that may be used after it."""
        if not self.current_block_is_dataflow():
            raise RuntimeError("emit_output has to be called inside dataflow block.")
        if isinstance(output, (list, tuple)):
            output = Tuple([convert_to_expr(o) for o in output])
        return self.bind_value(self.normalize(convert_to_expr(output)), name_hint, output=True)

    def emit_func_output(
        self, output: Any, params: Var | Sequence[Var] | Tuple | None = None
    ) -> GlobalVar:
        """Finish the open function with its result; returns the function's name in the module."""
        state = self._func
        if state is None or state.emitted:
            raise RuntimeError("emit_func_output must be called exactly once in a relax function.")
        state.emitted = True
        if state.params is not None and params is not None:
            raise RuntimeError(
                "function parameters have been defined in the initialization of the function scope; "
                "do not give them to emit_func_output again"
            )
        if state.params is None:
            state.params = tuple([params] if isinstance(params, Var) else params or ())
        if BlockBuilder.current() is not self:
            raise RuntimeError("BlockBuilder._current must be self.")
        if isinstance(output, (list, tuple)):
            output = Tuple([convert_to_expr(o) for o in output])
        output = convert_to_expr(output)
        self._flush_block()
        if not state.scoped:
            self.begin_scope(state.params)
            for block in state.blocks:
                for binding in block.bindings:
                    self.note_binding(binding)
        body = self.normalize(SeqExpr(state.blocks, output))
        self.end_scope()
        func = Function(state.params, body, attrs=state.attrs)
        return self.add_func(func, state.name)

    def emit_normalized(self, binding: Any) -> None:
        """Append a binding whose value is already normalised."""
        frame = self._frame()
        if not frame.dataflow and isinstance(binding.var, DataflowVar):
            raise RuntimeError(f"the dataflow variable {binding.var.name_hint} cannot be bound outside a dataflow block")
        frame.bindings.append(binding)
        self.note_binding(binding)

    def note_binding(self, binding: Any) -> None:
        """Remember what a binding defines: its value for lookups, its symbolic variables for the scope."""
        self._bound[binding.var] = binding.value
        if isinstance(binding, MatchCast) and self._scopes:
            scope = self._scopes[-1]
            for symbol in definable_tir_vars_in_struct_info(binding.struct_info):
                if symbol not in scope:
                    scope[symbol] = symbol
                    self._assume_non_negative(symbol)

    def lookup_binding(self, var: Var) -> Any:
        """The value bound to ``var``, or None."""
        return self._bound.get(var)

    # --- the module -----------------------------------------------------------------------------------------------

    def get_unique_name(self, name_prefix: str) -> str:
        """A name not handed out before: ``lv``, ``lv1``, ``lv2``."""
        prefix = name_prefix.replace(".", "_")
        count = self._names.get(prefix)
        if count is None:
            self._names[prefix] = 0
            return prefix
        while True:
            count += 1
            name = f"{prefix}{count}"
            if name not in self._names:
                self._names[prefix] = count
                self._names[name] = 0
                return name

    def add_func(self, func: BaseFunc, func_name: str) -> GlobalVar:
        """Add a function; if an equal one is there already, its name is returned instead."""
        key = type(func), structural_hash(func)
        for var in self._equal_candidates(key):
            if structural_equal(self._mod.functions[var], func):
                return var
        name = self.get_unique_name(func_name)
        while name in self._mod:
            name = self.get_unique_name(func_name)
        made = GlobalVar(name)
        made.struct_info_ = _signature(func)
        self._mod.update_func(made, func)
        self._hashes[made] = key
        self._dedup.setdefault(key, []).append(made)
        return made

    def _equal_candidates(self, key: tuple[type, int]) -> Sequence[GlobalVar]:
        """Functions whose class and hash are ``key``. Only functions of that class are ever hashed: graph functions
        hold the weights, and nobody asks for kernels equal to them."""
        for var, func in self._mod.functions.items():
            if type(func) is key[0] and var not in self._hashes:
                mine = self._hashes[var] = type(func), structural_hash(func)
                self._dedup.setdefault(mine, []).append(var)
        return self._dedup.get(key, ())

    def _forget_hash(self, gv: GlobalVar) -> None:
        known = self._hashes.pop(gv, None)
        if known is not None:
            self._dedup[known].remove(gv)

    def update_func(self, gv: GlobalVar, updated_function: BaseFunc) -> None:
        """Add or replace the function named ``gv``."""
        self._forget_hash(gv)
        gv.struct_info_ = _signature(updated_function)
        self._mod.update_func(gv, updated_function)

    def remove_func(self, gv: GlobalVar) -> None:
        """Remove the function named ``gv``."""
        self._forget_hash(gv)
        del self._mod[gv]

    def fill_global_var(self, var: GlobalVar) -> None:
        """Give a function's name the struct info of the function, where the module knows it."""
        if var.name_hint in self._mod:
            func = self._mod[var.name_hint]
            var.struct_info_ = _signature(func)

    def get(self) -> IRModule:
        """The module as it stands."""
        return self._mod.clone()

    def finalize(self) -> IRModule:
        """The module with function names settled: public names are their ``global_symbol``."""
        from .global_names import normalize_global_vars

        return normalize_global_vars(self._mod)


def _mark(analyzer: Any, symbol: PrimExpr) -> None:
    mark = getattr(analyzer, "mark_global_non_neg_value", None)
    if mark is not None:
        mark(symbol)


def _signature(func: BaseFunc) -> Any:
    """Struct info of a function of either level."""
    return func.struct_info if isinstance(func, PrimFunc) else func.struct_info_
