"""What scalar intrinsics are called in CUDA C++, by element type."""

from __future__ import annotations

from ...ir import dtype as dt

__all__ = ["BITWISE", "call_name"]

BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "shift_left": "<<", "shift_right": ">>"}

# Functions with the usual C names: float32 takes an ``f`` at the end.
_C_MATH = {
    name: name for name in (
        "exp exp2 exp10 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf floor ceil trunc "
        "fmod atan2 copysign hypot nextafter ldexp nearbyint pow rsqrt"
    ).split()
} | {"round": "nearbyint", "fabs": "fabs"}  # fmt: skip
_HALF = {
    "exp": "hexp", "exp2": "hexp2", "exp10": "hexp10", "log": "hlog", "log2": "hlog2", "log10": "hlog10",
    "sqrt": "hsqrt", "rsqrt": "hrsqrt", "sin": "hsin", "cos": "hcos", "floor": "hfloor", "ceil": "hceil",
    "trunc": "htrunc", "round": "hrint", "nearbyint": "hrint", "fabs": "__habs",
}  # fmt: skip


def call_name(name: str, dtype: str) -> str | None:
    """The function for an intrinsic on this type; None when the type has none and float32 must do the work."""
    element = dt.element_of(dtype)
    if element in ("float16", "bfloat16"):
        return _HALF.get(name)
    base = _C_MATH.get(name)
    if base is None:
        return None
    return base + "f" if element == "float32" else base
