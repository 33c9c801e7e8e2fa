"""The instrument that checks programs between passes."""

import pytest

from relaxish import relax, transform
from relaxish.ir import IRModule
from relaxish.relax.ir.instrument import WellFormedInstrument
from relaxish.script import ir as I
from relaxish.script import relax as R


@I.ir_module
class Good:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        y = R.add(x, x)
        return y


@transform.module_pass(opt_level=0, name="Spoil")
class Spoil:
    """Uses a variable that nobody defines."""

    def transform_module(self, mod, ctx):
        main = mod["main"]
        stranger = relax.Var("stranger", R.Tensor((2,), "float32"))
        body = relax.SeqExpr(main.body.blocks, stranger)
        body.struct_info_ = stranger.struct_info
        return IRModule({"main": relax.Function(main.params, body, stranger.struct_info, attrs=main.attrs)})


def test_passes_in_order():
    with transform.PassContext(instruments=[WellFormedInstrument()]):
        legal = relax.transform.LegalizeOps()(Good)
    assert "R.call_tir(cls.add" in legal.script()


def test_names_the_pass(capsys):
    with pytest.raises(AssertionError, match="after pass Spoil.*stranger"):
        with transform.PassContext(instruments=[WellFormedInstrument()]):
            Spoil()(Good)
