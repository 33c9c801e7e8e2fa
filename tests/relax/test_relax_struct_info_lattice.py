"""The struct-info lattice: subtype checks, least common ancestors, erasure, and results of calls."""

from __future__ import annotations

import pytest

from relaxish import TVMError, relax, tir
from relaxish.ir import Range, VDevice, structural_equal
from relaxish.relax import distributed
from relaxish.script import relax as R

analysis = relax.analysis
n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
Tensor, Shape, Prim = relax.TensorStructInfo, relax.ShapeStructInfo, relax.PrimStructInfo
Tup, Func, Any_ = relax.TupleStructInfo, relax.FuncStructInfo, relax.ObjectStructInfo()
CPU, GPU0, GPU1 = VDevice("llvm"), VDevice("cuda", 0), VDevice("cuda", 1)


def _function(param, result, purity=True):
    return Func([param], result, purity)


@pytest.mark.parametrize(
    ("base", "derived", "result"),
    [
        # What is said of the dtype counts before the rank, the rank before the device.
        (Tensor(ndim=2), Tensor([2], ""), "FAIL_L1"),
        (Tensor([2], "float32", GPU0), Tensor([2, 2], "float32", GPU1), "FAIL_L0"),
        (Tensor([n], "float32", GPU0), Tensor([n], "float32"), "FAIL_L1"),
        (Tensor([n], "float32", GPU0), Tensor([n], "float32", GPU1), "FAIL_L0"),
        (Tensor([n], "float32"), Tensor([n], "float32", GPU0), "PASS"),
        (Tensor([n, m]), Tensor([m, n]), "FAIL_L2"),
        (Shape([n + 1]), Shape([1 + n]), "PASS"),
        (Prim(value=n), Prim("int64"), "FAIL_L2"),
        (Prim(value=1), Prim(value=2), "FAIL_L0"),
        # Parameters compare in the same direction as results; their doubts are never worse than L2.
        (_function(Tensor([n, m]), Tensor([n])), _function(Tensor([m, n]), Tensor([m])), "PASS"),
        (_function(Tensor(ndim=2), Tensor([3])), _function(Tensor([n, m]), Tensor([3])), "PASS"),
        (_function(Tensor([2]), Any_), _function(Any_, Any_), "FAIL_L2"),
        (_function(Tensor([2]), Any_), _function(Tensor([3]), Any_), "FAIL_L0"),
        (_function(Any_, Any_), Func.opaque_func(purity=True), "FAIL_L2"),
        (_function(Any_, Any_), Func([], Any_), "FAIL_L0"),
        (_function(Any_, Any_, True), _function(Any_, Any_, False), "FAIL_L0"),
        (Func.opaque_func(), _function(Any_, Tensor([2])), "PASS"),
    ],
)
def test_base_check(base, derived, result):
    assert analysis.struct_info_base_check(base, derived).name == result


@pytest.mark.parametrize(
    ("lhs", "rhs", "expected"),
    [
        (Tensor([n], "float32", CPU), Tensor([n], "float32", GPU0), Tensor([n], "float32")),
        (Tensor([n, 3]), Tensor([m, 3]), Tensor(ndim=2)),
        (Prim(value=n), Prim(value=m), Prim("int64")),
        (Prim("int64"), Prim("int32"), Any_),
        (
            _function(Tensor([n]), Tensor([2])),
            _function(Tensor(ndim=1), Tensor([2])),
            _function(Tensor(ndim=1), Tensor([2])),
        ),
        (_function(Any_, Tensor([2])), Func([], Tensor([2])), Func.opaque_func(ret=Tensor([2]), purity=True)),
        (_function(Any_, Tensor([2])), Func.opaque_func(), Func.opaque_func()),
        (Func([], Any_, False), Func([], Any_), Func([], Any_, False)),
    ],
)
def test_least_common_ancestor(lhs, rhs, expected):
    assert structural_equal(analysis.struct_info_lca(lhs, rhs), expected)


def test_erasure_keeps_what_the_maps_know():
    erase = analysis.erase_to_well_defined
    assert structural_equal(erase(Tensor([n + 1, m]), {n: 2, m: m}), Tensor([3, m]))
    assert structural_equal(erase(Tensor([n + 1, m]), {n: n}), Tensor(ndim=2))
    # A function's signature defines what it mentions.
    signature = _function(Tensor([n]), Tensor([n]))
    assert erase(signature) is signature
    shape = relax.Var("s", Shape(ndim=2))
    assert structural_equal(erase(Tensor(shape), None, {shape: relax.ShapeExpr([1, 2])}), Tensor([1, 2]))
    assert structural_equal(erase(Tensor(shape)), Tensor(ndim=2))
    with pytest.raises(TVMError):
        erase(Tensor(shape), {}, {shape: relax.StringImm("no shape")})
    with pytest.raises(TVMError):
        erase(Tensor([n]), {n: tir.Var("i", "int32")})


