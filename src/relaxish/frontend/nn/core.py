"""Tensors, parameters and modules of the ``nn`` frontend.

A :class:`Module` is written like a PyTorch module, with a ``forward`` that calls ``nn.op`` functions.
:meth:`Module.export_tvm` runs ``forward`` once on symbolic tensors and gives an IRModule.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterator, KeysView, Sequence, ValuesView
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import op as relax_op
from ... import relax, tir
from ...ir.prim import const_int
from ...relax.expr import Expr
from ...relax.struct_info import StructInfo
from ...runtime import Device
from ...runtime.arrays.ndarray import NDArray, array
from ..common import Pipeline
from .subroutine import SubroutineMixin

if TYPE_CHECKING:
    from .jit import CompiledModule
    from .spec import ModuleSpec

__all__ = [
    "Effect", "Module", "ModuleDict", "ModuleList", "Object", "Parameter", "Sequential", "Tensor", "get_default_dtype",
    "expr_of", "set_default_dtype", "wrap_nested",
]  # fmt: skip

#: A dimension; a name stands for a symbolic one.
Dim = int | tir.PrimExpr
#: Strides, paddings, axes: one number, or one for each axis.
Steps = int | Sequence[int]
_DEFAULT_DTYPE = ["float32"]


def get_default_dtype() -> str:
    """The dtype of parameters made without one; float32 unless changed."""
    return _DEFAULT_DTYPE[0]


def set_default_dtype(dtype: str) -> None:
    """Change the dtype of parameters made without one."""
    _DEFAULT_DTYPE[0] = dtype


class Tensor:
    """A tensor while a module is traced: it wraps the Relax expression of its value."""

    __slots__ = ("_expr",)
    _expr: Any

    def __init__(self, *, _expr: Expr) -> None:
        info = _expr.struct_info_
        if info is not None and not isinstance(info, relax.TensorStructInfo):
            raise TypeError(f"a Tensor wraps a tensor value, not {type(info).__name__}")
        self._expr = _expr

    @staticmethod
    def from_const(data: np.typing.ArrayLike) -> Tensor:
        """A constant."""
        return Tensor(_expr=relax.const(data))

    @staticmethod
    def from_scalar(data: int | float, dtype: str) -> Tensor:
        """A constant of no dimensions."""
        return Tensor(_expr=relax.const(data, dtype))

    @staticmethod
    def from_struct_info(struct_info: StructInfo, name: str = "tensor") -> Tensor:
        """A fresh variable of known struct info."""
        return Tensor(_expr=relax.Var(name, struct_info))

    @staticmethod
    def placeholder(shape: Sequence[Any], dtype: str, name: str = "tensor") -> Tensor:
        """A fresh variable; string dimensions become symbolic variables."""
        return Tensor(_expr=relax.Var(name, relax.TensorStructInfo(_dims(shape), dtype)))

    @property
    def shape(self) -> list[Any]:
        """Dimensions: ints where known, expressions where symbolic."""
        return [const_int(d, d) for d in self._expr.struct_info.shape.values]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return int(self._expr.struct_info.ndim)

    @property
    def dtype(self) -> str:
        """Element type."""
        return str(self._expr.struct_info.dtype)

    def __add__(self, other: Operand) -> Tensor:
        return _binary("add", self, other)

    def __radd__(self, other: Operand) -> Tensor:
        return _binary("add", self, other)

    def __sub__(self, other: Operand) -> Tensor:
        return _binary("subtract", self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return _binary("subtract", other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return _binary("multiply", self, other)

    def __rmul__(self, other: Operand) -> Tensor:
        return _binary("multiply", self, other)

    def __truediv__(self, other: Operand) -> Tensor:
        return _binary("divide", self, other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return _binary("divide", other, self)

    def __pow__(self, other: Operand) -> Tensor:
        return _binary("power", self, other)

    def __mod__(self, other: Operand) -> Tensor:
        return _binary("floor_mod", self, other)

    def __neg__(self) -> Tensor:
        return wrap_tensor(relax_op.negative(self._expr), "negative")

    def __matmul__(self, other: Operand) -> Tensor:
        return _binary("matmul", self, other)

    def __lt__(self, other: Operand) -> Tensor:
        return _binary("less", self, other)

    def __le__(self, other: Operand) -> Tensor:
        return _binary("less_equal", self, other)

    def __gt__(self, other: Operand) -> Tensor:
        return _binary("greater", self, other)

    def __ge__(self, other: Operand) -> Tensor:
        return _binary("greater_equal", self, other)

    def astype(self, dtype: str) -> Tensor:
        """Elementwise conversion."""
        return wrap_tensor(relax_op.astype(self._expr, dtype), "astype")

    def maximum(self, other: Operand) -> Tensor:
        """Elementwise maximum."""
        return _binary("maximum", self, other)

    def minimum(self, other: Operand) -> Tensor:
        """Elementwise minimum."""
        return _binary("minimum", self, other)

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in another shape."""
        dims = shape[0] if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape
        return wrap_tensor(relax_op.reshape(self._expr, list(dims)), "reshape")

    def permute_dims(self, *axes: Any) -> Tensor:
        """Axes in another order; reversed if none are given."""
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], (list, tuple)) else axes
        return wrap_tensor(relax_op.permute_dims(self._expr, list(order) or None), "permute_dims")

    def repeat(self, repeats: int, axis: int | None = None) -> Tensor:
        """Every element (of an axis) several times."""
        return wrap_tensor(relax_op.repeat(self._expr, repeats, axis), "repeat")

    def __repr__(self) -> str:
        return f'Tensor({self.shape}, "{self.dtype}")'


