"""The first checks on a device: what their host parts do, how they end, and what the table says of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from test_emulator_faults import launch

from relaxish.backend.cuda.compile import nvrtc
from relaxish.script import tir as T

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPT = BENCHMARKS / "gpu" / "canaries.py"


@pytest.fixture
def canaries(monkeypatch):
    for name in [n for n in sys.modules if n == "gpu" or n.startswith("gpu.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from gpu import canaries

    yield canaries
    for name in [n for n in sys.modules if n == "gpu" or n.startswith("gpu.")]:
        del sys.modules[name]


def run(tmp_path, *arguments, script=SCRIPT):
    environ = {k: v for k, v in os.environ.items() if k != "RELAXISH_CUDA_PROVIDER"}
    command = [sys.executable, str(script), "--out", str(tmp_path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=300, check=False)
    return done, json.loads((tmp_path / "canaries.json").read_text())


@pytest.mark.slow
def test_host_parts_run_without_a_device(canaries, tmp_path):
    done, rows = run(tmp_path, "--provider", "null")
    assert done.returncode == 0, done.stdout
    assert [r["check"] for r in rows] == list(canaries.CANARIES) and {r["verdict"] for r in rows} == {"ran"}


@pytest.mark.slow
def test_products_are_right_in_the_emulator(canaries, tmp_path):
    done, rows = run(tmp_path, "--provider", "emulator")
    assert done.returncode == 0, done.stdout
    assert len(rows) >= 8 and all(r["verdict"] == "right" and "0 of" in r["note"] for r in rows), rows


@pytest.mark.slow
@pytest.mark.skipif(not nvrtc.available(), reason="there is no CUDA compiler")
def test_every_kernel_compiles(canaries):
    from gpu.canary_kernels import KERNELS, compiled

    for name in KERNELS:
        assert compiled(name)[:4] == b"\x7fELF", name


MADE_UP = textwrap.dedent("""
    import os, sys, time
    sys.path[:0] = [{benchmarks!r}]
    import gpu.canaries as c

    def hangs(bench):
        print("about to hang", flush=True)
        time.sleep(600)

    def dies(bench):
        print("the last words", flush=True)
        os._exit(3)

    def raises(bench):
        raise ValueError("not this one")

    c.__file__ = __file__
    c.CANARIES = {{n: c.Canary(n, f, "cause of " + n, "code of " + n) for n, f in (
        ("good", lambda bench: c.Verdict(True, "fine")), ("hangs", hangs), ("dies", dies), ("raises", raises),
        ("wrong", lambda bench: c.Verdict(False, "7 of 9")), ("last", lambda bench: c.Verdict(None)))}}
    sys.exit(c.main())
""")


@pytest.mark.slow
def test_a_check_costs_itself(canaries, tmp_path):
    script = tmp_path / "made_up.py"
    script.write_text(MADE_UP.format(benchmarks=str(BENCHMARKS)))
    done, rows = run(tmp_path, "--provider", "null", "--seconds", "6", script=script)
    assert done.returncode == 4
    found = {r["check"]: (r["verdict"], r["note"]) for r in rows}
    assert found["good"] == ("right", "fine") and found["last"] == ("ran", "")
    assert found["hangs"] == ("HANGS", "about to hang") and found["dies"] == ("DIED", "the last words")
    assert found["raises"] == ("WRONG", "ValueError: not this one") and found["wrong"] == ("WRONG", "7 of 9")
    said = done.stdout.partition("====")[2]
    assert "first that is not right: hangs" in said and "cause: cause of hangs" in said and "code of hangs" in said
    assert "3 more: dies, raises, wrong" in said
    assert "line" in (tmp_path / "canaries.log").read_text()  # of the traceback


def test_names_and_time_are_limits(canaries, tmp_path):
    assert canaries.chosen(["wgmma", "add"], "") == ["add", "wgmma"]
    assert set(canaries.chosen([], "emulator")) == {c.name for c in canaries.CANARIES.values() if c.products}
    with pytest.raises(SystemExit, match="no canaries ad;"):
        canaries.chosen(["ad"], "")
    _, rows = run(tmp_path, "--provider", "null", "--minutes", "0", "add")
    assert rows[0]["verdict"] == "DIED" and "no time" in rows[0]["note"]


def test_hangs_make_others_shorter(canaries):
    assert [canaries.limit(40.0, hung) for hung in range(4)] == [40.0, 40.0, 15.0, 15.0]
    assert canaries.limit(6.0, 5) == 6.0


def test_rows_that_are_wrong_are_shown_as_ranges(canaries):
    assert canaries._runs(np.array([0, 1, 2, 64, 65, 127])) == "0-2, 64-65, 127-127"
    assert canaries._runs(np.arange(0, 200, 8)).endswith("and 19 more")


@pytest.mark.parametrize("swizzle", [128, 64, 32])
def test_swizzle_of_boxes(canaries, swizzle):
    """Against the rule by addresses: bits 4 to 6 are exchanged by bits 7 to 9."""
    rng = np.random.default_rng(swizzle)
    box = rng.integers(0, 1000, (64, swizzle // 2)).astype("float16")
    placed = np.zeros(64 * swizzle, "uint8")
    for at, byte in enumerate(box.reshape(-1).view("uint8")):
        placed[at ^ ((at >> 7 & swizzle // 16 - 1) << 4)] = byte
    np.testing.assert_array_equal(canaries._unswizzled(placed.view("float16"), swizzle, 64), box)


def at(text, q):
    """A place in bytes as the kernel's text computes it, in elements."""
    return eval(text.replace("/", "//"), {"q": q}) // 2


