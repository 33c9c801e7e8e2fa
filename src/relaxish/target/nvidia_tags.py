"""NVIDIA products by compute capability, and what boards have beside their GPU."""

from __future__ import annotations

from typing import Any

__all__ = ["BOARD_HOSTS", "nvidia_tags"]

_PRODUCTS = """
sm_75: nvidia-t4 quadro-rtx-8000 quadro-rtx-6000 quadro-rtx-5000 quadro-rtx-4000 nvidia-titan-rtx geforce-rtx-2080-ti
sm_75: geforce-rtx-2080 geforce-rtx-2070 geforce-rtx-2060 geforce-rtx-2080-super geforce-rtx-2070-super
sm_75: geforce-rtx-2060-super geforce-gtx-1660-ti geforce-gtx-1660 geforce-gtx-1650 t2000 t1000 t600 t400
sm_75: rtx-5000 rtx-4000 rtx-3000
sm_70: nvidia-v100 tesla-v100 nvidia-titan-v quadro-gv100
sm_72: jetson-agx-xavier nvidia-jetson-agx-xavier jetson-xavier-nx
sm_87: jetson-agx-orin-32gb jetson-agx-orin-64gb jetson-orin-nx jetson-orin-nano
sm_86: nvidia-a40 nvidia-a10 nvidia-a10g nvidia-a16 nvidia-a2 rtx-a6000 rtx-a5000 rtx-a4000 rtx-a3000 rtx-a2000
sm_86: geforce-rtx-3090-ti geforce-rtx-3090 geforce-rtx-3080-ti geforce-rtx-3080 geforce-rtx-3070-ti geforce-rtx-3070
sm_86: geforce-rtx-3060-ti geforce-rtx-3060 geforce-rtx-3050-ti geforce-rtx-3050
sm_89: geforce-rtx-4080 geforce-rtx-4070 geforce-rtx-4060-ti geforce-rtx-4060 nvidia-l4 nvidia-l40 nvidia-l40s
sm_89: rtx-6000-ada
sm_120: geforce-rtx-5090 geforce-rtx-5080 geforce-rtx-5070-ti geforce-rtx-5070
sm_61: tesla-p40 tesla-p4 quadro-p6000 quadro-p5200 quadro-p5000 quadro-p4200 quadro-p4000 quadro-p3200 quadro-p3000
sm_61: quadro-p2200 quadro-p2000 quadro-p1000 quadro-p620 quadro-p600 quadro-p500 quadro-p400 p620 p520
sm_61: nvidia-titan-xp nvidia-titan-x geforce-gtx-1080-ti geforce-gtx-1080 geforce-gtx-1070-ti geforce-gtx-1070
sm_61: geforce-gtx-1060 geforce-gtx-1050 gtx1080ti
sm_60: tesla-p100 nvidia-p100 quadro-gp100
sm_62: jetson-tx2 nvidia-jetson-tx2
sm_52: tesla-m60 tesla-m40 geforce-gtx-titan-x geforce-gtx-980-ti geforce-gtx-980 geforce-gtx-970 geforce-gtx-960
sm_52: geforce-gtx-950 geforce-gtx-980m geforce-gtx-970m geforce-gtx-965m geforce-910m quadro-m6000 quadro-m6000-24gb
sm_52: quadro-m5000 quadro-m4000 quadro-m2000 quadro-m5500m quadro-m2200 quadro-m620
sm_53: jetson-nano nvidia-jetson-nano jetson-tx1 nvidia-jetson-tx1 tegra-x1
sm_50: geforce-gtx-750-ti geforce-gtx-750 geforce-gtx-960m geforce-gtx-950m geforce-gtx-860m-sm-50 geforce-gtx-850m
sm_50: geforce-940m geforce-930m geforce-850m geforce-840m geforce-830m quadro-k2200 quadro-k1200 quadro-k620
sm_50: quadro-k620m quadro-m1200 quadro-m520 quadro-m5000m quadro-m4000m quadro-m3000m quadro-m2000m quadro-m1000m
sm_50: quadro-m600m quadro-m500m nvidia-nvs-810
sm_37: tesla-k80
sm_35: tesla-k40 tesla-k20 geforce-gtx-titan geforce-gtx-titan-z geforce-gtx-titan-black geforce-gtx-780-ti
sm_35: geforce-gtx-780 geforce-gt-730 geforce-gt-720 geforce-gt-705 geforce-gt-640-gddr5 geforce-920m
sm_35: quadro-k6000 quadro-k5200 quadro-k610m quadro-k510m
sm_32: jetson-tk1 nvidia-jetson-tk1
sm_30: tesla-k10 geforce-gtx-770 geforce-gtx-760 geforce-gtx-690 geforce-gtx-680 geforce-gtx-670 geforce-gtx-660-ti
sm_30: geforce-gtx-660 geforce-gtx-650-ti-boost geforce-gtx-650-ti geforce-gtx-650 geforce-gt-740
sm_30: geforce-gtx-880m geforce-gtx-870m geforce-gtx-860m-sm-30 geforce-gtx-780m geforce-gtx-770m geforce-gtx-765m
sm_30: geforce-gtx-760m geforce-gtx-680mx geforce-gtx-680m geforce-gtx-675mx geforce-gtx-670mx geforce-gtx-660m
sm_30: geforce-gt-755m geforce-gt-750m geforce-gt-745m geforce-gt-740m geforce-gt-735m geforce-gt-730m
sm_30: geforce-gt-650m geforce-gt-645m geforce-gt-640m geforce-gt-640m-le
sm_30: quadro-k5000 quadro-k4200 quadro-k4000 quadro-k2000 quadro-k2000d quadro-k600 quadro-k420 quadro-420
sm_30: quadro-410 quadro-k6000m quadro-k5200m quadro-k5100m quadro-k500m quadro-k4200m quadro-k4100m quadro-k3100m
sm_30: quadro-k2200m quadro-k2100m quadro-k1100m nvidia-nvs-510 nvs-510
sm_21: geforce-gtx-560-ti geforce-gtx-550-ti geforce-gtx-460 geforce-gts-450 geforce-gt-730-ddr3,128bit
sm_21: geforce-gt-640-gddr3 geforce-gt-630 geforce-gt-620 geforce-gt-610 geforce-gt-520 geforce-gt-440 geforce-gt-430
sm_21: geforce-820m geforce-800m geforce-gtx-675m geforce-gtx-670m geforce-gt-635m geforce-gt-630m geforce-gt-625m
sm_21: geforce-gt-720m geforce-gt-620m geforce-710m geforce-705m geforce-610m geforce-gtx-580m geforce-gtx-570m
sm_21: geforce-gtx-560m geforce-gt-555m geforce-gt-550m geforce-gt-540m geforce-gt-525m geforce-gt-520mx
sm_21: geforce-gt-520m geforce-gtx-485m geforce-gtx-470m geforce-gtx-460m geforce-gt-445m geforce-gt-435m
sm_21: geforce-gt-420m geforce-gt-415m geforce-410m nvidia-nvs-315 nvidia-nvs-310 nvs-5400m nvs-5200m nvs-4200m
sm_21: quadro-2000 quadro-600
sm_20: tesla-c2075 tesla-c2050 tesla-c2070 geforce-gtx-590 geforce-gtx-580 geforce-gtx-570 geforce-gtx-480
sm_20: geforce-gtx-470 geforce-gtx-465 geforce-gtx-480m quadro-plex-7000 quadro-6000 quadro-5000 quadro-4000
"""
_MIB = 1024 * 1024
# Those whose second-level cache targets tell of: name, architecture, MiB.
_WITH_CACHE = (
    ("nvidia-a100", "sm_80", 40),
    ("nvidia-a30", "sm_80", 24),
    ("nvidia-h100", "sm_90a", 50),
    ("nvidia-h200", "sm_90a", 50),
    ("nvidia-b200", "sm_100a", 126),
    ("geforce-rtx-4090", "sm_89", 72),
    ("geforce-rtx-4070-ti", "sm_89", 72),
)
_HALF_REGISTERS = ("sm_20", "sm_21", "sm_53", "sm_62")


