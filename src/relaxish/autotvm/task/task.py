"""Tasks: a template with arguments, the space that it defines, and programs made from its configurations."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TYPE_CHECKING, NoReturn

from ... import te
from ...ir import IRModule
from ...support.errors import AlreadyRegisteredError, RelaxishError
from ...support.sequences import as_list, of_kind
from ...target import Target
from ...te.schedule import Schedule
from ...te.tensor import Tensor
from ...tir import FloatImm, IntImm, PrimFunc, StringImm, Var
from ...tir import Schedule as BlockSchedule
from .dispatcher import ApplyConfig, DispatchContext
from .entity import InstantiationError
from .flops import compute_flop
from .space import ConfigSpace

if TYPE_CHECKING:
    from .space import ConfigEntity

__all__ = [
    "TASK_TABLE", "Task", "TaskTemplate", "args_to_workload", "create", "deserialize_args", "get_config", "program_of",
    "serialize_args", "template",
]  # fmt: skip

TASK_TABLE: dict[str, TaskTemplate] = {}


# ---- arguments


def _serialized(arg: Any) -> object:
    match arg:
        case te.Tensor():
            return ("TENSOR", tuple(_serialized(n) for n in arg.shape), arg.dtype)
        case tuple() | list():
            return tuple(_serialized(a) for a in arg)
        case IntImm() | FloatImm() | StringImm():
            return arg.value
    if hasattr(arg, "items") and not isinstance(arg, type):
        return tuple((str(k), _serialized(v)) for k, v in arg.items())
    if isinstance(arg, (str, int, float, Var)) or arg is None:
        return arg
    raise RuntimeError(f'Do not support type "{type(arg)}" in argument. Consider to use primitive types or te.Var only')


def serialize_args(args: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments as plain values: a tensor is ``("TENSOR", shape, dtype)``. Raises RuntimeError for what has no form."""
    return tuple(_serialized(a) for a in args)


def deserialize_args(args: Sequence[Any]) -> list[Any]:
    """The inverse of :func:`serialize_args`; tensors become fresh placeholders."""
    return [_deserialized(a) for a in args]


def _deserialized(arg: Any) -> object:
    if isinstance(arg, (tuple, list)) and len(arg) == 3 and arg[0] == "TENSOR":
        return te.placeholder(shape=tuple(arg[1]), dtype=arg[2])
    return arg


def args_to_workload(args: Sequence[Any], task_name: str | None = None) -> tuple[Any, ...]:
    """Workload of a program: the task's name and the plain arguments."""
    plain = serialize_args(args)
    return plain if task_name is None else (task_name, *plain)


# ---- templates


class TaskTemplate:
    """Template of a task: one function that makes its program, or a computation and a schedule for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fcompute: Callable[..., Any] | None = None
        self.fschedule: Callable[..., Any] | None = None
        self.fcustomized: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Schedule, list[Tensor]]:
        real = deserialize_args(args)
        if self.fcustomized is not None:
            return self.fcustomized(*real, **kwargs)
        if self.fcompute is None or self.fschedule is None:
            lacking = "computation" if self.fcompute is None else "schedule"
            raise RuntimeError(
                f"task {self.name!r} has no {lacking}: register one with autotvm.register_topi_"
                f"{'compute' if self.fcompute is None else 'schedule'}({self.name!r})"
            )
        out = self.fcompute(*real, **kwargs)
        outs = as_list(out)
        return self.fschedule(outs), [*_inputs_of(outs, real), *outs]


def _inputs_of(outs: Sequence[te.Tensor], args: Sequence[Any]) -> list[te.Tensor]:
    """The placeholders that outputs are computed from: arguments first and in their order."""
    from ...te.graph import post_order

    found = [op.output(0) for op in of_kind(post_order([o.op for o in outs]), te.PlaceholderOp)]
    given = [a for a in of_kind(args, te.Tensor) if a in found]
    return [*given, *(t for t in found if t not in given)]


class MissingTask(TaskTemplate):
    """Stands for a template that this process has not registered, so that foreign logs can be read."""

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"Attempting to invoke a missing task {self.name}. It is possible that the function is registered in a "
            "Python module that is not imported yet: import the module with its @autotvm.template first"
        )


def _lookup_task(name: str) -> TaskTemplate:
    found = TASK_TABLE.get(name)
    if found is None:
        found = TASK_TABLE[name] = MissingTask(name)
    return found


def entry(name: str) -> TaskTemplate:
    """The template of that name, made if it is not there yet."""
    found = TASK_TABLE.get(name)
    if found is None or isinstance(found, MissingTask):
        found = TASK_TABLE[name] = TaskTemplate(name)
    return found


def taken(name: str, what: str) -> AlreadyRegisteredError:
    """The error about a name that is in use."""
    return AlreadyRegisteredError(f"{what} {name!r} is registered already; give it another name")


def template(task_name: str | Callable[..., Any], func: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Decorate a function that makes ``(schedule, [argument tensors])`` from plain arguments, asking ``get_config()``.

    Outside of tuning the function uses the configuration that :class:`DispatchContext` knows for its arguments. Raises
    ValueError if the name is taken.
    """
    if callable(task_name):
        return template(task_name.__name__, task_name)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        known = entry(task_name)
        if known.fcustomized is not None or known.fcompute is not None:
            raise taken(task_name, "the template")

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> tuple[Schedule, list[Tensor]]:
            if kwargs:
                raise TypeError("Do not support kwargs in template function call; pass all arguments by position")
            workload = args_to_workload(args, task_name)
            with ApplyConfig(DispatchContext.current.query(Target.current(allow_none=True), workload)):
                return function(*args)

        known.fcustomized = wrapper
        wrapper.task_name = task_name  # type: ignore[attr-defined]
        return wrapper

    return decorate(func) if func is not None else decorate


