"""Tiling of a function for a device: analytic models of machines, and the hints made with them.

``recommend(func, target, topk)`` is what default schedules, the search and users' kernels ask. ``arch`` describes devices,
``template`` common functions; ``roller`` is the published policy with hints, nodes and orders of blocks; ``utils`` asks it
directly.

>>> from relaxish import carver
>>> product = carver.MatmulTemplate(M=1024, N=1024, K=1024).with_arch(carver.arch.CUDA("nvidia/geforce-rtx-4090"))
>>> product.recommend_hints(topk=2)[0].block
[32, 64]
"""

from . import arch, matmul_analysis, roller, template, utils
from .gpu import GpuModel, KernelWork
from .hopper import HopperCosts, TileWork, costs_of, device_key
from .machine import CpuModel
from .products import Product
from .recommend import recommend
from .roller import Hint, OutputNode, PrimFuncNode, Rasterization2DColumn
from .template import (
    BaseTemplate,
    ConvTemplate,
    ElementwiseTemplate,
    FlashAttentionTemplate,
    GEMVTemplate,
    GeneralReductionTemplate,
    MatmulTemplate,
)
from .tiling import Access, Axis, TilingModel
from .utils import get_rasterization_code, get_roller_hints_from_func, get_roller_hints_from_output_nodes

__all__ = [
    "Access", "Axis", "BaseTemplate", "ConvTemplate", "CpuModel", "ElementwiseTemplate", "FlashAttentionTemplate",
    "GEMVTemplate", "GeneralReductionTemplate", "GpuModel", "Hint", "HopperCosts", "KernelWork", "MatmulTemplate",
    "OutputNode", "PrimFuncNode", "Product", "Rasterization2DColumn", "TileWork", "TilingModel", "arch", "costs_of",
    "device_key", "get_rasterization_code", "get_roller_hints_from_func", "get_roller_hints_from_output_nodes",
    "matmul_analysis", "recommend", "roller", "template", "utils",
]  # fmt: skip
