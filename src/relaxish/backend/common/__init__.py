"""Shared parts of backends."""
