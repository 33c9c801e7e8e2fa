"""Exported programs are data: damage, hostile manifests and the wrong machine are one clear error before anything runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from pathlib import Path

import numpy as np
import pytest

import relaxish
from relaxish import runtime
from relaxish.runtime import load_module
from relaxish.runtime.devices.package import read_package
from relaxish.runtime.devices.host_text import compile_host_text
from relaxish.runtime.exports.manifest import manifest_text
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.support.errors import MalformedDataError, RelaxishError
from relaxish.testing.fuzz.child import in_child

WEIGHT = np.random.default_rng(3).standard_normal((4, 5)).astype("float32")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with m.so, m.json, m.safetensors and m.tar."""
    weight = runtime.nd.array(WEIGHT)

    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((3, 4), "float32"), w: R.Tensor((4, 5), "float32")):
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            return (y, z)

    folder = tmp_path_factory.mktemp("exported")
    built = relaxish.build(Model, "llvm", params={"w": weight})
    assert built.plans, "a static function has a plan"
    built.export_library(str(folder / "m.so"))
    built.export_library(str(folder / "m.tar"))
    return folder


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def _run(path: Path) -> list[np.ndarray]:
    x = np.random.default_rng(5).standard_normal((3, 4)).astype("float32")
    vm = relaxish.VirtualMachine(load_module(path), relaxish.cpu())
    y, z = (t.numpy() for t in vm["main"](x))
    np.testing.assert_allclose(y, x @ WEIGHT, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(z, np.maximum(x @ WEIGHT, 0), rtol=1e-5, atol=1e-5)
    return [y, z]


@pytest.mark.parametrize("name", ["m.so", "m.tar", "m.json"])
def test_what_is_whole_runs(exported: Path, name: str) -> None:
    _run(exported / name)


def test_archives_of_equal_programs_are_equal(exported: Path, tmp_path: Path) -> None:
    with tarfile.open(exported / "m.tar") as tar:
        assert {m.mtime for m in tar} == {0} and {m.uid for m in tar} == {0}


def _edit(folder: Path, change) -> None:
    """Change the manifest and give it a checksum that fits, as an attacker would."""
    manifest = json.loads((folder / "m.json").read_text())
    del manifest["sha256"]
    change(manifest)
    (folder / "m.json").write_text(manifest_text(manifest))


def _set(path: str, value):
    def change(manifest) -> None:
        *steps, last = [int(s) if s.lstrip("-").isdigit() else s for s in path.split("/")]
        place = manifest
        for step in steps:
            place = place[step]
        place[last] = value

    return change


CODE = "__import__('os').system('touch hacked')"
EDITS = {
    "unknown key": (_set("extra", 1), "unknown key 'extra'"),
    "unknown key inside": (_set("programs/0/functions/0/hook", CODE), "unknown key"),
    "no key": (lambda m: m.pop("weights"), "weights is missing"),
    "library in another folder": (_set("library", "../m.so"), "library"),
    "absolute library": (_set("library", "/usr/lib/libc.so"), "library"),
    "absolute weights": (_set("weights", "/etc/passwd"), "weights"),
    "weights not listed": (_set("weights", "other.safetensors"), "not among its files"),
    "listed beyond the folder": (_set("files/..", {"bytes": 1, "sha256": "0" * 64}), "not the name of a file"),
    "library is a number": (_set("library", 3), "expected"),
    "size of text": (_set("programs/0/plans/0/slots/0/2", CODE), "expected an integer"),
    "slot of text": (_set("programs/0/plans/0/slots/0/1", f"0].ptr, {CODE}, a[0"), "expected an integer"),
    "slot kind": (_set("programs/0/plans/0/slots/0/0", "file"), "one of"),
    "slot index": (_set("programs/0/plans/0/slots/0/1", 7), "not there"),
    "negative slot": (_set("programs/0/plans/0/slots/0/1", -1), "expected an integer"),
    "huge slot": (_set("programs/0/plans/0/slots/0/2", 1 << 60), "expected an integer"),
    "result shape": (_set("programs/0/plans/0/result/tuple/0/tensor/2", [3, CODE]), "expected an integer"),
    "result too large": (_set("programs/0/plans/0/result/tuple/0/tensor/2", [1 << 20, 5]), "beyond its slot"),
    "result offset": (_set("programs/0/plans/0/result/tuple/0/tensor/1", 4096), "beyond its slot"),
    "result slot": (_set("programs/0/plans/0/result/tuple/0/tensor/0", 99), "not there"),
    "result type": (_set("programs/0/plans/0/result/tuple/0/tensor/3", f"float32', {CODE}, '"), "of the form"),
    "unknown type": (_set("programs/0/plans/0/result/tuple/0/tensor/3", "nofloat32"), "unknown dtype"),
    "operand": (_set("programs/0/plans/0/calls/0/1/0/2", 1 << 40), "beyond its slot"),
    "kernel of a plan": (_set("programs/0/plans/0/calls/0/0", "system"), "no kernel system"),
    "kernel not in the library": (_set("programs/0/kernels/0/name", "system"), "no kernel"),
    "register": (lambda m: _main(m)["code"].__setitem__(-1, ["ret", 500]), "not there"),
    "jump": (lambda m: _main(m)["code"].insert(0, ["goto", 5000]), "jumps out"),
    "constant": (lambda m: _main(m)["code"][0].__setitem__(3, [["c", 9999]]), "not there"),
    "instruction": (lambda m: _main(m)["code"].insert(0, ["exec", CODE]), "not an instruction"),
    "tensor": (_set("programs/0/constants", [["tensor", "c77"]] * 50), "no tensor c77"),
    "version": (_set("version", 99), "version 99 is not supported"),
    "calling convention": (_set("abi", 99), "abi 99 is not supported"),
    "another machine": (_set("programs/0/code/triple", "sparc-unknown-linux-gnu"), "compiled for sparc"),
    "another CPU": (_set("programs/0/code/features", ["avx9000"]), "lacks: avx9000"),
    "no programs": (_set("programs", []), "no program"),
    "size of a file": (_set("files/m.so/bytes", 5), "5"),
    "checksum of a file": (_set("files/m.safetensors/sha256", "0" * 64), "SHA-256"),
}


def _main(manifest):
    return next(f for f in manifest["programs"][0]["functions"] if f["name"] == "main")


@pytest.mark.parametrize("name", EDITS)
def test_hostile_manifests(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(folder)
    change, message = EDITS[name]
    _edit(folder, change)
    with pytest.raises(RelaxishError, match=message):
        load_module(folder / "m.so")
    assert not (folder / "hacked").exists()


def test_names_in_a_manifest_are_only_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)

    def change(manifest) -> None:
        plan = manifest["programs"][0]["plans"][0]
        plan["inputs"][0][0] = f"x'); {CODE} #"

    _edit(folder, change)
    _run(folder / "m.so")
    assert not (folder / "hacked").exists()


def test_manifest_edited_without_checksum(folder: Path) -> None:
    text = (folder / "m.json").read_text()
    (folder / "m.json").write_text(text.replace('"main"', '"nain"'))
    with pytest.raises(RelaxishError, match="not what was exported"):
        load_module(folder / "m.so")


@pytest.mark.parametrize("depth", [50, 5_000, 1_000_000])
def test_deep_manifests(folder: Path, depth: int) -> None:
    (folder / "m.json").write_text('{"format": "relaxish-executable", "x": ' + "[" * depth + "]" * depth + "}")
    with pytest.raises(MalformedDataError):
        load_module(folder / "m.so")


@pytest.mark.parametrize("part", ["m.so", "m.safetensors"])
@pytest.mark.parametrize("keep", [0, 7, -1])
def test_truncated_files(folder: Path, part: str, keep: int) -> None:
    data = (folder / part).read_bytes()
    (folder / part).write_bytes(data[:keep])
    with pytest.raises(RelaxishError, match="truncated or damaged"):
        load_module(folder / "m.so")


def test_pieces_of_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from relaxish.runtime.exports import manifest

    monkeypatch.setattr(manifest, "PIECE_BYTES", 1000)
    data = bytearray(np.random.default_rng(1).bytes(10_500))
    (tmp_path / "w").write_bytes(data)
    files = manifest.describe_files(tmp_path, ["w"])
    assert len(files["w"]["pieces"]) == 11
    manifest.check_files(tmp_path, files)
    for at in (0, 999, 1000, 5_432, 10_499):
        (tmp_path / "w").write_bytes(data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :])
        with pytest.raises(RelaxishError, match="SHA-256"):
            manifest.check_files(tmp_path, files)
    (tmp_path / "w").write_bytes(data)
    files["w"]["pieces"].pop()
    with pytest.raises(RelaxishError, match="10 checksums"):
        manifest.check_files(tmp_path, files)


