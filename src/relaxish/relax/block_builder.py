"""BlockBuilder: writes graph programs binding by binding, inferring struct info as it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ClassVar, TYPE_CHECKING, TypeVar

from ..arith.analyzer import Analyzer
from ..ir.expr import BaseExpr, BaseFunc, GlobalVar, PrimExpr
from ..ir.module import IRModule
from ..ir.prim import Var as TirVar
from ..ir.structural import structural_equal, structural_hash
from ..support.errors import InternalError, RelaxishError
from ..tir.function import PrimFunc
from . import normalizer
from .analysis.struct_info import definable_tir_vars_in_struct_info
from .expr import (
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Function,
    Id,
    MatchCast,
    SeqExpr,
    Tuple,
    Var,
    VarBinding,
)
from .scalars import fresh_analyzer
from .struct_info import BaseCheckResult, ShapeStructInfo, StructInfo, as_struct_info
from .utils import convert_to_expr

if TYPE_CHECKING:
    from .expr import ArgLike, Binding, Expr
    from .struct_info import FuncStructInfo

__all__ = ["BlockBuilder", "DataflowScope", "FunctionScope", "TestingScope"]

_E = TypeVar("_E", bound=BaseExpr)


class FunctionScope:
    """``with bb.function(...)``: a function under construction."""

    def __init__(
        self, builder: BlockBuilder, name: str, params: tuple[Var, ...] | None, attrs: dict[str, Any], is_pure: bool
    ) -> None:
        self._bb = builder
        self.name = name
        self.params = params
        self.attrs = attrs
        self.is_pure = is_pure
        self.blocks: list[BindingBlock] = []
        self.emitted = False
        #: How many blocks and scopes were open before this function.
        self.depth = (0, 0)

    def __enter__(self) -> FunctionScope:
        self._bb._enter_function_scope(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bb._exit_function_scope(kind, value, trace)


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
    """``with bb.testing_scope(def_vars=[n])``: symbolic variables that count as defined, and a dataflow block."""

    __test__ = False

    def __init__(self, builder: BlockBuilder, def_vars: Sequence[TirVar]) -> None:
        self._bb = builder
        if not all(isinstance(var, TirVar) for var in def_vars):
            raise ValueError("def_vars only can take tir.Var")
        self._vars = [Var("sparam", ShapeStructInfo(list(def_vars)))]

    def __enter__(self) -> TestingScope:
        self._bb.begin_scope(self._vars)
        self._bb.begin_dataflow_block()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bb.end_block()
        self._bb.end_scope()


class _Frame:
    """A block under construction.

    ``normalized`` remembers the variables of arguments bound here, so that an expression used twice is bound once.
    """

    __slots__ = ("bindings", "dataflow", "normalized")

    def __init__(self, dataflow: bool) -> None:
        self.dataflow = dataflow
        self.bindings: list[Any] = []
        self.normalized: dict[Any, Var] = {}


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

    def __init__(
        self, mod: IRModule | None = None, *, normalizes_operators: bool = True, trusts_struct_info: bool = True
    ) -> None:
        #: Whether sequences that have struct info count as normalized.
        self.trusts_struct_info = trusts_struct_info
        #: Whether operators with a normal form of their own get it; the script parser leaves what the user wrote.
        self.normalizes_operators = normalizes_operators
        self._mod = mod.clone() if mod is not None else IRModule()
        self._frames: list[_Frame] = []
        self._scopes: list[dict[TirVar, PrimExpr]] = []
        self._bound: dict[Id, Any] = {}
        self._names: dict[str, int] = {}
        self._dedup: dict[tuple[type, int], list[GlobalVar]] = {}
        self._hashes: dict[GlobalVar, tuple[type, int]] = {}
        self._analyzer: Any = None
        self._non_negative: list[PrimExpr] = []
        self._func_stack: list[FunctionScope] = []

    # --- scopes ---------------------------------------------------------------------------------------------------

    @staticmethod
    def current() -> BlockBuilder | None:
        """The builder whose function scope is open innermost, or None."""
        return BlockBuilder._stack[-1] if BlockBuilder._stack else None

    def function(
        self,
        name: str,
        params: Var | Iterable[Var] | None = None,
        attrs: dict[str, Any] | None = None,
        private: bool = False,
        *,
        pure: bool = True,
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
        if not private:
            attrs["global_symbol"] = name
        return FunctionScope(self, name, checked, attrs, pure)

    @property
    def _func(self) -> FunctionScope:
        if not self._func_stack:
            raise RuntimeError("Cannot access BlockBuilder._func when outside a bb.function() block")
        return self._func_stack[-1]

    def _enter_function_scope(self, scope: FunctionScope) -> None:
        BlockBuilder._stack.append(self)
        self._func_stack.append(scope)
        scope.depth = (len(self._frames), len(self._scopes))
        self.begin_scope(scope.params)
        self.begin_binding_block()

    def _exit_function_scope(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        scope = self._func_stack.pop()
        BlockBuilder._stack.pop()
        del self._frames[scope.depth[0] :]
        del self._scopes[scope.depth[1] :]
        if kind is None and not scope.emitted:
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

    def get_analyzer(self) -> Analyzer:
        """The arithmetic analyzer that knows this builder's symbolic variables."""
        if self._analyzer is None:
            self._analyzer = fresh_analyzer()
            for symbol in self._non_negative:
                _mark(self._analyzer, symbol)
        return self._analyzer

    def erase_for_scope(self, info: StructInfo) -> StructInfo:
        """``info`` without what the innermost scope does not define."""
        scope = self._scopes[-1] if self._scopes else {}
        return info.erase(scope.get)

    # --- blocks ---------------------------------------------------------------------------------------------------

    def begin_binding_block(self) -> None:
        """Open an ordinary block."""
        self._frames.append(_Frame(False))

    def begin_dataflow_block(self) -> None:
        """Open a dataflow block."""
        self._frames.append(_Frame(True))

    def end_block(self) -> BindingBlock:
        """Close the innermost block and return it."""
        frame = self._frame()
        self._frames.pop()
        return (DataflowBlock if frame.dataflow else BindingBlock)(frame.bindings)

    # The names under which users of the API know these.
    _begin_binding_block = begin_binding_block
    _begin_dataflow_block = begin_dataflow_block
    _end_block = end_block

    def in_block(self) -> bool:
        """Whether a block is open."""
        return bool(self._frames)

    def current_block_is_dataflow(self) -> bool:
        """Whether the innermost open block is a dataflow block. Raises InternalError if no block is open."""
        return self._frame().dataflow

    def _flush_block(self) -> None:
        block = self.end_block()
        if block.bindings:
            self._func.blocks.append(block)

    # --- emitting -------------------------------------------------------------------------------------------------

    def normalize(self, expr: _E) -> _E:
        """``expr`` in A-normal form with struct info; parts that must be bound go to the current block."""
        return normalizer.normalize(self, expr)

    def emit(self, expr: ArgLike, name_hint: str = "") -> Var:
        """Bind ``expr`` to a fresh variable (a DataflowVar in a dataflow block) and return it."""
        return self.bind_value(self.normalize(_emittable(expr)), name_hint)

    def bind_value(self, value: Expr, name_hint: str = "", *, output: bool = False) -> Var:
        """Bind an already normalised value."""
        frame = self._frame()
        kind: type[Var] = DataflowVar if frame.dataflow and not output else Var
        name = self.get_unique_name(name_hint or ("lv" if frame.dataflow and not output else "gv"))
        var = kind(name, value.struct_info_)
        frame.bindings.append(VarBinding(var, value))
        self._bound[var.vid] = value
        return var

    def bound_argument(self, arg: Expr) -> Var | None:
        """The variable that this very expression was bound to as an argument in the open block, or None."""
        return self._frames[-1].normalized.get(arg) if self._frames else None

    def bind_argument(self, arg: Expr, value: Expr) -> Var:
        """Bind ``value``, the normal form of the argument ``arg``, once for all its uses in the open block."""
        var = self.bind_value(value)
        self._frame().normalized[arg] = var
        return var

    def _frame(self) -> _Frame:
        if not self._frames:
            raise InternalError("no block is being built; open one with bb.function(...) or begin_binding_block()")
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

    def match_cast(self, value: Expr, struct_info: StructInfo, name_hint: str = "") -> Var:
        """Emit a MatchCast: a run-time check that also defines the symbolic variables in ``struct_info``.

        Raises RelaxishError if no value at all could pass the check.
        """
        struct_info = as_struct_info(struct_info)
        value = self.normalize(_emittable(value))
        if value.struct_info.check(struct_info) is BaseCheckResult.FAIL_L0:
            raise RelaxishError(
                "It is impossible to match cast any value into the target struct_info. But got value struct info: "
                f"{value.struct_info}, given struct info: {struct_info}"
            )
        dataflow = self._frame().dataflow
        kind: type[Var] = DataflowVar if dataflow else Var
        var = kind(self.get_unique_name(name_hint or ("lv" if dataflow else "gv")), struct_info)
        self.emit_normalized(MatchCast(var, value, struct_info))
        return var

    def emit_output(self, output: ArgLike, name_hint: str = "") -> Var:
        """Bind a result of the open dataflow block to a variable that may be used after it."""
        if not self._frame().dataflow:
            raise InternalError("EmitOutput has to be called inside dataflow block.")
        return self.bind_value(self.normalize(_emittable(output)), name_hint, output=True)

    def emit_func_output(self, output: ArgLike, params: Var | Iterable[Var] | None = None) -> GlobalVar:
        """Finish the open function with its result; returns the function's name in the module."""
        scope = self._func
        if scope.emitted:
            raise RuntimeError("emit_func_output must be called exactly once in a relax function.")
        scope.emitted = True
        if scope.params is not None and params is not None:
            raise RuntimeError("function parameters have been initialized in the function with scope.")
        if scope.params is None:
            if params is None:
                raise RuntimeError("Relax function must have parameter.")
            scope.params = (params,) if isinstance(params, Var) else tuple(params)
        if BlockBuilder.current() is not self:
            raise RuntimeError("BlockBuilder.current() must be self.")
        self._flush_block()
        # Parameters given only now were not in scope while the blocks were written.
        self.begin_scope(scope.params)
        body = self.normalize(SeqExpr(scope.blocks, _emittable(output)))
        self.end_scope()
        func = Function(scope.params, body, None, scope.is_pure, scope.attrs)
        self.end_scope()
        return self.add_func(func, scope.name)

    def emit_normalized(self, binding: Binding) -> None:
        """Append a binding whose value is already normalised."""
        frame = self._frame()
        if not frame.dataflow and binding.var.is_dataflow:
            raise InternalError(f"Cannot emit dataflow var {binding.var.name_hint} in non-dataflow block")
        if binding.var.struct_info_ is None or binding.value.struct_info_ is None:
            raise InternalError(f"the binding of {binding.var.name_hint} is not normalized: it has no struct info")
        frame.bindings.append(binding)
        self.note_binding(binding)

    def note_binding(self, binding: Binding) -> None:
        """Remember what a binding defines: its value for lookups, its symbolic variables for the scope."""
        if not isinstance(binding, MatchCast):
            self._bound[binding.var.vid] = binding.value
        elif self._scopes:
            scope = self._scopes[-1]
            for symbol in definable_tir_vars_in_struct_info(binding.struct_info):
                if symbol not in scope:
                    scope[symbol] = symbol
                    self._assume_non_negative(symbol)

    def lookup_binding(self, var: Expr) -> Expr | None:
        """The value bound to ``var``; None where there is none, and for an expression that is no variable."""
        return self._bound.get(var.vid) if isinstance(var, Var) else None

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
        # Hashing a graph function reads all weights: the first function of its class needs no hash.
        key = None
        if any(type(other) is type(func) for other in self._mod.functions.values()):
            key = type(func), structural_hash(func)
            equal = [v for v in self._equal_candidates(key) if structural_equal(self._mod.functions[v], func)]
            if equal:
                return min(equal, key=lambda var: var.name_hint)
        name = self.get_unique_name(func_name)
        while name in self._mod:
            name = self.get_unique_name(func_name)
        made = GlobalVar(name)
        made.struct_info_ = _signature(func)
        self._mod.update_func(made, func)
        if key is not None:
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


def _emittable(expr: ArgLike) -> Expr:
    """What is to be emitted as an expression: sequences of Python are tuples, None is the null value."""
    if expr is None:
        from .op_table import op_function

        return op_function("null_value")()
    if isinstance(expr, (list, tuple)):
        return Tuple([_emittable(item) for item in expr])
    return convert_to_expr(expr)


def _mark(analyzer: Analyzer, symbol: PrimExpr) -> None:
    mark = getattr(analyzer, "mark_global_non_neg_value", None)
    if mark is not None:
        mark(symbol)


def _signature(func: BaseFunc) -> FuncStructInfo | None:
    """Struct info of a function of either level."""
    return func.struct_info if isinstance(func, PrimFunc) else func.struct_info_
