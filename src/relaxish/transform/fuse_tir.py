"""FuseTIR: each ``Primitive`` function that FuseOps made becomes one PrimFunc."""

from __future__ import annotations

from typing import Any

from ..arith import detect_linear_equation
from ..ir.expr import GlobalVar, PrimExpr, Range
from ..ir.functor import Mutator
from ..ir.module import IRModule, functions_of
from ..ir.prim import Var as TirVar
from ..ir.supply import NameSupply
from ..ir.transform import Pass
from ..relax.call_forms import call_tir, call_tir_inplace
from ..relax.expr import (
    Call,
    Constant,
    Expr,
    Function,
    PrimValue,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    VarBinding,
    is_call_of,
)
from ..relax.expr_functor import PyExprMutator, rewrite_functions
from ..relax.scalars import const_int, prim_vars, prove_equal, simplify
from ..relax.struct_info import PrimStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ..support.errors import InternalError
from ..support.sequences import of_kind
from ..tir import Block, BlockRealize, Buffer, BufferRegion, PrimFunc, stmt_seq, decl_buffer, floordiv
from ..tir.functor import renew_defs, substitute, substitute_buffers
from ..tir.stmt import Stmt, stmt_list
from .base import as_module_pass
from .dead_code_elimination import DeadCodeElimination
from .kernel_origins import remember_group
from .private_signatures import ExpandTupleArguments, RemoveUnusedParameters
from ..ir.plain import plain_bool
from ..ir.declared_pass import StepsPass

__all__ = ["FuseTIR"]


class _UniteRegions(Mutator):
    """One access region a buffer in each block, and block names that differ."""

    def __init__(self) -> None:
        self.names = NameSupply()

    def visit_Block(self, block: Block) -> Block:
        new = self.default_visit(block)
        return new.with_fields(
            reads=_unite(new.reads), writes=_unite(new.writes), name_hint=self.names.fresh_as_is(new.name_hint)
        )

    def visit_PrimExpr(self, node: PrimExpr) -> PrimExpr:
        return node

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return node


def _unite(regions: tuple[Any, ...]) -> tuple[Any, ...]:
    found: dict[Any, list[Any]] = {}
    for region in regions:
        found.setdefault(region.buffer, []).append(region.region)
    if len(found) == len(regions):
        return regions
    return tuple(BufferRegion(b, rs[0] if len(rs) == 1 else _hull(rs)) for b, rs in found.items())


def _hull(regions: list[Any]) -> list[Range]:
    from ..ir.structural import same_expression
    from ..tir import max as tir_max
    from ..tir import min as tir_min

    out = []
    for ranges in zip(*regions):
        first = ranges[0]
        if all(same_expression(first, r) for r in ranges[1:]):
            out.append(first)
            continue
        low, high = first.min, first.min + first.extent
        for other in ranges[1:]:
            low = tir_min(low, other.min)
            high = tir_max(high, other.min + other.extent)
        from ..relax.scalars import simplify

        out.append(Range.from_min_extent(simplify(low), simplify(high - low)))
    return out


