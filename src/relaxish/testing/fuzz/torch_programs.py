"""Random torch programs with views and writes in place, exported, imported and compared with torch.

    python -m relaxish.testing.fuzz --kind torch --seconds 600

A program is Python text that a number determines: statements over two inputs, a mask, an index tensor and two buffers,
each tried out on examples as it is made, so that torch accepts it.  Its exported form is imported and compiled, with
static or with dynamic sizes; outputs, inputs and buffers after the call must be those of torch.
"""

from __future__ import annotations

import io
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TYPE_CHECKING

import numpy as np

from ...ir.module import IRModule
from ...runtime.vm.machine import VirtualMachine
from ...support.errors import OpNotImplemented
from ...support.sequences import of_kind
from ...ir.plain import plain

if TYPE_CHECKING:
    import torch

__all__ = ["TorchFailure", "TorchProgram", "check_program", "make_program", "regression_test", "shrink_program"]

_VIEWS = (
    "{a}[{i}]", "{a}[:, {i}]", "{a}[{s}]", "{a}[:, {s}]", "{a}[..., {s}]", "{a}[None]", "{a}.t()", "{a}.transpose(0, -1)",
    "{a}.unsqueeze({i})", "{a}.squeeze(0)", "{a}.reshape(-1)", "{a}.view(-1)", "{a}.flatten(0, 1)", "{a}.permute(1, 0)",
    "{a}.permute(2, 0, 1)", "{a}.diagonal()", "{a}.diagonal({i})", "{a}.expand(2, *{a}.shape)", "{a}.chunk(2, -1)[1]",
    "{a}.split(2)[0]", "{a}.unbind(-1)[0]", "{a}.narrow(0, 1, 2)", "{a}.select(-1, {i})", "{a}.view(2, -1)",
    "{a}.swapaxes(0, 1)", "{a}.movedim(0, -1)", "{a}.detach()", "{a}.unflatten(-1, (-1, 1))",
)  # fmt: skip
_FRESH = (
    "{a} + {b}", "{a} - {b}", "{a} * {n}", "torch.tanh({a}) * {b}.clamp(-2, 2)", "torch.where({m}, {a}, {b})",
    "torch.where({a} > {n}, {a}, {n})", "{a}.sum(-1)", "{a}.amax(0)", "{a}.mean(-1, keepdim=True)", "{a}.cumsum(0)",
    "torch.cat([{a}, {b}], 0)", "torch.stack([{a}, {a} * {n}], -1)", "{a}.clone()", "{a}.abs()", "torch.maximum({a}, {b})",
    "{a}[{x}]", "{a}[:, {x}]", "{a}[{x}, {x} - 1]", "{a}.index_select(0, {x})", "{a}.gather(0, {p})", "{a}.flip(0)",
    "{a}.roll(1, 0)", "{a}.softmax(-1)", "{a} @ {b}.transpose(-1, -2)", "{a}.to(torch.int64)", "({a} > {n}).float() + {a}",
    "{a}.masked_fill({m}, {n})", "{a}.repeat(2, 1)", "{a}.sort(-1)[0]", "{a}.tril()", "{a}.float() / 3",
    "{a}.index_put(({x},), {c})", "torch.zeros_like({a}) + {b}", "{a}.new_full({a}.shape, {n})",
)  # fmt: skip
_WRITES = (
    "{a}.add_({b})", "{a}.add_({n})", "{a}.sub_({b}, alpha=2)", "{a}.mul_({n})", "{a}.fill_({n})", "{a}.zero_()",
    "{a}.copy_({b})", "{a}.neg_()", "{a}.clamp_(-1, 1)", "{a}.relu_()", "{a}.masked_fill_({m}, {n})",
    "{a}.masked_fill_({a} > {n}, {n})", "{a}[{i}] = {n}", "{a}[:, {i}] = {n}", "{a}[{s}] = {n}", "{a}[:, {s}] = {n}",
    "{a}[..., {i}] = {b}[..., 0]", "{a}[{s}] = {b}[{s}]", "{a}[{m}] = {n}", "{a}[{m}[..., 0]] = {n}", "{a}[{m}] += {n}",
    "{a}[:, {m}[0]] = {n}", "{a}[{x}] = {n}", "{a}[{x}] = {b}[{x}]", "{a}[{x}, {i}] = {n}", "{a}[:, {x}] = {n}",
    "{a}.index_put_(({x},), {c}, accumulate=True)", "{a}.index_put_(({m},), {c}, accumulate=True)",
    "{a}.index_put_(({m}[:, 0], {y}), {c})", "{a}.index_add_(0, {x}, {b}[{x}])", "{a}.index_fill_(0, {x}, {n})",
    "{a}.scatter_(0, {p}, {n})", "{a}.scatter_(0, {p}, {b})", "{a}.scatter_add_(0, {p}, {b})", "{a}.tril_()",
    "{a}.diagonal().fill_({n})", "{a}.t_()", "{a}.unsqueeze_(0)", "{a}.cumsum_(0)", "{a}.masked_scatter_({m}, {b})",
    "{a}.view(-1)[{s}].fill_({n})", "{a}.addcmul_({b}, {b}, value=0.5)", "{a}.lerp_({b}, 0.25)", "{a}.bitwise_and_({n})",
)  # fmt: skip


