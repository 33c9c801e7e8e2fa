"""Passes of one's own: a mutator that turns x + x into 2 * x, a TIR pass, and both in a pipeline with an instrument."""

import numpy as np
import tvm
from tvm import relax, tir
from tvm.ir.instrument import pass_instrument
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script import ir as I
from tvm.script import relax as R


@mutator
class DoubleToMultiply(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        add = tvm.ir.Op.get("relax.add")
        if isinstance(call, relax.Call) and call.op == add and call.args[0].same_as(call.args[1]):
            return relax.op.multiply(call.args[0], relax.const(2, call.args[0].struct_info.dtype))
        return call


@tvm.transform.module_pass(opt_level=0, name="Doubling")
class Doubling:
    def transform_module(self, mod, ctx):
        for gv, func in mod.functions_items():
            if isinstance(func, relax.Function):
                mod[gv] = DoubleToMultiply(mod).visit_expr(func)
        return mod


@tir.transform.prim_func_pass(opt_level=0)
def annotate(func, mod, ctx):
    return func.with_attr("visited", True)


@pass_instrument
class Names:
    def __init__(self):
        self.names = []

    def run_before_pass(self, mod, info):
        self.names.append(info.name)


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            y = R.add(x, x)
            z = R.add(y, x)
            R.output(z)
        return z


def main():
    names = Names()
    with tvm.transform.PassContext(opt_level=3, instruments=[names]):
        mod = tvm.transform.Sequential([Doubling(), relax.transform.LegalizeOps(), annotate])(Module)
    mod.show()
    assert any("multiply" in gv.name_hint for gv in mod.get_global_vars())
    assert all(bool(f.attrs["visited"]) for f in mod.functions.values() if isinstance(f, tir.PrimFunc))
    assert "Doubling" in names.names and "LegalizeOps" in names.names
    vm = relax.VirtualMachine(relax.build(mod, target="llvm"), tvm.cpu())
    x = np.random.rand(3, 4).astype("float32")
    np.testing.assert_allclose(vm["main"](tvm.nd.array(x)).numpy(), 3 * x, rtol=1e-6)
    print("custom pass is right")


if __name__ == "__main__":
    main()