class _FusedFunction:
    """Builds the PrimFunc of one Primitive function."""

    def __init__(self, mod: IRModule, func: Function) -> None:
        self.mod = mod
        self.func = func
        self.buffers: dict[Any, list[Any]] = {}
        self.params: list[Buffer | TirVar] = []
        self.allocated: list[Buffer] = []
        self.bodies: list[Any] = []
        self.inplace: list[int] = []
        self.target: Any = None  # of the loops that are fused: they live on one device

    def build(self) -> PrimFunc:
        """The fused function; afterwards ``inplace`` says which argument each output overwrites (-1: none)."""
        for param in self.func.params:
            self.buffers[param] = self._param(f"p_{param.name_hint}", param.struct_info)
        for block in self.func.body.blocks:
            for binding in block.bindings:
                self._binding(binding)
        outputs = self._values(self.func.body.body)
        inputs = list(of_kind(self.params, Buffer))
        scalars = [p for p in self.params if not isinstance(p, Buffer)]
        self.inplace = [inputs.index(output) if output in inputs else -1 for output in outputs]
        for index in self.inplace:
            if index >= 0 and self.inplace.count(index) > 1:
                raise InternalError(f"In-place index {index} used twice! An argument must be aliased.")
        handles: list[Any] = []
        buffer_map: dict[Any, Buffer] = {}
        for buffer in dict.fromkeys([*inputs, *outputs]):
            handle = TirVar(buffer.name, "handle")
            handles.append(handle)
            buffer_map[handle] = buffer
        allocated = [b for b in self.allocated if b not in outputs]
        body = _UniteRegions().visit(_sequence(self.bodies))
        root = Block((), (), (), "root", body, None, allocated)
        attrs = {"tir.noalias": True, **({} if self.target is None else {"target": self.target})}
        made = PrimFunc([*handles, *scalars], BlockRealize((), True, root), None, buffer_map, attrs)
        return renew_defs(made)

    def _param(self, name: str, info: StructInfo) -> list[Any]:
        match info:
            case TensorStructInfo():
                if info.dims() is None:
                    raise InternalError(f"FuseTIR needs tensors of known shape, but {name} has {info}")
                buffer = decl_buffer(list(info.dims() or ()), info.dtype, name)
                self.params.append(buffer)
                return [buffer]
            case TupleStructInfo():
                return [b for i, f in enumerate(info.fields) for b in self._param(f"{name}_{i}", f)]
            case PrimStructInfo():
                scalar = info.value if isinstance(info.value, TirVar) else TirVar(name, info.dtype)
                self.params.append(scalar)
                return [scalar]
            case ShapeStructInfo() if info.values is not None:
                for value in info.values:
                    if not isinstance(value, TirVar):
                        raise InternalError(f"a shape parameter of a fused function holds variables, not {value}")
                    self.params.append(value)
                return list(info.values)
        raise InternalError(f"a fused function cannot take a parameter of struct info {info}")

    def _values(self, expr: Expr) -> list[Any]:
        """Buffers (or scalars) that an expression stands for."""
        match expr:
            case Tuple():
                return [b for f in expr.fields for b in self._values(f)]
            case PrimValue():
                return [expr.value]
            case ShapeExpr():
                return list(expr.values)
        if expr in self.buffers:
            return self.buffers[expr]
        if isinstance(expr, Constant):
            raise InternalError("constants inside Primitive functions must be lifted to parameters first")
        raise InternalError(f"FuseTIR cannot handle {expr} inside a Primitive function")

    def _binding(self, binding: VarBinding) -> None:
        value = binding.value
        match value:
            case Call():
                self.buffers[binding.var] = self._call(value)
            case TupleGetItem():
                self.buffers[binding.var] = self._field(value)
            case _:
                self.buffers[binding.var] = self._values(value)

    def _field(self, item: TupleGetItem) -> list[Any]:
        """A tuple's buffers lie flat, so skip those of the fields before."""
        info = item.tuple_value.struct_info
        counts = [_count(f) for f in info.fields]
        start = sum(counts[: item.index])
        return self._values(item.tuple_value)[start : start + counts[item.index]]

    def _call(self, call: Call) -> list[Any]:
        if not is_call_of(call, "relax.call_tir", "relax.call_tir_inplace"):
            raise InternalError(
                f"Only call_tir and call_tir_inplace are supported in primitive function, but got: {call.op}"
            )
        func = renew_defs(self.mod[call.args[0]])
        self.target = self.target or (func.attrs or {}).get("target")
        root = func.body
        if not isinstance(root, BlockRealize) or root.block.iter_vars:
            raise InternalError(f"only schedulable PrimFuncs can be fused, but {call.args[0]} has no root block")
        args = self._values(call.args[1])
        if len(call.args) > 2:
            args_tail = list(call.args[2].values) if isinstance(call.args[2], ShapeExpr) else self._values(call.args[2])
        else:
            args_tail = []
        outputs = _leaves(call.sinfo_args[0])
        places = [int(i) for i in call.attrs["inplace_indices"]] if call.attrs and len(call.attrs) else []
        buffers: dict[Buffer, Buffer] = {}
        values: dict[TirVar, PrimExpr] = {}
        composite: list[tuple[PrimExpr, PrimExpr]] = []
        made: list[Any] = []
        fresh: list[Any] = []
        params = list(func.params)
        for param, arg in zip(params, args):
            composite += self._match(func, param, arg, buffers, values)
        for position, info in enumerate(outputs):
            if position < len(places) and places[position] >= 0:
                made.append(args[places[position]])
                continue
            param = params[len(args) + len(fresh)]
            old = func.buffer_map[param]
            new = old.with_fields(
                data=TirVar(old.data.name, old.data.type_annotation), shape=info.shape.values, name=old.name
            )
            fresh.append(new)
            made.append(new)
            composite += self._match(func, param, new, buffers, values)
        for param, value in zip(params[len(args) + len(fresh) :], args_tail):
            values[param] = value
        for formal, actual in composite:
            _solve(formal, actual, values)
        block = root.block
        inner = {b: _specialised(b, values) for b in block.alloc_buffers}
        self.allocated.extend([*inner.values(), *fresh])
        self.bodies.append(substitute_buffers(block.body, values, {**buffers, **inner}))
        return made

    def _match(
        self, func: PrimFunc, param: Any, arg: Buffer, buffers: dict[Any, Any], values: dict[Any, Any]
    ) -> list[tuple[PrimExpr, PrimExpr]]:
        """Bind a parameter and the variables that are dimensions; composite dimensions are given back."""
        buffer = func.buffer_map.get(param)
        if buffer is None:
            values[param] = arg
            return []
        composite = []
        buffers[buffer] = arg
        values[buffer.data] = arg.data
        for formal, actual in zip(buffer.shape, arg.shape):
            if isinstance(formal, TirVar) and formal not in values:
                values[formal] = actual if actual.dtype == formal.dtype else actual.astype(formal.dtype)
            elif const_int(formal) is None and not isinstance(formal, TirVar):
                composite.append((formal, actual))
        return composite


