"""LLVM backend: lowered TIR to LLVM text, objects, JIT libraries and shared libraries."""
