"""Calling conventions: arguments, packed calls, profiling."""
