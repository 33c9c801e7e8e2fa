"""Passes that tune or apply what was tuned."""
