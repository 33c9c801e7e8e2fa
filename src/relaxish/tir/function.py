"""PrimFunc: a function over buffers and scalars; TensorIntrin: its pattern/implementation pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..ir.attrs import DictAttrs
from ..ir.errors import CheckTypeError, CheckValueError
from ..ir.expr import BaseFunc
from ..ir.node import Node, field
from ..ir.object_generic import ObjectGeneric
from ..ir.prim import Var
from ..ir.source import Span
from ..ir.types import PointerType, PrimType, TupleType, Type
from ..support.entry_points import lazy_package, load
from .buffer import Buffer
from .stmt import Stmt

__all__ = ["PrimFunc", "TensorIntrin"]


class PrimFunc(BaseFunc):
    """A tensor program: parameters, the buffers behind pointer parameters, and a body."""

    params: tuple[Var, ...] = field(role="bind")
    body: Stmt
    ret_type: Type
    buffer_map: dict[Var, Buffer] = field(role="bind")
    attrs: Any = field(default=None, kw_only=True)
    _equal_order = ("params", "buffer_map", "ret_type", "body", "attrs")

    def __init__(
        self,
        params: Iterable[Var | Buffer | ObjectGeneric],
        body: Stmt,
        ret_type: Type | None = None,
        buffer_map: Mapping[Var, Buffer] | None = None,
        attrs: DictAttrs | Mapping[str, Any] | None = None,
        span: Span | None = None,
    ) -> None:
        buffers: dict[Var, Buffer] = dict(buffer_map or {})
        made: list[Var] = []
        for given in params:
            param = given.asobject() if isinstance(given, ObjectGeneric) else given
            match param:
                case Buffer():
                    handle = Var(param.name, "handle")
                    buffers[handle] = param
                    made.append(handle)
                case Var():
                    made.append(param)
                case _:
                    raise CheckTypeError(f"a PrimFunc parameter is a Var or a Buffer, not {type(given).__name__}")
        if not isinstance(body, Stmt):
            raise CheckTypeError(f"PrimFunc expects a Stmt as its body, but got {type(body).__name__}")
        for buffer in buffers.values():
            if not isinstance(buffer, Buffer):
                raise CheckTypeError(f"buffer_map holds Buffers, not {type(buffer).__name__}")
        self.params = tuple(made)
        self.body = body
        self.ret_type = ret_type if ret_type is not None else TupleType(())
        self.buffer_map = buffers
        self.attrs = attrs if isinstance(attrs, DictAttrs) else DictAttrs(dict(attrs) if attrs else {})
        self.struct_info_ = None
        self.span = span

    @property
    def struct_info(self) -> Any:
        """The signature as the graph level sees it; derived on first use. Raises ValueError without the graph level."""
        if self.struct_info_ is None and _STRUCT_INFO_HOOK[0] is not None:
            self.struct_info_ = _STRUCT_INFO_HOOK[0](self)
        return super().struct_info

    @classmethod
    def _make(cls, **f: Any) -> PrimFunc:
        return cls(f["params"], f["body"], f["ret_type"], f["buffer_map"], f["attrs"], f.get("span"))

    def with_body(self, new_body: Stmt, span: Span | None = None) -> PrimFunc:
        """The same signature and attributes around another body."""
        return PrimFunc(self.params, new_body, self.ret_type, self.buffer_map, self.attrs, span or self.span)

    def specialize(self, param_map: Mapping[Var, Any]) -> PrimFunc:
        """Bind parameters: a scalar to a value, a buffer parameter to a buffer of known shape.

        Raises ValueError for a parameter that the function does not have, a buffer of another rank or a variable
        that would have two values; TypeError for a value of the wrong kind or a dimension that is fixed already.

        >>> from relaxish.script import tir as T
        >>> @T.prim_func
        ... def f(a: T.handle, n: T.int32):
        ...     A = T.match_buffer(a, (n,), "float32")
        ...     for i in range(n):
        ...         A[i] = A[i] + T.float32(1)
        >>> [int(d) for d in f.specialize({f.params[1]: 8}).buffer_map[f.params[0]].shape]
        [8]
        """
        from .specialize import bindings, specialized

        made: PrimFunc = specialized(self, bindings(self, param_map))
        return made


# The relax layer installs how a PrimFunc's struct info is derived.
_STRUCT_INFO_HOOK: list[Any] = [None]


class TensorIntrin(Node):
    """A tensor instruction: ``desc`` says what it computes, ``impl`` how it is issued."""

    desc: PrimFunc
    impl: PrimFunc

    def __post_init__(self) -> None:
        if len(self.desc.params) != len(self.impl.params):
            raise CheckValueError(
                "The number of parameters of the description and the implementation of the tensor intrinsic doesn't match."
            )
        for what, func in (("description", self.desc), ("implementation", self.impl)):
            if any(p.dtype != "handle" for p in func.params):
                raise CheckValueError(f"Parameters of the {what} of the tensor intrinsic should be handle only.")
        if len(self.desc.buffer_map) != len(self.impl.buffer_map):
            raise CheckValueError("The description and the implementation of a tensor intrinsic have other buffers.")

    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> TensorIntrin:
        """Register under a name. Raises ValueError if taken (unless ``override``) or if the two do not fit."""
        if (name in _INTRINS or name in _DECLARED) and not override:
            raise CheckValueError(f"TensorIntrin '{name}' has already been registered")
        _INTRINS[name] = made = TensorIntrin(desc, impl)
        return made

    @staticmethod
    def declare(name: str, make: Callable[[], tuple[PrimFunc, PrimFunc]]) -> None:
        """Register under a name what ``make`` gives when the intrinsic is first asked for."""
        if name in _INTRINS or name in _DECLARED:
            raise CheckValueError(f"TensorIntrin '{name}' has already been registered")
        _DECLARED[name] = make

    @staticmethod
    def get(name: str, allow_missing: bool = False) -> TensorIntrin | None:
        """The intrinsic of that name. Raises ValueError if there is none, unless ``allow_missing``."""
        if name not in _INTRINS:
            load("tensor_intrinsics")()
            if name in _DECLARED and name not in _INTRINS:
                _INTRINS[name] = TensorIntrin(*_DECLARED[name]())
        found = _INTRINS.get(name)
        if found is None and not allow_missing:
            raise CheckValueError(f"TensorIntrin '{name}' is not registered")
        return found


_INTRINS: dict[str, TensorIntrin] = {}
_DECLARED: dict[str, Callable[[], tuple[PrimFunc, PrimFunc]]] = {}


__getattr__, __dir__ = lazy_package(globals())  # ``IndexMap`` stands above this module
_ = (PointerType, PrimType)
