"""Gradient: what is emitted for each operator, which variables may be asked for, and what is simplified."""

from __future__ import annotations

import pytest

from relaxish import relax, tir, transform
from relaxish.ir import Op, assert_structural_equal
from relaxish.relax.analysis import well_formed
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.support.errors import InternalError


def _adjoint(mod, **options):
    after = transform.Gradient("main", **options)(mod)
    assert well_formed(after)
    return after["main_adjoint"]


@I.ir_module
class Linear:
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), w: R.Tensor((5, 4), "float32")):
        with R.dataflow():
            wt = R.permute_dims(w)
            y = R.matmul(x, wt)
            loss = R.sum(y)
            R.output(loss)
        return loss


def test_transposes_of_products_disappear():
    @R.function
    def main_adjoint(x: R.Tensor((3, 4), "float32"), w: R.Tensor((5, 4), "float32")):
        with R.dataflow():
            wt = R.permute_dims(w)
            y = R.matmul(x, wt)
            loss = R.sum(y)
            one = R.ones(R.shape([]), "float32")
            y_adjoint = R.broadcast_to(one, R.shape([3, 5]))
            x_adjoint = R.matmul(y_adjoint, w)
            lv = R.permute_dims(y_adjoint, axes=[1, 0])
            w_adjoint = R.matmul(lv, x)
            x_out = x_adjoint
            w_out = w_adjoint
            R.output(loss, x_out, w_out)
        return (loss, (x_out, w_out))

    assert_structural_equal(_adjoint(Linear), main_adjoint)


def test_what_nobody_asked_for_is_not_computed():
    @R.function
    def main_adjoint(x: R.Tensor((3, 4), "float32"), w: R.Tensor((5, 4), "float32")):
        with R.dataflow():
            wt = R.permute_dims(w)
            y = R.matmul(x, wt)
            loss = R.sum(y)
            one = R.ones(R.shape([]), "float32")
            y_adjoint = R.broadcast_to(one, R.shape([3, 5]))
            x_adjoint = R.matmul(y_adjoint, w)
            x_out = x_adjoint
            R.output(loss, x_out)
        return (loss, (x_out,))

    assert_structural_equal(_adjoint(Linear, require_grads=Linear["main"].params[0]), main_adjoint)


def test_values_inside_may_be_asked_for():
    inner = Linear["main"].body.blocks[0].bindings[1].var
    adjoint = _adjoint(Linear, require_grads=[inner])
    assert adjoint.ret_struct_info.fields[1].fields[0].dims()[1] == 5
    assert adjoint.attrs["global_symbol"] == "main_adjoint"


def test_only_the_adjoint_loses_registered_gradients_and_private_functions_become_public():
    @I.ir_module
    class Module:
        @R.function(private=True)
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                loss = R.sum(x)
                R.output(loss)
            return loss

    assert _adjoint(Module).attrs["global_symbol"] == "main_adjoint"


@pytest.mark.parametrize("variables", [[0, 0], [None]])
def test_bad_requests(variables):
    other = transform.Gradient("main")(Linear)["main_adjoint"].params[0]
    wanted = [other if v is None else Linear["main"].params[v] for v in variables]
    with pytest.raises(InternalError):
        transform.Gradient("main", require_grads=wanted)(Linear)


def _of(build):
    """The backward part of ``sum(build(x))``: names of the operators after ``ones`` and ``broadcast_to``."""
    from relaxish import relax

    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            loss = bb.emit_output(R.sum(bb.emit(build(x))))
        bb.emit_func_output(loss)
    bindings = _adjoint(bb.finalize()).body.blocks[0].bindings
    names = [b.value.op.name.removeprefix("relax.") for b in bindings if hasattr(b.value, "op")]
    return names[names.index("ones") + 2 :]


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (lambda x: R.divide(R.const(1.0), x), ["negative", "multiply", "divide"]),
        (lambda x: R.abs(x), ["less", "negative", "where", "multiply"]),
        (lambda x: R.cos(x), ["negative", "sin", "multiply"]),
        (lambda x: R.sigmoid(x), ["multiply", "subtract", "multiply"]),
        (lambda x: R.sqrt(x), ["multiply", "divide"]),
        (lambda x: R.maximum(x, R.const(0.0)), ["less", "where"]),
        (lambda x: R.nn.log_softmax(x), ["sum", "exp", "multiply", "subtract"]),
        (lambda x: R.nn.silu(x), ["sigmoid", "subtract", "multiply", "add", "multiply"]),
        (lambda x: R.variance(x, axis=1), ["expand_dims", "multiply", "sum", "multiply", "subtract", "multiply"]),
        (lambda x: R.broadcast_to(x, (4, 2, 3)), ["collapse_sum_to"]),
    ],
)
def test_rules(build, names):
    assert _of(build) == names


def test_end_of_a_checkpoint_is_computed_again():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                start = R.grad.start_checkpoint(x)
                a = R.exp(start)
                end = R.grad.end_checkpoint(a)
                b = R.sin(end)
                loss = R.sum(b)
                R.output(loss)
            return loss

    @R.function
    def main_adjoint(x: R.Tensor((3,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.sin(a)
            loss = R.sum(b)
            one = R.ones(R.shape([]), "float32")
            b_adjoint = R.broadcast_to(one, R.shape([3]))
            a_cp = R.exp(x)
            lv = R.cos(a_cp)
            a_adjoint = R.multiply(b_adjoint, lv)
            x_adjoint = R.multiply(a_adjoint, a_cp)
            x_out = x_adjoint
            R.output(loss, x_out)
        return (loss, (x_out,))

    assert_structural_equal(_adjoint(Before), main_adjoint)


def _tensor(name, shape, dtype="float32"):
    return relax.Var(name, R.Tensor(shape, dtype))


@pytest.mark.parametrize(
    ("make", "without"),
    [
        (lambda x, y: relax.op.greater(x, y), [0, 1]),
        (lambda x, y: relax.op.not_equal(x, y), [0, 1]),
        (lambda x, y: relax.op.ones_like(x), [0]),
        (lambda x, y: relax.op.reshape(x, (4, 3)), [1]),
        (lambda x, y: relax.op.broadcast_to(x, (2, 3, 4)), [1]),
        (lambda x, y: relax.op.full((2, 3), relax.const(1.0)), [0, 1]),
        (lambda x, y: relax.op.zeros((2, 3), "float32"), [0]),
        (lambda x, y: relax.op.triu(x, 1), [1]),
        (lambda x, y: relax.op.take(x, relax.const([1, 2], "int64"), axis=0), [1]),
        (lambda x, y: relax.op.where(relax.op.less(x, y), x, y), [0]),
        (lambda x, y: relax.op.add(x, relax.PrimValue(tir.FloatImm("float32", 2.0))), [1]),
        (lambda x, y: relax.op.nn.nll_loss(x, relax.const([0, 1, 2], "int64"), relax.const([1.0] * 4)), [1, 2]),
    ],
)
def test_operands_without_gradient_say_so(make, without):
    x, y = _tensor("x", (3, 4)), _tensor("y", (3, 4))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        var = builder.emit(make(x, y))
        call = builder.lookup_binding(var)
        made = call.op.get_attr("FPrimalGradient")(var, call, relax.Var("out", var.struct_info), builder)
        builder.emit_func_output(var)
    assert len(made) == len(call.args)
    no_grad = Op.get("relax.grad.no_grad")
    said = [k for k, grad in enumerate(made) if isinstance(grad, relax.Call) and grad.op == no_grad]
    assert said == without
    assert all(made[k].args[0] is call.args[k] for k in without)
