"""Lowered graph functions over real machine code: native entry, bytecode and overhead."""

from __future__ import annotations

import time

import numpy as np
import pytest

from relaxish import tir
from relaxish.driver import _native
from relaxish.backend.vm import generate
from relaxish.ir import GlobalVar, IRModule, Op
from relaxish.relax import Call, Function, Var
from relaxish.relax.expr import (
    BindingBlock,
    Constant,
    DataTypeImm,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    VarBinding,
)
from relaxish.relax.struct_info import ObjectStructInfo, TensorStructInfo
from relaxish.runtime import VirtualMachine, cpu, load_module, nd
from relaxish.target import Target

pytest.importorskip("llvmlite")
X = np.array([-1, 2, -3, 4], "float32")
T4 = TensorStructInfo([4], "float32")


def elementwise(name, count, body):
    """A loop over float32[4] buffers; ``body(*loads)`` gives the value stored in the last one."""
    buffers = [tir.decl_buffer((4,), "float32", name=f"b{i}") for i in range(count)]
    i = tir.Var("i", "int32")
    value = body(*[tir.BufferLoad(b, [i]) for b in buffers[:-1]])
    loop = tir.For(i, 0, 4, tir.ForKind.SERIAL, tir.BufferStore(buffers[-1], value, [i]))
    return tir.PrimFunc(buffers, loop, attrs={"global_symbol": name, "tir.noalias": True})


def build(chain=1):
    gadd, grelu = GlobalVar("k_add"), GlobalVar("k_relu")
    x = Var("x", T4)
    bindings = []

    def emit(value, info=None):
        var = Var(f"v{len(bindings)}", info or ObjectStructInfo())
        bindings.append(VarBinding(var, value))
        return var

    def alloc():
        storage = emit(
            Call(
                Op.register("relax.vm.alloc_storage"),
                [ShapeExpr([16]), PrimValue(0), DataTypeImm("uint8"), StringImm("global")],
            )
        )
        return emit(
            Call(Op.register("relax.vm.alloc_tensor"), [storage, PrimValue(0), ShapeExpr([4]), DataTypeImm("float32")]),
            T4,
        )

    current = x
    bias = Constant(nd.array(np.full(4, 0.5, "float32")))
    for step in range(chain):
        out = alloc()
        emit(Call(gadd, [current, bias, out]) if step % 2 == 0 else Call(grelu, [current, out]))
        current = out
    main = Function(
        [x], SeqExpr([BindingBlock(bindings)], current), ObjectStructInfo(), attrs={"global_symbol": "main"}
    )
    zero = tir.FloatImm("float32", 0.0)
    kernels = {
        gadd: elementwise("k_add", 3, lambda a, b: a + b),
        grelu: elementwise("k_relu", 2, lambda a: tir.max(a, zero)),
    }
    mod = IRModule({GlobalVar("main"): main, **kernels})
    return _native(generate(mod), mod, IRModule(kernels), Target("llvm"))


def reference(chain):
    value = X
    for step in range(chain):
        value = value + np.float32(0.5) if step % 2 == 0 else np.maximum(value, 0)
    return value


@pytest.mark.parametrize("chain", [1, 2, 9])
def test_native_entry_and_bytecode_agree(chain):
    ex = build(chain)
    assert "main" in ex.plans
    vm = VirtualMachine(ex, cpu())
    np.testing.assert_array_equal(vm["main"](X).numpy(), reference(chain))
    ex.plans.clear()
    np.testing.assert_array_equal(VirtualMachine(ex, cpu())["main"](X).numpy(), reference(chain))


def test_export_loads_with_the_runtime_alone(tmp_path):
    ex = build(3)
    ex.export_library(str(tmp_path / "m.so"))
    np.testing.assert_array_equal(
        VirtualMachine(load_module(tmp_path / "m.so"), cpu())["main"](X).numpy(), reference(3)
    )
    import subprocess
    import sys

    code = (
        "import sys, numpy as np\n"
        "from relaxish import runtime\n"
        f"vm = runtime.VirtualMachine(runtime.load_module({str(tmp_path / 'm.so')!r}), runtime.cpu())\n"
        "print(vm['main'](np.array([-1, 2, -3, 4], 'float32')).numpy().tolist())\n"
        # public_names is the table of the shop window: text only.
        "known = ('runtime', 'support', 'public_names')\n"
        "bad = [m for m in sys.modules if m.startswith('relaxish.') and m.split('.')[1] not in known]\n"
        "assert not bad, bad\n"
        "assert 'llvmlite' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(reference(3).tolist())


def test_one_kernel_model_call_overhead():
    vm = VirtualMachine(build(1), cpu())
    main, x = vm["main"], nd.array(X)
    best = 1.0
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(1000):
            main(x)
        best = min(best, (time.perf_counter() - begin) / 1000)
    assert best < 5e-6, f"{best * 1e6:.2f} us"


def test_function_outlives_machine_and_executable():
    import gc

    mains = [VirtualMachine(build(chain), cpu())["main"] for chain in (1, 2, 3)]
    gc.collect()
    for chain, main in zip((1, 2, 3), mains):
        np.testing.assert_array_equal(main(X).numpy(), reference(chain))
