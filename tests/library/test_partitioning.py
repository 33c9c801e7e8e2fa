"""Which parts of a graph go to which library."""

from __future__ import annotations

import pytest

from programs.attention import Stacked
from relaxish import TVMError, relax, tir
from relaxish.ir import assert_structural_equal
from relaxish.relax.backend import get_patterns_with_prefix
from relaxish.relax.backend.cuda.cublas import partition_for_cublas
from relaxish.relax.backend.cuda.cudnn import partition_for_cudnn
from relaxish.relax.backend.cuda.cutlass import is_shape_valid_for_cutlass_matmul, partition_for_cutlass
from relaxish.relax.backend.rocm.hipblas import partition_for_hipblas
from relaxish.script import ir as I
from relaxish.script import relax as R


def chosen(mod):
    """The composite names of all functions that are marked for a code generator, in order of name."""
    names = []
    for func in mod.functions.values():
        if isinstance(func, relax.Function) and "Codegen" in func.attrs:
            inner = func.body.blocks[0].bindings[0].value
            names.append(str(inner.attrs["Composite"]))
    return sorted(names)


def product(x, w, dtype="float16", *, transposed=False, bias=None, activation=None, out_dtype=None, axes=None):
    """A module with one matrix product and what may follow it."""
    symbols = {name: tir.Var(name, "int64") for name in ("n", "b", "k")}
    x, w = ([symbols.get(d, d) for d in shape] for shape in (x, w))
    bb = relax.BlockBuilder()
    a, b = relax.Var("x", R.Tensor(x, dtype)), relax.Var("w", R.Tensor(w, dtype))
    params = [a, b]
    if bias is not None:
        params.append(relax.Var("b", R.Tensor(bias, out_dtype or dtype)))
    with bb.function("main", params):
        with bb.dataflow():
            rhs = bb.emit(relax.op.permute_dims(b, axes)) if transposed else b
            out = bb.emit(relax.op.matmul(a, rhs, out_dtype or "void"))
            if bias is not None:
                out = bb.emit(relax.op.add(out, params[2]))
            if activation is not None:
                out = bb.emit(getattr(relax.op.nn, activation)(out))
            out = bb.emit_output(out)
        bb.emit_func_output(out)
    return bb.get()


def test_pattern_tables():
    names = [p.name for p in get_patterns_with_prefix("cublas")]
    assert names == [
        "cublas.matmul_transposed_multiply", "cublas.matmul_transposed_dequantize", "cublas.matmul_transposed_bias_gelu",
        "cublas.matmul_transposed_bias_relu", "cublas.matmul_transposed_bias", "cublas.matmul_transposed",
        "cublas.matmul_bias_gelu", "cublas.matmul_bias_relu", "cublas.matmul_bias", "cublas.matmul",
    ]  # fmt: skip
    assert len(get_patterns_with_prefix("hipblas")) == 8
    assert [p.name for p in get_patterns_with_prefix("cudnn")] == [
        "cudnn.attention.SBN3H", "cudnn.attention.BS3NH", "cudnn.conv2d.nhwc_ohwi_bias_relu", "cudnn.conv2d.nhwc_ohwi_bias",
        "cudnn.conv2d.nhwc_ohwi",
    ]  # fmt: skip
    plain = {p.name for p in get_patterns_with_prefix("cutlass") if "residual" not in p.name}
    assert len(plain) == 24 and {"cutlass.rms_norm", "cutlass.decode_matmul_cast_bias_gelu"} <= plain


@pytest.mark.parametrize(
    ("mod", "name"),
    [
        (product((4, 8), (8, 16)), "cublas.matmul"),
        (product((4, 8), (16, 8), transposed=True), "cublas.matmul_transposed"),
        (product((2, 4, 8), (8, 16), bias=(16,), activation="relu"), "cublas.matmul_bias_relu"),
        (
            product((4, 8), (16, 8), transposed=True, bias=(1, 16), activation="gelu"),
            "cublas.matmul_transposed_bias_gelu",
        ),
        (product((3, 4, 8), (3, 16, 8), "bfloat16", transposed=True, axes=[0, 2, 1]), "cublas.matmul_transposed"),
        (product(("n", 8), (8, 16), "float32"), "cublas.matmul"),
        (product(("b", 4, 8), ("b", 8, 16)), "cublas.matmul"),
        (product((4, 8), (8, 16), "int8", out_dtype="int32"), "cublas.matmul"),
        (
            product((16, 32), (32, 32), "float8_e4m3fn", transposed=True, out_dtype="float16"),
            "cublas.matmul_transposed",
        ),
    ],
)
def test_products_for_cublas(mod, name):
    assert chosen(partition_for_cublas(mod)) == [name]


