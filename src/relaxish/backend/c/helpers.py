"""C functions that generated code calls and C99 lacks; only those that are needed go into a file."""

from __future__ import annotations

from ...runtime.kernels.failures import RECORD, RECORDED, RECORDS

__all__ = ["HELPERS", "extremum_helper"]


def extremum_helper(kind: str, name: str, ctype: str) -> str:
    """The smaller or larger of two values of a type; NaN if either is."""
    test = "a < b || a != a ? a : b" if kind == "min" else "a > b || a != a ? a : b"
    return f"static inline {ctype} {name}({ctype} a, {ctype} b) {{ return {test}; }}\n"


_BITS = """\
static inline float bits_to_float(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline uint32_t float_to_bits(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }
"""

_HALF_TO_FLOAT = """\
static inline float half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu;
  if (exponent == 31) return bits_to_float(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return bits_to_float(sign | (exponent + 112) << 23 | mantissa << 13);
  float small = (float)mantissa * 5.9604644775390625e-08f;
  return sign ? -small : small;
}
"""

_FLOAT_TO_HALF = """\
static inline uint16_t float_to_half(float x) {
  uint32_t bits = float_to_bits(x), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
  if (rest >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
  if (rest < 0x38800000u) return (uint16_t)(sign | (uint32_t)nearbyintf(bits_to_float(rest) * 16777216.0f));
  rest += 0xfffu + ((rest >> 13) & 1u);
  return (uint16_t)(sign | (rest - 0x38000000u) >> 13);
}
"""

_BFLOAT16_TO_FLOAT = """\
static inline float bfloat16_to_float(uint16_t b) { return bits_to_float((uint32_t)b << 16); }
"""

_FLOAT_TO_BFLOAT16 = """\
static inline uint16_t float_to_bfloat16(float x) {
  uint32_t bits = float_to_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
"""

_POPCOUNT = """\
static inline int popcount_64(uint64_t x) { int n = 0; for (; x; x &= x - 1) ++n; return n; }
"""

_CLZ = """\
static inline int clz_bits(uint64_t x, int bits) { int n = bits; for (; x; x >>= 1) --n; return n; }
"""

_SHIFT = """\
static inline int32_t multiply_shift(int32_t x, int32_t y, int32_t q, int32_t s) {
  int32_t left = s > 0 ? s : 0, right = s > 0 ? 0 : -s;
  int64_t product = ((int64_t)x << left) * y;
  return (int32_t)((product + ((int64_t)1 << (q + right - 1))) >> (q + right));
}
"""

_FAIL = f"""\
static int64_t rx_records[{RECORDS}][4];
static int32_t rx_failed;
int64_t* {RECORD}(int32_t code) {{{{ return rx_records[code & {RECORDS - 1}]; }}}}
static int32_t rx_fail(const char* site, int64_t value, int64_t bound) {{{{
  int32_t code = {RECORDED} | (rx_failed++ & {RECORDED - 1});
  int64_t* record = {RECORD}(code);
  record[1] = (int64_t)(intptr_t)site; record[2] = value; record[3] = bound; record[0] = code;
  return code;
}}}}
""".replace("{{", "{").replace("}}", "}")

_INDEX = """\
static inline bool rx_outside(int64_t low, int64_t span, int64_t extent) {
  return low < 0 || low >= extent || span >= extent - low;
}
static inline int64_t rx_index(int64_t i, int64_t o, int64_t span, int64_t extent, const char* site, int32_t* code) {
  int64_t low = (int64_t)((uint64_t)i + (uint64_t)o);
  if (!rx_outside(low, span, extent)) return i;
  if (*code == 0) *code = rx_fail(site, low < 0 || low >= extent ? low : low + span, extent);
  return -o;
}
"""

_DIVISOR = """\
static inline int64_t rx_divisor(int64_t a, int64_t b, int64_t least, const char* site, int32_t* code) {
  if (b != 0 && (b != -1 || a != least)) return b;
  if (*code == 0) *code = rx_fail(site, a, b);
  return 1;
}
static inline uint64_t rx_divisor_u(uint64_t a, uint64_t b, const char* site, int32_t* code) {
  if (b != 0) return b;
  if (*code == 0) *code = rx_fail(site, (int64_t)a, 0);
  return 1;
}
"""

# By name: the text, after the texts of what it calls.
HELPERS: dict[str, tuple[tuple[str, ...], str]] = {
    "bits": ((), _BITS),
    "half_to_float": (("bits",), _HALF_TO_FLOAT),
    "float_to_half": (("bits",), _FLOAT_TO_HALF),
    "bfloat16_to_float": (("bits",), _BFLOAT16_TO_FLOAT),
    "float_to_bfloat16": (("bits",), _FLOAT_TO_BFLOAT16),
    "popcount_64": ((), _POPCOUNT),
    "clz_bits": ((), _CLZ),
    "multiply_shift": ((), _SHIFT),
    "rx_fail": ((), _FAIL),
    "rx_index": (("rx_fail",), _INDEX),
    "rx_divisor": (("rx_fail",), _DIVISOR),
    "rsqrt": ((), "static inline double rsqrt(double x) { return 1.0 / sqrt(x); }\n"),
    "rsqrtf": ((), "static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }\n"),
    "exp10": ((), "static inline double exp10(double x) { return pow(10.0, x); }\n"),
    "exp10f": ((), "static inline float exp10f(float x) { return powf(10.0f, x); }\n"),
}
