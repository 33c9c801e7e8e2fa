"""The pass manager: contexts, passes, sequences, and the decorator for passes over modules."""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from ..support.depth import deep_programs
from ..support.errors import InternalError
from .errors import CheckTypeError
from .instrument import PassInstrument
from .module import IRModule
from .pass_config import complete_config, list_options

__all__ = [
    "ApplyPassToFunction",
    "ModulePass",
    "Pass",
    "PassContext",
    "PassInfo",
    "PrintIR",
    "Sequential",
    "make_pass_decorator",
    "module_pass",
]

_LOCAL = threading.local()


class PassContext:
    """Options under which passes run; entered with ``with``.

    ``config`` takes the registered keys only (see :meth:`list_configs`).  Instruments are told of the context's
    start and end and of every pass.
    """

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Iterable[str] | None = None,
        disabled_pass: Iterable[str] | None = None,
        instruments: Sequence[PassInstrument] | None = None,
        config: dict[str, Any] | None = None,
        trace: Any = None,
        trace_stack: Sequence[Any] | None = None,
        make_traceable: Sequence[str] | None = None,
        num_evals: int = 0,
        tuning_api_database: Any = None,
    ) -> None:
        for label, value in (("required_pass", required_pass), ("disabled_pass", disabled_pass)):
            if value is not None and not isinstance(value, (list, tuple, set)):
                raise TypeError(f"{label} is expected to be the type of list/tuple/set, got {type(value).__name__}")
        if instruments is not None and not isinstance(instruments, (list, tuple)):
            raise TypeError("instruments is expected to be the type of list/tuple.")
        if config is not None and not isinstance(config, dict):
            raise TypeError("config is expected to be the type of dict.")
        self.opt_level = opt_level
        self.required_pass = list(required_pass or ())
        self.disabled_pass = list(disabled_pass or ())
        self.instruments = None if instruments is None else list(instruments)
        self.config = complete_config(config or {})
        self.trace_stack = list(trace_stack or ([trace] if trace is not None else []))
        self.make_traceable = None if make_traceable is None else list(make_traceable)
        self.num_evals = num_evals
        self.tuning_api_database = tuning_api_database

    def __enter__(self) -> PassContext:
        self._enter_instruments()
        _stack().append(self)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._exit_instruments()
        finally:
            _stack().pop()

    def _enter_instruments(self) -> None:
        entered = []
        try:
            for instrument in self.instruments or ():
                instrument.enter_pass_ctx()
                entered.append(instrument)
        except BaseException:
            # Those that have started must hear of the end; after a failure nobody is told of anything more.
            self.instruments = []
            for instrument in entered:
                instrument.exit_pass_ctx()
            raise

    def _exit_instruments(self) -> None:
        try:
            for instrument in self.instruments or ():
                instrument.exit_pass_ctx()
        except BaseException:
            self.instruments = []
            raise

    def override_instruments(self, instruments: Sequence[PassInstrument] | None) -> None:
        """Replace the instruments of this context, telling old ones of the end and new ones of the start."""
        self._exit_instruments()
        self.instruments = None if instruments is None else list(instruments)
        self._enter_instruments()

    def _before_pass(self, mod: IRModule, info: PassInfo) -> bool:
        """Ask every instrument whether the pass may run, unless it is required, and tell them that it will."""
        answers = [] if info.name in self.required_pass else [i.should_run(mod, info) for i in self.instruments or ()]
        if not all(answers):
            return False
        for instrument in self.instruments or ():
            instrument.run_before_pass(mod, info)
        return True

    def _after_pass(self, mod: IRModule, info: PassInfo) -> None:
        for instrument in self.instruments or ():
            instrument.run_after_pass(mod, info)

    def enabled(self, info: PassInfo) -> bool:
        """Whether a pass of that description would run."""
        if info.name in self.disabled_pass:
            return False
        if info.name in self.required_pass:
            return True
        return self.opt_level >= info.opt_level

    @property
    def trace(self) -> Any:
        """The innermost tuning trace, or None."""
        return self.trace_stack[-1] if self.trace_stack else None

    def traces(self, info: PassInfo) -> bool:
        """Whether the innermost trace is to hear of a pass: all do not that tune themselves, unless
        ``make_traceable`` names others.
        """
        if not self.trace_stack or info.traceable:
            return False
        return self.make_traceable is None or info.name in self.make_traceable

    def get_trace_stack(self) -> list[Any]:
        """Tuning traces, innermost last."""
        return self.trace_stack

    def push_trace(self, trace: Any) -> None:
        """Enter a tuning trace."""
        self.trace_stack.append(trace)

    def pop_trace(self, return_current: bool = True) -> Any:
        """Leave the innermost tuning trace."""
        current = self.trace_stack.pop()
        return current if return_current else self.trace

    def get_trace_stack_size(self) -> int:
        """Number of tuning traces."""
        return len(self.trace_stack)

    def get_current_trace(self) -> Any:
        """The innermost tuning trace."""
        return self.trace

    def set_num_evals(self, num: int) -> None:
        """Set the count of evaluations."""
        self.num_evals = num

    def inc_num_evals(self, num: int) -> None:
        """Add to the count of evaluations."""
        self.num_evals += num

    def get_tuning_api_database(self) -> Any:
        """The database of the pass-level tuning interface."""
        return self.tuning_api_database

    @staticmethod
    def current() -> PassContext:
        """The innermost context entered, or the default one."""
        stack = _stack()
        return stack[-1] if stack else _default()

    @staticmethod
    def list_configs() -> dict[str, Any]:
        """The options that ``config`` may set, each with the type key of its value."""
        return list_options()

    def __repr__(self) -> str:
        return (
            f"Pass context information: \n\topt_level: {self.opt_level}\n\trequired passes: {self.required_pass}\n"
            f"\tdisabled passes: {self.disabled_pass}\n\tinstruments: {self.instruments}\n\tconfig: {self.config}"
        )


