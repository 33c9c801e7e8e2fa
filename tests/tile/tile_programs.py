"""How tests run tile programs: in the interpreter, as machine code for this machine, and in emulation with race checks."""

from __future__ import annotations

import numpy as np

import relaxish
from relaxish.interp import run_prim_func
from relaxish.target import Target
from relaxish.testing import emulate_cuda

ARCHS = ("sm_70", "sm_80", "sm_90a")


def arrays(seed, *shapes, dtype="float32"):
    """Random numbers of magnitude one."""
    rng = np.random.default_rng(seed)
    made = []
    for shape in shapes:
        if "float" in dtype:
            made.append(rng.standard_normal(shape).astype(dtype))
        else:
            info = np.iinfo(dtype)
            made.append(rng.integers(max(info.min, -9), min(info.max, 9), shape).astype(dtype))
    return made


def run(func, where, inputs, outputs):
    """The outputs (arrays with what is in them before) after a run: "interp", "llvm" or an architecture."""
    outputs = [x.copy() for x in outputs]
    if where == "interp":
        run_prim_func(func, [*inputs, *outputs])
    elif where == "llvm":
        built = relaxish.tir.build(func, target="llvm")
        passed = [relaxish.nd.array(x) for x in outputs]
        built["main"](*[relaxish.nd.array(x) for x in inputs], *passed)
        outputs = [x.numpy() for x in passed]
    else:
        emulate_cuda(func, *inputs, *outputs, target=Target({"kind": "cuda", "arch": where}), check=True)
    return outputs


def check(func, inputs, wanted, where=("interp", "llvm", "sm_80"), start=None, rtol=1e-4, atol=1e-5):
    """Compare the outputs everywhere with what is wanted. ``start``: what is in them before (random where None)."""
    wanted = wanted if isinstance(wanted, list) else [wanted]
    if start is None:
        rng = np.random.default_rng(99)
        start = [(rng.integers(1, 9, w.shape)).astype(w.dtype) for w in wanted]
    for place in where:
        found = run(func, place, inputs, start)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(
                one.astype("float64"), other.astype("float64"), rtol=rtol, atol=atol, err_msg=place
            )
