"""Results of tuning, in memory and on disk."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...support import untrusted as ut
from ...support.errors import MalformedDataError
from ...tir import PrimFunc
from ..jit import store
from ..jit.kernel import JITKernel
from .params import CompileArgs

__all__ = ["AutotuneResult"]


@dataclass
class AutotuneResult:
    """The best configuration, its time in milliseconds (and the reference's, if there is one), and its kernel."""

    latency: float | None = None
    config: dict[str, Any] | None = None
    ref_latency: float | None = None
    kernel: JITKernel | None = None

    @property
    def func(self) -> PrimFunc | None:
        """The program of the best configuration."""
        return None if self.kernel is None else self.kernel.prim_func

    @property
    def libcode(self) -> str | None:
        """The code of the kernel."""
        return None if self.kernel is None else self.kernel.get_kernel_source()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel."""
        if self.kernel is None:
            raise ValueError("there is no kernel in this result")
        return self.kernel(*args, **kwargs)

    def save_to_disk(self, path: str | Path, verbose: bool = False) -> None:
        """Write everything into a folder, which may be there and must be empty.

        ``function.pkl`` and ``params.pkl`` hold plain data only.
        """
        if self.kernel is None:
            raise ValueError("there is no kernel in this result to write")
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.kernel.save(folder)
        (folder / "best_config.json").write_text(json.dumps(self.config))
        times = {"latency": self.latency, "ref_latency": self.ref_latency}
        (folder / "latency.json").write_text(json.dumps(times))
        params = [{"dtype": p.dtype, "shape": list(p.shape), "scalar": p.is_scalar} for p in self.kernel.params]
        (folder / "params.pkl").write_bytes(pickle.dumps(params))
        store.seal(folder)

    @staticmethod
    def load_from_disk(path: str | Path, compile_args: CompileArgs | None = None) -> AutotuneResult:
        """The result that :meth:`save_to_disk` wrote. Raises MalformedDataError for a folder that was changed.

        The library in it is machine code: load only what you, or somebody you trust, wrote.
        """
        folder = Path(path)
        store.verify(folder)
        config = ut.mapping_of(ut.anything)(_read(folder / "best_config.json"), "best_config.json")
        times = ut.mapping_of(ut.anything)(_read(folder / "latency.json"), "latency.json")
        out_idx = ut.list_of(ut.integer(0, 1 << 16))(_read(folder / "out_idx.json"), "out_idx.json")
        options = replace((compile_args or CompileArgs()).options(), out_idx=out_idx)
        kernel = JITKernel.load(folder, options)
        return AutotuneResult(_time(times.get("latency")), config, _time(times.get("ref_latency")), kernel).attached()

    def attached(self) -> AutotuneResult:
        """Itself, after telling the kernel what was found."""
        if self.kernel is not None:
            self.kernel.latency, self.kernel.ref_latency = self.latency, self.ref_latency
            self.kernel.config = self.config
        return self


def _read(path: Path) -> Any:
    return ut.parse_json(path.read_bytes(), str(path), max_bytes=1 << 24)


def _time(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, (int, float)) and math.isfinite(value) and value >= 0:
        return float(value)
    raise MalformedDataError(f"{value!r} is no time")
