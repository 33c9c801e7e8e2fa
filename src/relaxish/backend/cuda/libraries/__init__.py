"""Programs of calls of cuBLASLt, cuDNN and CUTLASS."""
