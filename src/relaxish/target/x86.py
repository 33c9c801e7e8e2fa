"""x86 CPU models: which features a ``-mcpu`` name implies, and the vector width that follows."""

from __future__ import annotations

_SSE42 = "sse sse2 sse3 ssse3 sse4.1 sse4.2 popcnt cx16"
_AVX = f"{_SSE42} avx"
_AVX2 = f"{_AVX} avx2 fma f16c bmi bmi2 lzcnt movbe"
_SKX = f"{_AVX2} avx512f avx512cd avx512bw avx512dq avx512vl"
_CLX = f"{_SKX} avx512vnni"
_ICX = f"{_CLX} avx512ifma avx512vbmi avx512vbmi2 avx512bitalg avx512vpopcntdq gfni"
_SPR = f"{_ICX} avx512bf16 avx512fp16 amx-tile amx-bf16 amx-int8 avxvnni"

_ADL = f"{_AVX2} avxvnni gfni"
_ATOM = "sse sse2 sse3 ssse3 cx16 movbe"
_BARCELONA = "sse sse2 sse3 sse4a popcnt lzcnt cx16"
_BULLDOZER = f"{_AVX} sse4a lzcnt fma4 xop"
_PILEDRIVER = f"{_BULLDOZER} fma f16c bmi tbm"

# Every 64-bit model that LLVM lists; a model may have more than is said here, never less.
_MODELS: dict[str, str] = {
    "generic": "sse sse2",
    "nocona": "sse sse2 sse3 cx16",
    "core2": "sse sse2 sse3 ssse3 cx16",
    "penryn": "sse sse2 sse3 ssse3 sse4.1 cx16",
    "corei7": _SSE42,
    "corei7-avx": _AVX,
    "core-avx-i": f"{_AVX} f16c",
    "bonnell": _ATOM,
    "atom": _ATOM,
    "silvermont": f"{_SSE42} movbe",
    "slm": f"{_SSE42} movbe",
    "goldmont": f"{_SSE42} movbe",
    "goldmont-plus": f"{_SSE42} movbe",
    "tremont": f"{_SSE42} movbe gfni",
    "gracemont": _ADL,
    "raptorlake": _ADL,
    "meteorlake": _ADL,
    "arrowlake": _ADL,
    "arrowlake-s": _ADL,
    "lunarlake": _ADL,
    "pantherlake": _ADL,
    "wildcatlake": _ADL,
    "novalake": _ADL,
    "sierraforest": _ADL,
    "grandridge": _ADL,
    "clearwaterforest": _ADL,
    "knl": f"{_AVX2} avx512f avx512cd",
    "knm": f"{_AVX2} avx512f avx512cd avx512vpopcntdq",
    "k8": "sse sse2",
    "athlon64": "sse sse2",
    "athlon-fx": "sse sse2",
    "opteron": "sse sse2",
    "k8-sse3": "sse sse2 sse3 cx16",
    "athlon64-sse3": "sse sse2 sse3 cx16",
    "opteron-sse3": "sse sse2 sse3 cx16",
    "amdfam10": _BARCELONA,
    "barcelona": _BARCELONA,
    "btver1": "sse sse2 sse3 ssse3 sse4a popcnt lzcnt cx16",
    "btver2": f"{_AVX} sse4a lzcnt f16c bmi movbe",
    "bdver1": _BULLDOZER,
    "bdver2": _PILEDRIVER,
    "bdver3": _PILEDRIVER,
    "bdver4": f"{_PILEDRIVER} avx2 bmi2 movbe",
    "graniterapids-d": f"{_SPR} amx-fp16",
    "diamondrapids": f"{_SPR} amx-fp16",
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
    "alderlake": _ADL,
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
    text = _MODELS.get(mcpu, _MODELS.get(mcpu.replace("_", "-")))
    return None if text is None else frozenset(text.split())


def known_models() -> list[str]:
    """The ``-mcpu`` names with known features."""
    return sorted(_MODELS)


def get_simd_32bit_lanes() -> int:
    """Number of 32-bit lanes in one vector register of the current target (4 when no target is current)."""
    from .target import Target

    target = Target.current(allow_none=True)
    return 4 if target is None else target.vector_bits // 32