@pytest.mark.parametrize(
    "mod",
    [
        product((4, 8), (8, 16), "float64"),
        product((4, "k"), ("k", 16)),  # the reduction must be known
        product((4, 6), (6, 16), "int8", out_dtype="int32"),  # not a multiple of 4
        product((4, 8), (8, 16), "int8"),  # sums of int8 products are int32
        product((1, 8), (3, 8, 16)),  # one matrix for a batch
        product((2, 1, 4, 8), (1, 2, 8, 16)),  # as many matrices, but not of one stride
        product((16, 32), (32, 32), "float8_e4m3fn", out_dtype="float16"),  # must be transposed
        product((8,), (8, 16)),  # a vector
    ],
)
def test_products_that_cublas_is_not_asked_for(mod):
    assert chosen(partition_for_cublas(mod)) == []


def test_a_bias_that_is_no_vector_stays_outside():
    for bias in ((4, 16), (1,), ()):
        assert chosen(partition_for_cublas(product((4, 8), (8, 16), bias=bias))) == ["cublas.matmul"]


def test_only_transposes_of_matrices_go_along():
    mod = product((8, 8, 8), (8, 8, 8), transposed=True, axes=[2, 1, 0])
    assert chosen(partition_for_cublas(mod)) == ["cublas.matmul"]  # the permutation stays outside


def test_hipblas_takes_float16_only():
    assert chosen(partition_for_hipblas(product((4, 8), (8, 16), bias=(16,)))) == ["hipblas.matmul_bias"]
    assert chosen(partition_for_hipblas(product((4, 8), (8, 16), "float32"))) == []


def test_the_partitioned_module():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((4, 8), "float16"), w: R.Tensor((8, 16), "float16"), b: R.Tensor((16,), "float16")
        ) -> R.Tensor((4, 16), "float16"):
            with R.dataflow():
                y = R.matmul(x, w)
                z = R.add(y, b)
                R.output(z)
            return z

    @I.ir_module
    class Expected:
        @R.function
        def fused_relax_matmul_relax_add_cublas(
            x: R.Tensor((4, 8), "float16"), w: R.Tensor((8, 16), "float16"), b: R.Tensor((16,), "float16")
        ) -> R.Tensor((4, 16), "float16"):
            R.func_attr({"Codegen": "cublas"})

            @R.function
            def local_func(
                x_1: R.Tensor((4, 8), "float16"), w_1: R.Tensor((8, 16), "float16"), b_1: R.Tensor((16,), "float16")
            ) -> R.Tensor((4, 16), "float16"):
                R.func_attr({"Composite": "cublas.matmul_bias"})
                with R.dataflow():
                    lv = R.matmul(x_1, w_1)
                    gv = R.add(lv, b_1)
                    R.output(gv)
                return gv

            output = local_func(x, w, b)
            return output

        @R.function
        def main(
            x: R.Tensor((4, 8), "float16"), w: R.Tensor((8, 16), "float16"), b: R.Tensor((16,), "float16")
        ) -> R.Tensor((4, 16), "float16"):
            cls = Expected
            with R.dataflow():
                gv = cls.fused_relax_matmul_relax_add_cublas(x, w, b)
                R.output(gv)
            return gv

    assert_structural_equal(partition_for_cublas(Before), Expected)


def test_scaled_8_bit_products():
    @I.ir_module
    class Scaled:
        @R.function
        def main(
            x: R.Tensor((32, 64), "float8_e4m3fn"),
            w: R.Tensor((16, 64), "float8_e4m3fn"),
            sx: R.Tensor((1,), "float32"),
            sw: R.Tensor((1,), "float32"),
        ):
            with R.dataflow():
                wt = R.permute_dims(w)
                y = R.matmul(x, wt, out_dtype="float32")
                s = R.multiply(sx, sw)
                z = R.multiply(y, s)
                out = R.astype(z, "float16")
                R.output(out)
            return out

    assert chosen(partition_for_cublas(Scaled)) == ["cublas.matmul_transposed_multiply"]