def _stack() -> list[PassContext]:
    stack = getattr(_LOCAL, "stack", None)
    if stack is None:
        stack = _LOCAL.stack = []
    return stack


def _default() -> PassContext:
    made = getattr(_LOCAL, "default", None)
    if made is None:
        made = _LOCAL.default = PassContext()
    return made


class PassInfo:
    """Name, optimisation level and prerequisites of a pass."""

    def __init__(
        self, opt_level: int, name: str, required: Sequence[str] | None = None, traceable: bool = False
    ) -> None:
        self.opt_level = opt_level
        self.name = name
        self.required = list(required or ())
        self.traceable = traceable

    def __repr__(self) -> str:
        required = "[\n" + "".join(f"{name}, " for name in self.required) + "]" if self.required else "[]"
        return (
            f"The meta data of the pass - pass name: {self.name}, opt_level: {self.opt_level}, "
            f"required passes: {required}\n"
        )


class Pass:
    """A transformation from module to module; subclasses define :meth:`transform_module`."""

    info: PassInfo
    level: ClassVar[str] = "Module"

    def __init__(self, info: PassInfo | None = None) -> None:
        if info is not None:
            self.info = info
        elif not hasattr(self, "info"):
            self.info = PassInfo(0, type(self).__name__)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The transformed module."""
        raise NotImplementedError(f"{type(self).__name__} defines no transform_module")

    def _required(self, mod: IRModule, ctx: PassContext) -> IRModule:
        for name in self.info.required:
            mod = get_pass(name)(mod)
        return mod

    def __call__(self, mod: IRModule) -> IRModule:
        if not isinstance(mod, IRModule):
            raise CheckTypeError(f"a pass transforms an IRModule, not a {type(mod).__name__}")
        ctx = PassContext.current()
        if not ctx._before_pass(mod, self.info):
            return mod
        with deep_programs():
            out = self.transform_module(mod, ctx)
        if not isinstance(out, IRModule):
            raise TypeError(f"pass {self.info.name} returned a {type(out).__name__}, not an IRModule")
        if self.level != Sequential.level and ctx.traces(self.info):
            ctx.trace.note_pass(self.info.name, out)
        ctx._after_pass(out, self.info)
        return out

    def __repr__(self) -> str:
        return f"Run {self.level} pass: {self.info.name} at the optimization level {self.info.opt_level}"


_NAMED: dict[str, Callable[[], Pass]] = {}


def register_pass(name: str, make: Callable[[], Pass]) -> None:
    """Make a pass available by name to ``required`` lists."""
    _NAMED[name] = make


def get_pass(name: str) -> Pass:
    """A pass by the name it was registered under. Raises ValueError if unknown."""
    if name not in _NAMED:
        raise ValueError(f"no pass is registered as {name!r}")
    return _NAMED[name]()


class ModulePass(Pass):
    """A pass over whole modules."""


class _FunctionModulePass(ModulePass):
    """A module pass made of a Python function."""

    def __init__(self, function: Callable[[IRModule, PassContext], IRModule], info: PassInfo) -> None:
        super().__init__(info)
        self.function = function

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return self.function(mod, ctx)


class Sequential(Pass):
    """Passes one after another; those that the context disables are left out."""

    level = "Sequential"

    def __init__(
        self,
        passes: Sequence[Pass] | None = None,
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] | None = None,
        traceable: bool = False,
    ) -> None:
        super().__init__(PassInfo(opt_level, name, required, traceable))
        self.passes = list(passes or ())
        if not all(callable(p) for p in self.passes):
            raise TypeError("passes must be a list of Pass objects.")

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        for each in self.passes:
            info = getattr(each, "info", None)
            if info is not None:
                if not ctx.enabled(info):
                    continue
                for name in info.required:
                    mod = get_pass(name)(mod)
            mod = each(mod)
        return mod

    def __repr__(self) -> str:
        names = "".join(f"{each.info.name} " for each in self.passes)
        return f"{super().__repr__()}. The passes will be executed are: [{names}]"


def make_pass_decorator(
    make: Callable[[Callable[..., Any], PassInfo], Pass], base: type[Pass], method: str
) -> Callable[..., Any]:
    """The decorator shared by all pass levels.

    It turns a function into a pass, and a class with ``method`` into a class of passes whose constructor takes the
    class's own arguments.
    """

    def decorator(
        pass_func: Any = None,
        opt_level: int | None = None,
        name: str | None = None,
        required: Sequence[str] | None = None,
        traceable: bool = False,
    ) -> Any:
        if opt_level is None:
            raise ValueError("Please provide opt_level for the pass.")
        if required is not None and not isinstance(required, (list, tuple)):
            raise TypeError("Required is expected to be the type of list/tuple.")

        def wrap(item: Any) -> Any:
            info = PassInfo(opt_level, name or item.__name__, required, traceable)
            if inspect.isclass(item):
                return _pass_class(item, info, make, base, method)
            if not callable(item):
                raise TypeError("pass_func must be a callable for this pass")
            made = make(item, info)
            functools.update_wrapper(made, item, updated=())
            return made

        return wrap if pass_func is None else wrap(pass_func)

    return decorator


def _pass_class(item: type, info: PassInfo, make: Callable[..., Pass], base: type[Pass], method: str) -> type:
    class Decorated(base):  # type: ignore[misc,valid-type]
        """A pass around an instance of the decorated class."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._instance = item(*args, **kwargs)
            self._pass = make(lambda *a: getattr(self._instance, method)(*a), info)
            Pass.__init__(self, info)

        def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
            return self._pass.transform_module(mod, ctx)

        def __getattr__(self, attr: str) -> Any:
            if attr.startswith("_"):
                raise AttributeError(attr)
            return getattr(self._instance, attr)

    Decorated.__name__ = Decorated.__qualname__ = item.__name__
    Decorated.__doc__ = item.__doc__
    Decorated.__module__ = item.__module__
    return Decorated


