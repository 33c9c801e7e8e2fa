"""Target tags: short names that stand for a whole target, and their variants.

``vendor/board`` is what the field means by it; behind a colon, ``vendor/board:cuda`` is the device with its host,
``:llvm`` the host alone, ``:board`` both as a composition, and ``:vm``, ``:cuda-graph``, ``:aot``, ``:graph`` the same
target with that runtime.
"""

from __future__ import annotations


from typing import TYPE_CHECKING, Any

from ..ir.errors import CheckValueError
from .cloud_tags import cloud_tags
from .compose import CHILD_FIELDS, RUNTIMES
from .nvidia_tags import BOARD_HOSTS, nvidia_tags

if TYPE_CHECKING:
    from .target import Target

_TAGS: dict[str, dict[str, Any]] = {}


def config_of_tag(name: str) -> dict[str, Any] | None:
    """The config a tag, or a variant of one, stands for; None when there is no such tag.

    Raises ValueError for an unknown variant of a tag that is there.
    """
    found = _TAGS.get(name)
    base, colon, variant = name.rpartition(":")
    if found is not None or not colon or base not in _TAGS:
        return found
    known = variants(base)
    if variant not in known:
        raise CheckValueError(f'Tag "{base}" has no variant "{variant}"; it has {", ".join(known)}')
    made = _variant(base, variant).export()
    del made["tag"]
    return made


def variants(tag: str) -> tuple[str, ...]:
    """The variants of a tag, without their colons."""
    target = _target_of(tag)
    kinds = dict.fromkeys(leaf.kind.name for leaf in target.leaves())
    host = ["llvm"] if target.host is not None or tag in BOARD_HOSTS else []
    return tuple(dict.fromkeys([*kinds, *host, "board", *RUNTIMES]))


def _target_of(tag: str) -> Target:
    from .target import Target

    return Target({"tag": tag})


def _variant(tag: str, variant: str) -> Target:
    from .target import Target

    target = _target_of(tag)
    host = target.host
    if host is None and tag in BOARD_HOSTS:
        host = Target(BOARD_HOSTS[tag])
    composed = target.kind.name in CHILD_FIELDS
    if variant in RUNTIMES:
        return Target(target, None if composed else host).with_attrs(runtime=variant)
    if variant == "board":
        alone = target.without_host()
        usual = alone if alone.kind.name == "llvm" else "llvm"
        return target if composed else Target({"kind": "composite", "host": host or usual, "devices": [alone]})
    leaf = next((leaf for leaf in target.leaves() if leaf.kind.name == variant), None)
    if leaf is None:
        assert host is not None  # it is one of the variants
        return host
    return Target(leaf, host) if leaf.given_host is None and host is not None else leaf


def list_tags() -> dict[str, Target] | None:
    """All tags and their targets."""
    from .target import Target

    return {name: Target(name) for name in _TAGS}


def list_tag_names() -> list[str]:
    """All tag names (cheaper than ``list_tags``)."""
    return list(_TAGS)


def register_tag(name: str, config: dict[str, Any], override: bool = False) -> Target | None:
    """Add a tag; ValueError when it exists and ``override`` is False, or when its config makes no target."""
    from .target import Target

    before = _TAGS.get(name)
    if before is not None and not override:
        raise CheckValueError(f'Tag "{name}" has been previously defined as: {before}')
    _TAGS[name] = dict(config)
    try:
        return Target(name)
    except Exception:
        del _TAGS[name]
        if before is not None:
            _TAGS[name] = before
        raise


def _raspberry_pi() -> dict[str, Any]:
    return {
        "kind": "llvm",
        "mtriple": "aarch64-linux-gnu",
        "mcpu": "cortex-a72",
        "mattr": ["+neon"],
        "num-cores": 4,
    }


def _register_defaults() -> None:
    _TAGS.update(nvidia_tags())
    _TAGS.update(cloud_tags())
    _TAGS["raspberry-pi/4b-aarch64"] = {**_raspberry_pi(), "host": _raspberry_pi()}
    host = {"kind": "llvm", "mtriple": "arm64-apple-macos", "mcpu": "apple-latest"}
    for name, threads in (("m1-gpu", 1024), ("m1-gpu-restricted", 256), ("m2-gpu", 1024)):
        _TAGS["apple/" + name] = {
            "kind": "metal",
            "max_threads_per_block": threads,
            "max_shared_memory_per_block": 32768,
            "thread_warp_size": 32,
            "host": host,
        }


_register_defaults()
