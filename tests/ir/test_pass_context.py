"""Pass contexts: options, instruments and their order, also when one of them fails; texts of passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relaxish import IRModule, relax, tir, transform
from relaxish.ir import instrument
from relaxish.ir.instrument import pass_instrument
from relaxish.ir.transform import PassContext, Sequential, module_pass

MOD = IRModule({"main": tir.PrimFunc([], tir.Evaluate(0))})


def test_options_have_types() -> None:
    configs = PassContext.list_configs()
    assert configs["tir.noalias"] == {"type": "IntImm"} and configs["tir.add_lower_pass"] == {"type": "Array"}
    table = PassContext(config={"tir.UnrollLoop": {"auto_max_step": 4}}).config["tir.UnrollLoop"]
    assert (table.auto_max_step, table["auto_max_depth"], table.explicit_unroll) == (4, 8, True)
    for bad in ({"tir.no_such": 1}, {"tir.noalias": "yes"}, {"tir.UnrollLoop": 1}, {"tir.UnrollLoop": {"steps": 1}}):
        with pytest.raises(AttributeError):
            PassContext(config=bad)
    with pytest.raises(AttributeError, match="candidates are: .*tir.noalias"):
        PassContext(config={"nope": 1})
    for field in ("required_pass", "disabled_pass", "instruments"):
        with pytest.raises(TypeError):
            PassContext(**{field: "name"})  # type: ignore[arg-type]


class Log:
    """Makes instruments that write down what they are told."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def make(self, name: str, broken: str = "", run: bool = True) -> Any:
        events = self.events

        def told(what: str) -> None:
            events.append(f"{name} {what}")
            if what == broken:
                raise KeyError(what)

        @pass_instrument
        class Told:
            def enter_pass_ctx(self) -> None:
                told("enter")

            def exit_pass_ctx(self) -> None:
                told("exit")

            def should_run(self, mod: Any, info: Any) -> bool:
                told("should")
                return run

            def run_before_pass(self, mod: Any, info: Any) -> None:
                told("before")

            def run_after_pass(self, mod: Any, info: Any) -> None:
                told("after")

        return Told()


@module_pass(opt_level=1, name="Noop")
def noop(mod: IRModule, ctx: PassContext) -> IRModule:
    return mod


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ("", "1 enter,2 enter,3 enter,1 should,2 should,3 should,1 before,2 before,3 before,1 after,2 after,3 after,"
             "1 exit,2 exit,3 exit"),
        ("enter", "1 enter,2 enter,1 exit"),
        ("should", "1 enter,2 enter,3 enter,1 should,2 should,1 exit,2 exit,3 exit"),
        ("before", "1 enter,2 enter,3 enter,1 should,2 should,3 should,1 before,2 before,1 exit,2 exit,3 exit"),
        ("after", "1 enter,2 enter,3 enter,1 should,2 should,3 should,1 before,2 before,3 before,1 after,2 after,"
                  "1 exit,2 exit,3 exit"),
        ("exit", "1 enter,2 enter,3 enter,1 should,2 should,3 should,1 before,2 before,3 before,1 after,2 after,3 after,"
                 "1 exit,2 exit"),
    ],
)  # fmt: skip
def test_instruments_that_fail(broken: str, expected: str) -> None:
    log = Log()
    context = PassContext(instruments=[log.make("1"), log.make("2", broken), log.make("3")])

    def run() -> None:
        with context:
            noop(MOD)

    if broken:
        with pytest.raises(KeyError):
            run()
    else:
        run()
    assert log.events == expected.split(",")
    assert PassContext.current() is not context and PassContext.current().instruments is None


def test_all_are_asked_and_required_passes_run_anyway() -> None:
    log = Log()
    with PassContext(instruments=[log.make("1", run=False), log.make("2")]):
        noop(MOD)
    assert log.events == ["1 enter", "2 enter", "1 should", "2 should", "1 exit", "2 exit"]
    log.events.clear()
    with PassContext(instruments=[log.make("1", run=False)], required_pass=["Noop"]):
        noop(MOD)
    assert log.events == ["1 enter", "1 before", "1 after", "1 exit"]


def test_instruments_of_the_default_context() -> None:
    log = Log()
    current = PassContext.current()
    current.override_instruments([log.make("1")])
    noop(MOD)
    current.override_instruments(None)
    noop(MOD)
    assert log.events == ["1 enter", "1 should", "1 before", "1 after", "1 exit"]
    with pytest.raises(KeyError):
        current.override_instruments([log.make("2", "enter")])
    assert not current.instruments
    current.override_instruments(None)


def test_levels_decide_what_a_sequence_runs() -> None:
    seen: list[str] = []

    def step(level: int, name: str) -> Any:
        return module_pass(lambda mod, ctx: (seen.append(name), mod)[1], opt_level=level, name=name)

    seq = Sequential([step(0, "a"), step(2, "b"), step(3, "c")], name="steps")
    for options, expected in (
        ({"opt_level": 2}, "ab"),
        ({"opt_level": 3, "disabled_pass": ["b"]}, "ac"),
        ({"opt_level": 0, "required_pass": ["c"]}, "ac"),
    ):
        with PassContext(**options):  # type: ignore[arg-type]
            seq(MOD)
        assert "".join(seen) == expected
        seen.clear()


def test_times_are_told_until_the_context_ends() -> None:
    timing = instrument.PassTimingInstrument()
    with PassContext(instruments=[timing]):
        Sequential([noop], name="outer")(MOD)
        text = timing.render()
    first, second = text.splitlines()
    assert first.startswith("outer: ") and second.startswith("\tNoop: ") and "us [" in first and first.endswith("%)")
    assert timing.render() == ""


def test_texts() -> None:
    assert str(noop) == "Run Module pass: Noop at the optimization level 1"
    assert str(tir.transform.Simplify()) == "Run Function pass: tir.Simplify at the optimization level 0"
    assert str(Sequential([noop, noop], name="two")) == (
        "Run Sequential pass: two at the optimization level 0. The passes will be executed are: [Noop Noop ]"
    )
    assert str(noop.info) == "The meta data of the pass - pass name: Noop, opt_level: 1, required passes: []\n"
    assert str(PassContext(opt_level=1, required_pass=["a"])) == (
        "Pass context information: \n\topt_level: 1\n\trequired passes: ['a']\n\tdisabled passes: []\n"
        "\tinstruments: None\n\tconfig: {}"
    )


def test_printing_instruments(capsys: pytest.CaptureFixture[str]) -> None:
    with PassContext(instruments=[instrument.PrintBeforeAll(), instrument.PrintAfterAll()]):
        noop(MOD)
    out = capsys.readouterr().out
    assert out == f"Before Running Pass: {noop.info}\n{MOD}\nAfter Running Pass: {noop.info}\n{MOD}\n"
    with PassContext(instruments=[instrument.PassPrintingInstrument(["Noop"], [])]):
        noop(MOD)
    assert capsys.readouterr().out == f"Print IR before: Noop\n{MOD}\n\n\n"
    transform.PrintIR("here")(MOD)
    assert capsys.readouterr().out == f"PrintIR(here):\n{MOD}\n"


def test_dumping_instrument(tmp_path: Path) -> None:
    with PassContext(instruments=[instrument.DumpIR(tmp_path / "dump")]):
        relax.transform.DeadCodeElimination()(noop(MOD))
    assert [p.name for p in sorted((tmp_path / "dump").iterdir())] == ["000_Noop.py", "001_DeadCodeElimination.py"]
    assert (tmp_path / "dump" / "000_Noop.py").read_text() == MOD.script()