module_pass = make_pass_decorator(_FunctionModulePass, ModulePass, "transform_module")


def PrintIR(header: str = "", show_meta_data: bool = False) -> Pass:
    """A pass that prints the module and returns it unchanged."""

    def show(mod: IRModule, ctx: PassContext) -> IRModule:
        print(f"PrintIR({header}):\n{mod.script(show_meta=show_meta_data)}")
        return mod

    return _FunctionModulePass(show, PassInfo(0, "PrintIR"))


#: Makes the function that stands for one a pass may not touch: ``stub(name, struct_info)``; the graph level fills it.
STUB_MAKER: list[Callable[[str, Any], Any]] = []


def ApplyPassToFunction(
    transform: Pass, func_name_regex: str, error_if_no_function_matches_regex: bool = False
) -> Pass:
    """Run ``transform`` on the functions whose name a regular expression matches (from the start, as ``re.match``).

    The pass sees all others as external functions only, and private functions it may change as public ones, so that
    none is removed for want of callers.  Raises InternalError if no function matches and that is to be an error.
    """
    pattern = re.compile(func_name_regex)

    def apply(mod: IRModule, ctx: PassContext) -> IRModule:
        chosen = {v.name_hint for v in mod.functions if pattern.match(v.name_hint)}
        if error_if_no_function_matches_regex and not chosen:
            names = [v.name_hint for v in mod.functions]
            raise InternalError(f"No function matched regex '{func_name_regex}', out of functions {names}")
        private = {v.name_hint for v, f in mod.functions.items() if "global_symbol" not in (f.attrs or ())} & chosen
        seen: dict[Any, Any] = {}
        for var, func in mod.functions.items():
            name = var.name_hint
            if name not in chosen:
                seen[var] = STUB_MAKER[0](f"dummy_{name}", var.struct_info_) if STUB_MAKER else func
            else:
                seen[var] = func.with_attr("global_symbol", name) if name in private else func
        subset = IRModule(seen, mod.attrs, mod.global_infos)
        result = transform(subset)
        if result is subset:
            return mod
        out = mod.clone()
        for var, func in result.functions.items():
            if var.name_hint in mod and var.name_hint not in chosen:
                continue
            if var.name_hint in out:
                del out[var.name_hint]
            out[var] = func.without_attr("global_symbol") if var.name_hint in private else func
        return out

    return _FunctionModulePass(apply, PassInfo(0, f"ApplyPassTo{func_name_regex}"))
