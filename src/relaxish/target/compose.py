"""Targets made of targets: how they are spelled, and what of a level holds for the levels below it.

A ``composite`` is one process, a host with devices; ``machines`` are several processes. What either is made of is again
any target, so that a description may go as deep as the system it describes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

from ..ir.errors import CheckTypeError, CheckValueError

if TYPE_CHECKING:
    from .target import Target

__all__ = [
    "CHILD_FIELDS", "HOST_NAMES", "POOL_KINDS", "RUNTIMES", "TargetSpec", "check_pool", "check_runtime", "default_host",
    "default_names", "gather", "host_of_name", "is_child", "pool_of", "resolve", "resolving",
]  # fmt: skip

#: A target, or what one is made from: its text or its fields.
TargetSpec: TypeAlias = "Target | str | dict[str, Any]"

#: Kinds made of other targets, and the attribute that lists them.
CHILD_FIELDS = {"composite": "devices", "machines": "machines"}
_PREFIXES = {"composite": "vdevice", "machines": "machine"}
_CHILD = re.compile(r"(vdevice|machine)(0|[1-9][0-9]*)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

#: What drives a program: bytecode, bytecode with captured device graphs, one native call, a graph of calls.
RUNTIMES = ("vm", "cuda-graph", "aot", "graph")
#: Where candidates of a target are measured.
POOL_KINDS = ("local", "rpc", "ray", "emulator")

#: Architectures that a host may be called by.
HOST_NAMES = {
    "x86": "x86_64-linux-gnu",
    "x86_64": "x86_64-linux-gnu",
    "amd64": "x86_64-linux-gnu",
    "i386": "i386-linux-gnu",
    "arm": "armv7l-linux-gnueabihf",
    "arm32": "armv7l-linux-gnueabihf",
    "arm64": "aarch64-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "riscv": "riscv64-unknown-linux-gnu",
    "riscv64": "riscv64-unknown-linux-gnu",
    "riscv32": "riscv32-unknown-linux-gnu",
}


def is_child(key: str) -> bool:
    """Whether a name of a configuration stands for a device or machine: ``vdevice0``, ``machine1``."""
    return _CHILD.fullmatch(key) is not None


def host_of_name(spec: TargetSpec) -> TargetSpec:
    """A host as it may be given: ``x86`` and the like are short for ``llvm`` with a triple."""
    if isinstance(spec, str) and spec.strip().lower() in HOST_NAMES:
        return {"kind": "llvm", "mtriple": HOST_NAMES[spec.strip().lower()]}
    return spec


# ---- spelling


def gather(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration with its devices in one place: ``{"devices": {name: spec}}``, whichever way they were written.

    ``kind`` may be missing where there are devices. Raises ValueError for devices that are given twice, that are not
    numbered from 0, or that have no usable name.
    """
    merged = dict(config)
    if "library" in merged:
        if "libs" in merged:
            raise CheckValueError('Give either "library" or "libs" of a target, not both')
        merged["libs"] = merged.pop("library")
    kind = merged.get("kind")
    if kind is None:
        kind = _kind_of(merged)
        if kind is not None:
            merged["kind"] = kind
    if kind not in CHILD_FIELDS:
        return merged
    field, prefix = CHILD_FIELDS[kind], _PREFIXES[kind]
    numbered = {key: merged.pop(key) for key in list(merged) if is_child(key)}
    wrong = next((key for key in numbered if not key.startswith(prefix)), None)
    if wrong is not None:
        raise CheckValueError(f'"{wrong}" is no {prefix} of a target of kind "{kind}"')
    if numbered and field in merged:
        raise CheckValueError(
            f'Give the {field} of a target either as "{field}" or one by one as "{prefix}0", not both'
        )
    merged[field] = _in_order(numbered, prefix) if numbered else _named(merged.get(field), kind)
    if not merged[field]:
        raise CheckValueError(
            f'A target of kind "{kind}" needs {field}: {{"kind": "{kind}", "{field}": ["cuda", "llvm"]}} '
            f'or "{prefix}0": "cuda"'
        )
    return merged


def _kind_of(config: Mapping[str, Any]) -> str | None:
    for kind, field in CHILD_FIELDS.items():
        if field in config or any(key.startswith(_PREFIXES[kind]) for key in config if is_child(str(key))):
            return kind
    return None


def _in_order(numbered: dict[str, Any], prefix: str) -> dict[str, Any]:
    names = [f"{prefix}{i}" for i in range(len(numbered))]
    missing = next((name for name in names if name not in numbered), None)
    if missing is not None:
        raise CheckValueError(f'The {prefix}s of a target are numbered from 0, and "{missing}" is missing')
    return {name: numbered[name] for name in names}


