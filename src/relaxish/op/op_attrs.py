"""The kinds of operator attributes, for ``isinstance``.

>>> from relaxish import relax
>>> from relaxish.relax.op import op_attrs
>>> x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
>>> isinstance(relax.op.nn.softmax(x).attrs, op_attrs.SoftmaxAttrs)
True
>>> isinstance(relax.op.sum(x).attrs, op_attrs.SoftmaxAttrs)
False
"""

from __future__ import annotations

from typing import Any

from ..ir.attrs import Attrs
from ..relax.op_table import registered

#: Kinds that no operator's table entry names: attributes of calls and of placements.
_MORE = (
    "AllReduceAttrs", "CallInplacePackedAttrs", "CallTIRInplaceAttrs", "CallTIRWithGradAttrs", "DistributionAttrs",
    "HintOnDeviceAttrs", "ToVDeviceAttrs",
)  # fmt: skip

_KINDS = {r.attrs.rpartition(".")[2] for r in registered() if r.attrs} | set(_MORE)

__all__ = sorted(_KINDS)


class _Kind(type):
    """Attributes are one class under many type names: an object is of the kind whose name it bears."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Attrs) and getattr(value, "type_name", "") == f"relax.attrs.{cls.__name__}"


def __getattr__(name: str) -> Any:
    if name not in _KINDS:
        raise AttributeError(f"there are no operator attributes {name!r}; there are {__all__}")
    made = _Kind(name, (), {"__doc__": f"Attributes under the type name relax.attrs.{name}.", "__module__": __name__})
    globals()[name] = made
    return made


def __dir__() -> list[str]:
    return sorted([*globals(), *_KINDS])
