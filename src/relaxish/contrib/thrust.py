"""Whether Thrust can be used (the functions themselves are packed functions that somebody registers)."""

from __future__ import annotations

from ..topi.cuda.thrust import can_use_thrust as can_use_thrust

__all__ = ["can_use_thrust"]
