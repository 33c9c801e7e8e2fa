"""Lowered graph functions to bytecode and plans, with hand-built IR and interpreted kernels."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish.backend.vm import NotPlannable, VMCodeGenError, generate, plan_function, plan_inputs
from relaxish.backend.vm.planner import _Block, _pack
from relaxish.ir import GlobalVar, IRModule, Op
from relaxish.relax import Call, ExternFunc, Function, Var
from relaxish.relax.expr import (
    BindingBlock,
    Constant,
    DataTypeImm,
    If,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    VarBinding,
)
from relaxish.relax.struct_info import ObjectStructInfo, PrimStructInfo, TensorStructInfo
from relaxish.runtime import KernelSpec, ParamSpec, VirtualMachine, cpu, nd

VEC = ParamSpec("tensor", "float32", (4,))
T4 = TensorStructInfo([4], "float32")
OBJECT = ObjectStructInfo()


def add_kernel(a, b, out):
    out._host()[...] = a._host() + b._host()


def relu_kernel(a, out):
    out._host()[...] = np.maximum(a._host(), 0)


def scale_kernel(a, k, out):
    out._host()[...] = a._host() * k


SPECS = {
    "add": (KernelSpec("add", (VEC, VEC, VEC)), add_kernel),
    "relu": (KernelSpec("relu", (VEC, VEC)), relu_kernel),
    "scale": (KernelSpec("scale", (VEC, ParamSpec("scalar", "int64"), VEC)), scale_kernel),
}
GLOBALS = {name: GlobalVar(name) for name in SPECS}


def op(name):
    return Op.register(name)


class Lines:
    """Collects bindings."""

    def __init__(self):
        self.bindings = []

    def emit(self, value, info=OBJECT, name="v"):
        var = Var(f"{name}{len(self.bindings)}", info)
        self.bindings.append(VarBinding(var, value))
        return var

    def storage(self, nbytes=16):
        args = [ShapeExpr([nbytes]), PrimValue(0), DataTypeImm("uint8"), StringImm("global")]
        return self.emit(Call(op("relax.vm.alloc_storage"), args))

    def tensor(self, storage, offset=0, shape=(4,)):
        args = [storage, PrimValue(offset), ShapeExpr(list(shape)), DataTypeImm("float32")]
        return self.emit(Call(op("relax.vm.alloc_tensor"), args), TensorStructInfo(list(shape), "float32"))

    def kernel(self, name, *args):
        return self.emit(Call(GLOBALS[name], args))

    def kill(self, var):
        self.emit(Call(op("relax.vm.kill_object"), [var]))

    def seq(self, body):
        return SeqExpr([BindingBlock(self.bindings)], body)

    def function(self, params, body, name="main"):
        return Function(params, self.seq(body), OBJECT, attrs={"global_symbol": name})


def build(*functions, specs=SPECS):
    """An executable over Python kernels."""
    mod = IRModule({f.attrs["global_symbol"]: f for f in functions})
    from relaxish.runtime.bytecode.exec_builder import ExecBuilder

    builder = ExecBuilder()
    for spec, run in specs.values():
        builder.add_kernel(spec, run)
    names = {var.name_hint for var in mod.functions}
    assert names
    from relaxish.backend.vm import codegen

    table = {**{n: n for n in specs}, **{n: n for n in names}}
    for func in functions:
        builder.declare_function(func.attrs["global_symbol"], "vm")
    for func in functions:
        codegen._FunctionCodeGen(builder, table).emit(func.attrs["global_symbol"], func)
    return builder.get()


def simple_model():
    x = Var("x", T4)
    lines = Lines()
    bias = Constant(nd.array(np.full(4, 0.5, "float32")))
    s0 = lines.storage()
    t0 = lines.tensor(s0)
    lines.kernel("add", x, bias, t0)
    s1 = lines.storage()
    t1 = lines.tensor(s1)
    lines.kernel("relu", t0, t1)
    lines.kill(t0)
    lines.kill(s0)
    s2 = lines.storage()
    t2 = lines.tensor(s2)
    lines.kernel("add", t1, t1, t2)
    return x, lines, t2, t1


X = np.array([-1, 2, -3, 4], "float32")
EXPECTED = np.maximum(X + 0.5, 0) * 2


def test_straight_line_runs_and_plans():
    x, lines, out, _ = simple_model()
    func = lines.function([x], out)
    ex = build(func)
    np.testing.assert_array_equal(VirtualMachine(ex, cpu())["main"](X).numpy(), EXPECTED)
    plan = plan_function("main", ex.functions, ex.constants, ex.kernels, plan_inputs(func))
    assert [c.kernel for c in plan.calls] == ["add", "relu", "add"]
    assert [s.kind for s in plan.slots] == ["input", "output", "constant", "workspace"]
    assert plan.slots[3].nbytes == 128 and plan.symbol == "__relaxish_entry_main"
    assert plan.calls[0].operands[1].slot == 2 and plan.calls[2].operands[2].slot == 1
    assert type(plan).from_json(plan.to_json()) == plan


def test_results_tuple_alias_and_shared_block():
    x, lines, out, mid = simple_model()
    flat = lines.emit(Call(ExternFunc("vm.builtin.reshape"), [out, ShapeExpr([2, 2])]))
    func = lines.function([x], Tuple([flat, Tuple([x, mid]), ShapeExpr([7])]))
    ex = build(func)
    got = VirtualMachine(ex, cpu())["main"](X)
    assert got[0].shape == (2, 2) and got[2] == (7,)
    np.testing.assert_array_equal(got[1][0].numpy(), X)
    plan = plan_function("main", ex.functions, ex.constants, ex.kernels, plan_inputs(func))
    assert plan.result[0].shape == (2, 2) and plan.slots[plan.result[1][0].slot].kind == "input"
    assert plan.slots[plan.result[1][1].slot].kind == "output" and plan.result[2].value == (7,)


def test_if_branches():
    cond, x = Var("c", TensorStructInfo([], "bool")), Var("x", T4)
    yes, no = Lines(), Lines()
    t = yes.tensor(yes.storage())
    yes.kernel("add", x, x, t)
    u = no.tensor(no.storage())
    no.kernel("relu", x, u)
    outer = Lines()
    r = outer.emit(If(cond, yes.seq(t), no.seq(u)), T4)
    func = outer.function([cond, x], r)
    ex = build(func)
    main = VirtualMachine(ex, cpu())["main"]
    np.testing.assert_array_equal(main(np.array(True), X).numpy(), X + X)
    np.testing.assert_array_equal(main(np.array(False), X).numpy(), np.maximum(X, 0))
    with pytest.raises(NotPlannable, match=r"branches|read_if_cond"):
        plan_function("main", ex.functions, ex.constants, ex.kernels, plan_inputs(func))


def test_calls_between_functions_are_inlined_in_plans():
    a = Var("a", T4)
    sub = Lines()
    t = sub.tensor(sub.storage())
    sub.kernel("relu", a, t)
    helper = sub.function([a], t, "helper")
    x = Var("x", T4)
    lines = Lines()
    r = lines.emit(Call(GlobalVar("helper"), [x]), T4)
    r2 = lines.emit(Call(GlobalVar("helper"), [r]), T4)
    func = lines.function([x], r2)
    ex = build(helper, func)
    np.testing.assert_array_equal(VirtualMachine(ex, cpu())["main"](X).numpy(), np.maximum(X, 0))
    plan = plan_function("main", ex.functions, ex.constants, ex.kernels, plan_inputs(func))
    assert len(plan.calls) == 2


def test_closures_and_packed():
    a, b = Var("a", OBJECT), Var("b", OBJECT)
    inner = Lines()
    t = inner.tensor(inner.storage())
    inner.kernel("add", a, b, t)
    lifted = inner.function([a, b], t, "lifted")
    x = Var("x", T4)
    lines = Lines()
    closure = lines.emit(Call(op("relax.make_closure"), [GlobalVar("lifted"), Tuple([x])]))
    r = lines.emit(Call(op("relax.invoke_closure"), [closure, Tuple([x])]))
    func = lines.function([x], r)
    np.testing.assert_array_equal(VirtualMachine(build(lifted, func), cpu())["main"](X).numpy(), X + X)


def test_dynamic_scalars_and_call_tir_dyn():
    x = Var("x", T4)
    lines = Lines()
    t = lines.tensor(lines.storage())
    lines.emit(Call(op("relax.vm.call_tir_dyn"), [GLOBALS["scale"], Tuple([x, ShapeExpr([3])])]))
    func = lines.function([x], t)
    bad = build(func)
    with pytest.raises(Exception, match=r"argument|positional|scale"):
        VirtualMachine(bad, cpu())["main"](X)
    specs = {
        "scale": (
            KernelSpec("scale", (VEC, VEC, ParamSpec("scalar", "int64"))),
            lambda a, out, k: scale_kernel(a, k, out),
        )
    }
    lines = Lines()
    t = lines.tensor(lines.storage())
    lines.emit(Call(op("relax.vm.call_tir_dyn"), [GLOBALS["scale"], Tuple([x, t, ShapeExpr([3])])]))
    func = lines.function([x], t)
    ex = build(func, specs=specs)
    np.testing.assert_array_equal(VirtualMachine(ex, cpu())["main"](X).numpy(), X * 3)
    plan = plan_function("main", ex.functions, ex.constants, ex.kernels, plan_inputs(func))
    assert plan.calls[0].operands[2].kind == "int" and plan.calls[0].operands[2].value == 3


def test_copy_before_kill_keeps_alias_alive():
    x, lines, out, _ = simple_model()
    alias = lines.emit(out, T4)
    lines.kill(out)
    assert VirtualMachine(build(lines.function([x], alias)), cpu())["main"](X).shape == (4,)


def test_constants_of_all_kinds():
    lines = Lines()
    pair = lines.emit(Tuple([PrimValue(3), PrimValue(2.5), StringImm("s"), Constant(nd.array(np.int32(7)))]))
    got = lines.emit(TupleGetItem(pair, 3))
    func = lines.function([], Tuple([pair, got]))
    first, second = VirtualMachine(build(func), cpu())["main"]()
    assert first[:3] == (3, 2.5, "s") and int(second) == 7


def test_unlowered_operator_is_refused():
    lines = Lines()
    x = Var("x", T4)
    y = lines.emit(Call(op("relax.vmtest_not_lowered"), [x]))
    func = lines.function([x], y)
    with pytest.raises(VMCodeGenError, match="vmtest_not_lowered was not lowered"):
        generate(IRModule({"main": func}))


def test_plan_needs_static_tensors():
    p = Var("n", PrimStructInfo("int64"))
    with pytest.raises(NotPlannable, match="not a tensor"):
        plan_inputs(Lines().function([p], p))
    q = Var("q", TensorStructInfo(ndim=2, dtype="float32"))
    with pytest.raises(NotPlannable, match="static shape"):
        plan_inputs(Lines().function([q], q))


@pytest.mark.parametrize("seed", range(20))
def test_workspace_packing_never_overlaps_live_blocks(seed):
    rng = np.random.default_rng(seed)
    blocks = []
    for _ in range(40):
        first = int(rng.integers(0, 30))
        blocks.append(_Block("alloc", 0, int(rng.integers(1, 5000)), first, first + int(rng.integers(0, 8))))
    total = _pack(blocks)
    bound = 0
    for step in range(40):
        bound = max(bound, sum(-(-b.nbytes // 64) * 64 for b in blocks if b.first <= step <= b.last))
    assert bound <= total <= 2 * bound
    for i, a in enumerate(blocks):
        assert a.offset % 64 == 0 and a.offset + a.nbytes <= total
        for b in blocks[:i]:
            if a.first <= b.last and b.first <= a.last:
                assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
