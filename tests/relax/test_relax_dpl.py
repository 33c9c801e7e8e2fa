"""The pattern language: matching expressions, matching graphs, rewriting."""

from __future__ import annotations

import pytest

from relaxish import relax, tir
from relaxish.ir import assert_structural_equal
from relaxish.relax import dpl
from relaxish.relax.dpl import (
    PatternContext,
    TupleGetItemPattern,
    has_attr,
    has_dtype,
    is_call_dps_packed,
    is_call_packed,
    is_call_tir,
    is_const,
    is_dfv,
    is_expr,
    is_gv,
    is_op,
    is_shape,
    is_tuple,
    is_tuple_get_item,
    is_var,
    make_fused_bias_activation_pattern,
    reject,
    rewrite_bindings,
    rewrite_call,
    wildcard,
)
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T


@I.ir_module
class Tower:
    @T.prim_func(private=True)
    def double(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor((8, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor:
        cls = Tower
        with R.dataflow():
            lv0 = R.call_tir(cls.double, (x,), R.Tensor((8, 8), "float32"))
            lv1 = R.matmul(lv0, w)
            lv2 = R.nn.relu(lv1)
            lv3 = R.call_dps_packed("my.softmax", (lv2,), R.Tensor((8, 8), "float32"))
            lv4 = R.permute_dims(lv3, axes=[1, 0])
            pair = (lv2, lv4)
            gv = pair[1]
            R.output(gv)
        return gv


MAIN = Tower["main"]
BINDINGS = {b.var.name_hint: b for b in MAIN.body.blocks[0].bindings}
VALUES = relax.analysis.get_var2val(MAIN)


def value(name):
    return BINDINGS[name].value


def test_expression_patterns():
    x = MAIN.params[0]
    assert is_var("x").match(x) and is_var().match(x) and not is_var("y").match(x)
    assert is_dfv().match(BINDINGS["lv1"].var) and not is_dfv().match(x)
    assert is_gv("double").match(value("lv0").args[0]) and not is_gv("other").match(value("lv0").args[0])
    assert is_const().match(relax.const(1.0)) and not is_const().match(x)
    assert is_expr(x).match(x)
    assert is_shape([2, 3]).match(relax.ShapeExpr([2, 3])) and not is_shape([2]).match(relax.ShapeExpr([2, 3]))
    assert (is_var("x") | is_var("y")).match(x)
    assert not (is_var("x") & is_var("y")).match(x)
    assert (~is_var("y")).match(x) and reject(is_var("y")).match(x)
    n = tir.Var("n", "int64")
    assert is_shape([n, 2]).match(relax.ShapeExpr([n, 2]))


def test_call_patterns():
    assert is_call_tir("double").match(value("lv0"))
    assert is_call_tir("double", [is_var("x")]).match(value("lv0"))
    assert not is_call_tir("double", [is_var("w")]).match(value("lv0"))
    assert is_call_dps_packed("my.softmax").match(value("lv3"))
    assert is_op("relax.matmul")(wildcard(), is_var("w")).match(value("lv1"))
    assert not is_op("relax.matmul")(wildcard()).match(value("lv1"))
    assert is_op("relax.matmul")(wildcard(), varg_default_wildcard=True).match(value("lv1"))
    packed = relax.Call(relax.ExternFunc("f"), [MAIN.params[0]])
    assert is_call_packed("f").match(packed) and is_call_packed("f", [is_var("x")]).match(packed)
    assert is_op("relax.permute_dims")(wildcard()).has_attr({"axes": [1, 0]}).match(value("lv4"))
    assert not has_attr({"axes": [0, 1]}, is_op("relax.permute_dims")(wildcard())).match(value("lv4"))


def test_demands_on_struct_info():
    relu = is_op("relax.nn.relu")(wildcard())
    assert relu.has_shape([8, 8]).has_dtype("float32").match(value("lv2"))
    assert not relu.has_shape([8, 4]).match(value("lv2"))
    assert not has_dtype("float16", relu).match(value("lv2"))
    assert relu.has_struct_info(R.Tensor("float32", ndim=2).as_struct_info()).match(value("lv2"))
    assert not relu.has_struct_info(R.Tensor("float32", ndim=3).as_struct_info()).match(value("lv2"))


def test_through_bindings():
    deep = is_op("relax.nn.relu")(is_op("relax.matmul")(is_call_tir("double"), wildcard()))
    assert not deep.match(value("lv2"))
    assert deep.match(value("lv2"), VALUES)
    assert is_tuple([wildcard(), wildcard()])[1].match(value("gv"), VALUES)
    assert is_tuple_get_item(wildcard()).match(value("gv"), VALUES)
    transpose = is_op("relax.permute_dims")(wildcard())
    relu = is_op("relax.nn.relu")(wildcard())
    assert is_tuple([relu, transpose]).match(value("pair"), VALUES)
    assert not is_tuple([transpose, relu]).match(value("pair"), VALUES)
    assert is_tuple([transpose, relu], unordered=True).match(value("pair"), VALUES)


def test_extract_and_repeated_wildcards():
    x, y = MAIN.params
    hole = wildcard()
    assert is_op("relax.add")(hole, hole).match(R.add(x, x))
    assert not is_op("relax.add")(hole, hole).match(R.add(x, y))
    other = wildcard()
    found = is_op("relax.add")(is_const(), other).extract_matched_expr(R.add(x, relax.const(1.0)))
    assert found is not None and found[other] is x  # add commutes
    assert is_op("relax.subtract")(is_const(), other).extract_matched_expr(R.subtract(x, relax.const(1.0))) is None


def test_multiply_and_divide_reassociate():
    a, b, c = wildcard(), wildcard(), wildcard()
    x, y = MAIN.params
    assert is_op("relax.divide")(is_op("relax.multiply")(a, b), c).match(R.multiply(x, R.divide(y, x)))


def test_wildcard_redirect():
    hole = wildcard()
    hole.redirect_to(is_op("relax.nn.relu")(wildcard()))
    assert hole.match(value("lv2")) and not hole.match(value("lv1"))


def test_graph_constraints():
    block = MAIN.body.blocks[0]
    with PatternContext() as ctx:
        matmul = is_op("relax.matmul")(wildcard(), wildcard())
        relu = is_op("relax.nn.relu")(wildcard())
        matmul >> relu
        matched = ctx.match_dfb(block)
    assert matched[matmul].name_hint == "lv1" and matched[relu].name_hint == "lv2"
    with PatternContext() as ctx:
        relu = is_op("relax.nn.relu")(wildcard(), add_constraint=False)
        softmax = is_call_dps_packed("my.softmax")
        relu >> softmax
        assert ctx.match_dfb(block) is None  # relu is used by the tuple as well
    with PatternContext() as ctx:
        is_op("relax.nn.relu")(wildcard(), add_constraint=False) ^ is_call_dps_packed("my.softmax")
        assert ctx.match_dfb(block) is not None
    with PatternContext() as ctx:
        chain = is_call_dps_packed("my.softmax") >> is_op("relax.permute_dims")(wildcard(), add_constraint=False)
        assert len(chain) == 2
        assert ctx.match_dfb(block) is not None
        chain.dup()  # the same chain a second time
        assert ctx.match_dfb(block) is None


def test_argument_index_constraint():
    block = MAIN.body.blocks[0]
    for index, found in ((0, True), (1, False)):
        with PatternContext() as ctx:
            double, matmul = is_call_tir("double"), is_op("relax.matmul")(wildcard(), wildcard(), add_constraint=False)
            double.used_by(matmul, index)
            assert (ctx.match_dfb(block) is not None) is found


def test_diamond_and_same_shape():
    @R.function(private=True)
    def diamond(x: R.Tensor((4, 4), "float32")) -> R.Tensor:
        with R.dataflow():
            lv0 = R.call_dps_packed("conv", (x,), R.Tensor((4, 4), "float32"))
            lv1 = R.call_dps_packed("relu", (lv0,), R.Tensor((4, 4), "float32"))
            lv2 = R.call_dps_packed("sigmoid", (lv0,), R.Tensor((4, 4), "float32"))
            gv = R.call_dps_packed("add", (lv1, lv2), R.Tensor((4, 4), "float32"))
            R.output(gv)
        return gv

    with PatternContext() as ctx:
        conv, relu, sigmoid, add = (is_call_dps_packed(n) for n in ("conv", "relu", "sigmoid", "add"))
        conv.fork_to(relu, sigmoid)
        relu >> add
        sigmoid >> add
        relu.same_shape_as(sigmoid)
        assert ctx.match_dfb(diamond.body.blocks[0])[add].name_hint == "gv"
    with PatternContext() as ctx:
        conv, relu, add = (is_call_dps_packed(n) for n in ("conv", "relu", "add"))
        conv >> relu  # conv has a second user
        relu >> add
        assert ctx.match_dfb(diamond.body.blocks[0]) is None
    with PatternContext(), PatternContext(incremental=True) as inner:
        assert inner.edges == {}


def test_split_fields_in_graph():
    @R.function(private=True)
    def main(x: R.Tensor((16, 64), "float32")) -> R.Tensor:
        with R.dataflow():
            both = R.split(x, 2, axis=1)
            left = both[0]
            right = both[1]
            gv = R.add(left, right)
            R.output(gv)
        return gv

    with PatternContext() as ctx:
        split = is_op("relax.split")(wildcard(), add_constraint=False)
        left, right = TupleGetItemPattern(split, 0).has_shape([16, 32]), TupleGetItemPattern(split, 1)
        split.fork_to(left, right)
        add = is_op("relax.add")(wildcard(), wildcard(), add_constraint=False)
        left >> add
        right >> add
        found = ctx.match_dfb(main.body.blocks[0])
    assert [found[p].name_hint for p in (split, left, right, add)] == ["both", "left", "right", "gv"]


def test_rewrite_call_to_a_fixed_point():
    @R.function(private=True)
    def before(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        with R.dataflow():
            x2 = R.add(x, x)
            x4 = R.add(x2, x2)
            R.output(x4)
        return x4

    @R.function(private=True)
    def expected(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        with R.dataflow():
            x2 = R.multiply(x, R.const(2.0, "float32"))
            x4 = R.multiply(x2, R.const(2.0, "float32"))
            R.output(x4)
        return x4

    @R.function(private=True)
    def expected_once(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        with R.dataflow():
            x4 = R.multiply(x, R.const(4.0, "float32"))
            R.output(x4)
        return x4

    hole = wildcard()
    single = is_op("relax.add")(hole, hole)

    def double(orig, matched):
        return R.multiply(matched[hole], R.const(2.0, "float32"))

    assert_structural_equal(rewrite_call(single, double, before), expected)
    inner = is_op("relax.add")(hole, hole)
    nested = is_op("relax.add")(inner, inner)
    quadruple = rewrite_call(nested, lambda _, m: R.multiply(m[hole], R.const(4.0, "float32")), before)
    assert_structural_equal(quadruple, expected_once)
    assert rewrite_call(single, lambda orig, _: orig, before) is before


def test_rewrite_whole_subgraph():
    @R.function(private=True)
    def attention(
        q: R.Tensor((2, 8, 4, 16), "float16"),
        k: R.Tensor((2, 8, 4, 16), "float16"),
        v: R.Tensor((2, 8, 4, 16), "float16"),
    ):
        with R.dataflow():
            qt = R.permute_dims(q, axes=[0, 2, 1, 3])
            kt = R.permute_dims(k, axes=[0, 2, 3, 1])
            vt = R.permute_dims(v, axes=[0, 2, 1, 3])
            s = R.matmul(qt, kt)
            p = R.nn.softmax(s)
            o = R.matmul(p, vt)
            out = R.permute_dims(o, axes=[0, 2, 1, 3])
            R.output(out)
        return out

    @R.function(private=True)
    def expected(
        q: R.Tensor((2, 8, 4, 16), "float16"),
        k: R.Tensor((2, 8, 4, 16), "float16"),
        v: R.Tensor((2, 8, 4, 16), "float16"),
    ):
        with R.dataflow():
            out = R.nn.attention(q, k, v)
            R.output(out)
        return out

    q, k, v = wildcard(), wildcard(), wildcard()

    def flipped(pattern):
        return is_op("relax.permute_dims")(pattern)

    scores = is_op("relax.nn.softmax")(is_op("relax.matmul")(flipped(q), flipped(k)))
    pattern = flipped(is_op("relax.matmul")(scores, flipped(v)))
    new = rewrite_call(pattern, lambda _, m: R.nn.attention(m[q], m[k], m[v]), attention)
    assert_structural_equal(new, expected)


def test_rewrite_bindings_combines_matmuls():
    @R.function(private=True)
    def before(x: R.Tensor((4, 8), "float32"), w0: R.Tensor((8, 8), "float32"), w1: R.Tensor((8, 8), "float32")):
        with R.dataflow():
            a = R.matmul(x, w0)
            b = R.matmul(x, w1)
            out = (a, b)
            R.output(out)
        return out

    @R.function(private=True)
    def expected(x: R.Tensor((4, 8), "float32"), w0: R.Tensor((8, 8), "float32"), w1: R.Tensor((8, 8), "float32")):
        with R.dataflow():
            w = R.concat((w0, w1), axis=1)
            both = R.matmul(x, w)
            a = R.strided_slice(both, axes=[1], begin=[0], end=[8])
            b = R.strided_slice(both, axes=[1], begin=[8], end=[16])
            out = (a, b)
            R.output(out)
        return out

    with PatternContext() as ctx:
        x, w0, w1 = wildcard(), wildcard(), wildcard()
        first = is_op("relax.matmul")(x, w0)
        second = is_op("relax.matmul")(x, w1)

    def rewriter(matched, bindings):
        weights = R.concat([matched[w0], matched[w1]], axis=1)
        both = R.matmul(matched[x], weights)
        return {
            matched[first]: R.strided_slice(both, axes=[1], begin=[0], end=[8]),
            matched[second]: R.strided_slice(both, axes=[1], begin=[8], end=[16]),
        }

    new = rewrite_bindings(ctx, rewriter, before)
    assert_structural_equal(new, expected)


def test_module_rewriter():
    @R.rewriter
    class AddToMultiply:
        @R.function
        def pattern(a: R.Tensor((16,), "float32")):
            b = R.add(a, a)
            return b

        @R.function
        def replacement(a: R.Tensor((16,), "float32")):
            b = R.multiply(a, R.const(2.0, "float32"))
            return b

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((16,), "float32")):
            y = R.add(x, x)
            z = R.exp(y)
            return z

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((16,), "float32")):
            y = R.multiply(x, R.const(2.0, "float32"))
            z = R.exp(y)
            return z

    assert isinstance(AddToMultiply, dpl.PatternMatchingRewriter)
    assert_structural_equal(AddToMultiply(Before), Expected)


def test_module_rewriter_of_two_values():
    @R.rewriter
    class Together:
        @R.function
        def pattern(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")):
            c = R.add(a, b)
            d = R.subtract(a, b)
            return (c, d)

        @R.function
        def replacement(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")):
            both = R.call_pure_packed(
                "sum_and_difference", a, b, sinfo_args=R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))
            )
            return both

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            s = R.add(x, y)
            t = R.subtract(x, y)
            z = R.multiply(s, t)
            return z

    text = Together(Before)["main"].script()
    assert text.count("sum_and_difference") == 1 and "R.add" not in text and "R.subtract" not in text


def test_rewriters_of_bad_modules():
    @I.ir_module
    class NoReplacement:
        @R.function
        def pattern(a: R.Tensor((16,), "float32")):
            return a

    with pytest.raises(KeyError, match="replacement"):
        dpl.PatternMatchingRewriter.from_module(NoReplacement)

    @I.ir_module
    class OtherSignature:
        @R.function
        def pattern(a: R.Tensor((16,), "float32")):
            return a

        @R.function
        def replacement(a: R.Tensor((8,), "float32")):
            return a

    with pytest.raises(ValueError, match="same signature"):
        dpl.PatternMatchingRewriter.from_module(OtherSignature)


def test_or_rewriter_prefers_the_left():
    hole = wildcard()
    exp, relu = is_op("relax.exp")(hole), is_op("relax.nn.relu")(hole)
    first = dpl.PatternMatchingRewriter.from_pattern(exp, lambda _, m: R.sqrt(m[hole]))
    second = dpl.PatternMatchingRewriter.from_pattern(relu, lambda _, m: R.abs(m[hole]))

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            b = R.nn.relu(a)
            return b

    text = (first | second)(Before)["main"].script()
    assert "R.sqrt" in text and "R.abs" in text and "R.exp" not in text and "R.nn.relu" not in text


def test_bias_activation_pattern():
    pattern = make_fused_bias_activation_pattern("relax.matmul", with_bias=True, activation="relax.nn.relu")
    x, w = MAIN.params
    assert pattern.match(R.nn.relu(R.add(R.matmul(x, w), relax.const(1.0))))
    assert not pattern.match(R.nn.relu(R.matmul(x, w)))


def test_patterns_print_as_what_they_match():
    any_one, number = wildcard(), is_const()
    add, relu = is_op("relax.add")(any_one, number), is_op("relax.nn.relu")(wildcard())
    texts = {
        add: "Op(relax.add)(*, ConstantPattern())",
        ~(any_one | number) & is_var("x"): "AndPattern(!(OrPattern(* | ConstantPattern())) & VarPattern(x))",
        is_tuple([any_one])[0]: "TupleGetItemPattern(TuplePattern([*]), 0)",
        any_one.has_shape((1, 2)).has_dtype("int8"): "DataTypePattern(ShapePattern(* has shape [1, 2]) has dtype int8)",
        any_one.has_attr({"axis": 1}): 'AttrPattern(* has attributes {"axis": 1})',
    }
    for pattern, text in texts.items():
        assert str(pattern) == repr(pattern) == text
    assert str(add >> relu ^ relu) == f"[{add} >> {relu} ^ {relu}]"
