"""Target tags: short names that stand for a whole target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ir.errors import CheckValueError

if TYPE_CHECKING:
    from .target import Target

_TAGS: dict[str, dict[str, Any]] = {}


def config_of_tag(name: str) -> dict[str, Any] | None:
    """The config a tag stands for; None when there is no such tag."""
    return _TAGS.get(name)


def list_tags() -> dict[str, Target] | None:
    """All tags and their targets."""
    from .target import Target

    return {name: Target(name) for name in _TAGS}


def list_tag_names() -> list[str]:
    """All tag names (cheaper than ``list_tags``)."""
    return list(_TAGS)


def register_tag(name: str, config: dict[str, Any], override: bool = False) -> Target | None:
    """Add a tag; ValueError when it exists and ``override`` is False."""
    from .target import Target

    if name in _TAGS and not override:
        raise CheckValueError(f'Tag "{name}" has been previously defined as: {_TAGS[name]}')
    _TAGS[name] = dict(config)
    return Target(name)


def _cuda(name: str, arch: str, l2: int | None = None) -> None:
    config: dict[str, Any] = {
        "kind": "cuda",
        "keys": ["cuda", "gpu"],
        "arch": arch,
        "max_shared_memory_per_block": 49152,
        "max_threads_per_block": 1024,
        "thread_warp_size": 32,
        "registers_per_block": 32768 if arch.startswith("sm_2") or arch in ("sm_53", "sm_62") else 65536,
    }
    if l2 is not None:
        config["l2_cache_size_bytes"] = l2
    _TAGS["nvidia/" + name] = config


# Product names by compute capability.
_NVIDIA = """
sm_75: nvidia-t4 quadro-rtx-8000 quadro-rtx-6000 quadro-rtx-5000 quadro-rtx-4000 nvidia-titan-rtx geforce-rtx-2080-ti
sm_75: geforce-rtx-2080 geforce-rtx-2070 geforce-rtx-2060 geforce-rtx-2080-super geforce-rtx-2070-super
sm_75: geforce-rtx-2060-super geforce-gtx-1660-ti geforce-gtx-1660 geforce-gtx-1650 t1000 t600 t400
sm_70: nvidia-v100 tesla-v100 nvidia-titan-v quadro-gv100
sm_72: jetson-agx-xavier nvidia-jetson-agx-xavier jetson-xavier-nx
sm_87: jetson-agx-orin-32gb jetson-agx-orin-64gb jetson-orin-nx jetson-orin-nano
sm_86: nvidia-a40 nvidia-a10 nvidia-a10g nvidia-a16 nvidia-a2 rtx-a6000 rtx-a5000 rtx-a4000 rtx-a3000 rtx-a2000
sm_86: geforce-rtx-3090-ti geforce-rtx-3090 geforce-rtx-3080-ti geforce-rtx-3080 geforce-rtx-3070-ti geforce-rtx-3070
sm_86: geforce-rtx-3060-ti geforce-rtx-3060 geforce-rtx-3050-ti geforce-rtx-3050
sm_89: geforce-rtx-4090 geforce-rtx-4080 geforce-rtx-4070-ti geforce-rtx-4070 geforce-rtx-4060-ti geforce-rtx-4060
sm_89: nvidia-l4 nvidia-l40 nvidia-l40s rtx-6000-ada
sm_120: geforce-rtx-5090 geforce-rtx-5080 geforce-rtx-5070-ti geforce-rtx-5070
sm_61: tesla-p40 tesla-p4 quadro-p6000 quadro-p5000 quadro-p4000 quadro-p2200 quadro-p2000 quadro-p1000 quadro-p620
sm_61: quadro-p600 quadro-p400 nvidia-titan-xp nvidia-titan-x geforce-gtx-1080-ti geforce-gtx-1080 geforce-gtx-1070-ti
sm_61: geforce-gtx-1070 geforce-gtx-1060 geforce-gtx-1050
sm_60: tesla-p100 nvidia-p100 quadro-gp100
sm_62: jetson-tx2 nvidia-jetson-tx2
sm_52: tesla-m60 tesla-m40 geforce-gtx-980-ti geforce-gtx-980 geforce-gtx-970 geforce-gtx-960 geforce-gtx-950
sm_52: quadro-m6000 quadro-m5000 quadro-m4000 quadro-m2000 quadro-m6000-24gb geforce-gtx-titan-x
sm_53: jetson-nano nvidia-jetson-nano jetson-tx1 nvidia-jetson-tx1
sm_50: geforce-gtx-750-ti geforce-gtx-750 quadro-k2200 quadro-k1200 quadro-k620 quadro-m1200 geforce-gtx-960m
sm_50: geforce-gtx-950m geforce-940m geforce-930m geforce-850m geforce-840m geforce-830m
sm_37: tesla-k80
sm_35: tesla-k40 tesla-k20 geforce-gtx-titan geforce-gtx-780-ti geforce-gtx-780 geforce-gt-730 geforce-gt-720
sm_35: quadro-k6000 quadro-k5200 quadro-k610m
sm_32: jetson-tk1 nvidia-jetson-tk1
sm_30: tesla-k10 geforce-gtx-770 geforce-gtx-760 geforce-gtx-690 geforce-gtx-680 geforce-gtx-670 geforce-gtx-660-ti
sm_30: geforce-gtx-660 geforce-gtx-650-ti-boost geforce-gtx-650-ti geforce-gtx-650 geforce-gt-740 quadro-k5000
sm_30: quadro-k4200 quadro-k4000 quadro-k2000 quadro-k600 quadro-420 nvs-510
sm_21: geforce-gtx-560-ti geforce-gtx-550-ti geforce-gtx-460 geforce-gts-450 quadro-2000 quadro-600
sm_20: tesla-c2075 tesla-c2050 tesla-c2070 geforce-gtx-590 geforce-gtx-580 geforce-gtx-570 geforce-gtx-480
sm_20: geforce-gtx-470 geforce-gtx-465 quadro-6000 quadro-5000 quadro-4000
"""


def _register_defaults() -> None:
    mib = 1024 * 1024
    for line in _NVIDIA.strip().splitlines():
        arch, _, names = line.partition(":")
        for name in names.split():
            _cuda(name, arch.strip())
    _cuda("nvidia-a100", "sm_80", 40 * mib)
    _cuda("nvidia-a30", "sm_80", 24 * mib)
    _cuda("nvidia-h100", "sm_90a", 50 * mib)
    _cuda("nvidia-h200", "sm_90a", 50 * mib)
    _cuda("nvidia-b200", "sm_100a", 126 * mib)
    cores = {"large": 1, "xlarge": 2, "2xlarge": 4, "4xlarge": 8, "9xlarge": 18}
    for size, count in cores.items():
        _TAGS[f"aws/cpu/c5.{size}"] = {
            "kind": "llvm",
            "keys": ["x86", "cpu"],
            "mcpu": "skylake-avx512",
            "num-cores": count,
        }
    for size, count in {"12xlarge": 24, "18xlarge": 36, "24xlarge": 48}.items():
        mcpu = "skylake-avx512" if size == "18xlarge" else "cascadelake"
        _TAGS[f"aws/cpu/c5.{size}"] = {"kind": "llvm", "keys": ["x86", "cpu"], "mcpu": mcpu, "num-cores": count}
    _TAGS["raspberry-pi/4b-aarch64"] = {
        "kind": "llvm",
        "mtriple": "aarch64-linux-gnu",
        "mcpu": "cortex-a72",
        "mattr": ["+neon"],
        "num-cores": 4,
        "host": {
            "kind": "llvm",
            "mtriple": "aarch64-linux-gnu",
            "mcpu": "cortex-a72",
            "mattr": ["+neon"],
            "num-cores": 4,
        },
    }
    host = {"kind": "llvm", "mtriple": "arm64-apple-macos", "mcpu": "apple-latest"}
    for name, threads in (("m1-gpu", 1024), ("m1-gpu-restricted", 256), ("m2-gpu", 1024)):
        _TAGS["apple/" + name] = {
            "kind": "metal",
            "max_threads_per_block": threads,
            "max_shared_memory_per_block": 32768,
            "thread_warp_size": 32,
            "host": host,
        }


_register_defaults()
