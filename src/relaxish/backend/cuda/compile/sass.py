"""Looking at machine code: the disassembler of a CUDA toolkit, or the one that Triton brings along."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from ....support.errors import MissingExtraError, RelaxishError

__all__ = ["available", "disassemble", "mnemonics", "sass_instructions"]

# Source lines are "/*0040*/  @!P0 LDG.E.128 R4, [R2.64] ;" followed by the encoding.
_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P[T\d]+\s+)?([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_x]+)*)", re.M
)
_FUNCTION = re.compile(r"^\s*(?:\.text\.|Function : )([\w$]+):?\s*$", re.M)


def available() -> bool:
    """Whether there is a disassembler."""
    return _tool() is not None


def disassemble(cubin: bytes) -> str:
    """The SASS of a cubin.

    Raises MissingExtraError where neither Triton nor a CUDA toolkit is installed, RelaxishError for what is no cubin.
    """
    tool = _tool()
    if tool is None:
        raise MissingExtraError("cuda", "triton (or nvdisasm on the path)", "looking at SASS")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.cubin"
        path.write_bytes(cubin)
        options = ["-c"] if tool.name.startswith("nvdisasm") else ["-sass"]
        done = subprocess.run([str(tool), *options, str(path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RelaxishError(f"{tool.name} cannot read the image:\n{done.stderr or done.stdout}")
    return done.stdout


def sass_instructions(cubin: bytes, kernel: str | None = None) -> Counter[str]:
    """Number of occurrences of each instruction, by its full name (``LDG.E.128``), in one kernel or in all.

    >>> mnemonics(sass_instructions(image))["HMMA"]          # doctest: +SKIP
    64
    """
    text = disassemble(cubin)
    if kernel is not None:
        parts = _FUNCTION.split(text)
        text = "".join(body for name, body in zip(parts[1::2], parts[2::2], strict=True) if name == kernel)
    return Counter(_INSTRUCTION.findall(text))


def mnemonics(instructions: Counter[str]) -> Counter[str]:
    """The counts without modifiers: ``HMMA.16816.F32`` counts as ``HMMA``."""
    made: Counter[str] = Counter()
    for name, count in instructions.items():
        made[name.split(".")[0]] += count
    return made


@lru_cache(maxsize=1)
def _tool() -> Path | None:
    spec = find_spec("triton")
    roots = [Path(p) for p in (spec.submodule_search_locations or ())] if spec is not None else []
    for root in roots:
        for name in ("nvdisasm", "cuobjdump"):
            path = root / "backends" / "nvidia" / "bin" / name
            if path.exists():
                return path
    for name in ("nvdisasm", "cuobjdump"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    return None