@dataclass(frozen=True)
class TorchProgram:
    """The statements of ``forward(self, a, b, m, x)``, what it returns, and how it is exported.

    ``rows`` is the first size of the inputs (of all but ``x``); it is symbolic if ``dynamic``. The buffers are
    ``self.u`` (floats, ``[4, 5]``) and ``self.w`` (integers, ``[5]``).
    """

    number: int
    statements: tuple[str, ...]
    returned: tuple[str, ...]
    rows: int = 4
    dynamic: bool = False
    seed: int = 0

    @property
    def source(self) -> str:
        """The module as Python text."""
        lines = [
            "class Program(torch.nn.Module):", "    def __init__(self):", "        super().__init__()",
            "        self.register_buffer('u', torch.arange(20.0).reshape(4, 5) / 7 - 1)",
            "        self.register_buffer('w', torch.tensor([3, -1, 4, 1, -5]))", "",
            "    def forward(self, a, b, m, x):", *(f"        {line}" for line in self.statements),
            f"        return ({', '.join(self.returned)},)",
        ]  # fmt: skip
        return "\n".join(lines) + "\n"

    def module(self) -> torch.nn.Module:
        """A new instance of the module, its buffers as they begin."""
        import torch

        scope: dict[str, Any] = {"torch": torch}
        exec(self.source, scope)
        return scope["Program"]()

    def inputs(self, rows: int | None = None) -> tuple[Any, ...]:
        """Inputs: floats ``[rows, 5]``, floats ``[rows, 5]`` (some of them whole), a mask, and distinct indices."""
        return _inputs(self.seed, self.rows if rows is None else rows)


def _inputs(seed: int, rows: int) -> tuple[Any, ...]:
    import torch

    draw = torch.Generator().manual_seed(seed * 100 + rows)
    a = torch.randn(rows, 5, generator=draw)
    b = torch.randint(-3, 4, (rows, 5), generator=draw).float() / 2
    m = torch.rand(rows, 5, generator=draw) > 0.5
    x = torch.randperm(3, generator=draw)[:2]
    return a, b, m, x - 3 * (torch.rand(2, generator=draw) > 0.7).long()


class _Maker:
    """Statements, tried out on tensors as they are made."""

    def __init__(self, number: int, rows: int) -> None:
        import torch

        self.torch, self.rng = torch, Random(number)
        self.number, self.rows, self.name = number, rows, "a"
        self.statements: list[str] = []
        self.count = 0
        self.scope = self._copied()

    def _tensors(self) -> dict[str, Any]:
        found = {k: v for k, v in self.scope.items() if isinstance(v, self.torch.Tensor) and k not in ("m", "x")}
        return {**found, "self.u": self.scope["self"].u, "self.w": self.scope["self"].w}

    def _operand(self, target: Any) -> str:
        """A tensor that fits ``target``, a copy if the two share elements."""
        fitting = [n for n, t in self._tensors().items() if self._fits(t, target)] or ["1.5"]
        name = self.rng.choice(fitting)
        tensor = self._tensors().get(name)
        shared = tensor is not None and tensor.untyped_storage().data_ptr() == target.untyped_storage().data_ptr()
        return f"{name}.clone()" if shared else name

    def _fits(self, tensor: Any, target: Any) -> bool:
        try:
            return bool(self.torch.broadcast_shapes(tensor.shape, target.shape) == target.shape)
        except RuntimeError:
            return False

    def _mask(self, target: Any) -> str:
        if self.scope["m"].shape == target.shape and self.rng.random() < 0.7:
            return "m"
        return f"({self.name} > {self._number()})"

    def _number(self) -> str:
        return self.rng.choice(["0", "1", "-2", "0.5", "-1.25", "3"])

    def _slice(self) -> str:
        return self.rng.choice(["1:", ":2", "1:3", "::2", "1::2", "-2:", ":-1", "-3:-1", "2:9", "3:1"])

    def _fill(self, template: str) -> str:
        self.name = self.rng.choice(list(self._tensors()))
        target = self._tensors()[self.name]
        fields: dict[str, Callable[[], str]] = {
            "a": lambda: self.name, "b": lambda: self._operand(target), "m": lambda: self._mask(target),
            "n": self._number, "i": lambda: self.rng.choice(["0", "1", "2", "-1", "-2"]), "s": self._slice,
            "x": lambda: "x", "y": lambda: self.rng.choice(["x[:1]", "torch.tensor(2)"]),
            "p": lambda: f"torch.zeros_like({self.name}, dtype=torch.int64)",
            "c": lambda: f"torch.tensor({self._number()}, dtype={self.name}.dtype)",
        }  # fmt: skip
        made = template
        for key, draw in fields.items():
            while "{" + key + "}" in made:
                made = made.replace("{" + key + "}", draw(), 1)
        return made

    def statement(self) -> None:
        """One more statement, if torch takes it."""
        kind = self.rng.choices(("view", "fresh", "write"), (4, 3, 5))[0]
        made = self._fill(self.rng.choice({"view": _VIEWS, "fresh": _FRESH, "write": _WRITES}[kind]))
        if kind == "write" and self._overlaps(self._tensors()[self.name]):
            return  # one element in several places: what a write does is not defined
        if kind != "write":
            made = f"t{self.count} = {made}"
        trial = self._copied()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(made, trial)
        except Exception:
            return
        if any(t.numel() == 0 or t.numel() > 400 for t in of_kind(trial.values(), self.torch.Tensor)):
            return
        self.count += kind != "write"
        self.statements.append(made)
        exec(made, self.scope)

    @staticmethod
    def _overlaps(tensor: Any) -> bool:
        return any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride()))

    def _copied(self) -> dict[str, Any]:
        """The scope in other memory, with the same tensors sharing it: the statements so far, run again."""
        module = TorchProgram(0, (), ("a",)).module()
        scope: dict[str, Any] = {
            "torch": self.torch,
            "self": module,
            **dict(zip("abmx", _inputs(self.number, self.rows))),
        }
        for line in self.statements:
            exec(line, scope)
        return scope


