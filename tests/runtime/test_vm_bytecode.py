"""The interpreter loop and the builtins, on hand-written programs."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish.runtime import ShapeTuple, VirtualMachine, cpu, get_global_func, nd, register_func, remove_global_func
from relaxish.runtime.bytecode.builtins import VMClosure
from relaxish.runtime.bytecode.exec_builder import ExecBuilder
from relaxish.support.errors import InternalError, RelaxishError


@pytest.fixture(autouse=True, scope="module")
def packed():
    register_func("test.rt.add", lambda a, b: nd.array(a.numpy() + b.numpy()))
    register_func("test.rt.mul", lambda a, b: nd.array(a.numpy() * b.numpy()))
    yield
    remove_global_func("test.rt.add")
    remove_global_func("test.rt.mul")


def test_straight_line_and_text():
    ib = ExecBuilder()
    with ib.function("f", num_inputs=2):
        ib.emit_call("test.rt.add", [ib.r(0), ib.r(1)], ib.r(2))
        ib.emit_call("test.rt.mul", [ib.r(2), ib.c(ib.convert_constant(np.float32([2, 2])).value)], ib.r(3))
        ib.emit_ret(ib.r(3))
    ex = ib.get()
    out = VirtualMachine(ex, cpu())["f"](np.float32([1, 2]), np.float32([3, 4]))
    assert out.numpy().tolist() == [8, 12]
    assert "@f:" in ex.as_text() and "test.rt.add" in ex.as_text() and "ret   %3" in ex.as_text()
    assert 'ib.emit_call("test.rt.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))' in ex.as_python()
    assert ex.stats().splitlines() == [
        "Relax VM executable statistics:",
        "  Constant pool (# 1): [[2]]",
        "  Globals (#3): [f, test.rt.add, test.rt.mul]",
    ]


def test_if_and_goto():
    ib = ExecBuilder()
    with ib.function("choose", num_inputs=3):
        ib.emit_call("vm.builtin.read_if_cond", [ib.r(0)], ib.r(3))
        ib.emit_if(ib.r(3), 3)
        ib.emit_call("test.rt.add", [ib.r(1), ib.r(2)], ib.r(4))
        ib.emit_goto(2)
        ib.emit_call("test.rt.mul", [ib.r(1), ib.r(2)], ib.r(4))
        ib.emit_ret(ib.r(4))
    choose = VirtualMachine(ib.get(), cpu())["choose"]
    a, b = np.float32([3]), np.float32([5])
    assert choose(np.array(True), a, b).numpy() == 8
    assert choose(np.array(False), a, b).numpy() == 15
    assert choose(True, a, b).numpy() == 8


def test_recursion_and_calls_between_functions():
    register_func("test.rt.less", lambda a, b: bool(a < b), override=True)
    register_func("test.rt.sub", lambda a, b: a - b, override=True)
    register_func("test.rt.times", lambda a, b: a * b, override=True)
    ib = ExecBuilder()
    with ib.function("fact", num_inputs=1):
        ib.emit_call("test.rt.less", [ib.r(0), 2], ib.r(1))
        ib.emit_if(ib.r(1), 2)
        ib.emit_ret(ib.imm(1))
        ib.emit_call("test.rt.sub", [ib.r(0), 1], ib.r(2))
        ib.emit_call("fact", [ib.r(2)], ib.r(3))
        ib.emit_call("test.rt.times", [ib.r(0), ib.r(3)], ib.r(4))
        ib.emit_ret(ib.r(4))
    # the constant return above took two instructions, so the false branch is one further
    from relaxish.runtime.bytecode.instructions import IfOp

    ib.functions[ib.get_function("fact")].code[1] = IfOp(1, 3)
    assert VirtualMachine(ib.get(), cpu())["fact"](10) == 3628800


def test_closures():
    ib = ExecBuilder()
    with ib.function("inner", num_inputs=2):
        ib.emit_call("test.rt.mul", [ib.r(0), ib.r(1)], ib.r(2))
        ib.emit_ret(ib.r(2))
    with ib.function("make", num_inputs=1):
        ib.emit_call("vm.builtin.make_closure", [ib.f("inner"), ib.r(0)], ib.r(1))
        ib.emit_ret(ib.r(1))
    with ib.function("both", num_inputs=2):
        ib.emit_call("make", [ib.r(0)], ib.r(2))
        ib.emit_call("vm.builtin.invoke_closure", [ib.vm_state(), ib.r(2), ib.r(1)], ib.r(3))
        ib.emit_ret(ib.r(3))
    vm = VirtualMachine(ib.get(), cpu())
    closure = vm["make"](np.float32([3]))
    assert isinstance(closure, VMClosure)
    assert vm.invoke_closure(closure, np.float32([7])).numpy() == 21
    assert vm["both"](np.float32([3]), np.float32([5])).numpy() == 15
    assert vm.invoke_closure(vm["inner"], np.float32([2]), np.float32([5])).numpy() == 10


def test_match_and_make_shape():
    ib = ExecBuilder()
    with ib.function("f", param_names=["x", "y"]):
        ib.emit_call("vm.builtin.alloc_shape_heap", [ib.vm_state(), 2], ib.r(2))
        ib.emit_call("vm.builtin.check_tensor_info", [ib.r(0), 2, "float32", "param x:"])
        ib.emit_call("vm.builtin.match_shape", [ib.r(0), ib.r(2), 2, 1, 0, 1, 1, "param x:"])
        ib.emit_call("vm.builtin.match_shape", [ib.r(1), ib.r(2), 2, 3, 1, 0, 4, "param y:"])
        ib.emit_call("vm.builtin.make_shape", [ib.r(2), 3, 1, 1, 0, 9, 1, 0], ib.r(3))
        ib.emit_ret(ib.r(3))
    f = VirtualMachine(ib.get(), cpu())["f"]
    x = np.zeros((2, 3), "float32")
    assert f(x, np.zeros((3, 4))) == ShapeTuple([3, 9, 2])
    with pytest.raises(RuntimeError, match=r"param y:.*shape\[1\].*constant. Got 5, expected 4"):
        f(x, np.zeros((3, 5)))
    with pytest.raises(RuntimeError, match=r"param y:.*previous.*Got 2, expected 3"):
        f(x, np.zeros((2, 4)))
    with pytest.raises(ValueError, match="param x: expect Tensor with ndim 2 but get 1"):
        f(np.zeros(2, "float32"), x)
    with pytest.raises(ValueError, match="param x: expect Tensor with dtype float32 but get float64"):
        f(np.zeros((2, 3)), x)
    with pytest.raises(TypeError, match="param x: expect a Tensor but get runtime.BoxInt"):
        f(1, x)


def test_small_builtins():
    def call(name, *args):
        return get_global_func("vm.builtin." + name)(*args)

    tensor = nd.array(np.arange(6, dtype="int64"))
    assert call("reshape", tensor, ShapeTuple([2, 3])).shape == (2, 3)
    with pytest.raises(ValueError, match="cannot reshape"):
        call("reshape", tensor, ShapeTuple([4]))
    assert call("tensor_to_shape", tensor) == (0, 1, 2, 3, 4, 5) and call("shape_of", tensor) == (6,)
    assert call("tuple_getitem", call("make_tuple", 1, 2), 1) == 2 and call("null_value") is None
    call("check_tuple_info", (1, 2), 2, "t")
    with pytest.raises(ValueError, match="2 elements"):
        call("check_tuple_info", (1, 2), 3, "t")
    with pytest.raises(TypeError):
        call("check_prim_value_info", "x", "int64", "p")
    with pytest.raises(TypeError):
        call("check_func_info", 3, "f")
    seen = []
    call("call_tir_dyn", lambda *a: seen.append(a), tensor, ShapeTuple([2, 3]))
    assert seen == [(tensor, 2, 3)]
    assert call("to_device", tensor, 1, 0) is tensor


def test_nested_tuples_and_shapes_as_arguments():
    ib = ExecBuilder()
    with ib.function("f", num_inputs=1):
        ib.emit_call("vm.builtin.tuple_getitem", [ib.r(0), 1], ib.r(1))
        ib.emit_ret(ib.r(1))
    f = VirtualMachine(ib.get(), cpu())["f"]
    assert f([np.zeros(1), (np.ones(2), "s")])[1] == "s"
    assert f([3, 4]) == 4


def test_errors_of_the_machine():
    ib = ExecBuilder()
    with ib.function("f", num_inputs=0):
        ib.emit_call("no.such.function", [], ib.r(0))
        ib.emit_ret(ib.r(0))
    with pytest.raises(RelaxishError, match=r"Cannot find PackedFunc no\.such\.function"):
        VirtualMachine(ib.get(), cpu())
    with pytest.raises(ValueError, match="Expect the rt_mod to be"):
        VirtualMachine(3, cpu())
    empty = ExecBuilder().get()
    assert VirtualMachine(empty, [cpu(0), cpu(1)]).devices == [cpu(0), cpu(1)]
    with pytest.raises(TypeError, match="dev is expected"):
        VirtualMachine(empty, "cpu")
    with pytest.raises(TypeError, match="string or dictionary"):
        VirtualMachine(empty, cpu(), memory_cfg=3)
    bad = ExecBuilder()
    with bad.function("g"):
        bad.emit_goto(5)
    with pytest.raises(RelaxishError, match="leaves the function"):
        bad.get()
    with pytest.raises(ValueError, match="emit should happen in a function scope"):
        bad.emit_ret(bad.r(0))


def test_registry():
    @register_func("test.rt.decorated")
    def func():
        return 5

    for error in (ValueError, InternalError):
        with pytest.raises(error, match="already registered"):
            register_func("test.rt.decorated", func)
    assert get_global_func("test.rt.decorated")() == 5
    assert get_global_func("test.rt.absent", allow_missing=True) is None
    remove_global_func("test.rt.decorated")
    with pytest.raises(ValueError, match="Cannot find global function"):
        get_global_func("test.rt.decorated")