def _dims(shape: Sequence[Any]) -> list[Any]:
    """Dimensions as a struct info takes them: names become symbolic variables."""
    made: list[Any] = []
    for dim in shape:
        match dim:
            case int() | np.integer() | tir.IntImm():
                if int(dim) < 0:
                    raise ValueError(f"Invalid shape: {list(shape)}")
                made.append(int(dim))
            case str():
                made.append(tir.Var(dim, "int64"))
            case tir.PrimExpr():
                made.append(dim)
            case _:
                raise TypeError(f"Invalid shape: {list(shape)}")
    return made


def _to_expr(value: Operand | Expr, like: str) -> Expr:
    match value:
        case Tensor():
            return value._expr
        case relax.Expr():
            return value
    return relax.const(value, like)


def _binary(name: str, a: Operand, b: Operand) -> Tensor:
    dtype = next(x.dtype for x in (a, b) if isinstance(x, Tensor))
    return wrap_tensor(getattr(relax_op, name)(_to_expr(a, dtype), _to_expr(b, dtype)), name)


def wrap_tensor(expr: Expr, name: str) -> Tensor:
    """As :func:`wrap_nested`, of an expression whose value is one tensor."""
    made = wrap_nested(expr, name)
    assert isinstance(made, Tensor)
    return made


def wrap_tuple(expr: Expr, name: str) -> tuple[Any, ...]:
    """As :func:`wrap_nested`, of an expression whose value is a tuple."""
    made = wrap_nested(expr, name)
    assert isinstance(made, tuple)
    return made


def wrap_nested(expr: Expr, name: str) -> Wrapped:
    """Bind an expression in the current BlockBuilder and wrap it; tuples become tuples of tensors."""
    builder = relax.BlockBuilder.current()
    if builder is None:
        raise RuntimeError(
            "nn operators run while a module is exported: call them from forward(), or inside "
            "`with bb.function(...), bb.dataflow():`"
        )
    if not isinstance(expr, relax.DataflowVar):
        expr = builder.emit(expr, name)
    info = expr.struct_info_
    match info:
        case relax.TensorStructInfo():
            return Tensor(_expr=expr)
        case relax.TupleStructInfo():
            return tuple(wrap_nested(relax.TupleGetItem(expr, i), f"{name}.{i}") for i in range(len(info.fields)))
    return Object(_expr=expr, _name=name)


def expr_of(value: Wrapped | Expr | Sequence[Any]) -> Expr:
    """Result of ``forward`` as one expression."""
    match value:
        case Tensor() | Object():
            return value._expr
        case list() | tuple():
            return relax.Tuple([expr_of(v) for v in value])
        case relax.Expr():
            return value
    raise TypeError(
        f"Unsupported return type: {type(value).__name__}; forward returns Tensors, Objects, or tuples of them"
    )


