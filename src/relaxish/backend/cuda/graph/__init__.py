"""Graph passes for CUDA targets."""
