"""The error function for languages that have none."""

from __future__ import annotations

__all__ = ["erf_function"]

# Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26 (absolute error below 1.5e-7).
_COEFFICIENTS = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def erf_function(name: str, kind: str) -> str:
    """The definition of ``name`` for a C-like language whose ``exp`` and ``fabs`` know the type ``kind``."""
    series = ""
    for coefficient in reversed(_COEFFICIENTS):
        series = f"t * ({coefficient}f + {series})" if series else f"t * {coefficient}f"
    return (
        f"inline {kind} {name}({kind} given) {{\n"
        "  float x = fabs((float)given), t = 1.0f / (1.0f + 0.3275911f * x);\n"
        f"  float y = 1.0f - {series} * exp(-x * x);\n"
        f"  return ({kind})(given < 0 ? -y : y);\n}}\n"
    )
