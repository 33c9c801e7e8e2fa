"""Convolutions as cuDNN is asked for them, with a stand-in that reads memory as the descriptors say."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest

from programs.attention import Stacked
import relaxish
from relaxish import TVMError, relax
from relaxish.relax.backend.cuda.cudnn import partition_for_cudnn
from relaxish.runtime import cuda, nd
from relaxish.runtime.nvidia import providers
from relaxish.runtime.nvidia.libs import cudnn as dnn
from relaxish.runtime.nvidia.libs import loading
from relaxish.runtime.nvidia.libs.context import WORKSPACE_BYTES
from relaxish.runtime.nvidia.libs.conv import Conv2d, run_conv2d
from relaxish.runtime.nvidia.libs.loading import use_library
from relaxish.script import relax as R
from relaxish.testing.fake_cudnn import FakeCudnn


@pytest.fixture
def fake():
    with providers.use("null"), use_library("cudnn", FakeCudnn()) as made:
        yield made


def model(layout, dtype, bias, relu, **attrs):
    kernel = "OIHW" if layout == "NCHW" else "OHWI"
    groups = attrs.get("groups", 1)
    sizes, window = {"N": 2, "C": 4, "H": 7, "W": 9}, {"O": 6, "I": 4 // groups, "H": 3, "W": 2}
    bb = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor([sizes[c] for c in layout], dtype))
    w = relax.Var("w", R.Tensor([window[c] for c in kernel], dtype))
    b = relax.Var("b", R.Tensor([6 if c == "C" else 1 for c in layout], dtype))
    with bb.function("main", [x, w, b] if bias else [x, w]):
        with bb.dataflow():
            out = relax.op.nn.conv2d(x, w, data_layout=layout, kernel_layout=kernel, **attrs)
            if bias:
                out = relax.op.add(bb.emit(out), b)
            if relu:
                out = relax.op.nn.relu(bb.emit(out))
            out = bb.emit_output(out)
        bb.emit_func_output(out)
    return bb.get()


def inputs_of(mod):
    rng = np.random.default_rng(0)
    infos = [p.struct_info for p in mod["main"].params]
    return [rng.standard_normal([int(d) for d in i.shape]).astype(i.dtype) for i in infos]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("bias", "relu"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize(
    ("dtype", "attrs"),
    [
        ("float16", {}),
        ("float32", {"strides": (2, 1), "padding": (1, 2)}),
        ("float32", {"dilation": (2, 3), "groups": 2}),
    ],
)
def test_convolutions(fake, layout, bias, relu, dtype, attrs):
    mod = model(layout, dtype, bias, relu, **attrs)
    arrays = inputs_of(mod)
    made = relax.transform.RunCodegen()(partition_for_cudnn(mod))
    assert [m.type_key for m in made.attrs["external_mods"]] == ["cudnn"]
    vm = relaxish.VirtualMachine(relaxish.build(made, target="cuda"), cuda())
    got = vm["main"](*(nd.array(a, cuda()) for a in arrays)).numpy()
    reference = relaxish.VirtualMachine(relaxish.build(mod, target="llvm"), relaxish.cpu())
    np.testing.assert_allclose(got, reference["main"](*arrays).numpy(), rtol=1e-2, atol=2e-2)
    assert ("cudnnConvolutionBiasActivationForward" in fake.calls) == bias


def test_attention_says_what_else_there_is():
    with pytest.raises(TVMError, match="partition for CUTLASS"):
        relax.transform.RunCodegen()(partition_for_cudnn(Stacked))


def test_what_it_is_not_asked_for():
    mod = model("NCHW", "float32", False, False, padding=(0, 0, 1, 1))  # padding on one side only
    assert not any("Codegen" in (f.attrs or {}) for f in partition_for_cudnn(mod).functions.values())


@pytest.mark.skipif(loading.find("cudnn") is None, reason="cuDNN is not installed")
def test_descriptors_of_the_real_library():
    layout, kind = dnn.FORMATS["NHWC"], dnn.DATA_TYPES["float16"]
    tensor = dnn.Descriptor("Tensor", "cudnnSetTensor4dDescriptor", layout, kind, 1, 8, 4, 4)
    steps = (1, 1, 1, 1, 1, 1)  # padding, strides, dilation
    convolution = dnn.Descriptor("Convolution", "cudnnSetConvolution2dDescriptor", *steps, dnn.CROSS_CORRELATION, 0)
    assert tensor.handle and convolution.handle
    with pytest.raises(TVMError, match="cudnnSetTensor4dDescriptor"):
        dnn.Descriptor("Tensor", "cudnnSetTensor4dDescriptor", layout, kind, -1, 8, 4, 4)


def test_more_workspace_than_there_is(fake):
    fake.workspace_bytes = WORKSPACE_BYTES + 1
    x, w, bias, out = (nd.empty(s, "float32", cuda()) for s in ((1, 4, 7, 9), (6, 4, 3, 3), (6,), (1, 6, 5, 7)))
    fixed = Conv2d("NCHW", (1, 1), (0, 0), (1, 1))
    with pytest.raises(loading.LibraryError, match="bytes of workspace"):
        run_conv2d(fixed, x, w, out, bias)
    assert "cudnnConvolutionBiasActivationForward" not in fake.calls


_OPENED = "int answer(void) { return 42; }"
_OPENS = """
#include <dlfcn.h>
int ask(void) {
    void *other = dlopen("libopened.so.13", RTLD_NOW);
    int (*answer)(void) = other ? (int (*)(void))dlsym(other, "answer") : 0;
    return answer ? answer() : -1;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None or not sys.platform.startswith("linux"), reason="no C compiler")
@pytest.mark.parametrize("opens, found", [((), -1), (("opened",), 42), (("nowhere", "opened"), 42)])
def test_what_a_library_opens_by_name_is_open(monkeypatch, tmp_path, opens, found):
    for name, source, *soname in (("opened", _OPENED, "-Wl,-soname,libopened.so.13"), ("opens", _OPENS)):
        (tmp_path / f"{name}.c").write_text(source)
        command = ["cc", "-shared", "-fPIC", *soname, "-o", tmp_path / f"lib{name}.so", tmp_path / f"{name}.c"]
        subprocess.run(command, check=True)
    code = (
        "import ctypes, sys\n"
        "from pathlib import Path\n"
        "from relaxish.runtime.nvidia.libs import loading\n"
        "files = {p.stem[3:]: str(p) for p in Path(sys.argv[1]).glob('*.so')}\n"
        "loading.find = files.get\n"
        "what = loading.SharedLibrary('opens', 'p', 'e', {'ask': (ctypes.c_int, ())}, tuple(sys.argv[2:]))\n"
        "print(loading.load(what).ask())\n"
    )  # a process of its own: what is open stays open
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), *opens], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == found


def test_cudnn_opens_the_products_first():
    assert "cublasLt" in dnn._CUDNN.opens and "nvrtc" in dnn._CUDNN.opens
