"""The tuner: every configuration built in workers, checked, timed; the fastest one's kernel."""

from __future__ import annotations

import functools
import inspect
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...meta_schedule.builder.device_artifact import is_device_target
from ...meta_schedule.database import hardware_fingerprint
from ...meta_schedule.measure import FileJournal, Measured, MeasureEngine
from ...meta_schedule.runner import EvaluatorConfig
from ...support import config
from ...support.log import get_logger
from ...target import Target
from ...tir import PrimFunc
from ..jit import JITImpl, store
from ..jit.calling import describe
from ..jit.kernel import params_of
from ..jit.options import CompileOptions, resolve_out_idx, resolve_target
from ..jit.workers import end_workers, warm_builder, warm_runner, worker_count
from ..profiler import TensorSupplyType, do_bench
from .identity import OpaqueValueError, identity_of
from .inputs import get_autotune_inputs
from .measuring import Inputs, ProgramValidator, Supplied, allocate, build_config, build_params, evaluate_on_host
from .params import CompileArgs, ProfileArgs
from .result import AutotuneResult

__all__ = ["AutoTuner"]

_log = get_logger("tile")
# The key of a configuration that holds options of passes.
_PASS_CONFIGS = "pass_configs"
_OLD_ORDER = (
    "out_idx", "supply_type", "ref_prog", "supply_prog", "rtol", "atol", "max_mismatched_ratio", "skip_check",
    "cache_input_tensors", "target",
)  # fmt: skip
_NEW_ORDER = ("out_idx", "target", "execution_backend", "target_host", "verbose", _PASS_CONFIGS)
_PROFILE = frozenset(ProfileArgs.__dataclass_fields__)
_RESULTS: dict[Any, AutotuneResult] = {}
_LOCK = threading.Lock()
_FAILED = "Auto-tuning failed: No configuration successfully compiled and passed benchmarking/validation."


class _ConfigCandidate:
    """One configuration, as the engine takes it."""

    def __init__(
        self, factory: Callable[..., PrimFunc], chosen: Mapping[str, Any], compile_args: CompileArgs, inputs: Inputs
    ) -> None:
        self.factory = factory
        self.config = dict(chosen)
        self.inputs = inputs
        self.key = json.dumps(self.config, sort_keys=True, default=str)
        self.pass_configs = dict(self.config.get(_PASS_CONFIGS) or {})
        self.compile_args = compile_args
        self.options: CompileOptions | None = None
        self.args_info: list[Supplied] = []
        self.payload: dict[str, Any] = {}
        self.func: PrimFunc | None = None

    @property
    def params(self) -> dict[str, Any]:
        """Arguments of the builder."""
        assert self.options is not None
        return build_params(self.options.pass_configs)

    def make(self) -> PrimFunc:
        """The program, and what it is run with."""
        self.options = self.compile_args.options(self.pass_configs)
        func = self.factory(**{k: v for k, v in self.config.items() if k != _PASS_CONFIGS})
        if not isinstance(func, PrimFunc):
            raise TypeError(f"the kernel must return a PrimFunc (the function under @T.prim_func), got {type(func)}")
        params = params_of(func)
        out_idx = resolve_out_idx(self.options.out_idx, len(params))
        self.args_info = self.inputs.infos(params, out_idx)
        # What the inputs say of names in shapes is known now.
        self.payload = {"params": [i.param for i in self.args_info], "out_idx": out_idx}
        self.func = func
        return func


