"""If, Loop and Scan against ONNX Runtime: decided at import, written out, and run by the machine."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import relaxish  # noqa: E402
from relaxish.frontend.onnx import from_onnx  # noqa: E402
from relaxish.relax.analysis import well_formed  # noqa: E402

_rng = np.random.default_rng(77)
_Feeds = dict[str, np.ndarray]


def f(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype("float32")


def flag(value: bool) -> np.ndarray:
    return np.array(value)


def number(value: float, dtype: str = "int64") -> np.ndarray:
    return np.array(value, dtype)


_BRANCHES: dict[str, tuple[str, list[_Feeds]]] = {
    "dynamic rows": ("""(float[n,4] x, bool c) => (float[n,4] y) {
        r = Relu(x)
        y = If(c)<then_branch = t () => (float[n,4] a) { a = Mul(r, x) },
                  else_branch = e () => (float[n,4] b) { q = Exp(r)  b = Sub(q, x) }> }""",
        [{"x": f(3, 4), "c": flag(True)}, {"x": f(5, 4), "c": flag(False)}]),
    "shapes differ": ("""(float[n,4] x) => (float[k] y, float[k] z) {
        s = ReduceSum<keepdims=0>(x)
        zero = Constant<value = float {0.0}>()
        c = Greater(s, zero)
        flat = Constant<value = int64[1] {-1}>()
        w = If(c)<then_branch = t () => (float[k] a) { a = Reshape(x, flat) },
                  else_branch = e () => (float[k] b) { xx = Concat<axis=0>(x, x)  b = Reshape(xx, flat) }>
        y = Exp(w)
        z = Add(w, w) }""",
        [{"x": np.abs(f(3, 4))}, {"x": -np.abs(f(5, 4))}]),
    "two results": ("""(float[3,4] x, bool[1] c) => (float[3,4] y, float[3,4] z) {
        y, z = If(c)<then_branch = t () => (float[3,4] a, float[3,4] b) { a = Mul(x, x)  b = Identity(x) },
                     else_branch = e () => (float[3,4] a2, float[3,4] b2) { a2 = Exp(x)  b2 = Sub(a2, x) }> }""",
        [{"x": f(3, 4), "c": np.array([v])} for v in (True, False)]),
    "one in another": ("""(float[3,4] x, bool c, bool d) => (float[3,4] y) {
        y = If(c)<then_branch = t () => (float[3,4] a) {
                u = Mul(x, x)
                a = If(d)<then_branch = t2 () => (float[3,4] a2) { a2 = Add(u, x) },
                          else_branch = e2 () => (float[3,4] b2) { b2 = Sub(u, x) }> },
            else_branch = e () => (float[3,4] b) { b = Exp(x) }> }""",
        [{"x": f(3, 4), "c": flag(a), "d": flag(b)} for a in (True, False) for b in (True, False)]),
}  # fmt: skip
_LOOPS: dict[str, tuple[str, list[_Feeds]]] = {
    "written out": ("""(float[3] x) => (float[3] y, float[5,3] z) {
        n = Constant<value = int64 {5}>()
        y, z = Loop(n, , x)<body = b (int64 i, bool ci, float[3] v) => (bool co, float[3] vo, float[3] s) {
            co = Identity(ci)  r = Cast<to=1>(i)  t = Add(v, r)  vo = Mul(t, x)  s = Relu(vo) }> }""",
        [{"x": f(3)}]),
    "turns as input": ("""(float[3] x, int64 n) => (float[3] y, float[k,3] z) {
        y, z = Loop(n, , x)<body = b (int64 i, bool ci, float[3] v) => (bool co, float[3] vo, float[3] s) {
            co = Identity(ci)  r = Cast<to=1>(i)  t = Add(v, r)  vo = Sub(t, x)  s = Relu(vo) }> }""",
        [{"x": f(3), "n": number(k)} for k in (4, 0, 7)]),
    "until": ("""(float[3] x, float most) => (float[3] y, float[k] z) {
        t = Constant<value = bool {1}>()
        y, z = Loop(, t, x)<body = b (int64 i, bool ci, float[3] v) => (bool co, float[3] vo, float s) {
            vo = Add(v, v)  a = Abs(vo)  s = ReduceMax<keepdims=0>(a)  co = Less(s, most) }> }""",
        [{"x": f(3), "most": number(k, "float32")} for k in (4, 0, 1000)]),
    "never begun": ("""(float[3] x, int64 n, bool c) => (float[3] y) {
        y = Loop(n, c, x)<body = b (int64 i, bool ci, float[3] v) => (bool co, float[3] vo) {
            co = Identity(ci)  vo = Add(v, x) }> }""",
        [{"x": f(3), "n": number(4), "c": flag(c)} for c in (True, False)]),
    "growing state": ("""(float[n,2] x, int64 m) => (float[k,2] y) {
        y = Loop(m, , x)<body = b (int64 i, bool ci, float[j,2] v) => (bool co, float[l,2] vo) {
            co = Identity(ci)  r = Mul(x, x)  vo = Concat<axis=0>(v, r) }> }""",
        [{"x": f(3, 2), "m": number(k)} for k in (4, 0, 1)]),
    "shapes from around": ("""(float[n,2] x, int64 m, float[2] w) => (float[n,2] y) {
        s = Shape(x)
        e = Expand(w, s)
        y = Loop(m, , x)<body = b (int64 i, bool ci, float[n,2] v) => (bool co, float[n,2] vo) {
            co = Identity(ci)  z = ConstantOfShape(s)  q = Add(z, e)  vo = Add(v, q) }> }""",
        [{"x": f(3, 2), "m": number(k), "w": f(2)} for k in (4, 0, 1)]),
    "state stays": ("""(float[3] x, float[3] u, int64 n) => (float[3] y, float[3] z) {
        a = Add(x, u)
        y, z = Loop(n, , a, u)<body = b (int64 i, bool ci, float[3] v, float[3] w) =>
            (bool co, float[3] vo, float[3] wo) { co = Identity(ci)  vo = Identity(v)  wo = Add(w, v) }> }""",
        [{"x": f(3), "u": f(3), "n": number(k)} for k in (3, 0)]),
    "branch inside": ("""(float[3] x, int64 n) => (float[3] y) {
        y = Loop(n, , x)<body = b (int64 i, bool ci, float[3] v) => (bool co, float[3] vo) {
            co = Identity(ci)
            two = Constant<value = int64 {2}>()
            r = Mod(i, two)
            odd = Cast<to=9>(r)
            vo = If(odd)<then_branch = t () => (float[3] a) { a = Add(v, x) },
                         else_branch = e () => (float[3] b) { b = Mul(v, x) }> }> }""",
        [{"x": f(3), "n": number(k)} for k in (4, 0, 7)]),
    "loop inside": ("""(float[3] x, int64 n) => (float[3] y) {
        y = Loop(n, , x)<body = b (int64 i, bool ci, float[3] v) => (bool co, float[3] vo) {
            co = Identity(ci)
            vo = Loop(i, , v)<body = b2 (int64 i2, bool ci2, float[3] v2) => (bool co2, float[3] vo2) {
                co2 = Identity(ci2)  a = Add(v2, v)  vo2 = Tanh(a) }> }> }""",
        [{"x": f(3), "n": number(k)} for k in (4, 0, 5)]),
    "rows of any number": ("""(float[2] h0, float[t,2] x) => (float[2] h, float[t,2] y) {
        h, y = Scan<num_scan_inputs=1, body = b (float[2] u, float[2] r) => (float[2] v, float[2] w) {
            a = Add(u, r)  v = Tanh(a)  w = Mul(v, r) }>(h0, x) }""",
        [{"h0": f(2), "x": f(k, 2)} for k in (1, 6)]),
    "axes and directions": ("""(float[2] h0, float[3,7] x, float[7,2] w) => (float[2] h, float[2,7] y) {
        h, y = Scan<num_scan_inputs=2, scan_input_axes=[1,0], scan_input_directions=[0,1], scan_output_axes=[1],
            scan_output_directions=[1], body = b (float[2] u, float[3] r, float[2] q) => (float[2] v, float[2] o) {
                s = ReduceSum<keepdims=0>(r)  a = Add(u, s)  c = Mul(a, q)  v = Tanh(c)  o = Mul(v, q) }>(h0, x, w) }""",
        [{"h0": f(2), "x": f(3, 7), "w": f(7, 2)}]),
    "many rows": ("""(float[2] h0, float[300,2] x) => (float[2] h, float[300,2] y) {
        h, y = Scan<num_scan_inputs=1, scan_input_directions=[1], scan_output_directions=[1],
            body = b (float[2] u, float[2] r) => (float[2] v, float[2] w) {
                a = Add(u, r)  v = Tanh(a)  w = Mul(v, r) }>(h0, x) }""",
        [{"h0": f(2), "x": f(300, 2)}]),
}  # fmt: skip


def parsed(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g ' + text)
    onnx.checker.check_model(model)
    return model


@pytest.mark.parametrize("name", [*_BRANCHES, *_LOOPS])
def test_against_onnx_runtime(name: str) -> None:
    text, runs = {**_BRANCHES, **_LOOPS}[name]
    model = parsed(text)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    module = from_onnx(model)
    assert well_formed(module)
    vm = relaxish.VirtualMachine(relaxish.build(module, "llvm"), relaxish.cpu())
    for feeds in runs:
        want = session.run(None, feeds)
        made = vm["main"](*(relaxish.nd.array(feeds[p.name_hint]) for p in module["main"].params))
        got = list(made) if isinstance(made, (tuple, list)) else [made]
        for have, expected in zip(got, want, strict=True):
            assert have.shape == expected.shape and have.dtype == expected.dtype
            np.testing.assert_allclose(have.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_known_condition_is_decided_at_import() -> None:
    module = from_onnx(
        parsed("""(float[3] x) => (float[3] y) {
        c = Constant<value = bool {0}>()
        y = If(c)<then_branch = t () => (float[3] a) { a = Exp(x) }, else_branch = e () => (float[3] b) { b = Neg(x) }> }""")
    )
    text = module.script()
    assert "R.negative" in text and "R.exp" not in text and "if " not in text


def test_operators_without_a_converter_inside_of_branches_are_named() -> None:
    model = parsed("""(float[3] x, bool c) => (float[3] y) {
        y = If(c)<then_branch = t () => (float[3] a) { a = Exp(x) }, else_branch = e () => (float[3] b) { b = Neg(x) }> }""")
    model.graph.node[0].attribute[1].g.node[0].op_type = "Unheard"
    with pytest.raises(relaxish.support.errors.OpNotImplemented, match="Unheard"):
        with pytest.warns(UserWarning):
            from_onnx(model)


def test_a_state_that_changes_its_type_is_an_error() -> None:
    model = parsed("""(float[3] x, int64 n) => (float[3] y) {
        y = Loop(n, , x)<body = b (int64 i, bool ci, float[3] v) => (bool co, float[3] vo) {
            co = Identity(ci)  vo = Add(v, x) }> }""")
    body = next(a.g for a in model.graph.node[0].attribute if a.name == "body")
    body.node[1].op_type, body.node[1].input[1] = "Cast", ""
    del body.node[1].input[1:]
    body.node[1].attribute.append(onnx.helper.make_attribute("to", onnx.TensorProto.DOUBLE))
    with pytest.raises(relaxish.support.errors.RelaxishError, match="turns its state"):
        from_onnx(model)
