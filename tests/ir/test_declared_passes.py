"""Every public pass is a frozen dataclass of its options, whose text form gives it back."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from relaxish import relax, tir, transform
from relaxish.ir.declared_pass import DeclaredPass, ModuleRewrite, pass_from_text, pass_text
from relaxish.ir.module import IRModule
from relaxish.ir.transform import Pass, PassContext, Sequential
from relaxish.support.errors import RelaxishError
from relaxish.target import Target

# Values other than the defaults, for options that plain values can be given to; by type, or by name where it takes some.
VALUES: dict[str, Any] = {
    "int": 3, "bool": None, "str": "shared", "str | None": "main", "list[str] | None": ["main", "f"],
    "Sequence[str] | None": ["a"], "Sequence[Any] | None": [1, "a"], "bool | Sequence[str]": ["f", "g"],
    "Mapping[str, Sequence[int]]": {"n": [16, 64]},
    "Mapping[str, Sequence[str]]": {"relax.nn.conv2d": ["NHWC", "OHWI"]}, "Mapping[str, Any] | None": {"dnnl": {"a": 1}},
    "order": "breadth-first", "direction": "from-outputs", "storage_scope": "shared", "target_bits": 32, "params": {},
    "binding_map": {"n": 4}, "op_impl_map": {}, "op_buffer_transforms": {}, "extern_modules": [], "patterns": [],
    "promote_dtype_str": "float16", "out_dtype": "float16",
}  # fmt: skip
# Options that are functions or objects: these passes are made in Python.
OBJECTS = {"fcond", "ftransform", "check", "sinfo_func", "fcodegen", "new_vdevice", "customize_legalize_map", "require_grads",
           "op_buffer_axis_separators", "op_buffer_input_axis_separators", "target", "default_target"}  # fmt: skip


def public_passes() -> dict[str, type[DeclaredPass]]:
    found: dict[str, type[DeclaredPass]] = {}
    for place in (transform, tir.transform):
        for name in place.__all__:
            value = getattr(place, name)
            if inspect.isclass(value) and issubclass(value, DeclaredPass):
                found[f"{place.__name__.removeprefix('relaxish.')}.{name}"] = value
    return found


PASSES = public_passes()


def chosen(cls: type[DeclaredPass], *, only_required: bool = False) -> dict[str, Any]:
    """Options of a pass with values that are not the defaults."""
    options: dict[str, Any] = {}
    for f in dataclasses.fields(cls):  # type: ignore[arg-type]
        needed = f.default is dataclasses.MISSING
        if (only_required and not needed) or (f.name in OBJECTS and not needed):
            continue
        if f.name == "entry_functions" and not needed:
            options[f.name] = ["main", "f"]
        elif f.type == "bool":
            options[f.name] = not f.default if not needed else True
        elif f.name not in OBJECTS:
            options[f.name] = VALUES[f.name] if f.name in VALUES else VALUES[str(f.type)]
    return options


def find(name: str) -> Any:
    return next(value for key, value in PASSES.items() if key.rpartition(".")[2] == name)


def test_every_public_pass_is_declared() -> None:
    """What is no class of passes is a base class, a thing that passes are made with, or a search (meta_schedule)."""
    others = {
        name
        for place in (transform, tir.transform)
        for name in place.__all__
        if name[0].isupper() and not (inspect.isclass(v := getattr(place, name)) and issubclass(v, DeclaredPass))
    }
    assert others == {
        "ApplyPassToFunction", "DataflowBlockPass", "FewShotTuning", "FunctionPass", "FusionPattern",
        "HoistedConditionals", "HoistedLetBindings", "MetaScheduleApplyDatabase", "MetaScheduleTuneIRMod",
        "MetaScheduleTuneTIR", "ModulePass", "Pass", "PassContext", "PassInfo", "PatternCheckContext", "PrimFuncPass",
        "PrintIR", "Sequential",
    }  # fmt: skip
    assert len(PASSES) > 140


@pytest.mark.parametrize("name", PASSES)
def test_fields_are_the_parameters_of_the_call(name: str) -> None:
    cls = PASSES[name]
    parameters = inspect.signature(cls).parameters.values()
    declared = dataclasses.fields(cls)  # type: ignore[arg-type]
    assert [f.name for f in declared] == [p.name for p in parameters]
    for f, p in zip(declared, parameters, strict=True):
        assert (f.default is dataclasses.MISSING) == (p.default is inspect.Parameter.empty)
        assert f.default is dataclasses.MISSING or f.default == p.default
    assert cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}(")  # the class's own, not the dataclass's


@pytest.mark.parametrize("name", PASSES)
def test_text_gives_the_pass_back(name: str) -> None:
    cls = PASSES[name]
    if any(f.name in OBJECTS and f.default is dataclasses.MISSING for f in dataclasses.fields(cls)):  # type: ignore[arg-type]
        pytest.skip("needs an object")
    for options in (chosen(cls, only_required=True), chosen(cls)):
        made = cls(**options)
        text = pass_text(made)
        again = pass_from_text(text, lambda word: cls if word == cls.__name__ else find(word))
        assert type(again) is cls and again == made and again is not made
        assert text.count("=") >= len(options) or not options
        assert again.info is made.info and again.info.name
        with pytest.raises(dataclasses.FrozenInstanceError):
            made.anything = 1  # type: ignore[attr-defined]


def test_texts() -> None:
    assert pass_text(relax.transform.FuseOps(fuse_opt_level=1)) == "FuseOps{fuse_opt_level=1}"
    assert pass_text(relax.transform.TopologicalSort("breadth-first")) == "TopologicalSort{order='breadth-first'}"
    assert pass_from_text("FuseOps(1)", find) == pass_from_text(" FuseOps{fuse_opt_level=1} ", find)
    assert pass_from_text("VMShapeLower{emit_err_ctx=False}", find) == transform.VMShapeLower(emit_err_ctx=False)
    assert repr(relax.transform.FuseOps()) == "Run Module pass: FuseOps at the optimization level 0"


@pytest.mark.parametrize(
    "text",
    [
        "FuseOps{", "FuseOps{fuse_opt_level}", "FuseOps{level=1}", "FuseOps{fuse_opt_level=open('x')}", "FuseOps(1, 2)",
        "TopologicalSort{order='sideways'}", "FuseOps{1: 2}", "", "VMShapeLower(False)",
    ],
)  # fmt: skip
def test_bad_texts(text: str) -> None:
    with pytest.raises(RelaxishError):
        pass_from_text(text, find)


def test_options_without_text() -> None:
    with pytest.raises(RelaxishError, match="the option fcond is a function"):
        pass_text(tir.transform.Filter(lambda func: True))


def test_options_take_their_form_once() -> None:
    assert tir.transform.BindTarget("llvm") == tir.transform.BindTarget(Target("llvm"))
    assert transform.ConvertLayout({"relax.nn.conv2d": ("NHWC", "OHWI")}) == transform.ConvertLayout(
        {"relax.nn.conv2d": ["NHWC", "OHWI"]}
    )


def test_steps_follow_from_the_options() -> None:
    made = relax.transform.DecomposeOpsForTraining("main")
    assert isinstance(made, Sequential) and made.level == "Sequential"
    assert [p.info.name for p in made.passes] == ["MutateOpsForTraining", "DecomposeOps"]
    assert all(isinstance(p, Pass) and p.func_name == "main" for p in made.passes)  # type: ignore[attr-defined]


def test_a_pass_of_ones_own() -> None:
    class Rename(ModuleRewrite, name="mine.Rename", opt_level=3):
        """Give the module an attribute."""

        value: str = "a"

        def rewrite(self, mod: IRModule) -> IRModule:
            return mod.with_attr("named", self.value)

    made = Rename("b")
    assert (made.info.name, made.info.opt_level) == ("mine.Rename", 3)
    assert made(IRModule({})).attrs["named"] == "b"
    with PassContext(opt_level=2):
        assert "named" not in (Sequential([made])(IRModule({})).attrs or {})