class AutoTuner:
    """Tunes a factory of kernels over configurations, given by name to its parameters.

    ``configs`` is a list of mappings, or a function of the factory's own arguments that gives one. The key
    ``pass_configs`` of a configuration holds options of passes for it alone.

    >>> tuner = AutoTuner.from_kernel(kernel, configs=[{"block_M": 64}, {"block_M": 128}])  # doctest: +SKIP
    >>> result = tuner.set_compile_args(out_idx=[-1]).set_profile_args(ref_prog=reference).run()  # doctest: +SKIP
    >>> result.latency, result.config, result.kernel(a, b)  # doctest: +SKIP
    """

    def __init__(self, fn: Callable[..., Any] | JITImpl, configs: Any) -> None:
        self.fn = fn
        self.configs = configs
        self.compile_args = _args_of(fn) if isinstance(fn, JITImpl) else CompileArgs()
        self.profile_args = ProfileArgs()
        self.early_stop: tuple[bool, float] = (False, 2.0)
        self._arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})

    @classmethod
    def from_kernel(cls, kernel: Callable[..., Any] | JITImpl, configs: Any) -> AutoTuner:
        """The tuner of a factory of kernels."""
        return cls(kernel, configs)

    # ---- settings

    def set_compile_args(self, *args: Any, **kwargs: Any) -> AutoTuner:
        """Set compilation arguments: ``out_idx, target, execution_backend, target_host, verbose, pass_configs``.

        What :meth:`set_profile_args` takes is taken here, too, in the order of older programs: ``out_idx=-1,
        supply_type, ref_prog, supply_prog, rtol, atol, max_mismatched_ratio, skip_check, cache_input_tensors=True,
        target``. Raises TypeError for an unknown name.
        """
        old = len(args) > 1 and not isinstance(args[1], (str, Target, type(None)))
        order = _OLD_ORDER if old else _NEW_ORDER
        if len(args) > len(order):
            raise TypeError(f"set_compile_args takes {len(order)} values by position, got {len(args)}")
        given = {**dict(zip(order, args, strict=False)), **kwargs}
        unknown = sorted(set(given) - set(_NEW_ORDER) - _PROFILE)
        if unknown:
            raise TypeError(f"set_compile_args does not know {', '.join(unknown)}")
        profile = {k: v for k, v in given.items() if k in _PROFILE}
        chosen = {k: v for k, v in given.items() if k not in _PROFILE}
        if profile:
            chosen.setdefault("out_idx", -1)
            profile.setdefault("cache_input_tensors", True)
            self._profile(profile)
        self.compile_args = CompileArgs(**chosen)
        return self

    def set_profile_args(self, **kwargs: Any) -> AutoTuner:
        """Set the arguments of checks and timing.

        ``warmup, rep`` (milliseconds), ``timeout`` (seconds), ``supply_type``, ``ref_prog`` (what is right, of the same
        inputs), ``supply_prog`` (makes the inputs of a list of parameters), ``rtol, atol, max_mismatched_ratio``,
        ``skip_check``, ``manual_check_prog`` (compares, and raises), ``cache_input_tensors``, ``backend``. Raises
        TypeError for an unknown name.
        """
        unknown = sorted(set(kwargs) - _PROFILE)
        if unknown:
            raise TypeError(f"set_profile_args does not know {', '.join(unknown)}")
        self._profile(kwargs)
        return self

    def _profile(self, given: Mapping[str, Any]) -> None:
        fields = {name: getattr(self.profile_args, name) for name in _PROFILE}
        fields.update(given)
        fields["supply_type"] = TensorSupplyType(fields["supply_type"])
        self.profile_args = ProfileArgs(**fields)

    def set_kernel_parameters(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> AutoTuner:
        """The arguments of the factory that are not tuned."""
        self._arguments = tuple(args), dict(kwargs)
        return self

    # ---- configurations

    @property
    def factory(self) -> Callable[..., PrimFunc]:
        """The function that writes the program, its own arguments given."""
        function = self.fn.func if isinstance(self.fn, JITImpl) else self.fn
        args, kwargs = self._arguments
        return functools.partial(function, *args, **kwargs)

    def _configurations(self) -> list[dict[str, Any]]:
        args, kwargs = self._arguments
        found = self.configs(*args, **kwargs) if callable(self.configs) else self.configs
        configs = [dict(c) for c in found] if isinstance(found, Iterable) else []
        if not configs:
            raise ValueError("there are no configurations to tune over; give a list of {parameter: value}")
        signature = inspect.signature(self.fn.func if isinstance(self.fn, JITImpl) else self.fn)
        for number, chosen in enumerate(configs):
            try:
                named = {k: v for k, v in chosen.items() if k != _PASS_CONFIGS}
                signature.bind(*args, **{**kwargs, **named})
            except TypeError as err:
                raise TypeError(
                    f"configuration {number} {chosen} does not fit {_name(self.fn)}{signature}: {err}"
                ) from None
        return configs

    def generate_cache_key(self, configs: Sequence[Mapping[str, Any]] | None = None) -> str | None:
        """Cache key of this tuning; None where a part of it cannot be written down."""
        if any(self.profile_args.programs):
            return None
        args, kwargs = self._arguments
        given = get_autotune_inputs()
        shapes = None if given is None else [(describe(v) or [repr(v)])[:2] for v in given]
        function = self.fn.func if isinstance(self.fn, JITImpl) else self.fn
        configs = configs if configs is not None else self._configurations()
        try:
            factory, arguments, choices = map(identity_of, (function, [args, kwargs], configs))
        except OpaqueValueError as error:
            if not config.TILE_AUTO_TUNING_DISABLE_CACHE.value:
                _log.warning("what tuning of %s finds is not kept for other processes: %s", _name(self.fn), error)
            return None
        target = resolve_target(self.compile_args.target, self.compile_args.target_host)
        place = "" if is_device_target(target) else hardware_fingerprint()
        return store.key_of(
            "autotuner", factory, arguments, choices, self.compile_args.options().key(),
            self.profile_args.key(), self.early_stop, shapes, place,
        )  # fmt: skip

    # ---- tuning

    def run(
        self,
        warmup: float | None = None,
        rep: float | None = None,
        timeout: float | None = None,
        use_pipeline: bool = False,
        enable_grouped_compile: bool = False,
        benchmark_multi_gpu: bool = False,
        early_stop: bool | None = None,
        early_stop_factor: float = 2.0,
    ) -> AutotuneResult:
        """Tune, or find what was tuned before; the best configuration with its kernel and time.

        ``warmup`` and ``rep`` are milliseconds a configuration, ``timeout`` its seconds. With ``early_stop`` one whose
        first run takes ``early_stop_factor`` times the best time is not run again; ``use_pipeline`` times some while
        others are compiled, ``benchmark_multi_gpu`` uses all devices. A configuration that fails is logged and left
        out; a run that was killed goes on where it was. Raises RuntimeError where all fail, ValueError without any.
        """
        given = {"warmup": warmup, "rep": rep, "timeout": timeout}
        self._profile({k: v for k, v in given.items() if v is not None})
        self.early_stop = (self.early_stop[0] if early_stop is None else early_stop, early_stop_factor)
        configs = self._configurations()
        key = self.generate_cache_key(configs)
        path = (
            None if key is None or config.TILE_AUTO_TUNING_DISABLE_CACHE.value else store.entry_path("autotuner", key)
        )
        memory = key if path is not None else self._memory_key(configs)
        with _LOCK:
            known = _RESULTS.get(memory) if memory is not None else None
        if known is None and path is not None:
            known = store.find(path, lambda folder: AutotuneResult.load_from_disk(folder, self.compile_args))
        if known is None:
            journal = None if path is None else FileJournal(path.with_suffix(".journal"))
            known = self._tune(configs, journal, use_pipeline, benchmark_multi_gpu)
            if path is not None and store.put(path, known.save_to_disk):
                path.with_suffix(".journal").unlink(missing_ok=True)
        if memory is not None:
            with _LOCK:
                _RESULTS[memory] = known
        return known

    def _memory_key(self, configs: Sequence[Mapping[str, Any]]) -> tuple[object, ...] | None:
        """What tells this tuning from others of this process: the very functions are part of it."""
        if config.TILE_AUTO_TUNING_DISABLE_CACHE.value or get_autotune_inputs() is not None:
            return None
        function = self.fn.func if isinstance(self.fn, JITImpl) else self.fn
        key = (
            function, repr(self._arguments), repr([dict(c) for c in configs]), repr(self.compile_args.options().key()),
            repr(sorted(self.profile_args.key().items())), self.profile_args.programs, self.early_stop,
        )  # fmt: skip
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def _tune(
        self, configs: Sequence[Mapping[str, Any]], journal: FileJournal | None, overlap: bool, all_devices: bool
    ) -> AutotuneResult:
        args = self.profile_args
        target = resolve_target(self.compile_args.target, self.compile_args.target_host)
        inputs = Inputs(args, get_autotune_inputs())
        candidates = [_ConfigCandidate(self.factory, c, self.compile_args, inputs) for c in configs]
        on_device = is_device_target(target)
        runner = warm_runner(
            on_device,
            timeout_sec=args.timeout,
            evaluator_config=EvaluatorConfig(1, 1, max(1, int(args.rep))),
            f_alloc_argument=functools.partial(allocate, args.supply_type),
            f_run_evaluator=None if on_device else functools.partial(evaluate_on_host, args.warmup, args.rep, None),
            devices=None if all_devices else [0] if on_device else None,
        )
        workers = worker_count(len(candidates))
        builder = warm_builder(build_config, max(args.timeout, 60.0), workers)
        check = None
        if args.ref_prog is not None and not args.skip_check:
            check = ProgramValidator(args, inputs, runner)
        engine = MeasureEngine(target, builder, runner, journal, check, overlap=overlap or None)
        try:
            results = self._measure(engine, candidates, workers, on_device)
        except BaseException:
            end_workers()  # what was begun is nobody's any more
            raise
        good = [m for m in results if m.ok]
        if not good:
            reasons = sorted({f"{m.status.value}: {_last_line(m.error)}" for m in results})
            raise RuntimeError(f"{_FAILED} What they failed of: {'; '.join(reasons)[:2000]}")
        return self._best(min(good, key=lambda m: m.mean), inputs)

    def _measure(
        self, engine: MeasureEngine, candidates: Sequence[_ConfigCandidate], workers: int, on_device: bool
    ) -> list[Measured]:
        progress = _Progress(len(candidates))
        wanted, factor = self.early_stop
        if not wanted or on_device:
            return engine.measure(candidates, progress)
        results: list[Measured] = []
        args = self.profile_args
        for begin in range(0, len(candidates), workers):
            best = min((m.mean for m in results), default=float("inf"))
            limit = best * factor if best < float("inf") else None
            runner: Any = engine.runner
            evaluate = functools.partial(evaluate_on_host, args.warmup, args.rep, limit)
            runner.hooks = (runner.hooks[0], evaluate, runner.hooks[2])
            results += engine.measure(candidates[begin : begin + workers], progress)
        return results

    def _best(self, best: Measured, inputs: Inputs) -> AutotuneResult:
        from ..jit.cache import kernel_of

        candidate: _ConfigCandidate = best.candidate
        func = candidate.func if candidate.func is not None else candidate.make()
        assert candidate.options is not None
        kernel = kernel_of(func, candidate.options)
        reference = None
        if self.profile_args.ref_prog is not None:
            program = self.profile_args.ref_prog
            tensors = inputs.tensors(candidate.payload["params"], candidate.payload["out_idx"])
            reference = do_bench(lambda: program(*tensors), self.profile_args.warmup, self.profile_args.rep)
        return AutotuneResult(best.mean * 1e3, candidate.config, reference, kernel).attached()


class _Progress:
    """Tells the log about each configuration."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.best = float("inf")

    def __call__(self, measured: Measured) -> None:
        self.done += 1
        chosen = measured.candidate.config
        if measured.ok:
            self.best = min(self.best, measured.mean)
            _log.info(
                "%d/%d %s: %.4f ms, best %.4f ms", self.done, self.total, chosen, measured.mean * 1e3, self.best * 1e3
            )
        else:
            _log.warning(
                "%d/%d %s is left out: %s: %s", self.done, self.total, chosen, measured.status.value,
                _last_line(measured.error),
            )  # fmt: skip


def _last_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[-1] if lines else ""


def _args_of(impl: JITImpl) -> CompileArgs:
    known = {k: v for k, v in impl._options.items() if k in CompileArgs.__dataclass_fields__}
    return CompileArgs(**known)


def _name(fn: Any) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))
