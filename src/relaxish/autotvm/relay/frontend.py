"""Importers under Relay's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.module import functions_of
from .replacements import missing

__all__ = ["from_onnx"]


def from_onnx(
    model: Any,
    shape: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    convert_config: Any = None,
    export_node_renamed_model_path: str | None = None,
) -> tuple[Any, dict[str, Any]]:
    """A Relax module and its parameters by name.

    With ``freeze_params`` weights are constants of the module and there are no parameters; otherwise they are arguments
    of ``main``.
    """
    from ...frontend.onnx import from_onnx as import_model
    from ...ir import IRModule
    from ...relax.expr import Function

    found = import_model(
        model,
        shape_dict=None if shape is None else {k: list(v) for k, v in shape.items()},
        dtype_dict=dtype,
        opset=opset,
        keep_params_in_input=not freeze_params,
    )
    if freeze_params:
        return found, {}
    main = next(f for v, f in functions_of(found, Function) if v.name_hint == "main")
    values = list((main.attrs or {}).get("params") or ())
    names = [p.name_hint for p in main.params[len(main.params) - len(values) :]]
    functions = {v: (f.without_attr("params") if f is main else f) for v, f in found.functions.items()}
    return IRModule(functions, found.attrs), dict(zip(names, values, strict=True))


def __getattr__(name: str) -> Any:
    raise missing(f"relay.frontend.{name}")
