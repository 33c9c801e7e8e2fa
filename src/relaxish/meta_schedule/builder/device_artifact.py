"""Candidates for GPUs as bytes: what a worker that owns a device loads and runs."""

from __future__ import annotations

import importlib
import pickle
from dataclasses import dataclass
from typing import Any

from ...ir import IRModule
from ...runtime.nvidia.module import CUDAModule
from ...target import Target

__all__ = ["DeviceArtifact", "build_for_device", "is_device_target", "needs_machine_code"]

# Providers that take kernels in another form than machine code.
_WITHOUT_MACHINE_CODE = ("null", "emulator", "emulator-fast", "fake")


@dataclass
class DeviceArtifact:
    """A device module in its exported form, the program to call, and what it is expected to take."""

    kind: str
    name: str
    manifest: dict[str, Any]
    binaries: dict[str, bytes]
    simulated_seconds: float


def is_device_target(target: Target) -> bool:
    """Whether programs for the target run on a device that is not the host's processor.

    >>> is_device_target(Target("cuda")), is_device_target(Target("llvm"))
    (True, False)
    """
    return "gpu" in target.keys and target.kind.name not in ("llvm", "c")


def needs_machine_code(provider: str) -> bool:
    """Whether a CUDA provider runs cubins; simulated ones take the kernels themselves, or nothing."""
    return provider not in _WITHOUT_MACHINE_CODE


def build_for_device(mod: IRModule, target: Target, provider: str = "auto") -> bytes:
    """Split, print and compile the kernels of a candidate.

    Raises MissingExtraError where machine code is needed and no compiler is installed.
    """
    from ..runner.simulated_time import simulated_seconds
    from ..analysis.schedules import remove_weight_layout_rewrite

    mod = remove_weight_layout_rewrite(mod)
    backend = importlib.import_module(f"relaxish.backend.{target.kind.name}.build")
    module = backend.build_device(mod, target)
    if target.kind.name == "cuda" and needs_machine_code(provider):
        module.machine_code(module.arch)
        module.device_ir = None
    manifest, binaries = _package(module, provider)
    artifact = DeviceArtifact(
        target.kind.name, next(iter(module.programs)), manifest, binaries, simulated_seconds(mod, target)
    )
    return pickle.dumps(artifact)


def _package(module: CUDAModule, provider: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    if module.type_key != "cuda" or needs_machine_code(provider):
        manifest, binaries = module.package()
        return manifest, binaries
    # As `package`, but no compiler is asked for machine code that nobody will run.
    from ...ir import save_json

    manifest = {**module.to_json(), "arch": getattr(module, "arch", "")}
    binaries = {} if provider == "null" else {"device_ir.json": save_json(module.device_ir).encode()}
    return manifest, binaries
