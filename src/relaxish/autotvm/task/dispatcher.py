"""Choice of a template's configuration: a stack of contexts, asked from the innermost outwards."""

from __future__ import annotations

import io
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TYPE_CHECKING

import numpy as np

from ...support.errors import RelaxishError
from ...support.log import get_logger
from ...target.target import Target
from ..env import GLOBAL_SCOPE
from ..measure.measure import MeasureInput, MeasureResult
from .space import FallbackConfigEntity

if TYPE_CHECKING:
    from .space import ConfigSpace

__all__ = [
    "ApplyConfig", "ApplyFixedConfig", "ApplyGraphBest", "ApplyHistoryBest", "DispatchContext", "FallbackContext",
    "clear_fallback_cache",
]  # fmt: skip

_log = get_logger("autotvm")

#: The name of a task and its arguments, which together say what is computed; None where no task asks.
Workload = tuple[Any, ...] | None
#: Measurements, or the file (or its path) that they stand in.
Records = str | os.PathLike[str] | io.TextIOBase | Iterable[Any]


class DispatchContext:
    """Subclass and define ``_query_inside(target, workload)``; None leaves the answer to the context outside."""

    current: ClassVar[Any] = None
    warning_messages: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        self._old_ctx: list[Any] = []

    def query(self, target: Target | None, workload: Workload) -> ConfigSpace | None:
        """The configuration for a workload: this context's, else that of the one around it."""
        found = self._query_inside(target, workload)
        if found is None and self._old_ctx and self._old_ctx[-1] is not None:
            found = self._old_ctx[-1].query(target, workload)
        return found

    def update(self, target: Target, workload: Workload, cfg: ConfigSpace) -> None:
        """Say which configuration a workload is to have. Raises NotImplementedError where that cannot be said."""
        raise NotImplementedError(f"{type(self).__name__} takes no configurations")

    def _query_inside(self, target: Target | None, workload: Workload) -> ConfigSpace | None:
        raise NotImplementedError

    def __enter__(self) -> DispatchContext:
        self._old_ctx.append(DispatchContext.current)
        DispatchContext.current = self
        return self

    def __exit__(self, *exc: object) -> None:
        DispatchContext.current = self._old_ctx.pop()


class ApplyConfig(DispatchContext):
    """One configuration for everything."""

    def __init__(self, config: ConfigSpace) -> None:
        super().__init__()
        self._config = config
        self.workload: Workload = None

    def _query_inside(self, target: Target | None, workload: Workload) -> ConfigSpace | None:
        self.workload = workload
        return self._config

    def update(self, target: Target, workload: Workload, cfg: ConfigSpace) -> None:
        self.workload = workload
        self._config = cfg


class ApplyFixedConfig(DispatchContext):
    """The first configuration of each task; templates named in ``schedule_names`` count as cheap, all others as dear."""

    def __init__(self, tasks: Sequence[Any], schedule_names: str | Sequence[str]) -> None:
        super().__init__()
        self._tasks = list(tasks)
        self._names = [schedule_names] if isinstance(schedule_names, str) else list(schedule_names)
        self.workload: Workload = None

    def _query_inside(self, target: Target | None, workload: Workload) -> ConfigSpace | None:
        self.workload = workload
        name = workload[0] if workload else None
        for task in self._tasks:
            if task.name == name:
                config = task.config_space.get(0)
                config.cost = 1e-6 if name in self._names else 100000
                return config
        raise RuntimeError(f"workload: {workload} does not exist in {self._tasks}")

    def update(self, target: Target, workload: Workload, cfg: ConfigSpace) -> None:
        self.workload = workload


def _pairs(records: Records) -> Iterator[tuple[Any, Any]]:
    """Measured pairs of a path, an open file, pairs, or a list of any of those."""
    from ..record import load_from_buffer, load_from_file

    match records:
        case str() | os.PathLike():
            yield from load_from_file(records)
        case _ if hasattr(records, "readline"):
            yield from load_from_buffer(records)
        case Iterable():
            for one in records:
                if isinstance(one, (str, os.PathLike)) or hasattr(one, "readline"):
                    yield from _pairs(one)
                elif isinstance(one, tuple) and len(one) == 2 and hasattr(one[0], "config"):
                    yield one
                else:
                    yield from _pairs(one)
        case _:
            raise TypeError(f"records are a path, a file or pairs of input and result, not {type(records).__name__}")


def as_key(value: Any) -> Hashable:
    """A workload as a key: lists, which JSON makes of tuples, are tuples again."""
    if isinstance(value, (list, tuple)):
        return tuple(as_key(x) for x in value)
    found: Hashable = value
    return found


