"""Instructions are typed: every kind stands on a frozen dataclass whose fields are its inputs, attributes and decision."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from relaxish import tir
from relaxish.testing.examples import matmul
from relaxish.tir.schedule import Instruction, InstructionKind, Step, kind_table
from relaxish.tir.schedule.instruction import operand

KINDS = kind_table()


@pytest.mark.parametrize("name", KINDS)
def test_kind_follows_from_the_fields(name: str) -> None:
    kind = KINDS[name]
    declared = dataclasses.fields(kind.step)
    parameters = [p.rstrip("*") for p in kind.inputs] + [*kind.attrs] + ["decision"] * kind.samples
    assert sorted(f.name for f in declared) == sorted(parameters)
    assert InstructionKind.get(name) is kind is kind.step.kind and kind.name == kind.step.__name__ == name
    assert kind.is_pure == kind.step.is_pure and (not kind.samples or kind.is_pure)
    assert sum(p.endswith("*") for p in kind.inputs) <= 1 and not any(p.endswith("*") for p in kind.inputs[:-1])
    method = getattr(tir.Schedule, kind.method)
    if "as_python" not in vars(kind.step) and not kind.step.positional:
        taken = inspect.signature(method).parameters
        assert {f.name for f in declared} - {"consumer_blocks"} <= set(taken), taken


@pytest.mark.parametrize("name", KINDS)
def test_a_step_comes_back_from_its_parts(name: str) -> None:
    kind = KINDS[name]
    values: dict[str, object] = {}
    for at, f in enumerate(dataclasses.fields(kind.step)):
        known = {"int": at + 2, "bool": at % 2 == 0, "str": f"s{at}"}
        many = f.metadata.get("rest") or str(f.type).startswith("Sequence")
        values[f.name] = known.get(str(f.type), [at, at + 1] if many else f"x{at}")
    made = kind.step(**values)
    inputs, attrs, decision = made.parts()
    assert len(attrs) == len(kind.attrs) and (decision is not None) == kind.samples
    again = kind.step.of(inputs, attrs, decision)
    assert {f.name: getattr(again, f.name) for f in dataclasses.fields(again)} == values
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.anything = 1  # type: ignore[attr-defined]


def test_boxed_numbers_become_plain() -> None:
    made = KINDS["StorageAlign"].step.of(["b"], [tir.const(0, "int32"), tir.const(-2, "int64"), 16, 4], None)
    assert made.parts()[1] == [0, -2, 16, 4] and all(type(x) is int for x in made.parts()[1])
    assert KINDS["Split"].step.of(["l", None, 4], [tir.const(1, "bool")], None).parts()[1] == [True, False]


def test_methods_record_their_steps() -> None:
    sch = tir.Schedule(matmul)
    loop = sch.get_loops("C")[0]
    outer, inner = sch.split(loop, factors=[None, 4])
    split = sch.trace.insts[-1]
    assert isinstance(split, Instruction) and split.kind is InstructionKind.get("Split")
    assert (split.inputs, split.attrs, split.outputs) == ([loop, None, 4], [True, False], [outer, inner])
    sch.sample_perfect_tile(outer, n=2, decision=[4, 1])
    assert sch.trace.get_decision(sch.trace.insts[-1]) == [4, 1]


def test_a_step_of_ones_own() -> None:
    class MarkTwice(Step, method="annotate"):
        """Two annotations at once."""

        block: object = operand()
        key: str
        value: int

        def run(self, sch):
            for suffix in "ab":
                sch.state.replace(
                    ref := sch.sref(self.block),
                    ref.stmt.with_fields(annotations={**ref.stmt.annotations, self.key + suffix: self.value}),
                )
            return []

    try:
        sch = tir.Schedule(matmul)
        loop = sch.get_loops("C")[0]
        sch._do(MarkTwice(loop, "mark_", 3))
        again = tir.Schedule(matmul)
        tir.schedule.Trace.from_json(sch.trace.as_json()).apply_to_schedule(again)
        for each in (sch, again):
            assert dict(each.get(each.get_loops("C")[0]).annotations) == {"mark_a": 3, "mark_b": 3}
    finally:
        from relaxish.tir.schedule.instruction import _KINDS

        del _KINDS["MarkTwice"]
