"""Graph functions as ``__vmtir__`` loop programs, and linking what code generation leaves."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
import relaxish.relax.testing.vm  # registers the packed functions
from relaxish import relax, tir
from relaxish.runtime import VirtualMachine, cpu, nd
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T


def tir_of(mod):
    builder = relax.ExecBuilder()
    return relax.vm_build._vmcodegen(builder, mod, exec_mode="compiled"), builder


def test_packed_calls_constants_and_tuples():
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def f(x: R.Tensor, y: R.Tensor):
            R.func_attr({"global_symbol": "f"})
            a = R.call_packed("test.vm.add", x, R.const(np.array([1, 2], "float32")), sinfo_args=R.Tensor)
            t = (a, y)
            u = t[1]
            b = R.call_packed("test.vm.pick", u, R.str("s"), R.shape([4, 5]), R.prim_value(9), sinfo_args=R.Tensor)
            return b

    @I.ir_module
    class Expected:
        @T.prim_func
        def __vmtir__f(ctx_ptr: T.handle, r: T.handle, c: T.handle, f: T.handle):
            T.func_attr({"global_symbol": "__vmtir__f"})
            T.anylist_setitem_call_packed(r, 3, "test.vm.add", T.anylist_getitem(r, 0), T.anylist_getitem(c, 0))
            T.anylist_setitem_call_packed(
                r, 4, "vm.builtin.make_tuple", T.anylist_getitem(r, 3), T.anylist_getitem(r, 1)
            )
            T.anylist_setitem_call_packed(r, 5, "vm.builtin.tuple_getitem", T.anylist_getitem(r, 4), T.int64(1))
            T.anylist_setitem_call_packed(
                r,
                6,
                "test.vm.pick",
                T.anylist_getitem(r, 5),
                T.anylist_getitem(c, 1),
                T.anylist_getitem(c, 2),
                T.int64(9),
            )
            T.anylist_setitem_call_packed(r, 2, "vm.builtin.copy", T.anylist_getitem(r, 6))

    made, builder = tir_of(Before)
    relaxish.ir.assert_structural_equal(made, Expected)
    assert "@f num_inputs=2 vm_tir_func;" in builder.get().as_text()


def test_branches_kernels_and_calls_of_graph_functions():
    @I.ir_module
    class Before:
        @T.prim_func
        def k(H: T.Buffer(T.int64(4), "int64")):
            T.func_attr({"global_symbol": "k"})
            H[T.int64(0)] = H[T.int64(1)] + T.int64(1)

        @R.function(pure=False)
        def callee(x: R.Tensor((4,), "int64")) -> R.Tensor((4,), "int64"):
            R.func_attr({"global_symbol": "callee"})
            _ = Before.k(x)
            return x

        @R.function(pure=False)
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "int64")):
            R.func_attr({"global_symbol": "main"})
            if c:
                y = Before.callee(x)
            else:
                y = x
            return y

    @T.prim_func
    def expected_main(ctx_ptr: T.handle, r: T.handle, c: T.handle, f: T.handle):
        T.func_attr({"global_symbol": "__vmtir__main"})
        if T.Cast("bool", T.call_packed("vm.builtin.read_if_cond", T.anylist_getitem(r, 0))):
            T.anylist_setitem_call_packed(
                r, 4, "vm.builtin.invoke_closure", ctx_ptr, T.anylist_getitem(f, 1), T.anylist_getitem(r, 1)
            )
            T.anylist_setitem_call_packed(r, 3, "vm.builtin.copy", T.anylist_getitem(r, 4))
        else:
            T.anylist_setitem_call_packed(r, 3, "vm.builtin.copy", T.anylist_getitem(r, 1))
        T.anylist_setitem_call_packed(r, 2, "vm.builtin.copy", T.anylist_getitem(r, 3))

    made, builder = tir_of(Before)
    functions = {v.name_hint: f for v, f in made.functions.items()}
    assert set(functions) == {"k", "__vmtir__callee", "__vmtir__main"}
    # A call of a kernel has no result anybody could read.
    kernel_call = functions["__vmtir__callee"].body.seq[0]
    assert "k" in str(kernel_call) and "call_cpacked" in str(kernel_call)
    relaxish.ir.assert_structural_equal(functions["__vmtir__main"].body.seq[-1], expected_main.body.seq[-1], True)
    assert isinstance(functions["__vmtir__main"].body.seq[0], tir.IfThenElse)
    executable = relax.vm_build._vmlink(builder, "llvm", made)
    machine = VirtualMachine(executable, cpu())
    x = nd.array(np.arange(4))
    assert machine["main"](nd.array(np.array(False)), x).numpy().tolist() == [0, 1, 2, 3]
    assert machine["main"](nd.array(np.array(True)), x).numpy().tolist() == [2, 1, 2, 3]


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_code_generation_and_linking_by_hand(exec_mode):
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            y = R.add(x, x)
            z = R.exp(y)
            return z

    with relaxish.target.Target("llvm"):
        lowered = relaxish.get_pipeline("default_build")(Model)
    builder = relax.ExecBuilder()
    rest = relax.vm_build._vmcodegen(builder, lowered, exec_mode)
    assert all(isinstance(f, tir.PrimFunc) for f in rest.functions.values())
    machine = VirtualMachine(relax.vm_build._vmlink(builder, "llvm", rest), cpu())
    x = np.array([0.0, 1.0, -1.0], "float32")
    np.testing.assert_allclose(machine["main"](x).numpy(), np.exp(2 * x), rtol=1e-5)


def test_errors():
    @R.function
    def private(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        return x

    mod = relaxish.IRModule({"f": private.without_attr("global_symbol")})
    with pytest.raises(relaxish.TVMError, match="AttachGlobalSymbol"):
        tir_of(mod)
    with pytest.raises(ValueError, match="Unknown exec_mode"):
        relax.vm_build._vmcodegen(relax.ExecBuilder(), mod, "other")
