"""Exported programs, weights and packages, damaged or edited: the right result, or one error before anything runs.

Files are damaged byte by byte, cut short, exchanged for those of another program and replaced by links; manifests are
edited by their structure and given a checksum that fits, as an attacker would. Loading and calling may give the right
numbers only if what the file says is unchanged, and any other outcome than an error of this package is a fault: a dead
or stuck process, another class of error, numbers that are wrong. An edited manifest with a fitting checksum is
another program, whose calls may give other numbers or fail; it must not kill the process either.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import sys
import tarfile
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

import relaxish
from faults.batches import run_cases
from faults.mutation import damaged_bytes, mutated_json, odd_value
from relaxish import runtime
from relaxish.contrib import tvmjs
from relaxish.runtime import load_module
from relaxish.runtime.exports import safetensors_file
from relaxish.runtime.devices.package import read_package
from relaxish.runtime.exports.manifest import manifest_text, parse_manifest
from relaxish.runtime.arrays.ndarray_cache import load_folder
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.errors import RelaxishError

_RNG = np.random.default_rng(3)
_WEIGHT = _RNG.standard_normal((4, 5)).astype("float32")
_X = _RNG.standard_normal((3, 4)).astype("float32")
_KEYS = ("right", "refused", "other", "wrong", "accepted", "lost")


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), w: R.Tensor((4, 5), "float32")):
        y = R.matmul(x, w)
        z = R.nn.relu(y)
        return (y, z)

    @R.function
    def dynamic(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 5), "float32")):
        n = T.int64()
        y = R.matmul(x, w)
        z = R.reshape(R.nn.softmax(y), R.shape([n * 5]))
        return (y, z)


def export(folder: Path) -> None:
    """Two programs in ``one`` and ``two``, weights and a device package beside them; what ``one`` gives follows."""
    for name, factor in (("one", 1), ("two", 2)):
        (folder / name).mkdir(parents=True)
        weight = runtime.nd.array(_WEIGHT * np.float32(factor))
        built = relaxish.build(Model, "llvm", params={"w": weight})
        built.export_library(str(folder / name / "m.so"))
        built.export_library(str(folder / name / "m.tar"))
        runtime.save_param_dict_to_file({"w": weight, "b": _WEIGHT[0]}, str(folder / name / "w.params"))
        tvmjs.dump_ndarray_cache(
            {"w": _WEIGHT * factor, "b": _WEIGHT[0]}, str(folder / name / "cache"), "f32-to-bf16", show_progress=False
        )
        _device_package(folder / name / "m.device0")


def _device_package(path: Path) -> None:
    program = {"name": "f", "params": [["tensor", "float32", ["n"]]], "shape_vars": [["n", 0, 0]]}
    text = "def f(rt, A):\n    n = max(A.shape[0], 3)\n    if n > 2:\n        rt.fail('x')\n"
    manifest = {
        "type_key": "opencl", "device_type": 4, "sources": {"cl": "kernel"}, "kernels": [["k", ["pointer"], []]],
        "programs": [[program, text]],
    }  # fmt: skip
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("module.json", json.dumps(manifest))
        archive.writestr("binaries/x", bytes(range(256)))


def _loaded(path: Path) -> Any:
    return relaxish.VirtualMachine(load_module(path), relaxish.cpu())


def _called(path: Path) -> dict[str, list[Any]]:
    return _results(_loaded(path))


def _results(machine: Any) -> dict[str, list[Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = {"main": (_X,), "dynamic": (_X, _WEIGHT)}
        return {name: [part.numpy() for part in machine[name](*args)] for name, args in given.items()}


def _same(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for n in other for a, b in zip(one[n], other[n]))


class _Case:
    """A copy of the exported folder to spoil, and what its program gives when whole."""

    def __init__(self, whole: Path, expected: dict[str, list[Any]], rng: random.Random) -> None:
        self.whole, self.expected, self.rng = whole, expected, rng
        self.folder = whole.parent / "spoiled"
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(whole / "one", self.folder)
        self.told = ""

    def run(self) -> str:
        """The key to count."""
        way = self.rng.choice(
            [self.damage] * 4 + [self.exchange, self.manifest, self.manifest, self.archive, self.weights]
        )
        try:
            return way()
        except RelaxishError:
            return "refused"
        except BaseException as error:  # whatever else comes is a fault
            self.told += f": {type(error).__name__}: {str(error)[:300]}"
            return "lost"

    def _call(self, name: str, may_differ: bool, changed: bool) -> str:
        machine = _loaded(self.folder / name)
        if may_differ:
            try:
                return "right" if _same(_results(machine), self.expected) else "other"
            except Exception:  # another program, whose calls may fail like those of any program
                return "other"
        found = _results(machine)
        if not _same(found, self.expected):
            self.told += ": wrong numbers"
            return "wrong"
        return "accepted" if changed else "right"

    def damage(self) -> str:
        """Bytes of a file of the folder, or of the archive."""
        name = self.rng.choice(["m.so", "m.json", "m.safetensors", "m.tar"])
        path = self.folder / name
        before = path.read_bytes()
        after = damaged_bytes(before, self.rng)
        _replace(path, after)
        self.told = f"damaged {name}"
        changed = name in ("m.so", "m.safetensors") or (name == "m.json" and _parsed(before) != _parsed(after))
        return self._call("m.tar" if name == "m.tar" else "m.so", False, changed)

    def exchange(self) -> str:
        """A file of another program, or a link to a good one, in the place of one of this."""
        name = self.rng.choice(["m.so", "m.json", "m.safetensors"])
        path, kind = self.folder / name, self.rng.randrange(4)
        self.told = f"exchanged {name}, way {kind}"
        if kind == 0:
            _replace(path, (self.whole / "two" / name).read_bytes())
            same = path.read_bytes() == (self.whole / "one" / name).read_bytes()
            return self._call("m.so", False, not same)
        path.unlink()
        if kind == 1:
            other = self.rng.choice(
                ["/etc/passwd", "/dev/zero", "/dev/null", str(self.whole / "two" / name), name, "/"]
            )
            path.symlink_to(other)
        elif kind == 2:
            path.mkdir()
        elif hasattr(os, "mkfifo"):
            os.mkfifo(path)
        # A link to a library is followed, to all that stands beside it.
        return self._call("m.so", name == "m.so" and kind == 1, True)

    def manifest(self) -> str:
        """The manifest edited, with a checksum that fits or without one."""
        path = self.folder / "m.json"
        before = json.loads(path.read_text())
        checksum = before.pop("sha256")
        edited = mutated_json(before, self.rng.choice, lambda: odd_value(self.rng))
        fits = self.rng.random() < 0.85
        if fits and isinstance(edited, dict) and self._well_formed(edited):
            # How machine code is called belongs to it: who can forge that can forge the library as well.
            for program in edited["programs"]:
                program["kernels"] = before["programs"][0]["kernels"]
        self.told = f"edited manifest {_difference(before, edited)}"
        text = (
            manifest_text(edited) if fits and isinstance(edited, dict) else json.dumps({**edited, "sha256": checksum})
        )
        path.write_text(text, encoding="utf8", errors="surrogatepass")
        return self._call("m.so", fits, not fits and edited != before)

    @staticmethod
    def _well_formed(manifest: Any) -> bool:
        try:
            parse_manifest("m.json", manifest_text(manifest).encode("utf8", "surrogatepass"))
        except RelaxishError:
            return False
        return True

    def archive(self) -> str:
        """Members of the archive renamed, repeated, left out, exchanged, made links, or added."""
        names = [
            "../m.so",
            "/m.so",
            "m.json/x",
            "sitecustomize.py",
            "m.so\0x",
            "a" * 300,
            "m.safetensors",
            "m.json",
            ".",
        ]
        kind, at = self.rng.randrange(6), self.rng.randrange(3)
        path = self.folder / "m.tar"
        made = self.folder / "made.tar"
        self.told = f"archive, way {kind} at {at}"
        with tarfile.open(path) as tar, tarfile.open(made, "w") as out:
            for number, member in enumerate(tar.getmembers()):
                data = tar.extractfile(member)
                if number != at:
                    out.addfile(member, data)
                    continue
                if kind == 0:
                    member.name = self.rng.choice(names)
                elif kind == 1:
                    member.type, member.linkname, member.size = self.rng.choice(
                        [(tarfile.SYMTYPE, "/etc/passwd", 0), (tarfile.LNKTYPE, "m.so", 0), (tarfile.FIFOTYPE, "", 0),
                         (tarfile.DIRTYPE, "", 0), (tarfile.CHRTYPE, "", 0)]
                    )  # fmt: skip
                elif kind == 2:
                    continue
                elif kind == 3:
                    out.addfile(member, data)
                    data = tar.extractfile(member)
                elif kind == 4:
                    member.size = max(0, member.size - self.rng.choice([1, 100]))
                else:
                    out.addfile(tarfile.TarInfo(self.rng.choice(names)))
                out.addfile(member, data if member.isreg() else None)
        made.replace(path)
        return self._call("m.tar", False, False)

    def weights(self) -> str:
        """Parameters, caches of arrays, tensors and device packages by themselves."""
        name = self.rng.choice(
            ["w.params", "m.safetensors", "m.device0", "cache/ndarray-cache.json", "cache/params_shard_0.bin"]
        )
        path = self.folder / name
        self.told = f"damaged {name}"
        if name.endswith(".json") and self.rng.random() < 0.8:
            edited = mutated_json(json.loads(path.read_text()), self.rng.choice, lambda: odd_value(self.rng))
            path.write_text(json.dumps(edited))
            self.told = f"edited {name} {json.dumps(edited)[:1500]}"
        elif name == "m.device0" and self.rng.random() < 0.7:
            self._edit_package(path)
        else:
            _replace(path, damaged_bytes(path.read_bytes(), self.rng))
        if name == "w.params":
            runtime.load_param_dict_from_file(str(path))
        elif name == "m.safetensors":
            safetensors_file.load(str(path))
        elif name == "m.device0":
            read_package(path)
        else:
            load_folder(str(path.parent), relaxish.cpu())
        return "right"

    def _edit_package(self, path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read("module.json"))
        edited = mutated_json(manifest, self.rng.choice, lambda: odd_value(self.rng))
        self.told = f"edited package {json.dumps(edited)[:1500]}"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("module.json", json.dumps(edited))


def _replace(path: Path, data: bytes) -> None:
    """A new file in the place of the old one, which other processes may have mapped."""
    other = path.with_name("new")
    other.write_bytes(data)
    other.replace(path)


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data


def _difference(before: Any, after: Any, where: str = "") -> str:
    if type(before) is not type(after) or not isinstance(before, (dict, list)):
        same = json.dumps(before) == json.dumps(after)
        return "" if same else f"{where}: {json.dumps(before)[:200]} -> {json.dumps(after)[:200]}; "
    if isinstance(before, list):
        before, after = dict(enumerate(before)), dict(enumerate(after))
    return "".join(_difference(before.get(k), after.get(k), f"{where}/{k}") for k in {**before, **after})


def _attempt(whole: Path, expected: Any, seed: int, number: int) -> tuple[str, str]:
    case = _Case(whole, expected, random.Random(f"{seed} {number}"))
    key = case.run()
    return key, case.told if key in ("wrong", "accepted", "lost") else ""


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Artefacts ``tried``: ``right``, ``refused``, ``other`` programs; faults by their kind.

    ``accepted`` are changed files that went unnoticed, ``lost`` errors of a class that is none of this package's.
    """
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place) / "whole"
        export(whole)
        expected = _called(whole / "one" / "m.so")
        np.testing.assert_allclose(expected["main"][0], _X @ _WEIGHT, 1e-5, 1e-5)
        _called(whole / "one" / "m.tar")
        limited: list[bool] = []

        def one(number: int) -> tuple[str, str]:
            if not limited:
                resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
                limited.append(True)
            return _attempt(whole, expected, seed, number)

        return run_cases(one, _KEYS, budget_s, patience=30)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        export(Path(made) / "whole")
        found = _called(Path(made) / "whole" / "one" / "m.so")
        print(_attempt(Path(made) / "whole", found, int(sys.argv[1]), int(sys.argv[2])))
