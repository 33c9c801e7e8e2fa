"""Compiled loop programs: how they are called, fail, call back, and share threads; libraries of kernels."""