def make_program(number: int, *, statements: int = 9, dynamic: bool | None = None) -> TorchProgram:
    """The program of a number: the same one every time.

    >>> make_program(3).source == make_program(3).source
    True
    """
    rng = Random(number * 7 + 1)
    symbolic = rng.random() < 0.3 if dynamic is None else dynamic
    maker = _Maker(number, 4)
    wanted = rng.randint(2, statements)
    for _ in range(6 * statements):
        if len(maker.statements) < wanted:
            maker.statement()
    made = [n for n in maker.scope if n[0] == "t" and n != "torch"] + ["a", "b"]
    returned = rng.sample(made, min(len(made), rng.randint(1, 3)))
    return TorchProgram(number, tuple(maker.statements), tuple(returned), 4, symbolic, number)


@dataclass
class TorchFailure:
    """A program, at which ``stage`` it went wrong (import, build, run, wrong), and how."""

    program: TorchProgram
    stage: str
    reason: str
    trace: str = field(default="", repr=False)

    def __str__(self) -> str:
        sizes = "dynamic" if self.program.dynamic else "static"
        return f"torch program {self.program.number} ({sizes}), {self.stage}: {self.reason}\n{self.program.source}"


class Refused(Exception):
    """torch cannot export the program, or the importer says that it cannot take it."""


def check_program(program: TorchProgram) -> TorchFailure | None:
    """Compare the imported program with torch. Raises Refused where there is nothing to compare."""
    exported = _exported(program)
    stage = "import"
    try:
        from ...driver import build
        from ...frontend.torch import from_exported_program

        mod = from_exported_program(exported)
        first = mod["main"].params[0].struct_info.dims()[0]
        if program.dynamic and isinstance(plain(first), int):
            raise Refused("torch fixes the size while it takes out writes")
        stage = "build"
        from ...runtime import VirtualMachine, cpu

        machine = VirtualMachine(build(mod, "llvm"), cpu())
        stage = "run"
        for rows in (program.rows, 7) if program.dynamic else (program.rows,):
            reason = _compare(program, rows, machine, mod)
            if reason is not None:
                return TorchFailure(program, "wrong", f"{reason} ({rows} rows)")
    except Refused:
        raise
    except OpNotImplemented as err:
        raise Refused(str(err)) from err
    except ValueError as err:
        if "shape that depends on data" in str(err):
            raise Refused(str(err)) from err
        return TorchFailure(program, stage, f"{type(err).__name__}: {_first_line(err)}", traceback.format_exc())
    except Exception as err:
        return TorchFailure(program, stage, f"{type(err).__name__}: {_first_line(err)}", traceback.format_exc())
    return None


def _first_line(err: BaseException) -> str:
    return (str(err).strip().splitlines() or [""])[0][:300]


