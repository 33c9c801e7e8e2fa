"""The operator table: what each operator *does*, in one record.

The layer above (``relaxish.op``) fills it; inference, legalisation, gradients, layouts and the test that walks all
operators read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..ir.op import ATTR_HOOKS, LOADERS, Op
from ..support.entry_points import load
from ..support.errors import RelaxishError

if TYPE_CHECKING:
    from .axis_groups import AxisGroupGraph
    from .block_builder import BlockBuilder
    from .expr import Call, Expr, Var
    from .layout import InferLayoutOutput, LayoutMap
    from .struct_info import StructInfo

__all__ = [
    "AxisRule", "Gradient", "Infer", "LayoutRule", "Legalize", "OTHER", "OpKind", "OpRecord", "Sample",
    "all_op_records", "get_op_record", "op_function", "op_record_of", "register_op", "registered", "update_op",
]  # fmt: skip

#: Struct info of the result of a call. Raises an error for arguments that do not fit.
Infer = Callable[["Call", "BlockBuilder"], "StructInfo"]
#: What computes the same as a call, of loop programs or of simpler operators.
Legalize = Callable[["BlockBuilder", "Call"], "Expr"]
#: ``gradient(result, call, gradient of the result, builder)``: a gradient for each argument.
Gradient = Callable[["Var", "Call", "Var", "BlockBuilder"], Sequence["Expr"]]
#: ``layout(call, desired layouts, layouts of the variables)``; see :mod:`relaxish.relax.layout`.
LayoutRule = Callable[["Call", Mapping[str, Sequence[str]], "LayoutMap"], "InferLayoutOutput | None"]
#: ``axes(result, call, graph)`` joins the axes of operands and result that are split together over a device mesh.
AxisRule = Callable[["Var", "Call", "AxisGroupGraph"], None]
#: NumPy arguments and keyword arguments of one example call.
Sample = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class OpKind:
    """Defaults for operators of one kind; a record states only the differences."""

    name: str
    precision: str = "never"
    layout: LayoutRule | None = None
    axes: AxisRule | None = None
    attrs: str | None = None


#: No kind: nothing is known but what the record says.
OTHER = OpKind("other")


@dataclass
class OpRecord:
    """Everything about one operator; what is not said is as for others of its kind.

    ``attrs`` is the type name of its attributes, under which they are printed, saved and compared;
    ``precision`` is ``"always"`` (worth low precision), ``"follow"`` (whatever its inputs are) or ``"never"``;
    ``reference(*numpy_args, **attrs)`` is its NumPy meaning; ``samples()`` yields example calls for tests;
    ``packed`` is the runtime's function that does it; the result of one that ``allocates`` is new memory each time.
    """

    name: str
    infer: Infer
    kind: OpKind = OTHER
    attrs: str | None = None
    legalize: Legalize | None = None
    gradient: Gradient | None = None
    layout: LayoutRule | None = None
    axes: AxisRule | None = None
    precision: str = ""
    pure: bool = True
    reference: Callable[..., Any] | None = None
    samples: Callable[[], Sequence[Sample]] | None = None
    normalize: Legalize | None = None
    validate: Callable[[Call], None] | None = None
    infer_precision: Callable[[Call, str], Call] | None = None
    packed: str | None = None
    allocates: bool | None = None
    data_dependent: bool | None = None

    def __post_init__(self) -> None:
        self.attrs = self.attrs or self.kind.attrs
        self.precision = self.precision or self.kind.precision
        self.layout = self.layout or self.kind.layout
        self.axes = self.axes or self.kind.axes


_TABLE: dict[str, OpRecord] = {}


#: The operator attributes that are fields of the record, as users of the public API know them.
_FIELD_OF_ATTR = {
    "FCallPacked": "packed",
    "FDataDependent": "data_dependent",
    "FInferStructInfo": "infer",
    "FLegalize": "legalize",
    "FNormalize": "normalize",
    "FPrimalGradient": "gradient",
    "FPurity": "pure",
    "FValidate": "validate",
    "FInferMixedPrecision": "infer_precision",
    "TAllocator": "allocates",
    "TAttrsTypeKey": "attrs",
}


def register_op(record: OpRecord) -> OpRecord:
    """Enter a record; a later one of the same name replaces the earlier."""
    op = Op.register(record.name)
    op.set_attr("relax.record", record)
    _TABLE[record.name] = record
    _show(op, record)
    return record


def _show(op: Op, record: OpRecord) -> None:
    """The record's fields as attributes of the operator."""
    for attr, name in _FIELD_OF_ATTR.items():
        value = getattr(record, name)
        if value is not None:
            op.attr_map[attr] = value


def update_op(name: str, **changes: Any) -> OpRecord:
    """Change fields of a record in place, e.g. to add a gradient from outside."""
    record = _TABLE[name]
    for key, value in changes.items():
        if not hasattr(record, key):
            raise AttributeError(f"an operator record has no field {key!r}")
        setattr(record, key, value)
    _show(Op.register(name), record)
    return record


def _no_inference(call: Call, builder: BlockBuilder) -> StructInfo:
    raise RelaxishError(f"operator {call.op.name} has no struct-info inference")


def _follow(name: str) -> Callable[[Op, Any], None]:
    """Keep a record's field as the attribute set on the operator says; operators without a record get one."""

    def hook(op: Op, value: object) -> None:
        record = _TABLE.get(op.name)
        if record is None:
            record = register_op(OpRecord(op.name, _no_inference))
        if value is None:
            value = {"infer": _no_inference, "pure": True}.get(name)
        setattr(record, name, value)

    return hook


for _attr, _name in _FIELD_OF_ATTR.items():
    ATTR_HOOKS[_attr] = _follow(_name)


def _load() -> None:
    load("operators")  # they enter themselves when imported


LOADERS["relax"] = _load


def get_op_record(name: str) -> OpRecord | None:
    """The record of an operator, or None."""
    record = _TABLE.get(name)
    if record is None and name.startswith("relax."):
        _load()
        record = _TABLE.get(name)
    return record


def op_record_of(op: object) -> OpRecord | None:
    """The record of an ``Op`` object, or None for anything else."""
    if not isinstance(op, Op):
        return None
    record: OpRecord | None = op.get_attr("relax.record")
    return record if record is not None else get_op_record(op.name)


def registered() -> Iterable[OpRecord]:
    """The records entered so far."""
    return _TABLE.values()


def all_op_records() -> dict[str, OpRecord]:
    """All records by name."""
    _load()
    return dict(_TABLE)


def op_function(name: str) -> Callable[..., Any]:
    """The public function of an operator, e.g. ``op_function("add")``."""
    made: Callable[..., Any] = getattr(load("operators"), name)
    return made
