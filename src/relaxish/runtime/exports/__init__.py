"""Compiled programs as files: written, checked, linked and loaded."""
