"""From CUDA C++ to machine code: NVRTC, nvcc, headers, images and disassembly."""
