"""What the machine we run on has: triple, CPU features by their LLVM names, permission to use AMX, core count.

Nothing here loads LLVM: a ``Target`` must be cheap to make, also in a process that never compiles.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import subprocess
import sys

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


def num_threads(num_cores: int | None = None) -> int:
    """Threads of parallel loops: RELAXISH_NUM_THREADS, else the target's ``num-cores``, else the CPU affinity."""
    from ..support.threads import num_threads as configured

    return configured(num_cores)


@functools.lru_cache(maxsize=1)
def host_cuda_arch() -> str | None:
    """``sm_XX`` of the first NVIDIA GPU, asked of the driver; None where there is no driver or device."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device = ctypes.c_int()
    major, minor = ctypes.c_int(), ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return None
    # Attributes 75 and 76: compute capability major and minor.
    if cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device) != 0:
        return None
    if cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device) != 0:
        return None
    suffix = "a" if major.value == 9 else ""
    return f"sm_{major.value}{minor.value}{suffix}"


@functools.lru_cache(maxsize=1)
def cache_sizes() -> tuple[int, int, int]:
    """Bytes of the first, second and third data cache seen by CPU 0, with usual sizes where the system does not say."""
    sizes = [32 * 1024, 1024 * 1024, 16 * 1024 * 1024]
    base = "/sys/devices/system/cpu/cpu0/cache"
    for index in range(6):
        try:
            with open(f"{base}/index{index}/type", encoding="ascii") as file:
                if file.read().strip() == "Instruction":
                    continue
            with open(f"{base}/index{index}/level", encoding="ascii") as file:
                level = int(file.read())
            with open(f"{base}/index{index}/size", encoding="ascii") as file:
                text = file.read().strip()
        except (OSError, ValueError):
            continue
        factor = {"K": 1024, "M": 1024 * 1024}.get(text[-1:], 1)
        if 1 <= level <= 3:
            sizes[level - 1] = int(text.rstrip("KM")) * factor
    return sizes[0], sizes[1], sizes[2]
