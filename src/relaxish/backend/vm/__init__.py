"""Graph programs to virtual machine code: bytecode, and flat plans of static functions."""

from .codegen import VMCodeGenError, generate
from .planner import plan_function

__all__ = ["VMCodeGenError", "generate", "plan_function"]
