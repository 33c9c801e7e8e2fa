"""The default kernels for sm_90a as the assembler makes them: nothing in their loops that stops the tensor cores.

Judged by the disassembly where there is a disassembler, by PTX where there is a compiler only.
"""

from __future__ import annotations

import re

import pytest

import relaxish
from relaxish import IRModule, dlight, relax, te
from relaxish.backend.cuda.compile import nvrtc, sass
from relaxish.target import Target
from relaxish.tir import PrimFunc

TARGET = Target("nvidia/nvidia-h100", host="llvm")
needs_compiler = pytest.mark.skipif(not nvrtc.available(), reason="neither NVRTC nor nvcc is installed")
needs_tools = pytest.mark.skipif(
    not (sass.available() and nvrtc.available()), reason="no compiler or no disassembler (the triton package has one)"
)

_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?((?:@!?U?P[T\d]+\s+)?[A-Z].*?)\s*;", re.M)
_LABEL = re.compile(r"^(\.L_x_\d+):", re.M)


def gemm(dtype, size):
    a = te.placeholder((size, size), dtype, name="A")
    b = te.placeholder((size, size), dtype, name="B")
    k = te.reduce_axis((0, size), name="k")
    wide = te.compute(
        (size, size), lambda i, j: te.sum(a[i, k].astype("float32") * b[j, k].astype("float32"), axis=k), name="C"
    )
    out = "float16" if dtype.startswith("float8") else dtype
    total = te.compute((size, size), lambda i, j: wide[i, j].astype(out), name="D")
    return IRModule({"main": te.create_prim_func([a, b, total]).with_attr("global_symbol", "main")})


def graph(shapes, emit):
    bb = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorStructInfo(s, "float16")) for i, s in enumerate(shapes)]
    with bb.function("main", params):
        with bb.dataflow():
            out = bb.emit_output(bb.emit(emit(*params)))
        bb.emit_func_output(out)
    return bb.get()


def convolution():
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}

    def emit(x, w):
        return relax.op.astype(relax.op.nn.conv2d(x, w, padding=1, out_dtype="float32", **layouts), "float16")

    return graph([(16, 28, 28, 256), (256, 3, 3, 256)], emit)


def attention():
    return graph([(4, 1024, 16, 64)] * 3, relax.op.nn.attention)


def source(mod):
    """CUDA as it comes without any choice: graphs by the default pipeline, loop programs by the default schedules."""
    with TARGET:
        if any(not isinstance(f, PrimFunc) for f in mod.functions.values()):
            [module] = relaxish.compile(mod, TARGET, relax_pipeline=relax.get_default_pipeline(TARGET)).device_modules
        else:
            scheduled = dlight.ApplyDefaultSchedule(*dlight.default_gpu_rules(TARGET))(mod)
            [module] = relaxish.compile(scheduled, TARGET).imported_modules
    return module.get_source("cu")


def in_loops(text):
    """The instructions that may run again after they have run."""
    items = sorted(
        [(m.start(), "label", m.group(1)) for m in _LABEL.finditer(text)]
        + [(m.start(), "line", m.group(1)) for m in _LINE.finditer(text)]
    )
    blocks, labels = [[]], {}  # a jump ends a block, a label begins one
    for _, kind, what in items:
        if kind == "label":
            blocks.append([])
            labels[what] = len(blocks) - 1
        else:
            blocks[-1].append(what)
            if re.search(r"\b(BRA|EXIT)\b", what):
                blocks.append([])
    following = []
    for at, block in enumerate(blocks):
        last = block[-1] if block else ""
        targets = [labels[t] for t in re.findall(r"\bBRA\b.*?(\.L_x_\d+)", last)]
        ends = re.match(r"EXIT|BRA `", last)
        following.append(targets if ends else [*targets, at + 1])
    found = []
    for at, block in enumerate(blocks):
        seen, todo = set(), [at]
        while todo:
            for to in following[todo.pop()]:
                if to < len(blocks) and to not in seen:
                    seen.add(to)
                    todo.append(to)
        found += block if at in seen else []
    return found


