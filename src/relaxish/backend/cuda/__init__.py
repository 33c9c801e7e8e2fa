"""NVIDIA GPUs: CUDA C++ from lowered device functions, compiled by NVRTC."""
