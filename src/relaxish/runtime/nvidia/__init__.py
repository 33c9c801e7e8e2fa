"""NVIDIA devices: one driver interface (:mod:`.driver`), its providers, and what the run time builds on it."""
