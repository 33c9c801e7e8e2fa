"""Ablations described by one file: a base strategy, and variants that each change something of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from ..support.errors import MissingExtraError, RelaxishError
from .comparison import Comparison, compare
from .search import Run

__all__ = ["ablate", "read_ablation"]

_KEYS = {"tasks", "base", "variants", "trials", "seeds", "batch", "noise", "output"}


def read_ablation(path: str | PathLike[str]) -> dict[str, Any]:
    """The description in a YAML file, checked. Raises RelaxishError with the key that is wrong or missing."""
    try:
        import yaml
    except ImportError:
        raise MissingExtraError("lab", "pyyaml", "an ablation file") from None
    where = Path(path)
    try:
        data = yaml.safe_load(where.read_text())
    except yaml.YAMLError as err:
        raise RelaxishError(f"{where}: not YAML: {' '.join(str(err).split())}") from None
    if not isinstance(data, dict):
        raise RelaxishError(f"{where}: an ablation is a mapping with the keys {', '.join(sorted(_KEYS))}")
    unknown, missing = sorted(set(data) - _KEYS), sorted({"tasks", "base", "variants"} - set(data))
    if unknown or missing:
        problem = f"unknown key {unknown[0]!r}" if unknown else f"the key {missing[0]!r} is missing"
        raise RelaxishError(f"{where}: {problem} (keys are {', '.join(sorted(_KEYS))})")
    if not isinstance(data["base"], dict) or "strategy" not in data["base"]:
        raise RelaxishError(f"{where}: base needs the key strategy")
    if not isinstance(data["variants"], dict) or not all(isinstance(v, dict) for v in data["variants"].values()):
        raise RelaxishError(f"{where}: variants maps names to the options that each changes")
    return data


def ablate(source: str | PathLike[str] | Mapping[str, Any], watch: Callable[[Run], None] | None = None) -> Comparison:
    """Run an ablation: ``base`` and every variant of it, on every task, with every seed.

    ``source`` is a YAML file or what stands in one. A variant's options replace those of the base; one that is null is
    left out. With ``output`` every trial is written to that file (``.csv`` or ``.parquet``), relative to the YAML file.
    """
    data: Mapping[str, Any] = source if isinstance(source, Mapping) else read_ablation(source)
    base = dict(data["base"])
    variants: dict[str, dict[str, Any]] = {"base": base}
    for name, changes in data["variants"].items():
        merged = {**base, **changes}
        variants[str(name)] = {k: v for k, v in merged.items() if v is not None}
    folder = Path() if isinstance(source, Mapping) else Path(source).parent
    tasks = [str(folder / t) if (folder / str(t)).is_file() else t for t in data["tasks"]]
    result = compare(
        variants, tasks, data.get("seeds", 5), trials=int(data.get("trials", 500)), batch=int(data.get("batch", 64)),
        noise=data.get("noise", "none"), watch=watch,
    )  # fmt: skip
    if data.get("output"):
        result.save(folder / str(data["output"]))
    return result
