"""The ``nvcc`` on the path: CUDA C++ compiled by another process, several times slower than NVRTC."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from ....support.errors import RelaxishError
from .images import Image

__all__ = ["NVCC"]


class NVCC:
    """The compiler driver of a CUDA toolkit."""

    name = "nvcc"

    @staticmethod
    def present() -> bool:
        """Whether there is an ``nvcc``."""
        return shutil.which("nvcc") is not None

    def version(self) -> str:
        """Such as ``"nvcc V13.0.88"``."""
        match = re.search(r"V(\d+\.\d+\.\d+)", _ask("--version"))
        return f"nvcc {match.group(0) if match else 'unknown'}"

    def architectures(self) -> tuple[int, ...]:
        """The numbers of the architectures it compiles for, such as 80 and 90."""
        return tuple(sorted({int(n) for n in re.findall(r"compute_(\d+)", _ask("--list-gpu-arch"))}))

    def compile(self, source: str, arch: str, kind: str) -> Image:
        """Compile to ``"cubin"`` or ``"ptx"``. Raises RelaxishError with the log when the source does not compile."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernels.cu"
            path.write_text(source)
            image = path.with_suffix("." + kind)
            virtual = arch.replace("sm_", "compute_")
            code = arch if kind == "cubin" else virtual
            command = [
                "nvcc",
                "--std=c++17",
                f"-gencode=arch={virtual},code={code}",
                f"--{kind}",
                "-o",
                str(image),
                str(path),
            ]
            if kind == "cubin":
                command.append("-Xptxas=-v")
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RelaxishError(f"the CUDA source does not compile for {arch}:\n{done.stderr}")
            return Image(image.read_bytes(), done.stderr + done.stdout)


@lru_cache(maxsize=None)
def _ask(question: str) -> str:
    done = subprocess.run(["nvcc", question], capture_output=True, text=True, check=False)
    return done.stdout
