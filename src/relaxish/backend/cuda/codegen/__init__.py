"""CUDA C++ of device functions."""
