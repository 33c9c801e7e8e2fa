"""WGSL functions for intrinsics that the language lacks; ``NAME`` and ``T`` stand for the name and the type."""

from __future__ import annotations

__all__ = ["HELPERS"]

# Source of erf: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26 (absolute error below 1.5e-7).
HELPERS = {
    "erf": """\
fn NAME(x : T) -> T {
  let a : f32 = abs(f32(x));
  let t : f32 = 1.0f / (1.0f + 0.3275911f * a);
  let series : f32 =
    t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  let y : f32 = 1.0f - series * exp(-a * a);
  return T(select(y, -y, f32(x) < 0.0f));
}
""",
    "exp10": "fn NAME(x : T) -> T { return T(exp2(f32(x) * 3.3219280948873626f)); }\n",
    "log10": "fn NAME(x : T) -> T { return T(log2(f32(x)) * 0.30102999566398120f); }\n",
    "log1p": "fn NAME(x : T) -> T { return T(log(1.0f + f32(x))); }\n",
    "hypot": "fn NAME(x : T, y : T) -> T { return T(sqrt(f32(x) * f32(x) + f32(y) * f32(y))); }\n",
    "copysign": "fn NAME(x : T, y : T) -> T { return select(abs(x), -abs(x), y < T(0)); }\n",
}