def _named(children: Sequence[TargetSpec] | Mapping[str, TargetSpec] | None, kind: str) -> dict[str, Any]:
    if children is None:
        return {}
    prefix = _PREFIXES[kind]
    match children:
        case Mapping():
            single = "kind" in children or "tag" in children or _kind_of(children) is not None
            if single and not all(is_child(str(key)) and str(key).startswith(prefix) for key in children):
                return {f"{prefix}0": children}
            for name in children:
                if not isinstance(name, str) or _NAME.fullmatch(name) is None:
                    raise CheckValueError(f"{name!r} cannot name a device: use letters, digits, '_', '-' and '.'")
            return dict(children)
        case list() | tuple():
            return {f"{prefix}{i}": child for i, child in enumerate(children)}
    return {f"{prefix}0": children}


def default_names(kind: str, count: int) -> tuple[str, ...]:
    """The names of devices that were given without any."""
    return tuple(f"{_PREFIXES[kind]}{i}" for i in range(count))


def check_runtime(value: Any) -> str:
    """The name of a runtime. Raises ValueError for one that there is not."""
    if value in RUNTIMES:
        return str(value)
    near = difflib.get_close_matches(str(value), RUNTIMES, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise CheckValueError(f'Runtime "{value}" is not known; known are {", ".join(RUNTIMES)}{hint}')


def check_pool(value: Any) -> object:
    """A measuring pool, or a list of several, as plain data. Raises ValueError for an unknown one."""
    if isinstance(value, (list, tuple)):
        pools = sorted((check_pool(v) for v in value), key=repr)
        return pools[0] if len(pools) == 1 else pools
    pool = {"kind": value} if isinstance(value, str) else value
    if not isinstance(pool, Mapping):
        raise CheckTypeError(f"A measuring pool is a name or a dictionary, got {value!r}")
    if pool.get("kind") not in POOL_KINDS:
        raise CheckValueError(f"Measuring pool {pool.get('kind')!r} is not known; known are {', '.join(POOL_KINDS)}")
    if pool["kind"] == "rpc":
        missing = [name for name in ("tracker", "key") if not pool.get(name)]
        if missing:
            raise CheckValueError(
                f"A measuring pool of kind rpc needs {' and '.join(missing)}: "
                '{"kind": "rpc", "tracker": "host:port", "key": "board"}'
            )
    for name, setting in pool.items():
        if not isinstance(name, str) or not isinstance(setting, (str, int, float, bool)):
            raise CheckTypeError(f"Setting {name!r} of a measuring pool must be text or a number, got {setting!r}")
    return {name: pool[name] for name in sorted(pool)}


# ---- what holds at a level


def default_host(target: Target) -> Target:
    """The host of a composition that names none: its first CPU, else the host of its first device, else this CPU."""
    from .target import Target

    leaves = target.leaves()
    cpu = next((leaf for leaf in leaves if leaf.kind.name == "llvm"), None)
    if cpu is not None:
        return cpu.without_host()
    return next((leaf.host for leaf in leaves if leaf.host is not None), Target("llvm"))


def resolve(target: Target, inherited: Mapping[str, Any]) -> Target:
    """A target with everything said that holds for it: its own word, else that of the levels above, else the usual."""
    from .target import Target

    own = {
        "host": target.given_host,
        "libs": target.attrs.get("libs"),
        "runtime": target.attrs.get("runtime"),
    }
    holds = {name: inherited.get(name) if value is None else value for name, value in own.items()}
    holds["runtime"] = holds["runtime"] or "vm"
    composed = target.kind.name in CHILD_FIELDS
    if holds["host"] is None and (target.kind.name == "composite" or target.get_target_device_type() != 1):
        holds["host"] = default_host(target) if composed else Target("llvm")
    config = target.export()
    config.update({name: value for name, value in holds.items() if value is not None})
    if composed:
        below = {name: holds[name] for name in ("libs", "runtime")}
        below["host"] = holds["host"]
        children = {name: resolve(child, below) for name, child in target.devices.items()}
        config[CHILD_FIELDS[target.kind.name]] = children
    return Target(config)


def pool_of(target: Target) -> list[dict[str, str]] | dict[str, str]:
    """Pool of devices that measure candidates for a target: its own, else (compositions) those of its leaves."""
    given = target.attrs.get("pool")
    if given is not None:
        return given
    if target.kind.name not in CHILD_FIELDS:
        return {"kind": "local"}
    union: list[Any] = []
    for leaf in target.leaves():
        found = leaf.pool
        union.extend(p for p in (found if isinstance(found, list) else [found]) if p not in union)
    return union[0] if len(union) == 1 else sorted(union, key=repr)


# ---- cycles

_OPEN: ContextVar[tuple[tuple[Any, str], ...]] = ContextVar("relaxish_target_open", default=())


@contextmanager
def resolving(key: Any, name: str) -> Iterator[None]:
    """While a tag or dictionary is being made into a target. Raises ValueError, with the path, for one inside itself."""
    path = _OPEN.get()
    if any(k == key for k, _ in path):
        steps = " -> ".join([*(n for _, n in path[[k for k, _ in path].index(key) :]), name])
        raise CheckValueError(f"A target cannot contain itself: {steps}")
    token = _OPEN.set((*path, (key, name)))
    try:
        yield
    finally:
        _OPEN.reset(token)
