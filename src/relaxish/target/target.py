"""``Target``: which device code is made for, and what that device can do."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeVar, overload

from ..ir.errors import CheckTypeError, CheckValueError
from ..support.errors import RelaxishError
from .compose import CHILD_FIELDS, default_host, default_names, host_of_name, pool_of, resolve, resolving, TargetSpec
from .cpu_features import is_arm
from .kind import Option, TargetKind, get_kind, list_kinds
from .limits import attrs_with_limits
from .parse import config_of_any, option_of, text_of_value


_Mapped = TypeVar("_Mapped")


class TargetFeatures:
    """Attribute access to device features: ``target.features.has_avx512``. Unknown names are None."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def __getattr__(self, name: str) -> bool | None:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._target.feature_map.get(name)

    __iter__ = None  # by index it would not end

    def __getitem__(self, name: str) -> Any:
        return self._target.feature_map.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._target.feature_map

    def __repr__(self) -> str:
        return f"TargetFeatures({self._target.feature_map!r})"


class _Scopes(threading.local):
    def __init__(self) -> None:
        self.stack: list[Target] = []


_SCOPES = _Scopes()


class Target:
    """A device to compile for, or a system of several. Immutable.

    Forms: ``Target("llvm -mcpu=skylake-avx512 -num-cores=4")``, ``Target({"kind": "cuda", "arch": "sm_80"})``,
    a JSON string, a tag such as ``Target("nvidia/nvidia-a100")``, another ``Target``; ``host`` names the device that
    runs the host code. Used as a scope, ``with target:`` makes it ``Target.current()`` of the thread.

    Kinds ``composite`` (a host with devices) and ``machines`` are made of targets, to any depth:

    >>> t = Target({"kind": "composite", "host": "x86", "vdevice0": "cuda -arch=sm_80", "vdevice1": "llvm"})
    >>> list(t.devices), t.host.attrs["mtriple"], t["vdevice0"].arch
    (['vdevice0', 'vdevice1'], 'x86_64-linux-gnu', 'sm_80')
    >>> t.resolved()["vdevice0"].host == t.host
    True

    Equal are targets of equal kind, keys, attributes, hosts and devices (in order, with their names).
    """

    __slots__ = ("kind", "_host", "tag", "keys", "attrs", "_names", "__dict__")

    kind: TargetKind
    tag: str
    keys: tuple[str, ...]
    attrs: dict[str, Any]
    _host: Target | None
    _names: tuple[str, ...]

    def __init__(
        self, target: str | dict[str, Any] | Target, host: str | dict[str, Any] | Target | None = None
    ) -> None:
        match target:
            case Target():
                self.kind, self.tag, self.keys, self.attrs = target.kind, target.tag, target.keys, dict(target.attrs)
                self._host, self._names = target._host, target._names
            case str() | dict():
                try:
                    self._make(target)
                except RelaxishError:
                    raise
                except (TypeError, AttributeError) as err:
                    raise CheckTypeError(f"Cannot make a target of {_short(target)}: {err}") from err
                except (ValueError, LookupError, RecursionError, OverflowError) as err:
                    raise CheckValueError(f"Cannot make a target of {_short(target)}: {err}") from err
            case _:
                raise CheckValueError(
                    f"target has to be a string, a dictionary or a Target, got {type(target).__name__}"
                )
        if host is not None:
            self._host = _as_host(host)

    def _make(self, spec: str | dict[str, Any]) -> None:
        if isinstance(spec, dict):
            with resolving(id(spec), _short(spec)):
                self._resolve_tag(spec)
        else:
            self._resolve_tag(spec)

    def _resolve_tag(self, spec: str | dict[str, Any]) -> None:
        config, tag = config_of_any(spec)
        if not tag:
            self._fill(config)
            return
        with resolving(tag, tag):
            self._fill(config)

    def _fill(self, config: dict[str, Any]) -> None:
        config = dict(config)
        self.kind = get_kind(config.pop("kind"))
        self.tag = config.pop("tag", "")
        host = config.pop("host", None)
        self._host = None if host is None else _as_host(host)
        keys = list(config.pop("keys", None) or self.kind.default_keys)
        if self.kind.name in ("llvm", "c") and is_arm(config):
            keys = ["arm_cpu", "cpu", *keys]
        if "device" in config:
            keys.append(config["device"])
        self.keys = tuple(dict.fromkeys(keys))
        field = CHILD_FIELDS.get(self.kind.name)
        self._names = ()
        if field is not None:
            self._names = tuple(config[field])
            config[field] = tuple(_as_child(name, child) for name, child in config[field].items())
        if config.pop("from_device", None) is not None and self.kind.name == "llvm":
            config.setdefault("mattr", _host_mattr())
        if self.kind.preprocess is not None:
            config = self.kind.preprocess(config)
        for name, option in self.kind.schema.items():
            if option.default is not None:
                config.setdefault(name, option.default)
        self.attrs = {name: config[name] for name in sorted(config)}

    # ---- identity and text

    def __str__(self) -> str:
        parts = [self.kind.name]
        if self.keys:
            parts.append("-keys=" + text_of_value(self.keys))
        field = CHILD_FIELDS.get(self.kind.name)
        for name, value in self.attrs.items():
            parts.append(f"-{name}={self._text_of_children() if name == field else text_of_value(value)}")
        if self._host is not None:
            parts.append("-host={" + str(self._host) + "}")
        return " ".join(parts)

    def _text_of_children(self) -> str:
        plain = self._has_default_names()
        return ",".join(("" if plain else name + ":") + "{" + str(child) + "}" for name, child in self.devices.items())

    def _has_default_names(self) -> bool:
        return self._names == default_names(self.kind.name, len(self._names))

    def __repr__(self) -> str:
        return str(self)

    def export(self) -> dict[str, Any]:
        """The target as a plain dictionary, from which ``Target`` makes an equal one; only what was given is in it."""
        result: dict[str, Any] = {"kind": self.kind.name, "tag": self.tag, "keys": list(self.keys)}
        field = CHILD_FIELDS.get(self.kind.name)
        for name, value in self.attrs.items():
            if name == field:
                children = {child: target.export() for child, target in self.devices.items()}
                result[name] = list(children.values()) if self._has_default_names() else children
            else:
                result[name] = list(value) if isinstance(value, tuple) else copy.deepcopy(value)
        if self._host is not None:
            result["host"] = self._host.export()
        return result

    @functools.cached_property
    def _key(self) -> tuple[Any, ...]:
        attrs = tuple((name, _hashable(value)) for name, value in self.attrs.items())
        return (self.kind.name, self.keys, attrs, self._names, self._host)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and (self is other or self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def same_as(self, other: object) -> bool:
        """Whether ``other`` is this very object."""
        return self is other

    def __reduce__(self) -> tuple[Any, ...]:
        return (Target, (self.export(),))

    def __copy__(self) -> Target:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Target:
        return self

    # ---- what it is made of

    @property
    def devices(self) -> Mapping[str, Target]:
        """The targets a composition is made of, by name and in order; empty for a single device."""
        field = CHILD_FIELDS.get(self.kind.name)
        return MappingProxyType(dict(zip(self._names, self.attrs[field], strict=True)) if field else {})

    def __len__(self) -> int:
        return len(self._names)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Target]:
        return iter(self.devices.values())

    def __getitem__(self, key: int | str) -> Target:
        """A device by its position or name; IndexError or KeyError when there is none."""
        if isinstance(key, str):
            found = self.devices.get(key)
            if found is None:
                known = f"it has {', '.join(self._names)}" if self._names else "it is a single device"
                raise KeyError(f"target has no device named {key!r}; {known}")
            return found
        if not -len(self._names) <= key < len(self._names):
            raise IndexError(f"target has {len(self._names)} devices, there is no number {key}")
        return self.devices[self._names[key]]

    def leaves(self) -> tuple[Target, ...]:
        """The single devices, depth first: of a single device itself."""
        if self.kind.name not in CHILD_FIELDS:
            return (self,)
        return tuple(leaf for child in self.devices.values() for leaf in child.leaves())

    def resolved(self) -> Target:
        """The target with all that holds written out: host, libraries and runtime of each level passed on downwards."""
        return resolve(self, {})

    @property
    def host(self) -> Target | None:
        """Target of host code: as given; for a ``composite`` without one its CPU, or that of its first device."""
        if self._host is None and self.kind.name == "composite":
            return default_host(self)
        return self._host

    @property
    def given_host(self) -> Target | None:
        """The host that was asked for; None where it is left to the target."""
        return self._host

    @property
    def runtime(self) -> str:
        """Runtime of programs: ``vm`` unless given, ``cuda-graph``, ``aot`` or ``graph``."""
        return str(self.attrs.get("runtime", "vm"))

    @property
    def pool(self) -> list[dict[str, str]] | dict[str, str]:
        """Pool of devices that measure candidates: a dictionary with its kind, or for compositions a list of such."""
        return pool_of(self)

    # ---- scope

    def __enter__(self) -> Target:
        _SCOPES.stack.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _SCOPES.stack.pop()

    @overload
    @staticmethod
    def current(allow_none: Literal[False]) -> Target: ...
    @overload
    @staticmethod
    def current(allow_none: bool = True) -> Target | None: ...

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The innermost target in scope; ValueError when there is none and ``allow_none`` is False."""
        if _SCOPES.stack:
            return _SCOPES.stack[-1]
        if allow_none:
            return None
        raise CheckValueError("Target context required: enter one with `with Target(...):`")

    # ---- queries

    def with_host(self, host: str | dict[str, Any] | Target) -> Target:
        """The same target with another host."""
        return Target(self, host)

    def without_host(self) -> Target:
        """The same target with no host."""
        result = Target(self)
        result._host = None
        return result

    @staticmethod
    def from_device(device: Any) -> Target:
        """The target describing a device of this machine: an object with ``device_type``, or text like "cuda:0"."""
        from .from_device import target_of_device

        return target_of_device(device)

    @staticmethod
    def list_kinds() -> list[str]:
        """Names of every kind."""
        return list_kinds()

    @staticmethod
    def target_or_current(target: TargetSpec | None) -> Target:
        """``target`` itself, or the current one when it is None."""
        result = Target.current() if target is None else Target(target)
        if result is None:
            raise CheckValueError("Target is not set in env or passed as argument.")
        return result

    @staticmethod
    def canon_target(target: TargetSpec | None) -> Target | None:
        """``target`` as a Target; None stays None."""
        return target if target is None or isinstance(target, Target) else Target(target)

    @staticmethod
    def canon_target_and_host(
        target: TargetSpec | None, target_host: TargetSpec | None = None
    ) -> tuple[Target | None, Target | None]:
        """Both as targets, the host attached to the first."""
        if target is None:
            if target_host is not None:
                raise AssertionError("Target host is not empty when target is empty.")
            return None, None
        result = Target(target, target_host)
        return result, result.host

    @staticmethod
    def canon_multi_target(multi_targets: Sequence[TargetSpec] | TargetSpec | None) -> tuple[Target, ...] | None:
        """A tuple of targets from one target, a sequence, or a map whose values are targets."""
        if multi_targets is None:
            return None
        if isinstance(multi_targets, (str, Target)) or (isinstance(multi_targets, dict) and "kind" in multi_targets):
            return (Target(multi_targets),)
        values = multi_targets.values() if isinstance(multi_targets, dict) else multi_targets
        return tuple(Target(t) for t in values)

    @staticmethod
    def canon_multi_target_and_host(
        target: Sequence[TargetSpec] | TargetSpec, target_host: TargetSpec | None = None
    ) -> tuple[Target, ...]:
        """Like ``canon_multi_target``, every target with the host attached."""
        targets = Target.canon_multi_target(target)
        if not targets:
            raise AssertionError("At least one target is needed.")
        return tuple(Target(t, target_host) for t in targets)

    @staticmethod
    def canon_target_map_and_host(
        target_map: Mapping[Any, _Mapped], target_host: Any = None
    ) -> tuple[dict[Target, _Mapped], Target | None]:
        """A map from targets to whatever is built for them, its keys as targets with one host, and that host.

        The host is that of the first key, else the one given.
        """
        host: Target | None = None
        made: dict[Target, _Mapped] = {}
        for key, value in target_map.items():
            target = Target(key)
            host = host or target.host or Target.canon_target(target_host)
            made[target if host is None else Target(target.without_host(), host)] = value
        return made, host

    def get_kind_attr(self, attr_name: str) -> Any:
        """A fact about the kind, not this target: ``"default_device_type"`` or ``"default_keys"``."""
        return getattr(self.kind, attr_name, None)

    def get_target_device_type(self) -> int:
        """DLPack device type of this target."""
        return int(self.attrs.get("target_device_type", self.kind.default_device_type))

    def get_attr(self, name: str, default: int | str | None = None) -> Any:
        """Attribute ``name``, or ``default`` when it is not set."""
        return self.attrs.get(name, default)

    @property
    def schema(self) -> dict[str, Option]:
        """The attributes this target's kind knows."""
        return self.kind.schema

    def with_attrs(self, **changes: Any) -> Target:
        """A copy with attributes changed (underscores in names stand for dashes where the schema has dashes)."""
        config = self.export()
        for name, value in changes.items():
            dashed = name.replace("_", "-")
            option_of(self.kind, name if name in self.kind.schema else dashed)
            config[name if name in self.kind.schema else dashed] = value
        return Target(config)

    @property
    def features(self) -> TargetFeatures:
        """Device features by name."""
        return TargetFeatures(self)

    @functools.cached_property
    def feature_map(self) -> dict[str, Any]:
        """Every known feature: ``has_*`` for CPUs, ``feature.*`` attributes for any kind."""
        result = {name[8:]: value for name, value in self.attrs.items() if name.startswith("feature.")}
        if self.get_target_device_type() == 1 and self.kind.name in ("llvm", "c", "hexagon"):
            from .cpu_features import named_features

            result = {**named_features(self), **result}
        return result

    @functools.cached_property
    def llvm_features(self) -> frozenset[str]:
        """Features the code may use, by their LLVM names (those of the host for a plain ``llvm`` target)."""
        from .cpu_features import llvm_features

        return llvm_features(self)

    @functools.cached_property
    def vector_bits(self) -> int:
        """Width in bits of the vector registers that code for this CPU should use."""
        from .cpu_features import vector_bits

        return vector_bits(self)

    @property
    def num_cores(self) -> int:
        """Threads that parallel loops of this target run on."""
        from .detect import num_threads

        return num_threads(self.attrs.get("num-cores"))

    @property
    def arch(self) -> str:
        """CUDA architecture, for example ``sm_80``."""
        return str(self.attrs["arch"])

    @property
    def max_num_threads(self) -> int:
        """Most threads in a GPU block."""
        return int(self.attrs["max_num_threads"])

    @property
    def max_block_size_x(self) -> int:
        """Most threads in dimension x of a block."""
        return int(self.attrs.get("max_block_size_x", self.max_num_threads))

    @property
    def max_block_size_y(self) -> int:
        """Most threads in dimension y of a block."""
        return int(self.attrs.get("max_block_size_y", self.max_num_threads))

    @property
    def thread_warp_size(self) -> int:
        """Threads that run in lockstep."""
        return int(attrs_with_limits(self)["thread_warp_size"])

    @property
    def max_shared_memory_per_block(self) -> int:
        """Bytes of shared memory one block may have."""
        return int(attrs_with_limits(self)["max_shared_memory_per_block"])

    @property
    def max_function_args(self) -> int:
        """Most parameters of a kernel; 0 when not limited."""
        return int(self.attrs.get("max_function_args", 0))

    @property
    def vtcm_capacity(self) -> int:
        """Bytes of Hexagon's tightly coupled memory."""
        return int(self.attrs.get("vtcm-capacity", 0))

    @property
    def device_name(self) -> str:
        """Value of ``-device``."""
        return str(self.attrs.get("device", ""))

    @property
    def model(self) -> str:
        """Value of ``-model``; "unknown" when not given."""
        return str(self.attrs.get("model", "unknown"))

    @property
    def mcpu(self) -> str:
        """Value of ``-mcpu``; several CPUs, for each of which there is to be a version, are separated by commas."""
        return str(self.attrs.get("mcpu", ""))

    def versions(self) -> list[Target]:
        """A target for each of the CPUs of ``-mcpu``, in the order given: itself, if there is only one."""
        names = [name for name in self.mcpu.split(",") if name]
        return [self.with_attrs(mcpu=name) for name in names] if len(names) > 1 else [self]

    @property
    def mattr(self) -> list[str]:
        """Value of ``-mattr`` as a list."""
        return list(self.attrs.get("mattr", ()))

    @property
    def libs(self) -> list[str]:
        """Libraries that may be called."""
        return list(self.attrs.get("libs", ()))

    @property
    def supports_integer_dot_product(self) -> bool:
        """Whether 8-bit dot-product instructions may be used."""
        if "supports_integer_dot_product" in self.attrs:
            return bool(self.attrs["supports_integer_dot_product"])
        if self.kind.name == "cuda":
            return int("".join(c for c in self.arch if c.isdigit())) >= 61
        return False

    @property
    def supports_cooperative_matrix(self) -> bool:
        """Whether Vulkan cooperative matrices may be used."""
        return bool(self.attrs.get("supports_cooperative_matrix", False))

    @property
    def l2_cache_size_bytes(self) -> int:
        """Bytes of the second-level cache; 0 when not known."""
        return int(self.attrs.get("l2_cache_size_bytes", 0))


