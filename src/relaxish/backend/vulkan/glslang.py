"""SPIR-V from GLSL by glslang, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from ...support.errors import RelaxishError

__all__ = ["compile_spirv", "find_glslang"]


def find_glslang() -> str | None:
    """The path of glslang; None where it is not installed."""
    return next((found for name in ("glslangValidator", "glslang") if (found := shutil.which(name))), None)


def compile_spirv(source: str, kernel: str) -> bytes:
    """The SPIR-V module of one kernel. Raises RelaxishError without glslang, or with its messages."""
    compiler = find_glslang()
    if compiler is None:
        raise RelaxishError("making SPIR-V needs glslang (glslangValidator) on the path")
    with tempfile.TemporaryDirectory() as folder:
        text, made = Path(folder) / "kernel.comp", Path(folder) / "kernel.spv"
        text.write_text(source)
        options = ["-V", "--quiet", "--target-env", "vulkan1.2", f"-DKERNEL_{kernel}"]
        done = subprocess.run(
            [compiler, *options, "-o", str(made), str(text)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RelaxishError(f"glslang refuses kernel {kernel}:\n{done.stdout}{done.stderr}")
        return made.read_bytes()