def _host(mcpu: str, cores: int, triple: str = "aarch64-linux-gnu") -> dict[str, Any]:
    return {"kind": "llvm", "mtriple": triple, "mcpu": mcpu, "num-cores": cores}


#: CPUs on the same board. The first four are part of the plain tag, as in the field; the others of its variants.
BOARD_HOSTS: dict[str, dict[str, Any]] = {
    "nvidia/jetson-agx-xavier": _host("carmel", 8),
    "nvidia/jetson-orin-nano": _host("carmel", 6),
    "nvidia/jetson-agx-orin-32gb": _host("cortex-a78", 8),
    "nvidia/jetson-agx-orin-64gb": _host("cortex-a78", 12),
    "nvidia/nvidia-jetson-agx-xavier": _host("carmel", 8),
    "nvidia/jetson-xavier-nx": _host("carmel", 6),
    "nvidia/jetson-orin-nx": _host("cortex-a78", 8),
    "nvidia/jetson-nano": _host("cortex-a57", 4),
    "nvidia/nvidia-jetson-nano": _host("cortex-a57", 4),
    "nvidia/jetson-tx1": _host("cortex-a57", 4),
    "nvidia/nvidia-jetson-tx1": _host("cortex-a57", 4),
    "nvidia/tegra-x1": _host("cortex-a57", 4),
    "nvidia/jetson-tx2": _host("cortex-a57", 6),
    "nvidia/nvidia-jetson-tx2": _host("cortex-a57", 6),
    "nvidia/jetson-tk1": _host("cortex-a15", 4, "armv7l-linux-gnueabihf"),
    "nvidia/nvidia-jetson-tk1": _host("cortex-a15", 4, "armv7l-linux-gnueabihf"),
}
_WITH_HOST = tuple(BOARD_HOSTS)[:4]


def _gpu(arch: str) -> dict[str, Any]:
    return {
        "kind": "cuda",
        "keys": ["cuda", "gpu"],
        "arch": arch,
        "max_shared_memory_per_block": 49152,
        "max_threads_per_block": 1024,
        "thread_warp_size": 32,
        "registers_per_block": 32768 if arch in _HALF_REGISTERS else 65536,
    }


def nvidia_tags() -> dict[str, dict[str, Any]]:
    """The configuration behind each tag ``nvidia/...``."""
    tags = {}
    for line in _PRODUCTS.strip().splitlines():
        arch, _, names = line.partition(":")
        tags.update({"nvidia/" + name: _gpu(arch) for name in names.split()})
    for name, arch, cache in _WITH_CACHE:
        tags["nvidia/" + name] = {**_gpu(arch), "l2_cache_size_bytes": cache * _MIB}
    for tag in _WITH_HOST:
        tags[tag]["host"] = BOARD_HOSTS[tag]
    return tags
