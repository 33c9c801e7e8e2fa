"""Dimensions that only the run knows: equal by a check, without a name, or deciding a branch."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import relaxish  # noqa: E402
from relaxish.frontend.onnx import from_onnx  # noqa: E402

_rng = np.random.default_rng(13)


def f(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype("float32")


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g ' + text)


class Both:
    """A model in ONNX Runtime and here."""

    def __init__(self, model: onnx.ModelProto, **options: object) -> None:
        self.session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        module = from_onnx(model, **options)
        self.names = [p.name_hint for p in module["main"].params]
        self.vm = relaxish.VirtualMachine(relaxish.build(module, "llvm"), relaxish.cpu())

    def ours(self, **feeds: np.ndarray) -> np.ndarray:
        return self.vm["main"](*(relaxish.nd.array(feeds[n]) for n in self.names)).numpy()

    def agree(self, **feeds: np.ndarray) -> None:
        want = self.session.run(None, feeds)[0]
        have = self.ours(**feeds)
        assert have.shape == want.shape
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "(float[a,4] x, float[b,4] y) => (float[c,4] z) { s = Add(x, y)  z = Relu(s) }",
        "(float[a,4] x, float[b,4] y) => (float[c,k] z) { z = Concat<axis=1>(x, y) }",
        "(float[a,4] x, float[b,4] y) => (float[c,4] z) { t = Greater(x, y)  z = Where(t, y, x) }",
        "(float[a,4] x, float[b,4] y) => (float[c,4] z) { z = Max(x, y, x) }",
    ],
)
def test_dimensions_that_meet_are_equal_or_an_error(text: str) -> None:
    both = Both(parsed(text))
    both.agree(x=f(3, 4), y=f(3, 4))
    both.agree(x=f(6, 4), y=f(6, 4))
    with pytest.raises(Exception, match="'x' and 'y'"):
        both.ours(x=f(3, 4), y=f(2, 4))


def test_a_size_that_must_be_one_beside_another_tensor() -> None:
    both = Both(parsed("(float[a,4] x, float[1,4] y) => (float[1,8] z) { z = Concat<axis=1>(x, y) }"))
    both.agree(x=f(1, 4), y=f(1, 4))
    with pytest.raises(Exception, match="match_cast"):
        both.ours(x=f(2, 4), y=f(1, 4))


def test_sizes_of_a_pyramid_meet_again() -> None:
    """Halved five times and doubled is what halved four times is, for multiples of 32."""
    both = Both(
        parsed("""(float[1,1,h,w] x) => (float[1,1,p,q] z) {
            a = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)
            b = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(a)
            s = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>()
            e = Constant<value = float[0] {}>()
            u = Resize<mode="nearest">(b, e, s)
            z = Add(a, u) }""")
    )
    both.agree(x=f(1, 1, 8, 12))
    both.agree(x=f(1, 1, 4, 4))
    with pytest.raises(Exception, match="match_cast"):
        both.ours(x=f(1, 1, 10, 12))


def test_a_large_end_of_a_slice_is_the_end() -> None:
    model = parsed("""(float[n,3] x) => (float[m,3] z) {
        b = Constant<value = int64[1] {1}>()
        e = Constant<value = int64[1] {1000000000}>()
        a = Constant<value = int64[1] {0}>()
        z = Slice(x, b, e, a) }""")
    assert "1000000000" not in from_onnx(model).script()
    Both(model).agree(x=f(5, 3))


def test_sizes_without_a_name() -> None:
    """-1 and "?" say no more than that the size is not known, each of another one."""
    model = parsed("(float[n,3] x, float[m,3] y) => (float[k,3] z) { z = Concat<axis=0>(x, y) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "?"
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    module = from_onnx(model)
    vm = relaxish.VirtualMachine(relaxish.build(module, "llvm"), relaxish.cpu())
    x, y = f(2, 3), f(4, 3)
    np.testing.assert_array_equal(
        vm["main"](relaxish.nd.array(x), relaxish.nd.array(y)).numpy(), np.concatenate([x, y])
    )


def test_a_branch_that_does_not_fit_the_sizes_is_an_error_when_taken() -> None:
    model = parsed("""(float[n,3] x, bool c, float[3,2] w, float[5,2] v) => (float[n,2] z) {
        z = If(c)<then_branch = t () => (float[n,2] a) { a = MatMul(x, w) },
                  else_branch = e () => (float[n,2] b) { b = MatMul(x, v) }> }""")
    del model.graph.input[0].type.tensor_type.shape.dim[1:]
    model.graph.input[0].type.tensor_type.shape.dim.add().dim_param = "k"
    both = Both(model, shape_dict={"x": [4, 3]})
    x, w, v = f(4, 3), f(3, 2), f(5, 2)
    both.agree(x=x, w=w, v=v, c=np.array(True))
    with pytest.raises(relaxish.support.errors.RelaxishError, match="does not fit the sizes"):
        both.ours(x=x, w=w, v=v, c=np.array(False))


_WINDOWS = {
    "Conv": "z = Conv<kernel_shape=[3,3], {}>(x, k)",
    "MaxPool": "z = MaxPool<kernel_shape=[3,2], {}>(x)",
    "AveragePool": "z = AveragePool<kernel_shape=[3,2], {}>(x)",
    "AveragePool with borders": "z = AveragePool<kernel_shape=[2,3], count_include_pad=1, {}>(x)",
    "one axis only": "z = Conv<kernel_shape=[3,3], {}>(x, k)",
    "skip": """a = Conv<kernel_shape=[3,3], {0}>(x, k)
               b = MaxPool<kernel_shape=[2,2], {0}>(x)
               z = Add(a, b)""",
    "transposed": "z = ConvTranspose<kernel_shape=[3,3], {}>(x, k)",
}


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("name", _WINDOWS)
def test_windows_that_keep_sizes(name: str, lower: bool) -> None:
    """``auto_pad`` of images of unknown size: the border depends on the size where the window strides."""
    strides = "[1,2]" if name == "one axis only" else "[2,2]"
    how = f'auto_pad="SAME_{"LOWER" if lower else "UPPER"}", strides={strides}'
    kernel = ", float[2,2,3,3] k" if "(x, k)" in _WINDOWS[name] else ""
    both = Both(parsed(f"(float[n,2,h,w] x{kernel}) => (float[n,2,p,q] z) {{ {_WINDOWS[name].format(how)} }}"))
    for size in ((1, 2, 7, 8), (2, 2, 6, 9), (1, 2, 4, 4)):
        both.agree(**({"x": f(*size)} | ({"k": f(2, 2, 3, 3)} if kernel else {})))


def test_the_largest_of_windows_and_their_places() -> None:
    text = """(float[n,2,h,w] x) => (float[n,2,p,q] z, int64[n,2,p,q] y) {
        z, y = MaxPool<kernel_shape=[3,2], auto_pad="SAME_UPPER", strides=[2,2]>(x) }"""
    both = Both(parsed(text.replace("(float[n,2,p,q] z, int64[n,2,p,q] y)", "(int64[n,2,p,q] y)")))
    both.agree(x=f(1, 2, 7, 8))
    both.agree(x=f(2, 2, 4, 5))


@pytest.mark.parametrize("upper", [False, True])
def test_a_transposed_convolution_of_a_size_that_is_asked_for(upper: bool) -> None:
    how = "SAME_UPPER" if upper else "NOTSET"
    both = Both(
        parsed(f"""(float[n,2,h,w] x, float[2,4,3,3] k, float[4] b) => (float[n,4,14,13] z) {{
            z = ConvTranspose<kernel_shape=[3,3], auto_pad="{how}", strides=[2,2], output_shape=[14,13]>(x, k, b) }}""")
    )
    for size in ((1, 2, 7, 7), (2, 2, 7, 6)):
        both.agree(x=f(*size), k=f(2, 4, 3, 3), b=f(4))


def test_a_border_of_the_zero_point() -> None:
    both = Both(
        parsed("""(uint8[n,2,h,w] x, int8[4,2,3,3] k, uint8 p) => (int32[n,4,q,r] z) {
            z = ConvInteger<kernel_shape=[3,3], auto_pad="SAME_UPPER", strides=[2,2]>(x, k, p) }""")
    )
    for size in ((1, 2, 7, 8), (2, 2, 6, 9)):
        x, k = _rng.integers(0, 255, size).astype("uint8"), _rng.integers(-127, 127, (4, 2, 3, 3)).astype("int8")
        both.agree(x=x, k=k, p=np.array(7, "uint8"))


def test_expanding_what_is_one_only_sometimes() -> None:
    both = Both(parsed("(float[n,m] x, int64[3] s) => (float[r,p,q] z) { z = Expand(x, s) }"))
    for x, s in (((1, 4), (2, 3, 4)), ((3, 4), (1, 3, 1)), ((3, 1), (2, 3, 5)), ((1, 1), (2, 1, 7))):
        both.agree(x=f(*x), s=np.array(s))
    with pytest.raises(Exception, match="Expand 'z'"):
        both.ours(x=f(3, 2), s=np.array([2, 4, 2]))
    by_shape = Both(
        parsed("(float[n,1] x, float[p,q] y) => (float[p,q] z) { s = Shape(y) e = Expand(x, s) z = Add(e, y) }")
    )
    for x, y in (((3, 1), (3, 4)), ((1, 1), (3, 4)), ((1, 1), (1, 1))):
        by_shape.agree(x=f(*x), y=f(*y))


def test_picking_what_holds() -> None:
    both = Both(
        parsed("""(float[n,m] x) => (float[k] z) {
            o = Constant<value = float {0.0}>()  g = Greater(x, o)  p = NonZero(g)
            t = Transpose<perm = [1,0]>(p)  z = GatherND(x, t) }""")
    )
    for x in (f(3, 4), f(1, 5), -np.abs(f(2, 2))):
        both.agree(x=x)


_TABLES = {
    "ScatterND": "(float[a,b] x, int64[k,1] j, float[l,c] y) => (float[a,b] z) { z = ScatterND(x, j, y) }",
    "GatherND": "(float[a,b] x, int64[k,c,1] j) => (float[a,c] z) { z = GatherND<batch_dims=1>(x, j) }",
    "Einsum": '(float[a,b] x, float[c,d] y) => (float[a,d] z) { z = Einsum<equation="ij,jk->ik">(x, y) }',
    "QuantizeLinear": """(float[a,b] x, float[c] y, int8[d] j) => (float[a,b] z) {
        q = QuantizeLinear<axis=1>(x, y, j)  z = Cast<to=1>(q) }""",
    "RNN": """(float[s,b,3] x, float[1,2,3] w, float[1,2,2] r, float[1,c,2] y) => (float[1,b,2] z) {
        q, z = RNN<hidden_size=2>(x, w, r, , , y) }""",
}
#: What fits, and what does not.
_FEEDS = {
    "ScatterND": ([(5, 3), (2, 1), (2, 3)], [(5, 3), (2, 1), (3, 3)]),
    "GatherND": ([(2, 5), (2, 4, 1), ()], [(2, 5), (3, 4, 1), ()]),
    "Einsum": ([(2, 3), (), (3, 5)], [(2, 3), (), (2, 5)]),
    "QuantizeLinear": ([(2, 3), (3,), (3,)], [(2, 3), (3,), (4,)]),
    "RNN": ([(4, 2, 3), (), (1, 2, 2)], [(4, 2, 3), (), (1, 1, 2)]),
}


@pytest.mark.parametrize("name", _TABLES)
def test_tables_that_must_fit(name: str) -> None:
    both = Both(parsed(_TABLES[name]))

    def feeds(shapes: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
        x, j, y = shapes
        places = _rng.permutation(3).astype("int64")[: j[0] if j else 0]
        made = {"x": f(*x), "y": np.abs(f(*y)) + 0.1, "w": f(1, 2, 3), "r": f(1, 2, 2)}
        made["j"] = np.resize(places, j) if name != "QuantizeLinear" else _rng.integers(-3, 3, j).astype("int8")
        return {k: v for k, v in made.items() if k in both.names}

    fit, unfit = _FEEDS[name]
    both.agree(**feeds(fit))
    with pytest.raises(Exception, match="fit|equal"):
        both.ours(**feeds(unfit))
