"""First contact with a Hopper GPU: one mechanism per check, each in a process of its own; the first FAIL names the cause.

    make gpu-canaries                                        (or: python benchmarks/gpu/canaries.py [name ...])
    python benchmarks/gpu/canaries.py --provider emulator    (the checks of products, on the CPU)
    python benchmarks/gpu/canaries.py --provider null        (what the host does in every check; nothing is computed)
    python benchmarks/gpu/canaries.py --compile              (machine code of every kernel; needs no GPU)

Products come after the mechanisms that they are made of, so that the table reads as a diagnosis: look at the first row
that is not right, and at the code that it names. A check that hangs costs its process. What each check said is in
``canaries.json`` and ``canaries.log`` as soon as it is over.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    HERE = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]
    __package__ = "gpu"  # run as a script, it is still a part of its folder

import numpy as np

from gpu.canary_kernels import KERNELS, LARGEST_SHARED, compiled

LIMIT_SECONDS = 40.0
# Checks take five seconds. Where two have hung others will, and device time is short.
_HANGS, _SHORT_SECONDS = 2, 15.0
_ARROW = "@@ "  # marks the line of a check's process that has the verdict


@dataclass(frozen=True)
class Verdict:
    """Whether a check came out right (None: it was not computed), and what to know of it."""

    right: bool | None
    note: str = ""


@dataclass(frozen=True)
class Canary:
    """A check. ``cause`` and ``look`` are what a person wants to read when it is the first that fails."""

    name: str
    check: Callable[[Bench], Verdict]
    cause: str
    look: str
    products: bool = False
    """Whether it is a compiled program, which the emulator can run."""
    timed: bool = False


class Bench:
    """The device with its driver, and what checks do with it."""

    def __init__(self, small: bool = False) -> None:
        import relaxish
        from relaxish.runtime.nvidia import providers

        self.device = relaxish.cuda()
        self.driver = providers.current().driver
        self.computes = self.driver.image_format != "null"
        self.real = not self.driver.simulated
        self.small = small

    def load(self, name: str) -> Any:
        """A kernel by its name in :data:`KERNELS`."""
        image: Any = compiled(name) if self.computes else ["k"]
        return self.driver.get_function(self.driver.load_module(0, image), "k")

    def launch(
        self, function: Any, args: Sequence[tuple[str, Any]], *, grid: int = 1, block: int = 128, shared: int = 0,
        cluster: int = 1, stream: int = 0,
    ) -> None:  # fmt: skip
        """Launch and wait; a failure of the kernel shows here."""
        if shared:
            self.driver.set_max_dynamic_shared(function, shared)
        self.driver.launch(function, (grid, 1, 1), (block, 1, 1), shared, stream, args, (cluster, 1, 1))
        if not stream:
            self.driver.synchronize(0)

    def array(self, values: Any) -> Any:
        """Numbers on the device."""
        import relaxish

        return relaxish.nd.array(np.ascontiguousarray(values), self.device)

    def boxes(self, source: Any, swizzle: int, box: tuple[int, int]) -> tuple[str, Any]:
        """The tensor map of a matrix of halves, as a launch takes it."""
        from relaxish.runtime.nvidia.driver import TensorMapSpec

        rows, columns = source.shape
        spec = TensorMapSpec(source.ptr, "float16", (columns, rows), (2 * columns,), box, (), swizzle, 0, 256)
        return "tensor_map", self.driver.encode_tensor_map(spec)

    def judge(self, right: Any, note: str = "") -> Verdict:
        """The verdict on what has been computed, if anything has."""
        return Verdict(bool(right), note) if self.computes else Verdict(None)


def _pointer(array: Any) -> tuple[str, Any]:
    return "pointer", array.ptr


# -- mechanisms --------------------------------------------------------------------------------------------------------


def _add(bench: Bench) -> Verdict:
    x = bench.array(np.arange(128, dtype="float32"))
    bench.launch(bench.load("add"), [_pointer(x)])
    return bench.judge((x.numpy() == np.arange(128) + 1).all(), str(x.numpy()[:4]))


def _counted(name: str, wanted: int, *numbers: int, **launch: Any) -> Callable[[Bench], Verdict]:
    """A kernel whose threads count themselves when all went well for them."""

    def check(bench: Bench) -> Verdict:
        count = bench.array(np.zeros(1, "int32"))
        bench.launch(bench.load(name), [_pointer(count), *(("int32", n) for n in numbers)], **launch)
        found = int(count.numpy()[0])
        return bench.judge(found == wanted, f"{found} of {wanted}")

    return check


def _cpasync(bench: Bench) -> Verdict:
    values = np.random.default_rng(1).standard_normal(512).astype("float32")
    a, c = bench.array(values), bench.array(np.zeros(512, "float32"))
    bench.launch(bench.load("cpasync"), [_pointer(a), _pointer(c)])
    return bench.judge((c.numpy().reshape(128, 4) == values.reshape(128, 4)[::-1]).all())


def _matrices(width: int) -> tuple[np.ndarray, np.ndarray]:
    """Small whole numbers, whose products are exact."""
    x, y = (np.random.default_rng(seed).integers(-4, 5, (width, width)).astype("float16") for seed in (0, 1))
    return x, y


def _wmma(bench: Bench) -> Verdict:
    x, y = _matrices(16)
    c = bench.array(np.full((16, 16), 777, "float32"))
    bench.launch(bench.load("wmma"), [_pointer(bench.array(x)), _pointer(bench.array(y)), _pointer(c)], block=32)
    wrong = c.numpy() != x.astype("float32") @ y.astype("float32")
    return bench.judge(not wrong.any(), f"{int(wrong.sum())} of {wrong.size} wrong")


def descriptor_fields(swizzle: int, b_across: bool) -> tuple[int, int, int, int, int]:
    """Leading and stride of A and of B in bytes, and the mode; operands lie in pieces of 64 lines of ``swizzle`` bytes."""
    by_depth = (16, 8 * swizzle)
    b_fields = (64 * swizzle, 8 * swizzle) if b_across else by_depth
    return (*by_depth, *b_fields, {128: 1, 64: 2, 32: 3}[swizzle])


def _warpgroup(name: str, swizzle: int, b_across: bool) -> Callable[[Bench], Verdict]:
    """A product by descriptors as kernels have them; where it is wrong, other readings of their fields are tried."""
    ours = descriptor_fields(swizzle, b_across)
    by_depth = ours[:2]

    def check(bench: Bench) -> Verdict:
        x, y = _matrices(64)
        wanted = x.astype("float32") @ y.astype("float32").T
        function, a, b = bench.load(name), bench.array(x), bench.array(y)

        def wrong(fields: tuple[int, ...]) -> int:
            c = bench.array(np.full((64, 64), 777, "float32"))
            numbers = [("int32", field) for field in fields]
            bench.launch(function, [_pointer(a), _pointer(b), _pointer(c), *numbers], shared=16384)
            return int((c.numpy() != wanted).sum())

        first = wrong(ours)
        if first == 0 or not bench.computes:
            return bench.judge(first == 0)
        sizes = (16, 128, 256, 512, 1024, 2048, 4096, 8192)
        others = [
            (*(pair if not b_across else by_depth), *pair, m)
            for m in (1, 2, 3) for pair in ((leading, stride) for leading in sizes for stride in sizes)
        ]  # fmt: skip
        better = [fields for fields in others if wrong(fields) == 0]
        return bench.judge(False, f"{first} of 4096 wrong with {ours}; right would be {better[:4] or 'none of 192'}")

    return check


def _halves(bench: Bench) -> Any:
    values = (np.arange(128 * 128) % 2000).astype("float16").reshape(128, 128)
    return bench.array(values)


def _unswizzled(raw: np.ndarray, swizzle: int, lines: int) -> np.ndarray:
    """A box as it was in global memory, from the bytes that lie in shared memory."""
    units = swizzle // 16
    line, unit = np.arange(lines)[:, None], np.arange(units)[None]
    found: np.ndarray = raw.reshape(lines, units, 8)[line, unit ^ (line // (128 // swizzle) % units)]
    return found.reshape(lines, swizzle // 2)


def _tma(bench: Bench) -> Verdict:
    source = _halves(bench)
    function = bench.load("tma")
    for swizzle in (128, 64, 32):
        wide, lines = swizzle // 2, 64
        out = bench.array(np.zeros(4096, "float16"))
        args = [bench.boxes(source, swizzle, (wide, lines)), _pointer(out), ("int32", swizzle * lines)]
        bench.launch(function, args, shared=8192)
        raw = out.numpy()[: wide * lines]
        wrong = _unswizzled(raw, swizzle, lines) != source.numpy()[32 : 32 + lines, 64 : 64 + wide]
        if wrong.any() and bench.computes:
            return Verdict(False, f"swizzle {swizzle}: {int(wrong.sum())} wrong; first bytes {raw[:16]}")
    return bench.judge(True)


def _tmastore(bench: Bench) -> Verdict:
    target = _halves(bench)
    before = target.numpy().copy()
    bench.launch(bench.load("tmastore"), [bench.boxes(target, 0, (64, 64))], shared=8192)
    before[64:, 64:] = (np.arange(4096) % 1000).reshape(64, 64)
    wrong = target.numpy() != before
    return bench.judge(not wrong.any(), f"{int(wrong.sum())} wrong")


def _cluster(bench: Bench) -> Verdict:
    out = bench.array(np.full((256, 4), 777, "float32"))
    bench.launch(bench.load("cluster"), [_pointer(out)], grid=2, cluster=2)
    found = out.numpy().reshape(2, 128, 4)
    ranks = (found[0, :, 0] == 1).all() and (found[1, :, 0] == 0).all()
    return bench.judge(ranks and (found[:, :, 1] == np.arange(128)).all(), f"first rows {found[:, 0].tolist()}")


def _multicast(bench: Bench) -> Verdict:
    source = _halves(bench)
    out = bench.array(np.zeros(8192, "float16"))
    args = [bench.boxes(source, 128, (64, 32)), _pointer(out)]
    bench.launch(bench.load("multicast"), args, grid=2, shared=8192, cluster=2)
    for rank, raw in enumerate(out.numpy().reshape(2, 4096)):
        wrong = _unswizzled(raw, 128, 64) != source.numpy()[32:96, 64:]
        if wrong.any() and bench.computes:
            halves = [int(part.sum()) for part in np.split(wrong, 2)]
            return Verdict(False, f"block {rank}: of its two halves {halves} of 2048 wrong each")
    return bench.judge(True)


# -- libraries and graphs ----------------------------------------------------------------------------------------------


def _cublaslt(bench: Bench) -> Verdict:
    if not bench.real:
        return Verdict(None, "needs the library and a device")
    from relaxish.runtime.nvidia.libs.gemm import run_gemm

    x = np.random.default_rng(0).standard_normal((64, 64)).astype("float16")
    out = bench.array(np.zeros((64, 64), "float16"))
    run_gemm(bench.array(x), bench.array(x), out)
    error = float(abs(out.numpy().astype("float32") - x.astype("float32") @ x.astype("float32")).max())
    return Verdict(error < 0.1, f"largest error {error:.3g}")


def _graph(bench: Bench) -> Verdict:
    x = bench.array(np.zeros(128, "float32"))
    function, stream = bench.load("add"), bench.driver.create_stream(0)
    bench.driver.begin_capture(0, stream)
    bench.launch(function, [_pointer(x)], stream=stream)
    graph = bench.driver.end_capture(0, stream)
    for _ in range(3):
        bench.driver.launch_graph(graph, stream)
    bench.driver.synchronize_stream(0, stream)
    return bench.judge((x.numpy() == 3).all(), str(x.numpy()[:4]))


# -- whole products ----------------------------------------------------------------------------------------------------


def _product(
    shape: tuple[int, int, int], small: tuple[int, int, int], *, kind: str = "f16", repeats: int = 0, **options: int
) -> Callable[[Bench], Verdict]:
    """A product by a tiling (none given: the default schedule); on the emulator a ``small`` one."""

    def check(bench: Bench) -> Verdict:
        import relaxish
        from relaxish import dlight
        from relaxish.carver.warpgroups import HopperConfig
        from relaxish.target import Target

        from gpu.cases import gemm_program
        from gpu.tiles import scheduled

        m, n, k = shape if bench.real and not bench.small else small
        target = Target("nvidia/nvidia-h100", host="llvm")
        module = gemm_program(kind, m, n, k)
        with target:
            if options:
                module = scheduled(module, HopperConfig(**options))
            else:
                module = dlight.ApplyDefaultSchedule(*dlight.default_gpu_rules(target))(module)
        built = relaxish.compile(module, target)
        rng = np.random.default_rng(m + k)
        x, y = ((rng.integers(-8, 9, size) / 8).astype("float16") for size in ((m, k), (n, k)))
        out = bench.array(np.full((m, n), 777, "float16"))
        arrays = [bench.array(x), bench.array(y), out]
        built(*arrays)
        if not bench.computes:
            return Verdict(None)
        wrong = ~np.isclose(out.numpy().astype("float32"), x.astype("float32") @ y.astype("float32").T, 2e-3, 2e-2)
        note = f"{int(wrong.sum())} of {wrong.size} wrong"
        if wrong.any():
            rows, columns = (np.unique(at) for at in np.nonzero(wrong))
            note += f": rows {_runs(rows)}, columns {_runs(columns)}"
        if repeats and bench.real:
            seconds = built.time_evaluator("main", bench.device, number=repeats)(*arrays).mean
            note += f"; {seconds * 1e3:.4f} ms, {2 * m * n * k / seconds / 1e12:.0f} TFLOP/s"
        return Verdict(not wrong.any(), note)

    return check


def _runs(numbers: np.ndarray) -> str:
    """Numbers as ranges: multiples of 64 point at warpgroups, of 8 at swizzles."""
    breaks = np.nonzero(np.diff(numbers) > 1)[0]
    starts, ends = [0, *(breaks + 1)], [*breaks, len(numbers) - 1]
    shown = [f"{numbers[a]}-{numbers[b]}" for a, b in zip(starts, ends, strict=True)]
    return ", ".join(shown[:6]) + (f" and {len(shown) - 6} more" if len(shown) > 6 else "")


def _published(check: Callable[[Bench], Verdict]) -> Callable[[Bench], Verdict]:
    """The check with arrivals in other blocks as they once were: each with a fence of the whole GPU."""

    def run(bench: Bench) -> Verdict:
        from relaxish.backend.cuda.codegen import preamble

        plain, found = "mbarrier.arrive.shared::cluster", preamble.section

        def section(name: str) -> tuple[tuple[str, ...], str]:
            needs, text = found(name)
            return needs, text.replace(plain, "mbarrier.arrive.release.cluster.shared::cluster")

        if plain not in found("hopper")[1]:
            return Verdict(False, "the arrival is written in another way now: there is nothing to compare")
        preamble.section = section  # type: ignore[assignment]
        try:
            return check(bench)
        finally:
            preamble.section = found

    return run


_TIMED = _product((4096, 4096, 4096), (256, 256, 128), repeats=50)
_KERNEL = "tir/transform/hopper/kernel.py"
CANARIES = {c.name: c for c in (
    Canary("add", _add, "driver, context, loading of machine code, or the table of arguments",
           "runtime/nvidia/bindings_driver.py, context_driver.py: the code of the error"),
    Canary("bigshared", _counted("bigshared", LARGEST_SHARED // 4, LARGEST_SHARED // 4, block=256, shared=LARGEST_SHARED),
           "more shared memory than 48 KiB is not allowed to the kernel", "runtime/nvidia/program.py: _allow_shared"),
    Canary("mbarrier", _counted("mbarrier", 128), "a hang: parity, or the count of arrivals",
           "backend/cuda/codegen/preamble_hopper.cuh: mbarrier_wait, mbarrier_arrive"),
    Canary("cpasync", _cpasync, "the form of cp.async", "backend/cuda/preamble_async.cuh"),
    Canary("wmma", _wmma, "headers of the tensor cores' functions (crt/mma.h)", "backend/cuda/compile/headers.py"),
    Canary("tma", _tma, "encoding of the map, unit of strides, swizzle; a hang: the count of bytes",
           "runtime/nvidia/tensor_map.py, libcuda.py: encode_tensor_map"),
    Canary("tmastore", _tmastore, "fence, commit or wait of bulk stores; the map of the result",
           "tir/transform/hopper/epilogue.py: _chunk"),
    Canary("wgmma", _warpgroup("wgmma", 128, False), "fields of the descriptor, or the layout of result registers",
           "backend/cuda/codegen/preamble_hopper.cuh: matrix_descriptor; the note says which fields would be right"),
    Canary("wgmma_64", _warpgroup("wgmma_64", 64, False), "swizzle of 64 bytes: mode or stride",
           "tir/transform/hopper/layout.py; only tiles that are 32 halves deep use it"),
    Canary("wgmma_32", _warpgroup("wgmma_32", 32, False), "swizzle of 32 bytes: mode or stride",
           "tir/transform/hopper/layout.py; only tiles that are 16 halves deep use it"),
    Canary("wgmma_mn", _warpgroup("wgmma_mn", 128, True), "leading and stride of operands contiguous along m or n",
           "tir/transform/hopper/layout.py: offsets"),
    Canary("wgmma_mn_64", _warpgroup("wgmma_mn_64", 64, True), "the distance of the pieces of such an operand (leading)",
           "tir/transform/hopper/layout.py: offsets"),
    Canary("registers", _counted("registers", 384, block=384), "a hang: sums of setmaxnreg against the launch bounds",
           f"{_KERNEL}: _REGISTERS of two consumers"),
    Canary("registers_3", _counted("registers_3", 512, block=512), "a hang: sums of setmaxnreg against the launch bounds",
           f"{_KERNEL}: _REGISTERS of three consumers"),
    Canary("cluster", _cluster, "launch attribute, mapa, reads from another block; a hang: arrivals in another block",
           "runtime/nvidia: _cluster_starter; preamble_hopper.cuh: mbarrier_arrive with a rank"),
    Canary("remote", _counted("remote", 256, 2000, grid=2, cluster=2), "a hang: arrivals in another block get lost",
           "backend/cuda/codegen/preamble_hopper.cuh: mbarrier_arrive with a rank, cluster_arrive_relaxed"),
    Canary("multicast", _multicast, "mask, the bytes of both halves, offsets; a hang: one half never comes",
           "tir/transform/hopper/operand.py: bulk_loads"),
    Canary("cublaslt", _cublaslt, "a structure or number of the library", "runtime/nvidia/libs/gemm.py, cublaslt.py"),
    Canary("graph", _graph, "an allocation while capturing", "runtime/nvidia/state.py, backend/cuda/graph/passes.py"),
    Canary("gemm_tile", _product((128, 64, 64), (128, 64, 64), rows=128, columns=64, stages=4), "a combination, in one pass",
           "the rows and columns that are wrong: multiples of 64 are warpgroups, of 8 swizzles", products=True),
    Canary("gemm_ring", _product((1024, 512, 1024), (256, 128, 512), rows=128, columns=128, stages=3),
           "phases after the ring has come round; an error that moves from run to run is a race",
           f"{_KERNEL}: _consumer, _producer; compute-sanitizer --tool racecheck", products=True),
    Canary("gemm_wide", _product((512, 512, 512), (128, 128, 192), rows=128, columns=256, stages=3),
           "the widest tile: 232 registers, two buffers of results", f"{_KERNEL}: _REGISTERS; hopper_epilogue.py",
           products=True),
    Canary("gemm_split", _product((128, 256, 2048), (128, 64, 512), rows=64, columns=64, stages=4, warpgroups=1, split=4),
           "sums through the cluster's shared memory, its barrier, ranks", "tir/transform/hopper/split.py", products=True),
    Canary("gemm_cluster", _product((1024, 1024, 1024), (512, 256, 256), rows=128, columns=128, stages=4, cluster=2),
           "multicast together with persistence", f"{_KERNEL}: _place, _empty", products=True),
    Canary("gemm_odd", _product((200, 72, 96), (200, 72, 96)), "edges, and threads as producers",
           "tir/transform/hopper/operand.py, hopper_epilogue.py", products=True),
    Canary("gemm_time", _TIMED, "the default schedule of 4096 cubed", "the checks above are right: a combination of them",
           products=True, timed=True),
    Canary("gemm_time_released", _published(_TIMED), "not a fault: arrivals with a fence of the whole GPU, to compare with",
           "as fast as gemm_time: the fence costs nothing; slower: what it costs", products=True, timed=True),
)}  # fmt: skip


# -- one process a check -----------------------------------------------------------------------------------------------


def chosen(names: Sequence[str], provider: str) -> list[str]:
    """The checks to run, in order; the emulator runs compiled programs only."""
    unknown = [name for name in names if name not in CANARIES]
    if unknown:
        raise SystemExit(f"there are no canaries {', '.join(unknown)}; there are {', '.join(CANARIES)}")
    every = [c.name for c in CANARIES.values() if c.products or not provider.startswith("emulator")]
    return [name for name in every if name in names or not names]


def run_one(name: str, small: bool) -> int:
    """Inside the process of a check: the verdict as its last marked line."""
    try:
        verdict = CANARIES[name].check(Bench(small))
    except Exception as error:  # whatever a check fails by is its result
        traceback.print_exc()
        verdict = Verdict(False, f"{type(error).__name__}: {error}".splitlines()[0][:300])
    print(_ARROW + json.dumps({"right": verdict.right, "note": verdict.note}), flush=True)
    sys.stdout.flush()
    # A context that a kernel broke may hang when it is torn down.
    os._exit(0 if verdict.right is not False else 1)


def watch(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a check in a process group of its own, which is killed as a whole when its time is over."""
    command = [sys.executable, str(Path(__file__).resolve()), name, "--one", *(["--small"] if options.small else [])]
    environ = dict(os.environ)
    if options.provider:
        environ["RELAXISH_CUDA_PROVIDER"] = options.provider
    begin = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ, start_new_session=True
    )
    hangs = False
    try:
        said, _ = process.communicate(timeout=options.seconds)
    except subprocess.TimeoutExpired:
        hangs = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
    row: dict[str, Any] = {"check": name, "seconds": round(time.monotonic() - begin, 1)}
    marked = [line for line in said.splitlines() if line.startswith(_ARROW)]
    if marked:
        found = json.loads(marked[-1].removeprefix(_ARROW))
        row |= {"verdict": {True: "right", None: "ran"}.get(found["right"], "WRONG"), "note": found["note"]}
    else:
        last = " | ".join([line for line in said.strip().splitlines() if line.strip()][-3:])[-400:]
        row |= {"verdict": "HANGS" if hangs else "DIED", "note": last or f"exit status {process.returncode}"}
    return row | {"said": "\n".join(line for line in said.splitlines() if not line.startswith(_ARROW))[-6000:]}