class Parameter(Tensor):
    """A weight: a shape and dtype, and data once it is bound."""

    __slots__ = ("_data", "_name", "attrs")

    def __init__(self, shape: Sequence[Any], dtype: str | None = None) -> None:
        info = relax.TensorStructInfo(_dims(shape), dtype or get_default_dtype())
        super().__init__(_expr=relax.Var("param", info))
        self._data: NDArray | None = None
        self._name = ""
        self.attrs: dict[str, Any] = OrderedDict()

    @property
    def data(self) -> NDArray | None:
        """The bound array, or None."""
        return self._data

    @data.setter
    def data(self, data: NDArray | np.typing.ArrayLike | None) -> None:
        if data is None:
            self._data = None
            return
        if not isinstance(data, NDArray):
            data = array(data.detach().cpu().numpy() if hasattr(data, "detach") else np.asarray(data))
        have, want = list(data.shape), self.shape
        if len(have) != len(want) or any(isinstance(w, int) and w != h for w, h in zip(want, have)):
            raise ValueError(f"Shape mismatch: parameter has shape {tuple(want)}, the data {tuple(have)}")
        if str(data.dtype) != self.dtype:
            raise ValueError(f"DType mismatch: parameter has dtype {self.dtype}, the data {data.dtype}")
        self._data = data

    def to(self, dtype: str | None = None) -> Parameter:
        """Change the dtype, converting bound data."""
        if dtype is not None and dtype != self.dtype:
            if self._data is not None:
                self._data = array(self._data.numpy().astype(dtype))
            self._expr = relax.Var("param", relax.TensorStructInfo(self._expr.struct_info.shape.values, dtype))
        return self


class Object:
    """A value that is no tensor: a cache, a token, a closure."""

    def __init__(self, *, _expr: Expr, _name: str = "object") -> None:
        self._expr = _expr
        self._name = _name

    def __repr__(self) -> str:
        return f"Object({self._name})"


#: The result of an operator: a tensor, another value, or a tuple of such.
Wrapped = Tensor | Object | tuple[Any, ...]
#: An operand of an element-wise operator; numbers take the tensor's dtype.
Operand = Tensor | relax.Expr | float


class Effect:
    """State threaded through the exported functions: created, read, written and returned."""

    def emit_init(self, name_hint: str, builder: relax.BlockBuilder) -> list[Any]:
        """Emit the initial state; returns variables."""
        raise NotImplementedError

    def create(self, name_hint: str) -> list[Any]:
        """Make the variables by which a function receives the state."""
        raise NotImplementedError

    def set_state(self, state_vars: list[Any]) -> None:
        """Install the state at the start of a function."""
        raise NotImplementedError

    def finalize(self) -> list[Any]:
        """Give back the state at the end of a function."""
        raise NotImplementedError

    def to(self, dtype: str | None = None) -> None:
        """Change the dtype of the state."""


def _children(value: object) -> Iterator[tuple[str, Any]]:
    """Named parts of a module or container; plain lists, tuples and dictionaries count."""
    match value:
        case ModuleList():
            yield from ((str(i), item) for i, item in enumerate(value.modules))
        case ModuleDict():
            yield from value.modules.items()
        case Module():
            yield from value.__dict__.items()
        case list() | tuple():
            yield from ((str(i), item) for i, item in enumerate(value))
        case dict():
            yield from ((str(k), item) for k, item in value.items())


def _walk(value: object, prefix: str, wanted: Callable[[Any], bool], seen: set[int]) -> Iterator[tuple[str, Any]]:
    for name, item in _children(value):
        path = f"{prefix}.{name}" if prefix else name
        if wanted(item):
            if id(item) not in seen:
                seen.add(id(item))
                yield path, item
        elif isinstance(item, (Module, list, tuple, dict)):
            yield from _walk(item, path, wanted, seen)