def _result(signature, *infos, **options):
    call = relax.Call(relax.Var("f", signature), [relax.Var("a", info) for info in infos], **options)
    return analysis.derive_call_ret_struct_info(signature, call, relax.BlockBuilder())


def test_results_of_calls():
    square = _function(Tensor([n, n]), Tensor([n * 2]))
    assert structural_equal(_result(square, Tensor([3, 3])), Tensor([6]))
    # Two values for one dimension: the run time finds out.
    assert structural_equal(_result(square, Tensor([3, 4])), Tensor([6]))
    assert structural_equal(_result(square, Tensor(ndim=2)), Tensor(ndim=1))
    nested = Func([_function(Tensor([n]), Tensor([n])), Tensor([m])], Tensor([n, m]))
    assert structural_equal(_result(nested, _function(Tensor([3]), Tensor([3])), Tensor([4])), Tensor(ndim=2))
    opaque = Func.opaque_func(derive_func="tvm.relax.struct_info.infer_by_sinfo_args")
    assert structural_equal(_result(opaque, sinfo_args=[Tensor([5])]), Tensor([5]))


@pytest.mark.parametrize(
    "infos", [(), (Any_,), (Tensor(ndim=3),), (Tensor([2, 2], "int8"),), (Tensor(),), (Tensor([2, 2]), Any_)]
)
def test_arguments_that_cannot_be_known_to_fit_are_refused(infos):
    with pytest.raises(TVMError):
        _result(_function(Tensor([n, n]), Tensor([n])), *infos)


def test_dimensions_known_not_to_be_negative():
    collect = analysis.collect_non_negative_expressions
    assert [str(e) for e in collect(Tup([Shape([n, 4]), Tensor([n + 1, n]), Prim(value=m)]))] == ["n", "n + T.int64(1)"]


def test_placements():
    mesh = distributed.DeviceMesh((2, 2), Range(0, 4))
    placement = distributed.Placement.from_text
    assert str(placement("S[0],R")) == "S[0], R" and str(placement(" R  S[12]")) == "R, S[12]"
    for text in ("X", "S", "S[a]", "S[0"):
        with pytest.raises(TVMError):
            placement(text)
    with pytest.raises(TVMError):
        distributed.DeviceMesh((2, 2), [0, 1, 2])
    info = distributed.DTensorStructInfo
    tensor = Tensor([4, 8])
    assert structural_equal(info(tensor, mesh, "S[0], R"), info(tensor, mesh, placement("S[0], R")))
    assert str(info(tensor).placement) == ""
    for text in ("S[0]", "S[2], R"):
        with pytest.raises(ValueError):
            info(tensor, mesh, text)
    check = analysis.struct_info_base_check
    assert check(info(tensor, mesh, "S[0], R"), info(tensor, mesh, "R, R")).name == "FAIL_L1"
    assert check(info(Tensor(ndim=2), mesh, "R, R"), info(tensor, mesh, "R, R")).name == "PASS"
    assert check(info(tensor, mesh, "R, R"), tensor).name == "FAIL_L0"


def test_kernel_signatures():
    @R.function(private=True)
    def probe(x: R.Tensor((2,), "float32")):
        return x

    rows, scalar = tir.Var("rows", "int32"), tir.Var("s", "int64")
    data = tir.Var("a", "handle")
    buffer = tir.decl_buffer((rows, 4), "float32")
    func = tir.PrimFunc([data, scalar], tir.Evaluate(0), None, {data: buffer})
    tensor, number = func.struct_info.params
    assert isinstance(tensor.shape.values[0], tir.Cast) and tensor.shape.values[1].dtype == "int64"
    # Scalars in a signature are values of a type, not definitions of symbolic dimensions.
    assert number.value is None and number.dtype == "int64"
    assert probe.struct_info.params[0].ndim == 1


def test_annotations_of_the_script_stand_for_struct_infos():
    written, info = R.Tensor((n, 2), "float32"), Tensor([n, 2])
    assert info == written and written == info and info.is_base_of(written)
    assert structural_equal(info, written) and structural_equal(written, info)
    assert analysis.struct_info_base_check(written, info).name == "PASS"
    assert structural_equal(analysis.struct_info_lca(written, R.Tensor((m, 2), "float32")), Tensor(ndim=2))
    assert analysis.tir_vars_in_struct_info(written) == [n]
    assert structural_equal(analysis.erase_to_well_defined(written), R.Tensor(ndim=2, dtype="float32"))
    with pytest.raises(ValueError):
        from relaxish.ir import assert_structural_equal

        assert_structural_equal(info, R.Tensor((n, 3), "float32"))