def test_links_are_refused(folder: Path, exported: Path) -> None:
    (folder / "m.safetensors").unlink()
    (folder / "m.safetensors").symlink_to(exported / "m.safetensors")
    with pytest.raises(RelaxishError, match="symbolic link"):
        load_module(folder / "m.so")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("part", ["m.so", "m.json", "m.safetensors", "m.tar"])
@pytest.mark.parametrize("kind", ["pipe", "endless", "folder"])
def test_what_is_no_file_is_refused_at_once(folder: Path, part: str, kind: str) -> None:
    (folder / part).unlink()
    if kind == "pipe":
        os.mkfifo(folder / part)
    elif kind == "endless":
        (folder / part).symlink_to("/dev/zero")
    else:
        (folder / part).mkdir()
    assert in_child(lambda: _refusal(folder / ("m.tar" if part == "m.tar" else "m.so")), 60) == "RelaxishError"


def _refusal(path: Path) -> str:
    try:
        load_module(path)
    except RelaxishError:
        return "RelaxishError"
    return "loaded"


def test_link_to_the_library_is_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "current.so").symlink_to(folder / "m.so")
    _run(tmp_path / "current.so")


def _repack(source: Path, target: Path, change) -> None:
    with tarfile.open(source) as tar, tarfile.open(target, "w") as out:
        for member in tar:
            change(out, member, tar.extractfile(member))