def _as_host(spec: TargetSpec) -> Target:
    if not isinstance(spec, (str, dict, Target)):
        raise CheckValueError(f"target host has to be a string, a dictionary or a Target, got {spec!r}")
    made = Target(host_of_name(spec))
    if made.kind.name in CHILD_FIELDS:
        raise CheckValueError(f'A host is a single device, and "{made.kind.name}" is made of several')
    return made


def _as_child(name: str, spec: TargetSpec) -> Target:
    if not isinstance(spec, (str, dict, Target)):
        raise CheckTypeError(f"Device {name} has to be a string, a dictionary or a Target, got {spec!r}")
    with resolving(object(), name):
        return spec if isinstance(spec, Target) else Target(spec)


def _hashable(value: Any) -> object:
    """An attribute as part of a key: for dictionaries and lists of them the order does not count."""
    match value:
        case dict():
            return frozenset(value.items())
        case list():
            return frozenset(map(_hashable, value))
    return value


def _short(value: Any) -> str:
    shown = str(value) if not isinstance(value, dict) else str(value.get("kind", "a dictionary"))
    return shown if len(shown) <= 80 else shown[:77] + "..."


def _host_mattr() -> tuple[str, ...]:
    from .detect import host_features

    return tuple(sorted("+" + name for name in host_features()))
