"""Vulkan devices: GLSL compute shaders from lowered device functions, and SPIR-V where glslang is installed."""
