"""Profile a function of the virtual machine, time it, instrument its calls, and save it."""

import numpy as np
import tvm
from tvm import relax
from tvm.contrib import utils
from tvm.script import relax as R


@tvm.script.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((16, 32), "float32"), w: R.Tensor((32, 8), "float32")):
        with R.dataflow():
            lv = R.matmul(x, w)
            gv = R.tanh(lv)
            R.output(gv)
        return gv


def main():
    ex = relax.build(Module, target=tvm.target.Target("llvm"), exec_mode="bytecode")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype("float32") for s in ((16, 32), (32, 8)))
    args = [tvm.nd.array(x), tvm.nd.array(w)]

    vm = relax.VirtualMachine(ex, tvm.cpu(), profile=True)
    report = vm.profile("main", *args)
    print("profiled:", "Duration" in str(report))

    vm = relax.VirtualMachine(ex, tvm.cpu())
    vm.set_input("main", *args)
    vm.invoke_stateful("main")
    np.testing.assert_allclose(vm.get_outputs("main").numpy(), np.tanh(x @ w), rtol=1e-4, atol=1e-5)
    result = vm.time_evaluator("main", tvm.cpu(), number=2, repeat=2)(*args)
    print("results:", len(result.results))

    seen = []

    def instrument(func, func_symbol, before_run, ret_value, *args):
        if before_run:
            seen.append(func_symbol)
        return relax.VMInstrumentReturnKind.NO_OP if hasattr(relax, "VMInstrumentReturnKind") else 0

    vm.set_instrument(instrument)
    vm["main"](*args)
    print("instrumented:", len(seen) > 0)

    temp = utils.tempdir()
    path = temp.relpath("exec.so")
    ex.export_library(path)
    loaded = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())
    np.testing.assert_allclose(loaded["main"](*args).numpy(), np.tanh(x @ w), rtol=1e-4, atol=1e-5)
    print("profiling is right")


if __name__ == "__main__":
    main()