def limit(seconds: float, hung: int) -> float:
    """Seconds for the next check, after so many that did not come to an end."""
    return seconds if hung < _HANGS else min(seconds, _SHORT_SECONDS)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """All rows, and below them what the first that is not right means."""
    lines = [f"{r['check']:20s} {r['seconds']:6.1f} s  {r['verdict']:6s} {r['note']}" for r in rows]
    bad = [r for r in rows if r["verdict"] not in ("right", "ran")]
    if bad:
        canary = CANARIES[bad[0]["check"]]
        lines += [f"first that is not right: {canary.name}", f"  cause: {canary.cause}", f"  look at: {canary.look}"]
        lines += [f"  and {len(bad) - 1} more: {', '.join(r['check'] for r in bad[1:])}"] if len(bad) > 1 else []
    return "\n".join(lines)


def run_all(options: argparse.Namespace) -> int:
    """All checks; the number of those that are not right."""
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    log = options.out / "canaries.log"
    log.write_text("")
    deadline = time.monotonic() + 60 * options.minutes
    for name in chosen(options.names, options.provider):
        if time.monotonic() > deadline:
            rows.append(
                {"check": name, "seconds": 0.0, "verdict": "DIED", "note": "there was no time left", "said": ""}
            )
        else:
            hung = sum(r["verdict"] == "HANGS" for r in rows)
            rows.append(watch(name, argparse.Namespace(**vars(options) | {"seconds": limit(options.seconds, hung)})))
        row = rows[-1]
        print(table([row]).splitlines()[0], flush=True)
        with log.open("a") as out:
            out.write(f"==== {name}: {row['verdict']} {row['note']}\n{row['said']}\n")
        (options.out / "canaries.json").write_text(
            json.dumps([{k: v for k, v in r.items() if k != "said"} for r in rows], indent=1)
        )
    print("====\n" + table(rows))
    return sum(r["verdict"] not in ("right", "ran") for r in rows)


def main() -> int:
    """Run checks; the exit status is the number of those that are not right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="which checks; all if there are none")
    parser.add_argument("--provider", default="", help="emulator or null: without a GPU")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "gpu_check_out")))
    parser.add_argument("--seconds", type=float, default=LIMIT_SECONDS, help="for each check")
    parser.add_argument("--minutes", type=float, default=6.0, help="for all of them")
    parser.add_argument("--small", action="store_true", help="small products on a device, too")
    parser.add_argument("--compile", action="store_true", help="only compile every kernel")
    parser.add_argument("--one", action="store_true", help="run the one named check in this process")
    options = parser.parse_args()
    if options.compile:
        for name in KERNELS:
            print(f"{name:20s} {len(compiled(name)):6d} bytes")
        return 0
    if options.one:
        return run_one(options.names[0], options.small)
    return min(run_all(options), 100)


if __name__ == "__main__":
    sys.exit(main())