def _solve(formal: PrimExpr, actual: PrimExpr, values: dict[Any, Any]) -> None:
    """Bind the variables that a composite dimension alone tells: ``n * 2`` is ``m * 4`` for ``n = m * 2``.

    Raises InternalError if they cannot be found.
    """
    unknown = [v for v in prim_vars(formal) if v not in values]
    if not unknown:
        return
    found = dict(values)
    _bind_alike(formal, actual, found)
    if not _fits(formal, actual, found) and len(unknown) == 1:
        linear = detect_linear_equation(substitute(formal, values), unknown)
        if linear:
            factor, offset = linear
            found = {**values, unknown[0]: simplify(floordiv(actual - offset, factor))}
    if not _fits(formal, actual, found):
        raise InternalError(f"the dimension {formal} of a PrimFunc cannot be matched with {actual}")
    values.update(found)


def _fits(formal: PrimExpr, actual: PrimExpr, values: dict[Any, Any]) -> bool:
    known = all(v in values for v in prim_vars(formal))
    return known and prove_equal(substitute(formal, values), actual)


def _bind_alike(formal: PrimExpr, actual: PrimExpr, values: dict[Any, Any]) -> None:
    """Equal operators bind their operands."""
    if isinstance(formal, TirVar):
        values.setdefault(formal, actual)
    elif type(formal) is type(actual):
        for lhs, rhs in zip(formal.iter_children(), actual.iter_children()):
            if isinstance(lhs, PrimExpr) and isinstance(rhs, PrimExpr):
                _bind_alike(lhs, rhs, values)


