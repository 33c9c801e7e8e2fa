"""Visitors and mutators as users subclass them."""

from __future__ import annotations

import pytest

from relaxish import relax, tir
from relaxish.ir import Op, structural_equal
from relaxish.relax import PyExprMutator, PyExprVisitor
from relaxish.relax.expr_functor import mutator, visitor
from relaxish.script import relax as R


@R.function(private=True)
def chain(x: R.Tensor(("n",), "float32")):
    with R.dataflow():
        a = R.add(x, x)
        b = R.nn.relu(a)
        R.output(b)
    return b


@visitor
class Kinds(PyExprVisitor):
    """Notes which methods are called."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def visit_var_(self, op):
        self.seen.append(f"var {op.name_hint}")

    def visit_dataflow_block_(self, block):
        self.seen.append("dataflow")
        super().visit_dataflow_block_(block)

    def visit_binding_block_(self, block):
        self.seen.append("block")

    def visit_dataflow_var_def_(self, var):
        self.seen.append(f"def {var.name_hint}")

    def visit_op_(self, op):
        self.seen.append(op.name)


def test_kinds_are_kept_apart_in_marked_classes():
    kinds = Kinds()
    kinds.visit_expr(chain)
    # A use of the dataflow variable a is none of visit_var_'s business, nor is its block one of visit_binding_block_'s.
    assert kinds.seen == ["dataflow", "relax.add", "var x", "var x", "def a", "relax.nn.relu", "var b"]


@mutator
class Swap(PyExprMutator):
    """relu becomes a sum of two exponentials."""

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if call.op == Op.get("relax.nn.relu"):
            return R.add(R.exp(call.args[0]), R.exp(call.args[0]))
        return call


def test_new_values_are_normalized_and_nothing_else_changes():
    out = Swap().visit_expr(chain)
    (block,) = out.body.blocks
    assert isinstance(block, relax.DataflowBlock)
    assert [b.value.op.name for b in block.bindings] == ["relax.add", "relax.exp", "relax.exp", "relax.add"]
    assert block.bindings[0] is chain.body.blocks[0].bindings[0] and out.body.body is chain.body.body
    assert PyExprMutator().visit_expr(chain) is chain


@mutator
class Rename(PyExprMutator):
    """Gives every variable a new name."""

    def visit_var_def_(self, var):
        made = relax.Var(var.name_hint + "_new", var.struct_info)
        self.set_var_remap(var.vid, made)
        return made


def test_renamed_variables_stay_in_their_block():
    rename = Rename()
    out = rename.visit_expr(chain)
    assert structural_equal(out, chain)
    a, b = (binding.var for binding in out.body.blocks[0].bindings)
    assert (a.name_hint, b.name_hint) == ("a_new", "b_new")
    assert isinstance(a, relax.DataflowVar) and not isinstance(b, relax.DataflowVar)
    assert rename.get_var_remap(chain.params[0].vid) is out.params[0]
    with pytest.raises(KeyError):
        rename.get_var_remap(relax.Var("other").vid)


@mutator
class Widen(PyExprMutator):
    """Doubles what relu gives, so struct infos change; looks up what its arguments are bound to."""

    def __init__(self):
        super().__init__()
        self.sources = []

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        self.sources.append([self.lookup_binding(a) for a in call.args])
        return R.concat([call.args[0], call.args[0]], axis=0) if call.op.name == "relax.nn.relu" else call


def test_changed_struct_infos_make_new_variables_of_the_same_identity():
    widen = Widen()
    out = widen.visit_expr(chain)
    old, new = chain.body.blocks[0].bindings[-1].var, out.body.blocks[0].bindings[-1].var
    assert new is not old and new.vid is old.vid and out.body.body is new
    assert str(out.ret_struct_info.shape.values[0]) == "n * T.int64(2)" or "2" in str(out.ret_struct_info)
    assert widen.sources[0] == [None, None] and widen.sources[1][0].op.name == "relax.add"


def test_match_cast_values_are_bound_when_they_change():
    @R.function(private=True)
    def cast(x: R.Tensor(ndim=1, dtype="float32")):
        y = R.match_cast(R.nn.relu(x), R.Tensor((4,), "float32"))
        return y

    (binding,) = cast.body.blocks[0].bindings
    assert isinstance(binding.value, relax.Call)
    assert PyExprMutator().visit_expr(cast) is cast


def test_marked_classes_keep_the_written_one() -> None:
    @visitor
    class Names(PyExprVisitor):
        """Names of variables."""

        def __init__(self) -> None:
            self.names: list[str] = []

        def visit_var_(self, op: relax.Var) -> None:
            self.names.append(op.name_hint)

    assert Names.__name__ == "Names" and Names.__doc__ == "Names of variables."
    assert Names._cls is not Names and issubclass(Names, Names._cls)

    @visitor
    class More(Names._cls):
        pass

    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    more = More()
    more.visit_expr(relax.Tuple([x, x]))
    assert more.names == ["x", "x"]
    with pytest.raises(TypeError, match="_cls"):

        @visitor
        class Wrong(Names):
            pass


def test_comparisons_are_values() -> None:
    n = tir.Var("n", "int64")
    for comparison in (n == 16, n != 16):
        value = relax.PrimValue(comparison)
        assert comparison.dtype == value.struct_info.dtype == "bool"


def test_types_of_python_floats() -> None:
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    assert relax.PrimValue(0.5).struct_info.dtype == "float32"
    # Operators convert their arguments, and floats of Python have 64 bits there.
    assert [str(a.value.dtype) for a in relax.op.clip(x, -0.5, 0.5).args[1:]] == ["float64", "float64"]
    assert relax.utils.convert_to_expr(0.5).struct_info.dtype == "float64"