def get_config() -> ConfigSpace:
    """The configuration to use, inside of a template: a space to define, or the values to apply."""
    return DispatchContext.current.query(Target.current(allow_none=True), None)


# ---- tasks


class Task:
    """A template, its arguments, and (once :func:`create` has made it) the space of its configurations."""

    def __init__(self, name: str, args: Sequence[Any]) -> None:
        self.name = name
        self.args = tuple(args)
        self.kwargs: dict[str, Any] = {}
        self.func: Callable[..., Any] = _lookup_task(name)
        self.config_space: Any = None
        self.flop: float | None = None
        self.target: Any = None
        self.target_host: Any = None

    @property
    def workload(self) -> tuple[Any, ...]:
        """The name and the arguments, as records are looked up by."""
        return args_to_workload(self.args, self.name)

    def instantiate(self, config: ConfigEntity) -> tuple[Any, list[Any]]:
        """The schedule and the arguments of a configuration."""
        config.flop = 0
        with ApplyConfig(config):
            sch, arg_bufs = _checked(self.func(*self.args, **self.kwargs), self.name)
        if not self.flop:
            self.flop = config.flop or compute_flop(sch)
        return sch, arg_bufs

    def program(self, config: ConfigEntity) -> IRModule:
        """The scheduled program of a configuration. Raises InstantiationError if the template refuses it."""
        sch, args = self.instantiate(config)
        if not config.valid():
            raise InstantiationError(config.errors[0])
        return program_of(sch, args)

    def __getstate__(self) -> dict[str, Any]:
        # The function is looked up by name where the task arrives: it may be no module's own.
        return {k: v for k, v in self.__dict__.items() if k not in ("func", "config_space")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.config_space = None
        self.func = _lookup_task(self.name)

    def __repr__(self) -> str:
        return f"Task(func_name={self.name}, args={self.args}, kwargs={self.kwargs}, workload={self.workload})"


def _checked(made: tuple[Schedule, Sequence[Tensor]], name: str) -> tuple[Any, list[Any]]:
    if not isinstance(made, tuple) or len(made) != 2:
        raise RelaxishError(
            f"the template {name!r} must return (schedule, [argument tensors]), got {type(made).__name__}"
        )
    return made[0], list(made[1])


def program_of(sch: BlockSchedule | Schedule, args: Sequence[Any]) -> IRModule:
    """The program of what a template returned: a ``te`` schedule with its tensors, or a ``tir.Schedule``."""
    match sch:
        case te.Schedule():
            return IRModule({"main": sch.prim_func(args)})
        case BlockSchedule():
            return sch.mod
        case PrimFunc():
            return IRModule({"main": sch})
        case IRModule():
            return sch
    raise TypeError(f"a template returns a schedule (te.create_schedule or tir.Schedule), not {type(sch).__name__}")


def create(
    task_name: str | Callable[..., Any],
    args: Sequence[Any],
    target: Target | str,
    target_host: Target | str | None = None,
    **kwargs: Any,
) -> Task:
    """The task of a template: it runs once, with an empty space, to say what can be tuned.

    Raises RuntimeError where the template is unknown, or its operations cannot be counted (``cfg.add_flop`` helps).
    """
    name = task_name if isinstance(task_name, str) else getattr(task_name, "task_name", task_name.__name__)
    unknown = set(kwargs) - {"template_key"}
    if unknown:
        raise TypeError(f"create() got an unexpected argument {min(unknown)!r}")
    if isinstance(_lookup_task(name), MissingTask):
        known = ", ".join(sorted(n for n, t in TASK_TABLE.items() if not isinstance(t, MissingTask))) or "none"
        raise RuntimeError(f"there is no template {name!r}; registered are: {known}")
    where = target if isinstance(target, Target) else Target(target)
    if target_host is not None:
        where = Target(where, target_host)
    task = Task(name, serialize_args(args))
    signature = inspect.signature(_function(task.func)) if _function(task.func) is not None else None
    if signature is not None:
        signature.bind(*args)  # a wrong number of arguments is said here, not in a worker
    space = ConfigSpace()
    task.config_space = space
    with where, ApplyConfig(space):
        sch, _ = _checked(task.func(*task.args), name)
    if space.errors:
        raise InstantiationError(f"the template {name!r} refuses every configuration: {space.errors[0]}")
    space.code_hash = getattr(sch, "code_hash", None)
    task.flop = space.flop or compute_flop(sch)
    task.target = where
    task.target_host = where.host
    return task


def _function(func: Any) -> Any:
    return getattr(func, "fcustomized", None)
