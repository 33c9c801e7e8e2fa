"""x86 CPU models: which features a ``-mcpu`` name implies, and the vector width that follows."""

from __future__ import annotations

_SSE42 = "sse sse2 sse3 ssse3 sse4.1 sse4.2 popcnt cx16"
_AVX = f"{_SSE42} avx"
_AVX2 = f"{_AVX} avx2 fma f16c bmi bmi2 lzcnt movbe"
_SKX = f"{_AVX2} avx512f avx512cd avx512bw avx512dq avx512vl"
_CLX = f"{_SKX} avx512vnni"
_ICX = f"{_CLX} avx512ifma avx512vbmi avx512vbmi2 avx512bitalg avx512vpopcntdq gfni"
_SPR = f"{_ICX} avx512bf16 avx512fp16 amx-tile amx-bf16 amx-int8 avxvnni"

# LLVM's own list is longer; these are the names people write in targets and tags.
_MODELS: dict[str, str] = {
    "x86-64": "sse sse2",
    "x86-64-v2": _SSE42,
    "x86-64-v3": _AVX2,
    "x86-64-v4": _SKX,
    "nehalem": _SSE42,
    "westmere": _SSE42,
    "sandybridge": _AVX,
    "ivybridge": f"{_AVX} f16c",
    "haswell": _AVX2,
    "core-avx2": _AVX2,
    "broadwell": _AVX2,
    "skylake": _AVX2,
    "znver1": _AVX2,
    "znver2": _AVX2,
    "znver3": _AVX2,
    "alderlake": f"{_AVX2} avxvnni gfni",
    "skylake-avx512": _SKX,
    "skx": _SKX,
    "cannonlake": f"{_SKX} avx512ifma avx512vbmi",
    "cascadelake": _CLX,
    "cooperlake": f"{_CLX} avx512bf16",
    "icelake-client": _ICX,
    "icelake-server": _ICX,
    "tigerlake": _ICX,
    "rocketlake": _ICX,
    "sapphirerapids": _SPR,
    "emeraldrapids": _SPR,
    "graniterapids": f"{_SPR} amx-fp16",
    "znver4": f"{_ICX} avx512bf16",
    "znver5": f"{_ICX} avx512bf16 avxvnni",
}


def features_of_model(mcpu: str) -> frozenset[str] | None:
    """Features implied by an x86 ``-mcpu`` name; None for a name this table does not hold."""
    text = _MODELS.get(mcpu)
    return None if text is None else frozenset(text.split())


def known_models() -> list[str]:
    """The ``-mcpu`` names with known features."""
    return sorted(_MODELS)


def get_simd_32bit_lanes() -> int:
    """Number of 32-bit lanes in one vector register of the current target (4 when no target is current)."""
    from .target import Target

    target = Target.current(allow_none=True)
    return 4 if target is None else target.vector_bits // 32
