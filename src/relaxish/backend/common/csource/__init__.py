"""Shared parts of languages of the C family: expressions, statements, names, precedence.

A backend's printer derives from :class:`KernelPrinter` (device kernels; :class:`ShaderPrinter` where there are no
addresses) or :class:`StatementPrinter` (plain functions)
and says only what is its language's own: type names, vectors, address spaces, intrinsics.
"""

from .kernel import KernelPrinter, device_functions
from .pieces import Piece
from .shader import ShaderPrinter
from .statements import StatementPrinter

__all__ = ["KernelPrinter", "Piece", "ShaderPrinter", "StatementPrinter", "device_functions"]
