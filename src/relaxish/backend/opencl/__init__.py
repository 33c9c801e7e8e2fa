"""OpenCL devices: OpenCL C from lowered device functions, built by the device's own driver."""
