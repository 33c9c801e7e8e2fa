"""OpenCL devices through pyopencl, which is imported when the first one is asked for (the extra ``opencl``)."""