@pytest.mark.parametrize(
    "name, swizzle, across",
    [
        ("wgmma", 128, False), ("wgmma_64", 64, False), ("wgmma_32", 32, False), ("wgmma_mn", 128, True),
        ("wgmma_mn_64", 64, True),
    ],
)  # fmt: skip
def test_descriptors_of_the_product_canaries(canaries, name, swizzle, across):
    """Operands placed as the kernel's text says, multiplied by the emulator with the fields that the check takes."""
    from gpu.canary_kernels import KERNELS

    text = KERNELS[name][1]
    a_leading, a_stride, b_leading, b_stride, mode = canaries.descriptor_fields(swizzle, across)
    assert mode == {128: 1, 64: 2, 32: 3}[swizzle]
    places = [
        [part.strip() for part in (declared, place)]
        for declared, place in re.findall(
            r"\{ int (line = .*?); \*\(__half\*\)\(s(?: \+ 8192)? \+ (.*?)\) = [AB]\[i\]; \}", text
        )
    ]
    assert len(places) == 2
    a_at, b_at = re.findall(r"matrix_descriptor\(s (?:\+ 8192 )?\+ (.*?), [ab]_leading", text)
    rng = np.random.default_rng(4)
    x, y = (rng.integers(-4, 5, (64, 64)).astype("float16") for _ in range(2))
    raw = np.zeros((2, 8192), "uint8").view("float16")
    for operand, (declared, place) in enumerate(places):
        for r in range(64):
            for k in range(64):
                scope = {"r": r, "k": k}
                for one in declared.split(", "):
                    key, value = one.split(" = ")
                    scope[key] = eval(value.replace("/", "//"), scope)
                raw[operand, eval(place.replace("/", "//"), scope) // 2] = (x, y)[operand][r, k]

    @T.prim_func(check_well_formed=False)
    def kernel(S: T.handle("float16", "global"), C: T.handle("float32", "global")):
        source = T.decl_buffer((8192,), "float16", data=S)
        c = T.decl_buffer((4096,), "float32", data=C)
        memory = T.allocate([8192], "float16", "shared")
        s = T.decl_buffer((8192,), "float16", data=memory, scope="shared")
        result = T.allocate([32], "float32", "local")
        d = T.decl_buffer((32,), "float32", data=result, scope="local")
        tx = T.launch_thread("threadIdx.x", 128)
        for i in range(64):
            s[i * 128 + tx] = source[i * 128 + tx]
        T.ptx_fence_proxy_async()
        T.tvm_storage_sync("shared")
        T.ptx_wgmma_fence()
        for q in T.unroll(4):
            T.ptx_wgmma_ss(
                64, "float16", "float16", "float32", result, 0, T.address_of(s[at(a_at, q)]), a_leading, a_stride, swizzle, False,
                T.address_of(s[4096 + at(b_at, q)]), b_leading, b_stride, swizzle, across, q != 0,
            )  # fmt: skip
        T.ptx_wgmma_commit()
        T.ptx_wgmma_wait(0)
        for j in range(8):
            for h in range(4):
                c[(tx // 32 * 16 + tx % 32 // 4 + h // 2 * 8) * 64 + j * 8 + tx % 4 * 2 + h % 2] = d[j * 4 + h]

    found = np.zeros((64, 64), "float32")
    launch(kernel, raw.reshape(-1), found, block=(128, 1, 1))
    np.testing.assert_array_equal(found, x.astype("float32") @ y.astype("float32").T)
