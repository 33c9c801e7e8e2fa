"""LLVM text of device kernels, for the devices that LLVM makes code for: NVPTX, AMDGPU.

A :class:`Dialect` says what differs: address spaces, thread indices, barriers, shuffles, mathematics.
"""

from .codegen import assembly, object_code
from .dialect import Dialect
from .statements import device_text

__all__ = ["Dialect", "assembly", "device_text", "object_code"]
