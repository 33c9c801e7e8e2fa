"""Shipped tensor intrinsics; a family is defined when one of its names is first looked up."""

from __future__ import annotations

from .. import function as _function

__all__ = ["load_all"]

_DONE = [False]


def load_all() -> None:
    """Define every shipped intrinsic."""
    if _DONE[0]:
        return
    _DONE[0] = True
    from . import amx, x86

    x86.define()
    amx.define()


_function._LOADER[0] = load_all


def __getattr__(name: str) -> object:
    """Family modules load on demand."""
    import importlib

    if name in ("x86", "amx", "build"):
        load_all()
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
