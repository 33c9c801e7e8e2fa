"""Programs for devices: modules of kernels, the host programs around them, graphs of launches."""
