"""NVIDIA devices through LLVM: PTX without the CUDA toolkit."""