class ApplyHistoryBest(DispatchContext):
    """The fastest configuration that a log has for each workload: of the same model, else of the same kind of target.

    In its scope ``relaxish.build`` uses the records of tasks from ``extract_from_program``, too.
    """

    def __init__(self, records: Records) -> None:
        super().__init__()
        self.best_by_targetkey: dict[Any, tuple[Any, Any]] = {}
        self.best_by_model: dict[Any, tuple[Any, Any]] = {}
        self._best_user_defined: dict[Any, Any] = {}
        self._scopes: list[Any] = []
        if records:
            self.load(records)

    def load(self, records: Records) -> None:
        """Learn further records (a path, a file, pairs, or a list of those); those of errors are left out."""
        if isinstance(records, (str, os.PathLike)) and not Path(records).exists():
            raise RelaxishError(
                f"there is no log {os.fspath(records)!r}; tune with autotvm.callback.log_to_file, then pick_best"
            )
        count = 0
        for inp, res in _pairs(records):
            count += 1
            if res.error_no != 0:
                continue
            workload = as_key(inp.task.workload)
            for key in inp.target.keys:
                _keep(self.best_by_targetkey, (key, workload), inp, res)
            if inp.target.model != "unknown":
                _keep(self.best_by_model, (inp.target.model, workload), inp, res)
        _log.debug("Finish loading %d records", count)

    def _query_inside(self, target: Target | None, workload: Workload) -> ConfigSpace | None:
        if target is None:
            raise RuntimeError(
                "Need a target context to find the history best. Hint: If your target is llvm, use "
                "`with relaxish.target.Target('llvm'):` above the dispatcher call. So does other target."
            )
        names = as_key(workload)
        for key, table in [
            ((target.model, names), self.best_by_model),
            *(((k, names), self.best_by_targetkey) for k in target.keys),
        ]:
            if key in self._best_user_defined:
                return self._best_user_defined[key]
            if key in table:
                return table[key][0].config
        return None

    def update(self, target: Target, workload: Workload, cfg: ConfigSpace) -> None:
        cfg.cost = 0
        for key in (target.model, *target.keys):
            self._best_user_defined[key, as_key(workload)] = cfg

    def __enter__(self) -> DispatchContext:
        from .relax_integration import kernel_database

        scope = kernel_database(self)
        scope.__enter__()
        self._scopes.append(scope)
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self._scopes.pop().__exit__(*exc)


def _keep(table: dict[Any, tuple[Any, Any]], key: Any, inp: MeasureInput, res: MeasureResult) -> None:
    known = table.get(key)
    if known is None or np.mean(res.costs) < np.mean(known[1].costs):
        table[key] = (inp, res)


class FallbackContext(DispatchContext):
    """The outermost: a configuration of first values, remembered, with one warning for each workload."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: dict[Any, Any] = {}

    def _query_inside(self, target: Target | None, workload: Workload) -> FallbackConfigEntity:
        key = (str(target), as_key(workload))
        if key in self.memory:
            return self.memory[key]
        _warn_once(
            f"Cannot find config for target={target}, workload={workload}. A fallback configuration is used, which may "
            "bring great performance regression."
        )
        cfg = FallbackConfigEntity()
        self.memory[key] = cfg
        return cfg

    def clear_cache(self, target: Target, workload: Workload) -> None:
        """Forget the configuration of a workload, so that its template is asked again."""
        self.memory.pop((str(target), as_key(workload)), None)

    def update(self, target: Target, workload: Workload, cfg: ConfigSpace) -> None:
        self.memory[str(target), as_key(workload)] = cfg


def _warn_once(message: str) -> None:
    if message in DispatchContext.warning_messages or GLOBAL_SCOPE.silent:
        return
    DispatchContext.warning_messages.add(message)
    _log.warning("%s", message)


def clear_fallback_cache(target: Target, workload: Workload) -> None:
    """Forget the fallback configuration of a workload in the outermost context in scope."""
    context = DispatchContext.current
    while not isinstance(context, FallbackContext):
        context = context._old_ctx[-1]
    context.clear_cache(target, workload)


class ApplyGraphBest(DispatchContext):
    """Configurations for the templates of a graph by position: the first query gets the first record, and so on."""

    def __init__(self, records: Records) -> None:
        super().__init__()
        self._records = list(_pairs(records))
        self._counter = 0
        self._global_cfg_dict: dict[Any, Any] = {}
        self._scopes: list[Any] = []

    def _query_inside(self, target: Target | None, workload: Workload) -> ConfigSpace | None:
        key = (str(target), as_key(workload))
        if self._counter < len(self._records):
            cfg = self._records[self._counter][0].config
            self._counter += 1
            self.update(target, workload, cfg)
            return cfg
        if key not in self._global_cfg_dict:
            _warn_once(
                f"Config for target={target}, workload={workload} is missing in ApplyGraphBest context. A fallback "
                "configuration is used, which may bring great performance regression."
            )
            self._global_cfg_dict[key] = FallbackConfigEntity()
        return self._global_cfg_dict[key]

    def update(self, target: Any, workload: Workload, cfg: Any) -> None:
        self._global_cfg_dict[str(target), as_key(workload)] = cfg

    def by_workload(self) -> ApplyHistoryBest:
        """The same records, looked up by workload: kernels of a compiled graph come in no fixed order."""
        return ApplyHistoryBest(self._records)

    def __enter__(self) -> DispatchContext:
        from .relax_integration import kernel_database

        scope = kernel_database(self.by_workload())
        scope.__enter__()
        self._scopes.append(scope)
        return super().__enter__()

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self._scopes.pop().__exit__(*exc)


@contextmanager
def outermost() -> Iterator[DispatchContext]:
    """A scope in which nothing is tuned."""
    with FallbackContext() as context:
        yield context


DispatchContext.current = FallbackContext()
