"""Facts of an architecture for the planner of tile programs."""

from __future__ import annotations

from dataclasses import dataclass

from ....target import Target

__all__ = ["Arch", "arch_of"]


@dataclass(frozen=True)
class Arch:
    """``unit``: what multiplies tiles of 16-bit numbers (mma, wmma, or "" for none); ``level``: the compute capability."""

    name: str
    level: int
    unit: str
    copies_ahead: bool
    shuffles: bool
    atomics: bool
    own_barriers: bool
    pads: bool
    shared_bytes: int
    hopper: bool = False
    prints: bool = True


_SHARED = {
    70: 96,
    72: 96,
    75: 64,
    80: 163,
    86: 99,
    87: 163,
    89: 99,
    90: 227,
    100: 227,
    103: 227,
    110: 227,
    120: 99,
    121: 99,
}


def arch_of(target: Target) -> Arch:
    """Facts of a target's devices."""
    if target.kind.name != "cuda":
        kind = str(target.kind.name)
        return Arch(kind, 0, "", False, False, False, False, False, 32 * 1024, prints=kind in ("rocm", "opencl"))
    text = str(target.attrs.get("arch", "sm_80")).removeprefix("sm_")
    level = int(text.rstrip("af"))
    unit = "mma" if level >= 80 else "wmma" if level >= 70 else ""
    return Arch(
        f"sm_{text}", level, unit, level >= 80, True, True, True, True, _SHARED.get(level, 48) * 1024, text == "90a"
    )
