"""The matrix product of 256 cubed: right in emulation with race checks, and what the compiler makes of it."""

from __future__ import annotations

import numpy as np
import pytest
from tile_programs import ARCHS, arrays, run
from test_tile_examples import example

from relaxish.backend.cuda.compile import nvrtc, sass
from relaxish.backend.cuda.build import lower_for_device
from relaxish.backend.cuda.codegen.printer import cuda_source
from relaxish.ir import IRModule
from relaxish.support.errors import RelaxishError
from relaxish.target import Target

WORDS = {"sm_70": ("HMMA",), "sm_75": ("HMMA",), "sm_80": ("HMMA", "LDGSTS", "LDSM"), "sm_90a": ("HGMMA", "UTMALDG")}
PTX = {
    "sm_75": ("wmma.mma",),
    "sm_80": ("mma.sync", "cp.async", "ldmatrix"),
    "sm_90a": ("wgmma.mma_async", "cp.async.bulk.tensor"),
}


def product(arch):
    rows = 64 if arch < "sm_80" else 128
    return example("gemm").gemm(256, 256, 256, rows, rows, 32, num_stages=2)


def source(arch):
    mod = IRModule({"main": product(arch).with_attr("global_symbol", "main")})
    return cuda_source(lower_for_device(mod, Target({"kind": "cuda", "arch": arch}))[1])


@pytest.mark.parametrize("arch", ARCHS)
def test_right_without_races(arch):
    a, b = arrays(0, (256, 256), (256, 256), dtype="float16")
    (found,) = run(product(arch), arch, [a, b], [np.full((256, 256), 7, "float16")])
    np.testing.assert_allclose(found, a.astype("float32") @ b.astype("float32"), rtol=2e-2, atol=2e-2)


@pytest.mark.slow
@pytest.mark.skipif(not nvrtc.available(), reason="neither NVRTC nor nvcc is installed")
@pytest.mark.parametrize("arch", sorted(PTX))
def test_instructions_asked_for(arch):
    text = nvrtc.compile_ptx(source(arch), arch)
    text = text.decode() if isinstance(text, bytes) else text
    assert all(word in text for word in PTX[arch])


@pytest.mark.slow
@pytest.mark.skipif(not (nvrtc.available() and sass.available()), reason="no compiler or no disassembler")
@pytest.mark.parametrize("arch", sorted(WORDS))
def test_instructions_made(arch):
    try:
        image = nvrtc.compile_image(source(arch), arch, "cubin")
    except RelaxishError as error:
        assert arch == "sm_70"
        pytest.skip(f"the compiler is too new: {error}")
    [resources] = image.resources().values()
    found = sass.sass_instructions(image.data)
    assert all(any(name.startswith(word) for name in found) for word in WORDS[arch])
    assert resources.spill_store_bytes == 0
