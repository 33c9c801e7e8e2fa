"""Reading what a tensor is: the programs that ``R.inspect.*`` is legalised to, and what they answer."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.ir import assert_structural_equal
from relaxish.op.inspect_getters import GETTERS, field_getter, field_reader
from relaxish.relax import transform
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T


def test_a_scalar_field():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(ndim=-1)):
            return x.dtype.bits

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor) -> R.Prim("uint8"):
            cls = Expected
            gv = cls._get_tensor_dtype_bits(x)
            return gv

        @T.prim_func(private=True)
        def _get_tensor_dtype_bits(dlpack_handle: T.handle) -> T.uint8:
            T.func_attr({"tir.is_host": True, "tir.is_scheduled": True})
            value: T.uint8 = T.tvm_struct_get(dlpack_handle, 0, 6, dtype="uint8")
            T.ret(value)

    after = transform.LegalizeOps()(Before)
    (name,) = [v.name_hint for v in after.functions if v.name_hint != "main"]
    assert name == "_get_tensor_dtype_bits"
    assert_structural_equal(after[name], Expected[name])
    assert after["main"].ret_struct_info.dtype == "uint8"


def test_programs_are_known_again():
    for name in GETTERS:
        assert field_reader(field_getter(name)) == f"relax.run.{name}"
        assert field_reader(field_getter(name).with_attr("global_symbol", "f")) == f"relax.run.{name}"
        assert field_reader(field_getter(name).with_attr("op_pattern", 0)) == f"relax.run.{name}"

    @T.prim_func
    def other(x: T.Buffer((4,), "float32")):
        x[0] = T.float32(0)

    assert field_reader(other) is None
    extent = field_getter("tensor_shape_i")
    assert [p.name for p in extent.params] == ["dlpack_handle", "axis"] and extent.ret_type.dtype == "int64"


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_answers(mode):
    @I.ir_module
    class Asks:
        @R.function
        def main(x: R.Tensor(ndim=-1), axis: R.Prim("int64")):
            a = x.dtype.type_code
            b = x.dtype.bits
            c = x.dtype.lanes
            d = x.ndim
            e = x.shape[axis]
            f = x.strides[axis]
            g = x.byte_offset
            return (a, b, c, d, e, f, g)

    for pipeline in (None, "default_build", "default", "zero"):
        built = relaxish.build(Asks, "llvm", relax_pipeline=pipeline, exec_mode=mode)
        vm = relaxish.VirtualMachine(built, relaxish.cpu())
        x = relaxish.nd.array(np.zeros((3, 4, 5), "float16"))
        assert [int(v) for v in vm["main"](x, 1)] == [2, 16, 1, 3, 4, 5, 0]
        with pytest.raises(relaxish.TVMError, match="larger than the tensor's dimensionality"):
            vm["main"](x, 3)


def test_known_values_are_filled_in():
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor([16, 4], "float16"))
    with builder.function("main", [x]):
        extent = builder.normalize(x.shape[1])
        assert_structural_equal(extent, relax.PrimValue(4))
        builder.emit_func_output(extent)
