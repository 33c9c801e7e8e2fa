"""Features of CPU targets: the set code may use, their ``has_*`` names, and the vector width that follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .target import Target

_X86_NAMES = {
    "has_sse41": ("sse4.1",),
    "has_avx": ("avx",),
    "has_avx2": ("avx2",),
    "has_fma": ("fma",),
    "has_avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl"),
    "has_avx512f": ("avx512f",),
    "has_avx512bw": ("avx512bw",),
    "has_avx512vnni": ("avx512vnni",),
    "has_avxvnni": ("avxvnni",),
    "has_avx512bf16": ("avx512bf16",),
    "has_avx512fp16": ("avx512fp16",),
    "has_amx_tile": ("amx-tile",),
    "has_amx_bf16": ("amx-tile", "amx-bf16"),
    "has_amx_int8": ("amx-tile", "amx-int8"),
}
_ARM_NAMES = {
    "has_asimd": ("neon",),
    "has_sve": ("sve",),
    "has_dotprod": ("dotprod",),
    "has_matmul_i8": ("i8mm",),
    "has_fp16_simd": ("fullfp16",),
    "has_sme": ("sme",),
}
_MPROFILE_DSP = ("cortex-m4", "cortex-m7", "cortex-m33", "cortex-m35p", "cortex-m55", "cortex-m85")
_MPROFILE_MVE = ("cortex-m55", "cortex-m85")


def _cpu(target: Target) -> str:
    """The CPU whose features code may count on: the first of several."""
    return target.mcpu.partition(",")[0]


def _is_host(target: Target) -> bool:
    from .detect import host_triple

    if (_cpu(target) or "native") not in ("native", "host"):
        return False
    triple = str(target.attrs.get("mtriple", host_triple()))
    return triple.split("-")[0] == host_triple().split("-")[0]


def is_arm(config: Mapping[str, Any]) -> bool:
    """Whether attributes of a target say that it is an Arm processor: by its triple, or as a microcontroller's model."""
    triple, model = str(config.get("mtriple") or ""), str(config.get("mcpu") or "")
    return triple.startswith(("aarch64", "arm")) or model.startswith("cortex-m")


def _is_microcontroller(target: Target) -> bool:
    return _cpu(target).startswith("cortex-m")


def _microcontroller_features(target: Target) -> dict[str, bool]:
    """Digital signal processing and vectors (which need the former), as far as ``+nodsp`` and ``+nomve`` leave them."""
    model, *changes = _cpu(target).split("+")
    removed = {*changes, *(word.lstrip("+") for word in target.mattr)}
    has_dsp = model in _MPROFILE_DSP and "nodsp" not in removed
    return {"has_dsp": has_dsp, "has_mve": has_dsp and model in _MPROFILE_MVE and "nomve" not in removed}


def arch_of(target: Target) -> str:
    """First part of the triple, for example ``x86_64`` or ``aarch64``."""
    from .detect import host_triple
    from .x86 import features_of_model

    if "mtriple" in target.attrs:
        arch = str(target.attrs["mtriple"]).split("-")[0]
    elif features_of_model(_cpu(target)) is not None:
        arch = "x86_64"
    elif _cpu(target).startswith(("cortex-a", "neoverse", "apple-")):
        arch = "aarch64"
    else:
        arch = host_triple().split("-")[0]
    return "aarch64" if arch == "arm64" else arch


def llvm_features(target: Target) -> frozenset[str]:
    """The features code may use: the host's for a plain target, else ``-mcpu``'s; ``-mattr`` adds and removes."""
    from .detect import host_features
    from .x86 import features_of_model

    if _is_host(target):
        features = set(host_features())
    else:
        arch = arch_of(target)
        known = features_of_model(_cpu(target)) if arch in ("x86_64", "i686", "i386") else None
        if known is not None:
            features = set(known)
        elif arch == "aarch64":
            features = {"neon"}
        elif arch == "x86_64":
            features = {"sse", "sse2"}
        else:
            features = set()
    for word in target.mattr:
        name = word.lstrip("+-")
        if word.startswith("-"):
            features.discard(name)
        else:
            features.add(name)
    return frozenset(features)


def named_features(target: Target) -> dict[str, bool]:
    """The ``has_*`` features that apply to the target's architecture."""
    arch = arch_of(target)
    if _is_microcontroller(target):
        return _microcontroller_features(target)
    have = target.llvm_features
    is_arm = arch.startswith(("aarch", "arm"))
    table = _X86_NAMES if arch.startswith(("x86", "i")) else _ARM_NAMES if is_arm else {}
    kind = {"is_aarch64": arch.startswith("aarch64")} if is_arm else {}
    return kind | {name: all(need in have for need in needs) for name, needs in table.items()}


def vector_bits(target: Target) -> int:
    """Vector register width to use; ``-vector-width`` overrides."""
    given = target.attrs.get("vector-width")
    if given:
        return int(given)
    have = target.llvm_features
    if "avx512f" in have:
        return 512
    if "avx" in have or "avx2" in have:
        return 256
    return 128
