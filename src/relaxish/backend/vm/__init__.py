"""Graph programs to virtual machine code: bytecode, and flat plans of static functions."""

from ...runtime.bytecode.exec_builder import ExecBuilder
from .codegen import VMCodeGenError, generate, symbol_of
from .planner import NotPlannable, plan_function
from .signature import plan_inputs

__all__ = ["ExecBuilder", "NotPlannable", "VMCodeGenError", "generate", "plan_function", "plan_inputs", "symbol_of"]
