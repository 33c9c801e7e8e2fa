"""LowerDeviceStorageAccessInfo: memories that a user describes by a global function."""

import pytest

import relaxish
from relaxish import tir
from relaxish.ir import IRModule, assert_structural_equal, make_node

SCOPE = "global.drawer"
HEAD = tir.call_extern("handle", "head_of_drawer")


def lower(func):
    return tir.transform.LowerDeviceStorageAccessInfo()(IRModule({"main": func}))["main"]


@pytest.fixture
def described():
    def about():
        return make_node("MemoryInfo", unit_bits=64, max_simd_bits=64, max_num_bits=1 << 12, head_address=HEAD)

    relaxish.register_func(f"tvm.info.mem.{SCOPE}", about, override=True)
    yield
    relaxish.runtime.registry.remove_global_func(f"tvm.info.mem.{SCOPE}")


def pointer_of(dtype):
    """A program that asks for the address of element 6 of a buffer in the memory."""
    data = tir.Var("drawer", relaxish.ir.PointerType(relaxish.ir.PrimType("float32"), SCOPE))
    kind = tir.call_intrin("float32", "tir.type_annotation")
    access = tir.call_intrin(dtype, "tir.tvm_access_ptr", kind, data, 6, 2, 1)
    body = tir.Evaluate(tir.call_extern("int32", "use", access))
    return tir.PrimFunc([], tir.Allocate(data, "float32", [16], tir.IntImm("bool", 1), body))


def test_the_memory_begins_where_its_description_says(described):
    made = lower(pointer_of("handle")).body
    assert isinstance(made, tir.LetStmt)
    assert_structural_equal(made.value, HEAD)
    assert "T.address_of" in str(made.body.value.args[1])


def test_addresses_of_other_types_count_units(described):
    (_, address) = lower(pointer_of("int32")).body.body.value.args
    assert relaxish.arith.Analyzer().simplify(address).value == 3


def test_memories_nobody_described_are_an_error():
    with pytest.raises(relaxish.TVMError, match=f"Cannot find memory info of {SCOPE}"):
        lower(pointer_of("handle"))
