"""Questions about the LLVM library: targets, CPU models, features, intrinsics. Loads llvmlite when asked."""

from __future__ import annotations

from types import ModuleType

from .target import Target


def _binding() -> ModuleType:
    import llvmlite.binding as binding

    binding.initialize_all_targets()
    return binding


def _host_or(target: Target | None) -> Target:
    return target or Target.current(allow_none=True) or Target("llvm")


def target_has_features(cpu_features: str | list[str] | tuple[str, ...], target: Target | None = None) -> bool:
    """Whether the (current) target may use all of these LLVM features."""
    names = cpu_features.split(",") if isinstance(cpu_features, str) else list(cpu_features)
    have = _host_or(target).llvm_features
    return all(name.strip().lstrip("+") in have for name in names)


llvm_cpu_has_features = target_has_features


def llvm_get_targets() -> list[str]:
    """Architectures LLVM can make code for."""
    binding = _binding()
    found = []
    for name in ("x86-64", "x86", "aarch64", "arm", "riscv64", "riscv32", "nvptx64", "amdgcn", "hexagon", "wasm32"):
        try:
            binding.Target.from_triple(f"{name.replace('-', '_')}-unknown-unknown")
            found.append(name)
        except RuntimeError:
            continue
    return found


def llvm_get_cpu_archlist(target: Target | None = None) -> list[str]:
    """``-mcpu`` names whose features are known."""
    from .cpu_features import arch_of
    from .x86 import known_models

    return known_models() if arch_of(_host_or(target)).startswith("x86") else []


def llvm_get_cpu_features(target: Target | None = None) -> dict[str, str]:
    """Features of the target's CPU."""
    return {name: "" for name in sorted(_host_or(target).llvm_features)}


def llvm_get_vector_width(target: Target | None = None) -> int:
    """Vector register width in bits."""
    return _host_or(target).vector_bits


def llvm_version_major(allow_none: bool = False) -> int | None:
    """LLVM's major version."""
    try:
        return int(_binding().llvm_version_info[0])
    except ImportError:
        if allow_none:
            return None
        raise


def llvm_get_system_triple() -> str:
    """Triple of this process."""
    return str(_binding().get_process_triple())


def llvm_get_system_cpu() -> str:
    """LLVM's guess at the CPU model; trust features, not this name."""
    return str(_binding().get_host_cpu_name())


def llvm_get_system_x86_vendor() -> str:
    """``intel``, ``amd`` or ``unimplemented``."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            text = file.read(4000)
    except OSError:
        return "unimplemented"
    return "intel" if "GenuineIntel" in text else "amd" if "AuthenticAMD" in text else "unimplemented"


# LLVM's C interface of llvmlite does not number intrinsics; names are their own identity here.
_INTRINSICS: list[str] = []


def llvm_lookup_intrinsic_id(name: str) -> int:
    """A number standing for intrinsic ``name`` in ``call_llvm_intrin``; 0 when the name is not an intrinsic's."""
    if not name.startswith("llvm."):
        return 0
    if name not in _INTRINSICS:
        _INTRINSICS.append(name)
    return _INTRINSICS.index(name) + 1


def llvm_get_intrinsic_name(intrin_id: int) -> str:
    """The name behind a number from ``llvm_lookup_intrinsic_id``."""
    return _INTRINSICS[intrin_id - 1]
