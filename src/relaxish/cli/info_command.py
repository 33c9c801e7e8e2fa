"""``relaxish info``."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from typing import Any

import click

from .. import __version__
from ..support import config
from ..support.threads import available_cores, num_threads
from .common import print_mapping

_PACKAGES = ("numpy", "llvmlite", "onnx", "onnxruntime", "torch", "xgboost-cpu", "xgboost", "ml_dtypes", "safetensors")


def _versions() -> dict[str, str]:
    found = {"relaxish": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _machine() -> dict[str, Any]:
    from ..runtime import cpu
    from ..target import Target

    host = Target("llvm")
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": cpu(0).device_name,
        "cores": available_cores(),
        "threads": num_threads(),
        "vector bits": host.vector_bits,
        "matrix units": ", ".join(sorted(f for f in host.llvm_features if f.startswith("amx"))) or "none",
    }


def _gpu() -> dict[str, str]:
    """Who drives NVIDIA devices here, what they are, and who compiles for them."""
    from ..backend.cuda.compile import nvrtc
    from ..runtime.nvidia import providers

    compilers = ", ".join(compiler.version() for compiler in nvrtc.compilers()) or "none"
    state = providers.find()
    if state is None:
        return {"driver": "none", "compilers": compilers}
    driver = state.driver
    devices = {
        f"cuda({i})": f"{driver.attribute(i, 'device_name')}, {driver.memory_info(i)[1] >> 20} MiB"
        for i in range(driver.device_count())
    }
    return {"driver": driver.name, **devices, "compilers": compilers}


def _features() -> list[str]:
    """What programs for this processor may use, by the names of ``target.features``."""
    from ..target import Target

    return sorted(name for name, has in Target("llvm").feature_map.items() if has is True)


def _some_tags(tags: list[str]) -> dict[str, str]:
    """For each vendor how many tags there are, and the first ones."""
    vendors: dict[str, list[str]] = {}
    for tag in tags:
        vendors.setdefault(tag.partition("/")[0], []).append(tag.partition("/")[2])
    return {vendor: f"{len(names)}: {', '.join(names[:3])}, ..." for vendor, names in vendors.items()}


@click.command("info", help="Show versions, the machine, CUDA devices, target kinds, features, tags and settings.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """The command."""
    from ..target import Target
    from ..target.tags import list_tag_names

    settings = {k.env: str(k.value) for k in config.KNOBS.values()}
    data: dict[str, Any] = {"versions": _versions(), "machine": _machine(), "cuda": _gpu(),
                            "targets": Target.list_kinds(), "features": _features(), "tags": list_tag_names(),
                            "settings": settings}  # fmt: skip
    if as_json:
        click.echo(json.dumps(data, indent=2))
        return
    print_mapping("Versions", data["versions"])
    print_mapping("Machine", data["machine"])
    print_mapping("CUDA", data["cuda"])
    click.echo("Targets\n  " + ", ".join(data["targets"]))
    click.echo("Features of this processor\n  " + (", ".join(data["features"]) or "none"))
    print_mapping("Tags (all with --json)", _some_tags(data["tags"]))
    print_mapping("Settings", data["settings"])