def test_values_used_elsewhere_are_not_hidden():
    @I.ir_module
    class Shared:
        @R.function
        def main(x: R.Tensor((4, 8), "float16"), w: R.Tensor((8, 16), "float16"), b: R.Tensor((16,), "float16")):
            with R.dataflow():
                y = R.matmul(x, w)
                z = R.add(y, b)
                s = R.exp(y)
                R.output(z, s)
            return (z, s)

    assert chosen(partition_for_cublas(Shared)) == ["cublas.matmul"]


@pytest.mark.parametrize(
    ("layouts", "dtype", "names"),
    [
        (("NHWC", "OHWI"), "float16", ["cudnn.conv2d.nhwc_ohwi_bias_relu"]),
        (("NCHW", "OIHW"), "float32", ["cudnn.conv2d.nhwc_ohwi_bias_relu"]),
        (("NHWC", "HWIO"), "float16", []),
        (("NCHW", "OIHW"), "int8", []),
    ],
)
def test_convolutions_for_cudnn(layouts, dtype, names):
    data, kernel = layouts
    sizes = {"N": 1, "C": 8, "H": 6, "W": 6}
    kernel_sizes = {"O": 4, "I": 8, "H": 3, "W": 3}
    bb = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor([sizes[c] for c in data], dtype))
    w = relax.Var("w", R.Tensor([kernel_sizes[c] for c in kernel], dtype))
    b = relax.Var("b", R.Tensor((1, 1, 1, 4) if data == "NHWC" else (1, 4, 1, 1), dtype))
    with bb.function("main", [x, w, b]):
        with bb.dataflow():
            y = bb.emit(relax.op.nn.conv2d(x, w, data_layout=data, kernel_layout=kernel))
            z = bb.emit(relax.op.add(y, b))
            out = bb.emit_output(relax.op.nn.relu(z))
        bb.emit_func_output(out)
    assert chosen(partition_for_cudnn(bb.get())) == names


@pytest.mark.parametrize(
    ("partition", "name"),
    [(partition_for_cudnn, "cudnn.attention.BS3NH"), (partition_for_cutlass, "cutlass.stacked_attention")],
)
def test_stacked_attention_gets_a_workspace(partition, name):
    made = partition(Stacked)
    assert chosen(made) == [name]
    (func,) = [f for f in made.functions.values() if "Codegen" in f.attrs]
    assert int(func.attrs["WorkspaceSize"]) == 2 * 16 * 4 * 16 * 2  # the size of the result
    first = made["main"].body.blocks[0].bindings[0]
    assert first.var.name_hint == "workspace_main" and first.value.op.name == "relax.builtin.alloc_tensor"


@I.ir_module
class WrittenOut:
    @R.function
    def main(
        q: R.Tensor((2, 5, 4, 8), "float32"), k: R.Tensor((2, 7, 4, 8), "float32"), v: R.Tensor((2, 7, 4, 8), "float32")
    ):
        with R.dataflow():
            q1 = R.reshape(R.permute_dims(q, [0, 2, 1, 3]), (8, 5, 8))
            k1 = R.permute_dims(R.reshape(R.permute_dims(k, [0, 2, 1, 3]), (8, 7, 8)), [0, 2, 1])
            v1 = R.reshape(R.permute_dims(v, [0, 2, 1, 3]), (8, 7, 8))
            scores = R.multiply(R.matmul(q1, k1), R.const(0.25, "float32"))
            weights = R.nn.softmax(scores, axis=-1)
            mixed = R.reshape(R.matmul(weights, v1), (2, 4, 5, 8))
            out = R.permute_dims(mixed, [0, 2, 1, 3])
            R.output(out)
        return out


def test_attention_written_out_is_recognised():
    made = partition_for_cutlass(WrittenOut)
    assert chosen(made) == ["cutlass.attention"]
    (func,) = [f for f in made.functions.values() if "Codegen" in f.attrs]
    (call,) = [b.value for b in func.body.blocks[0].bindings[0].value.body.blocks[0].bindings]
    assert call.op.name == "relax.nn.attention" and float(call.attrs.scale) == 0.25
    plain = partition_for_cutlass(WrittenOut, annotate_codegen=False)
    assert any(f.attrs.get("Composite") == "cutlass.attention" for f in plain.functions.values())


