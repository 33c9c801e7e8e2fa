"""Bring your own codegen: a pattern is cut out, merged, and given to a code generator written here."""

import numpy as np
import tvm
from tvm import relax, te, tir
from tvm.relax.dpl.pattern import is_op, wildcard
from tvm.script import relax as R


@tvm.script.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 16), "float32"), b: R.Tensor((16,), "float32")):
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.add(lv, b)
            lv2 = R.nn.relu(lv1)
            gv = R.exp(lv2)
            R.output(gv)
        return gv


def patterns():
    x, w, b = wildcard(), wildcard(), wildcard()
    out = is_op("relax.nn.relu")(is_op("relax.add")(is_op("relax.matmul")(x, w), b))
    return [("mylib.dense_bias_relu", out, {"x": x, "w": w, "b": b})]


CALLS = []


@tvm.register_func("mylib.run", override=True)
def run(x, w, b, out):
    CALLS.append(1)
    out.copyfrom(np.maximum(x.numpy() @ w.numpy() + b.numpy(), 0))


@tvm.register_func("relax.ext.mylib", override=True)
def mylib(functions, options, constant_names):
    made = []
    for func in functions:
        assert func.attrs["Codegen"] == "mylib"
        places = [te.placeholder(p.struct_info.shape, p.struct_info.dtype, p.name_hint) for p in func.params]
        shape = func.ret_struct_info.shape
        out = te.extern(
            shape, places, lambda ins, outs: tir.call_packed("mylib.run", *ins, *outs), dtype=func.ret_struct_info.dtype
        )
        kernel = te.create_prim_func([*places, out]).with_attr("global_symbol", func.attrs["global_symbol"])
        made.append(tvm.build(kernel, target="llvm"))
    return made


def main():
    mod = relax.transform.FuseOpsByPattern(patterns(), bind_constants=False, annotate_codegen=True)(Module)
    codegens = [f.attrs["Codegen"] for f in mod.functions.values() if f.attrs and "Codegen" in f.attrs]
    print("cut out:", codegens)
    text = mod.script()
    assert "mylib.dense_bias_relu" in text
    mod = relax.transform.RunCodegen()(mod)
    vm = relax.VirtualMachine(relax.build(mod, target="llvm"), tvm.cpu())
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype("float32") for s in ((4, 8), (8, 16), (16,)))
    out = vm["main"](*(tvm.nd.array(a) for a in (x, w, b))).numpy()
    np.testing.assert_allclose(out, np.exp(np.maximum(x @ w + b, 0)), rtol=1e-4)
    assert CALLS == [1]
    print("byoc is right")


if __name__ == "__main__":
    main()
