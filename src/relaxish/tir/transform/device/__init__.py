"""Threads, barriers and the split between host and device."""