def test_loops_are_found():
    text = (
        ".L_x_0:\n        /*0010*/                   MOV R1, R2 ;\n.L_x_1:\n"
        "        /*0020*/               @P0 MEMBAR.ALL.GPU ;\n"
        "        /*0030*/              @!P1 BRA `(.L_x_1) ;\n        /*0040*/                   BRA `(.L_x_3) ;\n"
        ".L_x_2:\n        /*0050*/                   EXIT ;\n.L_x_3:\n        /*0060*/                   HGMMA.1 R1 ;\n"
        "        /*0070*/               @P2 BRA `(.L_x_2) ;\n        /*0080*/                   BRA `(.L_x_3);\n"
    )
    assert in_loops(text) == [
        "@P0 MEMBAR.ALL.GPU",
        "@!P1 BRA `(.L_x_1)",
        "HGMMA.1 R1",
        "@P2 BRA `(.L_x_2)",
        "BRA `(.L_x_3)",
    ]


DTYPES = ("float16", "bfloat16", "float8_e4m3fn")
CASES = {f"{dtype} {size}": (gemm, dtype, size) for dtype in DTYPES for size in (1024, 2048, 4096, 8192)}
CASES |= {"convolution": (convolution,), "attention": (attention,)}


@needs_tools
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_default_kernels(name):
    make, *args = CASES[name]
    text = source(make(*args))
    image = nvrtc.compile_image(text, "sm_90a", "cubin")
    assert "serialized" not in image.log and "setmaxnreg" not in image.log, image.log
    for kernel, used in image.resources().items():
        assert not used.spills and used.stack_bytes == 0, (kernel, used)
    code = sass.disassemble(image.data)
    short = sass.mnemonics(sass.sass_instructions(image.data))
    assert not short["LDL"] and not short["STL"]
    lines = _LINE.findall(code)
    at = [i for i, line in enumerate(lines) if re.search(r"\b(HGMMA|QGMMA|HMMA)\.", line)]
    products = [lines[i] for i in at]
    assert products
    inside = [*in_loops(code), *lines[at[0] : at[-1]]]  # loops of few turns are unrolled
    fences = [line for line in inside if re.search(r"MEMBAR\.\w+\.(GPU|SYS|VC)|ERRBAR", line)]
    assert not fences, fences
    if make is attention:
        # Global memory in pieces of 16 bytes: a warp's loads are as wide as they can be.
        wide = [line for line in inside if re.search(r"\b(LDG|LDGSTS)\b", line)]
    else:
        # In one group of products only the last is waited for: serialised ones would each end a group of their own.
        groups = [line for line in products if "gsb0" in line]
        assert groups and len(products) >= 2 * len(groups), products
        assert short["UTMALDG"] >= 1
        wide = [line for line in inside if re.search(r"\b(LDG|LDGSTS)\b", line)]
    assert all(".128" in line for line in wide), wide


@needs_compiler
def test_a_multicast_product_in_ptx():
    """What the disassembly shows follows from these: remote arrivals and barriers of the cluster."""
    text = source(gemm("float16", 1024))
    assert "bulk_load_2d_multicast(" in text
    ptx = nvrtc.compile_ptx(text, "sm_90a")
    remote = re.findall(r"mbarrier\.arrive\S*shared::cluster\S*", ptx)
    assert remote and all("release.cluster" not in one for one in remote), remote
    arrivals = re.findall(r"barrier\.cluster\.arrive\S*", ptx)
    assert arrivals == ["barrier.cluster.arrive.relaxed.aligned;", "barrier.cluster.arrive.release.aligned;"]
    assert set(re.findall(r"barrier\.cluster\.wait\S*", ptx)) == {"barrier.cluster.wait.acquire.aligned;"}
    assert "fence.mbarrier_init.release.cluster" in ptx[: ptx.index("barrier.cluster.arrive")]