def test_residuals_for_cutlass():
    @I.ir_module
    class Block:
        @R.function
        def main(
            x: R.Tensor((1, 8, 8, 16), "float16"),
            w: R.Tensor((16, 3, 3, 16), "float16"),
            b: R.Tensor((1, 1, 1, 16), "float16"),
        ):
            with R.dataflow():
                y = R.nn.conv2d(x, w, padding=(1, 1), data_layout="NHWC", kernel_layout="OHWI")
                z = R.nn.relu(R.add(y, b))
                s = R.add(z, x)
                out = R.nn.relu(s)
                R.output(out)
            return out

    assert chosen(partition_for_cutlass(Block)) == ["cutlass.conv2d_bias_relu_residual_add_relu"]


def test_batches_that_cutlass_walks_through():
    valid = is_shape_valid_for_cutlass_matmul
    n = tir.Var("n", "int64")
    assert valid([4, 8], [8, 16]) and valid([3, 4, 8], [8, 16]) and valid([4, 8], [3, 8, 16])
    assert valid([n, 4, 8], [n, 8, 16])
    assert not valid([2, 1, 4, 8], [2, 3, 8, 16])
    assert not valid([4, n], [n, 16])


def test_calls_without_a_library_fail_clearly():
    with pytest.raises(TVMError, match="relax.ext.hipblas"):
        relax.transform.RunCodegen()(partition_for_hipblas(product((4, 8), (8, 16))))


@I.ir_module
class Small:
    @R.function
    def main(x: R.Tensor((1, 4, 8, 8), "float32"), y: R.Tensor((1, 4, 8, 8), "float32")):
        with R.dataflow():
            a = R.add(x, y)
            b = R.abs(a)
            c = R.nn.relu(b)
            R.output(c)
        return c


def composites(mod):
    """Names of the composite calls inside the functions for a code generator."""
    out = []
    for func in mod.functions.values():
        if isinstance(func, relax.Function) and "Codegen" in func.attrs:
            values = [b.value for block in func.body.blocks for b in block.bindings]
            out += [str(v.attrs["Composite"]) for v in values if isinstance(v, relax.Function)]
    return out


def test_nnapi_by_feature_level():
    from relaxish.relax.backend.contrib.nnapi import min_feature_level, partition_for_nnapi

    assert composites(partition_for_nnapi(Small)) == ["nnapi.add", "nnapi.abs", "nnapi.relu"]
    assert composites(partition_for_nnapi(Small, feature_level=1)) == ["nnapi.add", "nnapi.relu"]
    assert min_feature_level("nnapi.batch_matmul") == 6


def test_coreml():
    from relaxish.relax.backend.metal.coreml import partition_for_coreml

    assert sorted(composites(partition_for_coreml(Small))) == ["coreml.add", "coreml.nn.relu"]


def test_openclml_needs_its_code_generator():
    from relaxish.relax.backend.adreno import OpenCLMLOffLoad
    from relaxish.relax.backend.adreno.clml import clml_pattern_table

    names = [p.name for p in clml_pattern_table()]
    assert len(names) == 86 and names[0].startswith("openclml.clip.tuple.bn.bias") and names[-1] == "openclml.reshape"
    with pytest.raises(TVMError, match="relax.ext.openclml"):
        OpenCLMLOffLoad()(Small)


def test_batch_norm_gets_an_end():
    from relaxish.relax.backend.adreno.clml import append_reshape_to_batch_norm

    @I.ir_module
    class Norm:
        @R.function
        def main(
            x: R.Tensor((1, 4, 8, 8), "float32"),
            g: R.Tensor((4,), "float32"),
            b: R.Tensor((4,), "float32"),
            m: R.Tensor((4,), "float32"),
            v: R.Tensor((4,), "float32"),
        ):
            with R.dataflow():
                norm = R.nn.batch_norm(x, g, b, m, v, axis=1)
                y = norm[0]
                R.output(y)
            return y

    ops = [b.value for b in append_reshape_to_batch_norm(Norm)["main"].body.blocks[0].bindings]
    assert ops[-1].op.name == "relax.reshape"