def _as_link(out, member, data) -> None:
    if member.name.endswith(".safetensors"):
        member.type, member.linkname, member.size = tarfile.SYMTYPE, "/etc/passwd", 0
    out.addfile(member, data if member.isreg() else None)


def _outside(out, member, data) -> None:
    member.name = f"../{member.name}"
    out.addfile(member, data)


def _twice(out, member, data) -> None:
    out.addfile(member, data)
    data.seek(0)
    out.addfile(member, data)


def _more(out, member, data) -> None:
    out.addfile(member, data)
    if member.name.endswith(".json"):
        out.addfile(tarfile.TarInfo("sitecustomize.py"))


def _fewer(out, member, data) -> None:
    if not member.name.endswith(".safetensors"):
        out.addfile(member, data)


@pytest.mark.parametrize("change", [_as_link, _outside, _twice, _more, _fewer])
def test_hostile_archives(exported: Path, tmp_path: Path, change) -> None:
    _repack(exported / "m.tar", tmp_path / "m.tar", change)
    with pytest.raises(MalformedDataError):
        load_module(tmp_path / "m.tar")
    assert [p.name for p in tmp_path.iterdir()] == ["m.tar"]


def test_a_cpu_that_lacks_a_feature(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = json.loads((exported / "m.json").read_text())["programs"][0]["code"]["features"]
    if not needs:
        pytest.skip("this machine's code needs no features")
    monkeypatch.setenv("RELAXISH_DISABLE_FEATURES", needs[0])
    with pytest.raises(RelaxishError, match=f"CPU features that this machine lacks: {needs[0]}"):
        load_module(exported / "m.so")


_CAMPAIGN = """
    import random, sys
    from pathlib import Path
    import numpy as np
    import relaxish
    from relaxish.runtime import load_module
    from relaxish.support.errors import RelaxishError

    part, start, load, seed, count, same = Path(sys.argv[1]), sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    x = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    def run():
        return [t.numpy() for t in relaxish.VirtualMachine(load_module(load), relaxish.cpu())["main"](x)]
    expected = run()
    whole = part.read_bytes()
    rng = random.Random(seed)
    # All of the first and last bytes, where headers are, and a sample of the rest.
    places = [*range(min(64, len(whole))), *range(max(0, len(whole) - 32), len(whole))]
    places += [rng.randrange(len(whole)) for _ in range(count)]
    accepted = []
    for at in places:
        flipped = bytearray(whole)
        flipped[at] ^= 1 << rng.randrange(8)
        other = part.with_name("new")
        other.write_bytes(flipped)
        other.replace(part)
        try:
            got = run()
        except RelaxishError:
            continue
        if not same or not all((a == b).all() for a, b in zip(got, expected)):
            accepted.append(at)
    print("accepted", accepted)
"""


@pytest.mark.slow
@pytest.mark.parametrize("part", ["m.so", "m.json", "m.safetensors", "m.tar"])
def test_no_flipped_bit_goes_unnoticed(folder: Path, part: str) -> None:
    """In a folder every bit is covered; in an archive those of padding are not, and then the program is the same."""
    load = "m.tar" if part == "m.tar" else "m.so"
    command = [sys.executable, "-c", textwrap.dedent(_CAMPAIGN), str(folder / part), str(folder / load), "7", "150"]
    done = subprocess.run(
        [*command, str(int(part == "m.tar"))], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0 and done.stdout.strip() == "accepted []", (done.returncode, done.stdout, done.stderr)


# ---- parts


def test_libraries_are_replaced_not_overwritten(folder: Path) -> None:
    """A process that has mapped the old library keeps it whole."""
    before = os.stat(folder / "m.so").st_ino
    held = open(folder / "m.so", "rb")  # keeps the number of the file taken
    old = held.read()

    @I.ir_module
    class Other:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            return R.nn.relu(x)

    relaxish.build(Other, "llvm").export_library(str(folder / "m.so"))
    assert os.stat(folder / "m.so").st_ino != before
    held.seek(0)
    assert held.read() == old
    held.close()


HOST_TEXTS = {
    "import": "def f(rt, a):\n    import os\n",
    "attribute": "def f(rt, a):\n    a.__class__\n",
    "runtime escapes": "def f(rt, a):\n    rt.launch.__globals__\n",
    "runtime itself": "def f(rt, a):\n    x = rt\n",
    "runtime methods": "def f(rt, a):\n    rt.unload()\n",
    "built in": "def f(rt, a):\n    open('/etc/passwd')\n",
    "module escapes": "def f(rt, a):\n    math.sys\n",
    "default": "def f(rt, a=open('x')):\n    pass\n",
    "annotation": "def f(rt, a: open('x')):\n    pass\n",
    "decorator": "@print\ndef f(rt, a):\n    pass\n",
    "statement outside": "print(1)\ndef f(rt, a):\n    pass\n",
    "two functions": "def f(rt, a):\n    pass\ndef g(rt):\n    pass\n",
    "comprehension": "def f(rt, a):\n    [x for x in a]\n",
    "format": "def f(rt, a):\n    x = f'{a.__class__}'\n",
    "star": "def f(rt, a):\n    rt.fail(*a)\n",
    "global": "def f(rt, a):\n    global x\n    x = 1\n",
    "shadowed": "def f(rt, rt2):\n    math = 3\n",
    "walrus": "def f(rt, a):\n    (x := 3)\n",
    "no text": "",
    "no python": "def f(rt\n",
    "deep": "def f(rt, a):\n    x = " + "(" * 150 + "1" + ")" * 150 + " + -" * 90_000 + "1\n",
}


@pytest.mark.parametrize("name", HOST_TEXTS)
def test_host_programs_of_other_languages(name: str) -> None:
    with pytest.raises(MalformedDataError):
        compile_host_text("f", HOST_TEXTS[name], {})


def test_host_programs_see_no_builtins() -> None:
    run = compile_host_text("f", "def f(rt, a):\n    return max(a, 3)\n", {})
    assert run(None, 7) == 7 and "open" not in run.__globals__["__builtins__"]


@pytest.mark.parametrize("seed", range(60))
def test_damaged_device_packages(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "m.device0"
    program = ["f", [["tensor", "float32", ["n"]]], [["n", 0, 0]]]
    manifest = {
        "type_key": "opencl", "device_type": 4, "sources": {"cl": "kernel"}, "kernels": [["k", ["pointer"], []]],
        "programs": [[dict(zip(("name", "params", "shape_vars"), program)), "def f(rt, A):\n    pass\n"]],
    }  # fmt: skip
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("module.json", json.dumps(manifest))
        archive.writestr("binaries/x", bytes(range(256)))
    assert read_package(path).programs
    data = bytearray(path.read_bytes())
    rng = np.random.default_rng(seed)
    for _ in range(3):
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    path.write_bytes(data[: len(data) - int(rng.integers(2)) * 9])
    try:
        read_package(path)
    except RelaxishError:
        pass


@pytest.mark.parametrize("seed", range(80))
def test_damaged_parameter_files(seed: int) -> None:
    block = bytearray(runtime.save_param_dict({"w": runtime.nd.array(WEIGHT), "b": runtime.nd.array(WEIGHT[0])}))
    rng = np.random.default_rng(seed)
    for _ in range(2):
        block[rng.integers(min(len(block), 150))] = rng.integers(256)
    try:
        runtime.load_param_dict(block[: rng.integers(1, len(block) + 1)])
    except RelaxishError:
        pass


def _bad_cache(folder: Path, change) -> None:
    from relaxish.contrib import tvmjs

    tvmjs.dump_ndarray_cache({"w": WEIGHT}, folder, "raw", show_progress=False)
    index = folder / "ndarray-cache.json"
    listing = json.loads(index.read_text())
    change(listing)
    index.write_text(json.dumps(listing))


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["records"][0].update(dataPath="../secret"),
        lambda c: c["records"][0].update(dataPath="/etc/passwd"),
        lambda c: c["records"][0]["records"][0].update(byteOffset=4),
        lambda c: c["records"][0]["records"][0].update(nbytes=-4),
        lambda c: c["records"][0]["records"][0].update(shape=[1 << 40, 1 << 40]),
        lambda c: c["records"][0]["records"][0].update(dtype="object"),
        lambda c: c["records"][0]["records"][0].pop("name"),
        lambda c: c.update(records=3),
        lambda c: c["records"][0].update(nbytes=1),
    ],
)
def test_hostile_array_caches(tmp_path: Path, change) -> None:
    from relaxish.runtime.arrays.ndarray_cache import load_folder

    _bad_cache(tmp_path, change)
    with pytest.raises(RelaxishError):
        load_folder(str(tmp_path), relaxish.cpu())


@pytest.mark.parametrize(
    "header",
    [
        {"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 1 << 40]}},
        {"w": {"dtype": "F32", "shape": [4], "data_offsets": [8, 0]}},
        {"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 16]}},
        {"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 16]}},
        {"w": {"dtype": "object", "shape": [4], "data_offsets": [0, 16]}},
        {"w": {"dtype": "F32", "shape": [4]}},
        {"w": 3},
        [],
    ],
)
def test_hostile_weights(tmp_path: Path, header) -> None:
    from relaxish.runtime.exports import safetensors_file

    text = json.dumps(header).encode()
    (tmp_path / "w").write_bytes(len(text).to_bytes(8, "little") + text + bytes(16))
    with pytest.raises(MalformedDataError):
        safetensors_file.load(str(tmp_path / "w"))
