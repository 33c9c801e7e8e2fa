"""The CPU this process runs on: triple, features by their LLVM names, and what a program compiled for one needs.

Nothing here loads LLVM: deployed programs ask as well.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import subprocess
import sys
from collections.abc import Iterable

from . import config

__all__ = ["available_features", "host_features", "host_triple", "missing_features", "request_amx_permission"]

# /proc/cpuinfo spells some features differently from LLVM.
_CPUINFO_TO_LLVM = {
    "pni": "sse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512_fp16": "avx512fp16",
    "avx_vnni": "avxvnni",
    "amx_tile": "amx-tile",
    "amx_bf16": "amx-bf16",
    "amx_int8": "amx-int8",
    "asimd": "neon",
    "asimdhp": "fullfp16",
    "asimddp": "dotprod",
}
_SYS_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18


@functools.lru_cache(maxsize=1)
def host_triple() -> str:
    """The LLVM triple of this process."""
    machine = platform.machine().lower()
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    if sys.platform == "darwin":
        return f"{'arm64' if arch == 'aarch64' else arch}-apple-darwin{platform.release()}"
    if sys.platform == "win32":
        return f"{arch}-pc-windows-msvc"
    return f"{arch}-unknown-linux-gnu"


@functools.lru_cache(maxsize=1)
def host_features() -> frozenset[str]:
    """Features of this CPU by their LLVM names; matrix tiles only when the system lets this process use them."""
    names = _flags_of_system()
    features = {_CPUINFO_TO_LLVM.get(name, name) for name in names}
    if any(name.startswith("amx") for name in features) and not request_amx_permission():
        features = {name for name in features if not name.startswith("amx")}
    return frozenset(features)


def _flags_of_system() -> set[str]:
    if sys.platform == "darwin":
        try:
            out = subprocess.run(["sysctl", "-a"], capture_output=True, text=True, timeout=5, check=False).stdout
        except (OSError, subprocess.SubprocessError):
            return set()
        flags: set[str] = set()
        for line in out.splitlines():
            key, _, value = line.partition(":")
            if key in ("machdep.cpu.features", "machdep.cpu.leaf7_features"):
                flags |= {word.lower() for word in value.split()}
            elif key.startswith("hw.optional.arm.FEAT_") and value.strip() == "1":
                flags.add(key.rsplit("FEAT_", 1)[1].lower())
        if platform.machine() == "arm64":
            flags.add("neon")
        return flags
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() in ("flags", "Features"):
                    return set(value.split())
    except OSError:
        pass
    return set()


@functools.lru_cache(maxsize=1)
def request_amx_permission() -> bool:
    """Ask Linux for the right to use AMX tile data; True when granted.

    Without it the first tile instruction ends the process with SIGILL. The right covers all threads and is
    inherited over fork, so asking once is enough.
    """
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return int(libc.syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA)) == 0
    except (OSError, AttributeError):
        return False


# LLVM's names of features that the system knows by other names than those above.
_ALSO = {"bmi": "bmi1", "lzcnt": "abm", "pclmul": "pclmulqdq", "rdrnd": "rdrand", "sahf": "lahf_lm", "crc32": "sse4.2",
         "prfchw": "3dnowprefetch", "amx-fp16": "amx_fp16", "amx-complex": "amx_complex", "x87": "fpu",
         "avxvnniint8": "avx_vnni_int8", "avxifma": "avx_ifma",
         "avxneconvert": "avx_ne_convert", "sha": "sha_ni"}  # fmt: skip


def available_features() -> frozenset[str]:
    """The features a program may rely on here: the CPU's, less those ``RELAXISH_DISABLE_FEATURES`` hides."""
    have = set(host_features())
    have |= {name for name, other in _ALSO.items() if other in have}
    hidden = tuple(word.strip() for word in config.DISABLE_FEATURES.value.split(",") if word.strip())
    return frozenset(name for name in have if not name.startswith(hidden)) if hidden else frozenset(have)


def missing_features(needs: Iterable[str]) -> list[str]:
    """Those of ``needs`` that this CPU lacks, sorted."""
    return sorted(set(needs) - available_features())