class Module(SubroutineMixin):
    """Base of network modules: parameters and submodules are attributes (also inside lists and dictionaries)."""

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Parameters with their dotted paths, each once."""
        yield from _walk(self, prefix, lambda v: isinstance(v, Parameter), set())

    def parameters(self) -> Iterator[Parameter]:
        """All parameters, each once."""
        for _, param in self.named_parameters():
            yield param

    def named_effects(self, prefix: str = "") -> Iterator[tuple[str, Effect]]:
        """Effects with their dotted paths."""
        yield from _walk(self, prefix, lambda v: isinstance(v, Effect), set())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all below it."""
        yield prefix, self
        for name, item in _walk(self, prefix, lambda v: isinstance(v, Module), set()):
            yield from item.named_modules(name)

    def state_dict(self, *, prefix: str = "", destination: dict[str, Parameter] | None = None) -> dict[str, Parameter]:
        """Parameters by dotted path."""
        out: dict[str, Parameter] = OrderedDict() if destination is None else destination
        for name, param in self.named_parameters():
            out[prefix + name] = param
        return out

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> tuple[list[str], list[str]]:
        """Bind data to parameters by path; returns (missing, unexpected) names.

        Raises KeyError if there are any and ``strict`` is set.
        """
        own = self.state_dict()
        missing = [name for name in own if name not in state_dict]
        unexpected = [name for name in state_dict if name not in own]
        if strict and (missing or unexpected):
            raise KeyError(f"Missing keys: {missing}, Unexpected keys: {unexpected}")
        for name, value in state_dict.items():
            if name in own:
                own[name].data = value.data if isinstance(value, Parameter) else value
        return missing, unexpected

    def to(self, dtype: str | None = None) -> Module:
        """Change the dtype of all parameters, effects and submodules that carry one; returns the module."""
        for param in self.parameters():
            param.to(dtype)
        for _, effect in self.named_effects():
            effect.to(dtype)
        if dtype is not None:
            for _, module in self.named_modules():
                if isinstance(getattr(module, "dtype", None), str):
                    module.dtype = dtype  # type: ignore[attr-defined]
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computation of the module; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def export_tvm(self, spec: ModuleSpec | dict[str, Any], debug: bool = False, allow_extern: bool = False) -> Any:
        """Trace the methods named in ``spec``.

        Returns ``(module, [(name, parameter), ...])``, plus external modules if ``allow_extern``.

        >>> from relaxish.frontend import nn
        >>> net = nn.Linear(4, 2)
        >>> mod, params = net.export_tvm({"forward": {"x": nn.spec.Tensor([3, 4], "float32")}})
        >>> [name for name, _ in params]
        ['weight', 'bias']
        """
        from .exporter import Exporter
        from .spec import ModuleSpec

        module_spec = spec if isinstance(spec, ModuleSpec) else ModuleSpec.from_raw(spec, self)
        mod, params, externs = Exporter(debug=debug).build(module_spec)
        if allow_extern:
            return mod, params, externs
        if externs:
            raise ValueError("the module uses ExternModules: pass allow_extern=True to receive them")
        return mod, params

    def jit(
        self,
        spec: ModuleSpec | dict[str, Any],
        device: str | Device = "cpu",
        pipeline: Pipeline = "default_build",
        out_format: str = "torch",
        debug: bool = False,
    ) -> CompiledModule:
        """Export, build and bind the parameters; the result is called with torch tensors or NumPy arrays.

        ``out_format`` is ``"torch"`` or ``"numpy"``.
        """
        from .jit import jit

        return jit(self, spec, device, pipeline, out_format, debug)


class ModuleList(Module):
    """Modules in a list."""

    def __init__(self, modules: Sequence[Module] = ()) -> None:
        self.modules = list(modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def __getitem__(self, idx: int) -> Module:
        return self.modules[idx]

    def __setitem__(self, idx: int, module: Module) -> None:
        self.modules[idx] = module

    def __len__(self) -> int:
        return len(self.modules)

    def append(self, module: Module) -> None:
        """Add at the end."""
        self.modules.append(module)

    def forward(self, x: Any) -> Any:
        for module in self.modules:
            x = module(x)
        return x


class Sequential(ModuleList):
    """Modules applied one after another."""

    def __init__(self, *modules: Module | Sequence[Module]) -> None:
        super().__init__([m for given in modules for m in ([given] if isinstance(given, Module) else given)])


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: dict[str, Module] | None = None) -> None:
        self.modules = OrderedDict(modules or {})

    def __getitem__(self, key: str) -> Module:
        return self.modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.modules[key] = module

    def __iter__(self) -> Iterator[str]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    def items(self) -> ItemsView[str, Module]:
        """Names and modules."""
        return self.modules.items()

    def keys(self) -> KeysView[str]:
        """Names."""
        return self.modules.keys()

    def values(self) -> ValuesView[Module]:
        """Modules."""
        return self.modules.values()