def _exported(program: TorchProgram) -> torch.export.ExportedProgram:
    import torch

    options: dict[str, Any] = {}
    if program.dynamic:
        rows = torch.export.Dim("rows", min=3, max=64)
        options["dynamic_shapes"] = ({0: rows}, {0: rows}, {0: rows}, None)
    quiet = io.StringIO()  # torch prints the graph that it gives up on
    try:
        with warnings.catch_warnings(), redirect_stderr(quiet), redirect_stdout(quiet):
            warnings.simplefilter("ignore")
            return torch.export.export(program.module(), program.inputs(), **options)
    except Exception as err:
        raise Refused(f"torch.export: {_first_line(err)}") from None


def _compare(program: TorchProgram, rows: int, machine: VirtualMachine, mod: IRModule) -> str | None:
    """What differs between torch and the compiled program, or None."""
    import torch

    from ...runtime.arrays.ndarray import array

    module, given = program.module(), program.inputs(rows)
    before = {name: value.clone() for name, value in _state(module, given).items()}
    exact, exact_given = _doubled(program, rows)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = list(module(*given))
            bounds = list(exact(*exact_given))
    except Exception:
        return None  # the sizes are not for this program
    found = [part.numpy() for part in machine["main"](*[array(x.numpy()) for x in program.inputs(rows)])]
    for n, (have, want, bound) in enumerate(zip(found, wanted, bounds)):
        reason = _differs(have, want, bound)
        if reason is not None:
            return f"output {n}: {reason}"
    mutated = {str(k): int(v) for k, v in (mod["main"].attrs or {}).get("mutated", {}).items()}
    for name, value in _state(module, given).items():
        if name in mutated:
            reason = _differs(found[mutated[name]], value, _state(exact, exact_given)[name])
            if reason is not None:
                return f"{name} after the call: {reason}"
        elif not torch.equal(value, before[name]) and all(_differs(h, value, value) for h in found):
            return f"{name} was written to, and no output has its new value"
    return None


def _state(module: Any, given: Sequence[Any]) -> dict[str, Any]:
    return {"u": module.u, "w": module.w, **dict(zip("abmx", given))}


def _doubled(program: TorchProgram, rows: int) -> tuple[Any, tuple[Any, ...]]:
    """The module and its inputs in double precision: what they give bounds the error."""
    module = program.module()
    module.u = module.u.double()
    return module, tuple(x.double() if x.is_floating_point() else x for x in program.inputs(rows))


def _differs(have: np.ndarray[Any, Any], want: Any, bound: Any) -> str | None:
    want, bound = want.detach().numpy(), bound.detach().numpy()
    if have.shape != want.shape or have.dtype != want.dtype:
        return f"{have.dtype}{list(have.shape)}, torch has {want.dtype}{list(want.shape)}"
    if not np.issubdtype(want.dtype, np.floating):
        if (have == want).all() or bound.shape == want.shape and (bound != want).any():
            return None  # a rounding decides: torch itself gives another number in double precision
        return f"{int((have != want).sum())} of {want.size} elements differ"
    if bound.shape != want.shape:
        return None
    with np.errstate(all="ignore"):
        error = np.abs(bound.astype("float64") - want)
        slack = 1e-4 * np.maximum(np.abs(want), 1.0) + 8 * np.where(np.isfinite(error), error, np.inf)
        close = (have == want) | (np.isnan(have) & np.isnan(want)) | (np.abs(have - want) <= slack)
    if close.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~close)[0])
    return f"{int((~close).sum())} of {want.size} elements differ, first at {list(at)}: {have[at]}, torch {want[at]}"


def shrink_program(failure: TorchFailure) -> TorchFailure:
    """Fewer statements and outputs that fail at the same stage."""

    def fails(program: TorchProgram) -> TorchFailure | None:
        try:
            found = check_program(program)
        except Exception:
            return None
        return found if found is not None and found.stage == failure.stage else None

    best, progress = failure, True
    while progress:
        progress = False
        for smaller in _smaller(best.program):
            found = fails(smaller)
            if found is not None:
                best, progress = found, True
                break
    return best


def _smaller(program: TorchProgram) -> Iterator[TorchProgram]:
    if len(program.returned) > 1:
        for name in program.returned:
            yield replace(program, returned=(name,))
    for k in reversed(range(len(program.statements))):
        yield replace(program, statements=program.statements[:k] + program.statements[k + 1 :])
    if program.dynamic:
        yield replace(program, dynamic=False)


def regression_test(failure: TorchFailure) -> str:
    """A test that holds the failing program."""
    p = failure.program
    lines = "".join(f"            {line!r},\n" for line in p.statements)
    return f'''"""Found by the fuzzer of torch programs (number {p.number}), at '{failure.stage}'."""

from relaxish.testing.fuzz.torch_programs import TorchProgram, check_program


def test_torch_program_{p.number}():
    program = TorchProgram(
        {p.number},
        (
{lines}        ),
        {p.returned!r},
        {p.rows},
        {p.dynamic},
        {p.seed},
    )
    assert check_program(program) is None
'''
