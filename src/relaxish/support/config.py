"""Typed knobs: the only place that reads the environment.

Each knob has a name in the environment, a type, a default and a line of documentation, and says whether it changes
generated code; those that do are part of every cache key (:func:`code_key`). Read one with ``knob.value``, change it
for a while with ``with knob.override(value):``, for good with ``knob.set(value)``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from .errors import RelaxishError

T = TypeVar("T")
_UNSET: Any = object()
KNOBS: dict[str, Knob[Any]] = {}


def _parse_bool(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("expected one of 1/0, true/false, yes/no, on/off")


def _parse_level(text: str) -> int:
    return 2 if text.strip() == "2" else int(_parse_bool(text))


def _parse_positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("expected a positive integer")
    return number


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip().lower() not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return text.strip().lower()

    return parse


class Knob(Generic[T]):
    """One setting. Order of precedence: override, :meth:`set`, environment, default."""

    __slots__ = ("changes_code", "default", "doc", "env", "name", "parse", "_override", "_set")

    def __init__(self, name: str, parse: Callable[[str], T], default: T, doc: str, *, changes_code: bool) -> None:
        self.name = name
        self.env = "RELAXISH_" + name.upper()
        self.parse = parse
        self.default = default
        self.doc = doc
        self.changes_code = changes_code
        self._set: T = _UNSET
        self._override: T = _UNSET
        KNOBS[name] = self

    @property
    def value(self) -> T:
        """The value in force now."""
        if self._override is not _UNSET:
            return self._override
        if self._set is not _UNSET:
            return self._set
        text = os.environ.get(self.env)
        if text is None:
            return self.default
        try:
            return self.parse(text)
        except ValueError as err:
            raise RelaxishError(f"environment variable {self.env}={text!r} is not valid: {err}") from None

    @property
    def is_set(self) -> bool:
        """Whether the program has set a value, so that the environment does not matter."""
        return self._override is not _UNSET or self._set is not _UNSET

    def set(self, value: T) -> None:
        """Set for the rest of the process."""
        self._set = value

    def reset(self) -> None:
        """Forget what :meth:`set` stored."""
        self._set = _UNSET

    @contextlib.contextmanager
    def override(self, value: T) -> Iterator[None]:
        """Set inside a ``with`` block."""
        before = self._override
        self._override = value
        try:
            yield
        finally:
            self._override = before

    def __repr__(self) -> str:
        return f"Knob({self.env}={self.value!r})"


CHECK: Knob[int] = Knob(
    "check",
    _parse_level,
    0,
    "1: verify invariants (frozen nodes, passes checked before and after); "
    "2: and compiled CPU code checks every access to memory",
    changes_code=False,
)
INDEX_POLICIES = ("check", "clamp", "trust")
INDEX_BOUNDS = Knob(
    "index_bounds",
    _one_of(*INDEX_POLICIES),
    "check",
    "indices that come from data: check (an error names value and bound), clamp (to the nearest element), trust",
    changes_code=True,
)
NUM_THREADS: Knob[int | None] = Knob(
    "num_threads",
    _parse_positive,
    None,
    "threads of parallel loops; default: target num-cores, else CPU affinity",
    changes_code=False,
)
VM_RECURSION_LIMIT = Knob(
    "vm_recursion_limit", _parse_positive, 20_000, "nested calls the virtual machine allows", changes_code=False
)
RPC_TOKEN = Knob(
    "rpc_token", str, "", "the secret that servers, trackers and clients of remote calls share", changes_code=False
)
RPC_INSECURE = Knob(
    "rpc_insecure", _parse_bool, False, "let servers listen beyond this machine without a token", changes_code=False
)
CACHE_DIR = Knob(
    "cache_dir",
    lambda s: Path(s).expanduser(),
    Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "relaxish",
    "where compiled objects are kept",
    changes_code=False,
)
CACHE = Knob("cache", _parse_bool, True, "use the object cache", changes_code=False)
LOG = Knob(
    "log", str, "", "log levels by channel, for example 'meta_schedule=debug,vm=info' or 'debug'", changes_code=False
)
DUMP_DIR: Knob[Path | None] = Knob(
    "dump_dir", Path, None, "write IR, LLVM text and assembly of every build here", changes_code=False
)
OPT_LEVEL = Knob("codegen_opt", int, 3, "code generator optimisation level, 0 to 3", changes_code=True)
FAST_MATH = Knob("fast_math", _parse_bool, True, "allow contraction and polynomial approximations", changes_code=True)
DISABLE_FEATURES = Knob(
    "disable_features", str, "", "comma separated CPU features to ignore, for example 'amx,avx512f'", changes_code=True
)
WORKER_START_SEC = Knob(
    "worker_start_sec", float, 120.0, "time limit for a worker process to start", changes_code=False
)
TRACEBACK = Knob(
    "traceback", _parse_bool, False, "show the Python traceback of command line errors", changes_code=False
)
TEST_TARGETS = Knob(
    "test_targets", str, "llvm;cuda", "targets of parameterised tests, separated by semicolons", changes_code=False
)
UNCHECKED_RECORDS = Knob(
    "unchecked_records",
    _one_of("refuse", "warn", "trust"),
    "refuse",
    "tuning records whose results cannot be checked here: refuse them, apply them and warn, or trust all without check",
    changes_code=False,
)
ANY_HARDWARE = Knob(
    "any_hardware",
    _parse_bool,
    False,
    "use tuning records that were measured on other machines as well",
    changes_code=False,
)
TILE_DISABLE_CACHE = Knob(
    "tile_disable_cache", _parse_bool, False, "keep no kernels of tile programs on disk", changes_code=False
)
TILE_AUTO_TUNING_DISABLE_CACHE = Knob(
    "tile_auto_tuning_disable_cache",
    _parse_bool,
    False,
    "keep no results of the tile language's autotuner",
    changes_code=False,
)
TILE_AUTO_TUNING_CPU_UTILITIES = Knob(
    "tile_auto_tuning_cpu_utilities",
    float,
    0.9,
    "share of the processors that compile configurations of tile programs",
    changes_code=False,
)
TILE_AUTO_TUNING_CPU_COUNTS = Knob(
    "tile_auto_tuning_cpu_counts",
    int,
    -1,
    "how many configurations of tile programs are compiled at a time; -1: by the share of the processors",
    changes_code=False,
)
TILE_AUTO_TUNING_MAX_CPU_COUNT = Knob(
    "tile_auto_tuning_max_cpu_count",
    int,
    -1,
    "most configurations of tile programs that are compiled at a time; -1: no limit",
    changes_code=False,
)
HOST_PROGRAMS = Knob(
    "host_programs",
    _one_of("text", "native"),
    "text",
    "what runs around the launches of device kernels: text (quickest where Python launches), native (machine code)",
    changes_code=False,
)
CUDA_PROVIDER = Knob(
    "cuda_provider",
    str,
    "auto",
    "who drives NVIDIA devices: auto (pycuda, else cuda-bindings), pycuda, cuda-bindings, emulator, null",
    changes_code=False,
)


def checks_memory() -> bool:
    """Whether generated code checks every access (``RELAXISH_CHECK=2``)."""
    return int(CHECK.value) >= 2


def code_key() -> tuple[tuple[str, Any], ...]:
    """Names and values of all knobs that change generated code, for cache keys."""
    values = [(name, KNOBS[name].value) for name in sorted(KNOBS) if KNOBS[name].changes_code]
    return (*values, ("checks_memory", checks_memory()))


def describe() -> str:
    """A table of all knobs with their present values."""
    rows = [f"{k.env:<28} {k.value!s:<28} {k.doc}{' [changes code]' if k.changes_code else ''}" for k in KNOBS.values()]
    return "\n".join(rows)


def worker_environment(**extra: str) -> dict[str, str]:
    """The environment for a child process: ours, with ``extra`` on top."""
    env = dict(os.environ)
    env.update(extra)
    return env
