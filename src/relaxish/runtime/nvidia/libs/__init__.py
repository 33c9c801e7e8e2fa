"""NVIDIA's libraries by ctypes: cuBLASLt and cuDNN, from their wheels or the system, loaded at first use."""
