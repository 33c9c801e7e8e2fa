"""The primitives as methods of a schedule, by topic."""
