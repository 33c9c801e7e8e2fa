"""The operator table: what each operator *does*, in one record.

The layer above (``relaxish.op``) fills it; inference, legalisation, gradients, layouts and the test that walks all
operators read it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..ir.op import Op

if TYPE_CHECKING:
    from .block_builder import BlockBuilder
    from .expr import Call, Expr
    from .struct_info import StructInfo

__all__ = ["OpRecord", "all_op_records", "get_op_record", "op_function", "op_record_of", "register_op", "update_op"]


@dataclass
class OpRecord:
    """Everything about one operator.

    ``precision`` is ``"always"`` (worth low precision), ``"follow"`` (whatever its inputs are) or ``"never"``;
    ``reference(*numpy_args, **attrs)`` is its NumPy meaning; ``samples()`` yields example calls for tests.
    """

    name: str
    infer: Callable[[Call, BlockBuilder], StructInfo]
    legalize: Callable[[BlockBuilder, Call], Expr] | None = None
    gradient: Callable[..., Any] | None = None
    layout: Callable[..., Any] | None = None
    precision: str = "never"
    pure: bool = True
    reference: Callable[..., Any] | None = None
    samples: Callable[..., Any] | None = None
    arg_names: tuple[str, ...] = ()
    normalize: Callable[[BlockBuilder, Call], Expr] | None = None
    validate: Callable[[Call], None] | None = None
    infer_precision: Callable[..., Any] | None = None
    opaque: dict[str, Any] = field(default_factory=dict)


_TABLE: dict[str, OpRecord] = {}


def register_op(record: OpRecord) -> OpRecord:
    """Enter a record; a later one of the same name replaces the earlier."""
    op = Op.register(record.name)
    op.set_attr("relax.record", record)
    op.set_attr("FPurity", record.pure)
    _TABLE[record.name] = record
    return record


def update_op(name: str, **changes: Any) -> OpRecord:
    """Change fields of a record in place, e.g. to add a gradient from outside."""
    record = _TABLE[name]
    for key, value in changes.items():
        if not hasattr(record, key):
            raise AttributeError(f"an operator record has no field {key!r}")
        setattr(record, key, value)
    if "pure" in changes:
        Op.register(name).set_attr("FPurity", record.pure)
    return record


def _load() -> None:
    # By name: the operators stand above this layer and enter themselves when imported.
    importlib.import_module("relaxish.op")


def get_op_record(name: str) -> OpRecord | None:
    """The record of an operator, or None."""
    record = _TABLE.get(name)
    if record is None and name.startswith("relax."):
        _load()
        record = _TABLE.get(name)
    return record


def op_record_of(op: Any) -> OpRecord | None:
    """The record of an ``Op`` object, or None for anything else."""
    if not isinstance(op, Op):
        return None
    record: OpRecord | None = op.get_attr("relax.record")
    return record if record is not None else get_op_record(op.name)


def all_op_records() -> dict[str, OpRecord]:
    """All records by name."""
    _load()
    return dict(_TABLE)


def op_function(name: str) -> Callable[..., Any]:
    """The public function of an operator, e.g. ``op_function("add")``."""
    made: Callable[..., Any] = getattr(importlib.import_module("relaxish.op"), name)
    return made
