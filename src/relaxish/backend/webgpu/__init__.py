"""WebGPU: WGSL from lowered device functions."""
