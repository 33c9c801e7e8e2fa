"""AlterOpImpl: other PrimFuncs for operators, which may want their tensors in other layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import te
from ..ir.expr import GlobalVar
from ..ir.module import IRModule
from ..ir.op import Op
from ..ir.prim import Var as TirVar
from ..op.manipulate import layout_transform
from ..relax.expr import Call, Constant, Expr, Tuple, TupleGetItem, as_shape_dim, is_call_of
from ..relax.expr_functor import PyExprMutator, rewrite_functions
from ..relax.scalars import const_int
from ..relax.struct_info import TensorStructInfo, TupleStructInfo, fields_of, tensor_dims
from ..support.errors import InternalError
from ..tir import IndexMap, PrimFunc
from ..ir.plain import plain_str
from ..ir.declared_pass import ModuleRewrite

__all__ = ["AlterOpImpl"]

Separators = Mapping[str, Sequence[Any]]


class _Alter(PyExprMutator):
    def __init__(
        self,
        mod: IRModule,
        implementations: Mapping[str, PrimFunc],
        transforms: Mapping[str, Sequence[IndexMap | None]],
        separators: Separators,
        input_separators: Separators,
    ) -> None:
        super().__init__(mod)
        self.mod = mod
        self.implementations = implementations
        self.transforms = transforms
        self.separators = separators
        self.input_separators = input_separators
        self.names: dict[str, GlobalVar] = {}
        self.unpadders: dict[tuple[int, str], GlobalVar] = {}

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not is_call_of(call, "relax.call_tir") or call.args[0] not in self.mod:
            return call
        func = self.mod[call.args[0]]
        found = func.attrs.get("operator_name") if isinstance(func, PrimFunc) else None
        kind = plain_str(found)
        if kind not in self.implementations:
            return call
        return self._altered(call, kind)

    def _altered(self, call: Call, kind: str) -> Expr:
        replacement = self.implementations[kind]
        maps = list(self.transforms.get(kind) or ())
        if maps and len(maps) != len(replacement.params):
            raise InternalError(
                "Either the i/o buffers do not require any transformations or transformations for each buffer is "
                f"provided. Number of buffer transformations: {len(maps)}, and number of parameters: "
                f"{len(replacement.params)}"
            )
        if len(self.mod[call.args[0]].params) != len(replacement.params):
            raise InternalError("Number of parameters of old and replacement PrimFunc must match")
        untouched = not maps
        maps = maps or [None] * len(replacement.params)
        args = list(call.args[1].fields)
        seps = self._separators(self.separators, kind, len(maps))
        input_seps = self._separators(self.input_separators, kind, len(maps))
        inputs = [self._transformed(arg, m, s, i) for arg, m, s, i in zip(args, maps, seps, input_seps)]
        count = len(args)
        old = call.sinfo_args[0]
        infos = list(fields_of(old))
        outputs = list(zip(infos, maps[count:], seps[count:], input_seps[count:]))
        changed = [_mapped(info, index_map) for info, index_map, _, _ in outputs]
        new_info = TupleStructInfo(changed) if isinstance(old, TupleStructInfo) else changed[0]
        new = Call(call.op, (self._name(kind), Tuple(inputs), *call.args[2:]), call.attrs, [new_info], call.span)
        if untouched:
            return new
        if not isinstance(old, TupleStructInfo):
            return self._back(new, *outputs[0])
        result = self.builder_.emit(new)
        return Tuple([self._back(TupleGetItem(result, i), *item) for i, item in enumerate(outputs)])

    @staticmethod
    def _separators(table: Separators, kind: str, count: int) -> list[Any]:
        return list(table.get(kind) or [[]] * count)

    def _name(self, kind: str) -> GlobalVar:
        if kind not in self.names:
            func = self.implementations[kind].without_attr("global_symbol").with_attr("operator_name", kind)
            self.names[kind] = self.builder_.add_func(func, kind.replace(".", "_") + "_replacement")
        return self.names[kind]

    def _transformed(self, arg: Expr, index_map: IndexMap | None, separators: Any, input_separators: Any) -> Expr:
        scalar = isinstance(arg, Constant) and not arg.struct_info.dims()
        if index_map is None or scalar:
            return arg
        return layout_transform(arg, index_map, None, separators, input_separators)

    def _back(self, value: Expr, info: Any, index_map: IndexMap | None, separators: Any, input_separators: Any) -> Expr:
        """The result in its first layout again; padding is cut off."""
        if index_map is None:
            return value
        shape = list(info.dims())
        inverse, predicate = index_map.non_surjective_inverse(shape)
        if const_int(predicate) == 0:
            return layout_transform(value, inverse, None, separators, input_separators)
        padded = self.builder_.normalize(layout_transform(value, inverse, None, separators, input_separators))
        unpad = self._unpadder(shape, info.dtype)
        return Call(Op.get("relax.call_tir"), (unpad, Tuple([padded])), None, [info])

    def _unpadder(self, shape: Sequence[Any], dtype: str) -> GlobalVar:
        """The function that copies the leading part of a tensor, for all tensors of that rank and dtype."""
        key = (len(shape), dtype)
        if key not in self.unpadders:
            dims = [as_shape_dim(d).dtype for d in shape]
            padded = te.placeholder([TirVar(f"p{i}", d) for i, d in enumerate(dims)], dtype, "input")
            whole = [TirVar(f"i{i}", d) for i, d in enumerate(dims)]
            output = te.compute(whole, lambda *i: padded(*i), name="output")
            func = te.create_prim_func([padded, output]).without_attr("global_symbol")
            self.unpadders[key] = self.builder_.add_func(func.with_attr("operator_name", "remove_pad"), "remove_pad")
        return self.unpadders[key]


def _mapped(info: Any, index_map: IndexMap | None) -> TensorStructInfo:
    if index_map is None:
        return info
    if tensor_dims(info) is None:
        raise InternalError(f"AlterOpImpl needs outputs of known shape, not {info}")
    shape = [as_shape_dim(d) for d in index_map.map_shape(list(info.dims() or ()))]
    return TensorStructInfo(shape, info.dtype, info.vdevice)


def _as_map(item: Callable[..., Any] | IndexMap | Sequence[Any] | None) -> IndexMap | None:
    """The map; the places of separators, which may come with it, are told apart."""
    if item is None or isinstance(item, IndexMap):
        return item
    if isinstance(item, (tuple, list)) and item and isinstance(item[0], IndexMap):
        return item[0]
    if callable(item):
        return IndexMap.from_func_with_separators(item, index_dtype="int64")[0]
    raise TypeError(f"a buffer transform must be an IndexMap or a function of indices, not {type(item).__name__}")


class AlterOpImpl(ModuleRewrite):
    """Replace PrimFuncs by the value of their attribute ``operator_name``.

    ``op_buffer_transforms`` says how each parameter of the replacement is laid out; the calls get the transforms::

        lv = R.call_tir(cls.add, (x, y), ...)       lv1 = R.layout_transform(x, ...)
                                              ->    lv2 = R.layout_transform(y, ...)
                                                    lv3 = R.call_tir(cls.relax_add_replacement, (lv1, lv2), ...)
                                                    lv = R.layout_transform(lv3, ...)
    """

    op_impl_map: Mapping[str, PrimFunc]
    op_buffer_transforms: Mapping[str, Sequence[Any]]
    op_buffer_axis_separators: Separators | None = None
    op_buffer_input_axis_separators: Separators | None = None

    def __post_init__(self) -> None:
        maps = {kind: [_as_map(item) for item in items or ()] for kind, items in self.op_buffer_transforms.items()}
        self._settle(op_buffer_transforms=maps)

    def rewrite(self, mod: IRModule) -> IRModule:
        separators = self.op_buffer_axis_separators or {}, self.op_buffer_input_axis_separators or {}
        return rewrite_functions(_Alter(mod, self.op_impl_map, self.op_buffer_transforms, *separators), mod)
