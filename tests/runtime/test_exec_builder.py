"""ExecBuilder: constants, register numbering, checks, and the text forms of what it builds."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
import relaxish.relax.testing.vm  # registers the packed functions
from relaxish import relax
from relaxish.relax import exec_builder
from relaxish.runtime import ShapeTuple, VirtualMachine, cpu, nd


def test_registers_are_numbered_in_order_of_definition():
    texts = []
    for first, second in ((100, 50), (2, 3)):
        ib = relax.ExecBuilder()
        with ib.function("f", num_inputs=2):
            ib.emit_call("test.vm.add", args=[ib.r(0), ib.r(1)], dst=ib.r(first))
            ib.emit_call("test.vm.mul", args=[ib.r(1), ib.r(first)], dst=ib.r(second))
            ib.emit_ret(ib.r(second))
        ex = ib.get()
        texts.append((ex.as_text(), ex.as_python()))
    assert texts[0] == texts[1]
    assert texts[0][0] == (
        "@f:\n"
        "  call  test.vm.add      in: %0, %1       dst: %2\n"
        "  call  test.vm.mul      in: %1, %2       dst: %3\n"
        "  ret   %3\n\n"
        "@test.vm.add packed_func;\n\n"
        "@test.vm.mul packed_func;\n\n"
    )
    assert texts[0][1] == (
        "ib = rx.Builder()\n"
        'with ib.function("f", num_inputs=2):\n'
        '    ib.emit_call("test.vm.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))\n'
        '    ib.emit_call("test.vm.mul", args=[ib.r(1), ib.r(2)], dst=ib.r(3))\n'
        "    ib.emit_ret(ib.r(3))\n"
    )


def test_all_operand_kinds_and_jumps_as_text():
    ib = relax.ExecBuilder()
    with ib.function("g", num_inputs=1):
        ib.emit_call("vm.builtin.read_if_cond", args=[ib.r(0)], dst=ib.r(1))
        ib.emit_if(ib.r(1), 3)
        ib.emit_call("test.vm.move", args=[ib.c(ib.convert_constant("s").value), ib.imm(-3), ib.f("test.vm.add")])
        ib.emit_goto(2)
        ib.emit_call("test.vm.move", args=[ib.vm_state()], dst=ib.r(7))
        ib.emit_ret(ib.r(0))
    lines = ib.get().as_text().splitlines()[1:7]
    assert lines == [
        "  call  vm.builtin.read_if_cond in: %0           dst: %1",
        "  If    %1, 3",
        "  call  test.vm.move     in: c[0], i-3, f[test.vm.add] dst: %void",
        "  goto  2",
        "  call  test.vm.move     in: %vm          dst: %2",
        "  ret   %0",
    ]


def test_equal_constants_share_an_entry():
    ib = relax.ExecBuilder()
    assert ib.convert_constant("a") == ib.convert_constant("a") != ib.convert_constant("b")
    assert ib.convert_constant(ShapeTuple([1, 2])) == ib.convert_constant(ShapeTuple([1, 2]))
    assert ib.convert_constant(ShapeTuple([1, 2])) != ib.convert_constant(ShapeTuple([1, 3]))
    arrays = [
        nd.array(np.array(v, d))
        for v, d in (([1, 2], "int32"), ([1, 2], "int32"), ([1, 3], "int32"), ([1, 2], "int64"))
    ]
    places = [ib.convert_constant(a) for a in arrays]
    assert places[0] == places[1] and len({p.value for p in places}) == 3
    stats = ib.get().stats()
    assert stats == (
        "Relax VM executable statistics:\n"
        '  Constant pool (# 7): ["a", "b", shapetuple[1, 2], shapetuple[1, 3], [2], [2], [2]]\n'
        "  Globals (#0): []\n"
    )


def test_errors():
    ib = relax.ExecBuilder()
    with ib.function("f", num_inputs=1):
        ib.emit_call("test.vm.add", args=[ib.r(0), ib.r(2)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    with pytest.raises(relaxish.TVMError, match=r"r\(2\).*never defined"):
        ib.get()
    ib = relax.ExecBuilder()
    with ib.function("f", num_inputs=1):
        ib.emit_call("test.vm.move", args=[ib.c(3)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    with pytest.raises(relaxish.TVMError, match="constant index 3"):
        ib.get()
    with pytest.raises(relaxish.TVMError, match="already defined"), ib.function("f", num_inputs=1):
        pass
    with pytest.raises(ValueError, match="function scope"):
        ib.emit_ret(ib.r(0))


def test_declared_kinds_and_special_registers():
    assert exec_builder.VMFuncKind.VM_FUNC == 1 and exec_builder.SpecialReg.VM_STATE != exec_builder.SpecialReg.VOID_ARG
    ib = relax.ExecBuilder()
    ib.declare_function("g", exec_builder.VMFuncKind.VM_FUNC)
    with ib.function("f", num_inputs=1):
        ib.emit_call("g", args=[ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    with ib.function("g", param_names=["x"]):
        ib.emit_call("test.vm.mul", args=[ib.r(0), nd.array(np.float32(3))], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    machine = VirtualMachine(ib.get(), cpu())
    assert machine["f"](np.float32([2])).numpy() == 6
    machine.set_input("g", x=2.0)
    machine.invoke_stateful("g")
    assert machine.get_outputs("g").numpy() == 6
