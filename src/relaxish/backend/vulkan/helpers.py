"""GLSL functions for intrinsics that the language lacks; ``NAME`` and ``T`` stand for the name and the type."""

from __future__ import annotations

__all__ = ["HELPERS"]

# Source of erf: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26 (absolute error below 1.5e-7).
HELPERS = {
    "erf": """\
T NAME(T given) {
  float x = abs(float(given)), t = 1.0 / (1.0 + 0.3275911 * x);
  float series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  float y = 1.0 - series * exp(-x * x);
  return T(float(given) < 0.0 ? -y : y);
}
""",
    "exp10": "T NAME(T x) { return T(exp2(float(x) * 3.3219280948873626)); }\n",
    "log10": "T NAME(T x) { return T(log2(float(x)) * 0.30102999566398120); }\n",
    "log1p": "T NAME(T x) { return T(log(1.0 + float(x))); }\n",
    "hypot": "T NAME(T x, T y) { return T(sqrt(float(x) * float(x) + float(y) * float(y))); }\n",
    "copysign": "T NAME(T x, T y) { return y < T(0) ? -abs(x) : abs(x); }\n",
}