def _specialised(buffer: Buffer, values: dict[Any, Any]) -> Buffer:
    shape = [substitute(d, values) for d in buffer.shape]
    if all(a is b for a, b in zip(shape, buffer.shape)):
        return buffer
    made: Buffer = buffer.with_fields(shape=shape)
    return made


def _sequence(bodies: list[Any]) -> Stmt:
    flat: list[Any] = []
    for body in bodies:
        flat.extend(stmt_list(body))
    return stmt_seq(*flat)


def _leaves(info: StructInfo) -> list[Any]:
    if isinstance(info, TupleStructInfo):
        return [leaf for f in info.fields for leaf in _leaves(f)]
    return [info]


def _count(info: StructInfo) -> int:
    match info:
        case TupleStructInfo():
            return sum(_count(f) for f in info.fields)
        case ShapeStructInfo():
            return max(info.ndim, 0)
    return 1


class _CallSites(PyExprMutator):
    """Calls of Primitive functions become ``call_tir`` of the fused PrimFuncs."""

    def __init__(self, mod: IRModule, fused: dict[str, tuple[GlobalVar, list[int]]]) -> None:
        super().__init__(mod)
        self.fused = fused

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call.op, GlobalVar) or call.op.name_hint not in self.fused:
            return call
        args: list[Any] = []
        tir_vars: list[Any] = []
        for arg in call.args:
            self._flatten(arg, args, tir_vars)
        name, places = self.fused[call.op.name_hint]
        scalars = ShapeExpr(tir_vars) if tir_vars else None
        if any(place >= 0 for place in places):
            infos = _leaves(call.struct_info)
            made = call_tir_inplace(name, Tuple(args), places, infos[0] if len(infos) == 1 else infos, scalars)
        else:
            made = call_tir(name, Tuple(args), call.struct_info, scalars)
        made.span = call.span
        return made

    def _flatten(self, arg: Expr, args: list[Any], tir_vars: list[Any]) -> None:
        info = arg.struct_info
        match info:
            case TupleStructInfo():
                for index in range(len(info.fields)):
                    item = arg.fields[index] if isinstance(arg, Tuple) else self.builder_.emit(TupleGetItem(arg, index))
                    self._flatten(item, args, tir_vars)
            case ShapeStructInfo():
                tir_vars.extend(info.values or ())
            case PrimStructInfo():
                if info.value is None:
                    raise InternalError("a scalar argument of a fused function must be a known expression")
                tir_vars.append(info.value)
            case _:
                args.append(arg)


def _run(mod: IRModule) -> IRModule:
    primitive = {v: f for v, f in functions_of(mod, Function) if _is_true(f.attrs.get("Primitive"))}
    if not primitive:
        return mod
    out = mod.clone()
    fused: dict[str, tuple[GlobalVar, list[int]]] = {}
    for var, func in primitive.items():
        maker = _FusedFunction(mod, func)
        prim_func = maker.build()
        name = GlobalVar(var.name_hint)
        fused[var.name_hint] = (name, maker.inplace)
        if all(place < 0 for place in maker.inplace):
            remember_group(prim_func, func, mod)
        out.update_func(name, prim_func)
    sites = _CallSites(out, fused)
    return rewrite_functions(sites, out)


def _is_true(value: bool | None) -> bool:
    return plain_bool(value)


class FuseTIR(StepsPass):
    """Make one PrimFunc of every ``Primitive`` function and drop what nothing refers to any more.

    Intermediate tensors become buffers allocated in the fused PrimFunc's root block. First tuples among the parameters of
    private functions are taken apart and unused parameters dropped, which takes trivial copies along
    (:func:`ExpandTupleArguments`, :func:`RemoveUnusedParameters`).
    """

    def steps(self) -> list[Pass]:
        fuse = as_module_pass(_run, "InnerFuseTIR")
        return [ExpandTupleArguments(), RemoveUnusedParameters(), fuse, DeadCodeElimination()]
