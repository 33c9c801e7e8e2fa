"""The whole story of a build, in one screen: pipeline, default schedules, lowering, code generation.

>>> import numpy as np
>>> import relaxish
>>> from relaxish.script import ir as I, relax as R
>>> @I.ir_module
... class Twice:
...     @R.function
...     def main(x: R.Tensor((3,), "float32")):
...         y = R.add(x, x)
...         return y
>>> vm = relaxish.VirtualMachine(relaxish.build(Twice, target="llvm"), relaxish.cpu())
>>> vm["main"](relaxish.nd.array(np.array([1, 2, 3], "float32"))).numpy().tolist()
[2.0, 4.0, 6.0]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any, TypeVar, cast

from .backend.vm import ExecBuilder, NotPlannable, generate, plan_function, plan_inputs, symbol_of
from .ir.module import IRModule, functions_of
from .ir.transform import Pass, PassContext
from .relax.expr import Function
from .runtime.vm.executable import VMExecutable
from .runtime.exports.linking import Linker, is_foreign
from .runtime.exports.machines import MachinePrograms
from .runtime.exports.manifest import CodeRequirements
from .runtime.kernels.module import Module
from .runtime.exports.nested import NestedModule
from .runtime.bytecode.plan import ExecutionPlan
from .runtime.devices.module import DeviceModule
from .runtime.exports.system_library import register_symbols
from .support import config
from .support.depth import deep_programs
from .support.errors import RelaxishError
from .support.host_cpu import host_triple
from .support.log import get_logger
from .support.sequences import of_kind
from .target import Target
from .target.llvm_cpus import check_cpu
from .te.schedule import Schedule as TirSchedule
from .tir.function import PrimFunc
from .transform import fold_constant
from .transform.kernel_origins import unlowered
from .transform.placement import Nested, as_composed, bare, home_of, place, with_inherited
from .transform.field_readers import field_readers_to_builtins
from .ir.expr import BaseFunc

_log = get_logger("driver")
_Result = TypeVar("_Result")
_USE_GRAPHS = "relax.backend.use_cuda_graph"
_EXEC_MODES = ("bytecode", "compiled", "interpret")
Pipeline = Pass | Callable[[IRModule], IRModule]
TargetLike = str | Target | dict[str, Any] | Sequence[Any] | None


def _of_stages(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Let ``build`` take a schedule by stages and its arguments too: ``build(s, [A, B, C], target="llvm")``."""

    @functools.wraps(function)
    def taking(*given: Any, **named: Any) -> _Result:
        if not given or not _is_stage_schedule(given[0]):
            return function(*given, **named)
        schedule, args, *rest = (*given, named.pop("args")) if "args" in named else given
        name = str(named.pop("name", None) or "main")
        names = ("target", "target_host", "name")
        named.update(zip(names, rest, strict=False))
        name, host = named.pop("name", None) or name, named.pop("target_host", None)
        target = named.pop("target", None)
        if host is not None:
            target = Target(target if target is not None else resolve_target(None), host)
        return function(lower(schedule, args, name), target, **named)

    return taking


def _is_stage_schedule(value: IRModule | PrimFunc | TirSchedule | int) -> bool:
    from .te import Schedule

    return isinstance(value, Schedule)


def lower(inp: Any, args: Sequence[Any] | None = None, name: str = "main", *, simple_mode: bool = False) -> IRModule:
    """The scheduled program of a schedule (``te`` or ``tir``), a function or a module, as a module of loop programs.

    A ``te`` schedule needs its arguments: ``lower(s, [A, B, C])``. ``simple_mode`` changes nothing here.
    """
    if _is_stage_schedule(inp):
        if args is None:
            raise ValueError("a schedule made by te.create_schedule needs its arguments: lower(s, [A, B, C])")
        return IRModule({name: inp.prim_func(args, name)})
    from .tir import Schedule

    return inp.mod if isinstance(inp, Schedule) else _as_module(inp, name)


@_of_stages
@deep_programs()
def build(
    mod: IRModule | PrimFunc | Function,
    target: TargetLike = None,
    params: Mapping[str, Any] | None = None,
    relax_pipeline: str | Pipeline | None = None,
    tir_pipeline: str | Pipeline | None = "default",
    exec_mode: str = "bytecode",
    *,
    system_lib: bool | None = None,
    target_host: str | dict[str, Any] | Target | None = None,
) -> VMExecutable | Module | MachinePrograms:
    """Compile a module of graph functions; one that has only tensor programs goes to :func:`build_tir`.

    A schedule by stages is built with its arguments: ``build(s, [A, B, C], target="llvm")``.

    With no ``relax_pipeline`` the target's own default runs (fuse, lay out, schedule, lower); name one of
    ``relaxish.get_pipeline`` or pass any module pass instead. ``params`` are bound to parameters of ``main`` by name.
    ``exec_mode`` "bytecode" and "compiled" make machine code, with a native entry for each static function;
    "interpret" runs every kernel in the reference interpreter. ``system_lib`` (by default: whether the module has the
    attribute ``system_lib_prefix``) puts the kernels into :func:`relaxish.runtime.system_lib` as well.

    ``target`` may be made of several devices: a composite, a list of targets, or a mapping from names to targets. Then
    every function runs where its tensors live (``R.to_vdevice``, ``R.hint_on_device``, annotations), what has no device
    on the first one that can run it, and functions on a device with a ``runtime`` of its own are built by themselves.
    For ``machines`` there is a program for each: see :class:`relaxish.runtime.MachinePrograms`.
    """
    if exec_mode not in _EXEC_MODES:
        raise ValueError(f"unknown exec_mode {exec_mode!r}; use one of {', '.join(_EXEC_MODES)}")
    module = _as_module(mod)
    if module.functions and all(isinstance(f, PrimFunc) for f in module.functions.values()):
        return _registered(build_tir(module, target, tir_pipeline, target_host=target_host), module, system_lib)
    where = resolve_target(target, target_host)
    options: dict[str, Any] = {
        "params": params, "relax_pipeline": relax_pipeline, "tir_pipeline": tir_pipeline, "exec_mode": exec_mode,
        "system_lib": system_lib,
    }  # fmt: skip
    if where.kind.name == "machines":
        return _machine_programs(module, where, options)
    if where.kind.name == "composite" or where.runtime != "vm":
        return _composed(module, where, options)
    where = bare(where)
    if len(where.versions()) > 1 and exec_mode != "interpret":
        built = [
            build(module, t, params, relax_pipeline, tir_pipeline, exec_mode, system_lib=False)
            for t in where.versions()
        ]
        return _registered(_best(list(of_kind(built, VMExecutable))), module, system_lib)
    if relax_pipeline is None and where.kind.name in ("llvm", "c"):
        module = unlowered(module)
    module = _with_params(module, params)
    with where:
        module = _relax_pipeline(relax_pipeline, where, module)(module)
    kernels, graph = _split(field_readers_to_builtins(module))
    builder = generate(graph, native=exec_mode == "compiled")
    if exec_mode == "interpret":
        return _interpreted(builder, kernels)
    executable = link_kernels(builder, graph, kernels, where, tir_pipeline)
    return _registered(executable, graph, system_lib)


@deep_programs()
def build_tir(
    mod: IRModule | PrimFunc,
    target: TargetLike = None,
    pipeline: str | Pipeline | None = "default",
    *,
    default_schedule: bool = False,
    name: str | None = None,
    target_host: str | dict[str, Any] | Target | None = None,
) -> Module:
    """Compile loop programs; the result is called with arrays, outputs last: ``mod(a, b, c)``.

    Functions are taken as they are written, unless ``default_schedule`` asks for the rule-based schedules. For a target
    made of several devices each is for the first one that can run it.
    """
    module = _as_module(mod, name or "main")
    where = resolve_target(target, target_host)
    if where.kind.name == "machines":
        raise RelaxishError("loop programs are built for one machine; choose one of the target's, target[0]")
    if where.kind.name == "composite":
        placed = place(module, where, as_written=not default_schedule)
        module, where = placed.module, home_of(where)
    where = bare(where)
    if where.kind.name == "llvm" and len(where.versions()) > 1:
        unregistered = _without_prefix(module)
        options: dict[str, Any] = {"default_schedule": default_schedule, "name": name}
        return _registered(_best([build_tir(unregistered, t, pipeline, **options) for t in where.versions()]), module)
    kernels = IRModule(dict(functions_of(module, PrimFunc)))
    if not kernels.functions:
        raise RelaxishError("there is no PrimFunc to build")
    host, devices = _by_device(kernels, where)
    if default_schedule:
        devices = [(t, _schedule_for_device(k, t)) for t, k in devices]
    device_modules = [_device_module(k, t, pipeline) for t, k in devices]
    if device_modules and not host.functions:
        built = Module({}, None)
        built.requirements = _host_requirements(where)
    else:
        built = _host_module(host, _host_of(where), pipeline, schedule=default_schedule)
    for device_module in device_modules:
        built.add_device_module(device_module)
    for external in (module.attrs or {}).get("external_mods") or ():
        built.import_module(external)
    return _registered(built, module)


def compile(
    mod: IRModule | PrimFunc,
    target: TargetLike = None,
    *,
    relax_pipeline: str | Pipeline | None = "default",
    tir_pipeline: str | Pipeline | None = "default",
) -> VMExecutable | Module | MachinePrograms:
    """Compile anything: modules with graph functions by :func:`build`, loop programs by :func:`build_tir`."""
    module = _as_module(mod)
    if any(isinstance(f, Function) for f in module.functions.values()):
        return build(module, target, relax_pipeline=relax_pipeline, tir_pipeline=tir_pipeline)
    return build_tir(module, target, tir_pipeline)


# ---- steps


_Built = TypeVar("_Built", VMExecutable, Module)


def _registered(built: _Built, mod: IRModule, wanted: bool | None = None) -> _Built:
    """What was built, put into the system library if the build asks for it or the module's attributes do."""
    if wanted or (wanted is None and "system_lib_prefix" in (mod.attrs or {})):
        register_symbols(built)
    return built


def _best(versions: Sequence[_Built]) -> _Built:
    """Of a program in several versions the last that this machine can run; all are exported with it."""
    fitting = [v for v in versions if not v.requirements.problem()]
    found = fitting[-1] if fitting else versions[0]
    found.versions = list(versions)
    return found


def _without_prefix(mod: IRModule) -> IRModule:
    """A module that does not ask to be put into the system library."""
    attrs = {k: v for k, v in (mod.attrs or {}).items() if k != "system_lib_prefix"}
    return IRModule(dict(mod.functions), attrs) if len(attrs) != len(mod.attrs or {}) else mod


def _as_module(mod: Any, name: str = "main") -> IRModule:
    match mod:
        case IRModule():
            return mod
        case PrimFunc() | Function():
            given = mod.attrs.get("global_symbol") if mod.attrs is not None else None
            return IRModule({str(given or name): mod})
        case type() if hasattr(mod, "__relaxish_module__"):
            return _as_module(mod.__relaxish_module__)
    raise TypeError(f"expected an IRModule or a function, got {type(mod).__name__}")


def resolve_target(target: TargetLike, host: str | dict[str, Any] | Target | None = None) -> Target:
    """The target asked for, else the one in scope, else this machine's CPU; several become a composition.

    Raises RelaxishError for unknown CPUs.
    """
    if target is None:
        target = Target.current(allow_none=True) or "llvm"
    target = cast("str | Target", as_composed(target))
    found: Target = Target(target, host) if host is not None or not isinstance(target, Target) else target
    for leaf in found.leaves():
        for part in (leaf, leaf.host, found.host):
            if part is not None and part.kind.name == "llvm" and part.mcpu:
                check_cpu(part.mcpu, str(part.attrs.get("mtriple", host_triple())), "mtriple" in part.attrs)
    return found


# ---- targets made of several devices


def _with_params(mod: IRModule, params: Mapping[str, Any] | None) -> IRModule:
    if not params:
        return mod
    from .transform import BindParams

    bound: IRModule = BindParams("main", dict(params))(mod)
    return bound


def _composed(module: IRModule, where: Target, options: dict[str, Any]) -> VMExecutable:
    """Build for a target of several devices, or with a runtime of its own."""
    alone = where if where.kind.name == "composite" else Target({"kind": "composite", "devices": [bare(where)]})
    module = _with_params(module, options.pop("params"))
    placed = place(module, alone)
    home = home_of(alone)
    captures = where.runtime == "cuda-graph"
    if captures and home.kind.name != "cuda":
        raise RelaxishError(f"runtime cuda-graph needs an NVIDIA device, and the first of this target is {home.kind}")
    if options["relax_pipeline"] is None and placed.mixed:
        from .pipeline import mixed_pipeline

        options["relax_pipeline"] = mixed_pipeline(home, [p.target for p in placed.places], captures)
    if where.runtime == "aot" and options["exec_mode"] == "bytecode":
        options["exec_mode"] = "compiled"
    with _capturing() if captures else nullcontext():
        built = build(placed.module, home, **options)
    assert isinstance(built, VMExecutable)
    if where.runtime in ("aot", "graph"):
        _make_static(built, placed.module, where.runtime)
    for part in placed.nested:
        built.external_modules.append(_nested_module(part, options))
    built.metadata = {**built.metadata, "target": str(where), "devices": [list(d) for d in placed.devices]}
    return built


@contextmanager
def _capturing() -> Iterator[None]:
    """While it lasts, what CUDA graphs can replay becomes such."""
    config = PassContext.current().config
    before = config.get(_USE_GRAPHS)
    config[_USE_GRAPHS] = True
    try:
        yield
    finally:
        config.pop(_USE_GRAPHS)
        if before is not None:
            config[_USE_GRAPHS] = before


def _nested_module(part: Nested, options: dict[str, Any]) -> NestedModule:
    target = part.place.target
    built = build(part.module, target, tir_pipeline=options["tir_pipeline"], system_lib=False)
    assert isinstance(built, VMExecutable)
    symbols = {symbol: name for name, symbol in part.symbols.items()}
    return NestedModule(part.place.name, built, symbols, built.metadata["devices"])


def _make_static(executable: VMExecutable, graph: IRModule, runtime: str) -> None:
    """Every function becomes one straight run of kernels over memory planned ahead; those of a device get their plans here.

    Raises RelaxishError for functions that cannot be such.
    """
    modules = executable.device_modules
    reasons: dict[str, str] = {}
    if modules:
        executable.plans = {p.name: p for p in _plans(executable, graph, reasons, on_device=True)}
    loose = [name for name in executable.function_names if name not in executable.plans]
    if loose:
        why = "; ".join(f"{name}: {reasons[name]}" for name in loose if name in reasons)
        raise RelaxishError(
            f"runtime {runtime} needs functions of known shapes and without branches, and {', '.join(loose)} "
            f"is none{f' ({why})' if why else ''}; use runtime vm, or fix the shapes with relax.transform.BindSymbolicVars"
        )
    if runtime == "aot" and modules:
        module = next(
            m for m in modules if all(c.kernel in m.programs for p in executable.plans.values() for c in p.calls)
        )
        module.entries = list(executable.plans.values())
        there = () if module.host_code is None else module.host_code.entries
        textual = [plan.name for plan in module.entries if plan.symbol not in there]
        if textual:
            raise RelaxishError(
                f"runtime aot needs the host parts of kernels as machine code, and those that {', '.join(textual)} calls "
                "call packed functions, or llvmlite is not installed; use runtime graph"
            )


def _machine_programs(module: IRModule, where: Target, options: dict[str, Any]) -> MachinePrograms:
    """A program for each machine."""
    resolved = where.resolved()
    built: dict[str, tuple[VMExecutable, int]] = {}
    for name, given in where.devices.items():
        made = build(module, with_inherited(given, resolved[name]), **options)
        assert isinstance(made, VMExecutable)
        gpus = [leaf for leaf in given.leaves() if leaf.get_target_device_type() != 1]
        built[name] = (made, max(1, len(gpus)))
    return MachinePrograms(built)


def _check_buildable(target: Target) -> None:
    if target.kind.name not in ("llvm", "c"):
        raise RelaxishError(f"no code generator for target kind '{target.kind.name}' is available here; use 'llvm'")


# Kinds of targets that have a device module, and the backend whose ``build.build_device`` makes it.
_DEVICE_BACKENDS = {kind: kind for kind in ("cuda", "nvptx", "opencl", "rocm", "metal", "vulkan", "webgpu")}


def _by_device(kernels: IRModule, target: Target) -> tuple[IRModule, list[tuple[Target, IRModule]]]:
    """Functions for the host, and those for each device: their own target says which, else the build's."""
    host: dict[Any, Any] = {}
    devices: dict[str, tuple[Target, dict[Any, Any]]] = {}
    for var, func in kernels.functions.items():
        attrs = func.attrs or {}
        own = attrs.get("target") or target
        if own.kind.name not in _DEVICE_BACKENDS or attrs.get("tir.is_host_func"):
            host[var] = func
            continue
        own = Target(own, target.host) if own.host is None and target.host is not None else own
        group = devices.setdefault(str(own.without_host()), (own, {}))
        group[1][var] = func
    return IRModule(host, kernels.attrs), [(t, IRModule(f, kernels.attrs)) for t, f in devices.values()]


def _host_of(target: Target) -> Target:
    """Where the host functions of a target run."""
    if target.kind.name not in _DEVICE_BACKENDS:
        return target
    return target.host if target.host is not None else Target("llvm")


def _schedule_for_device(kernels: IRModule, target: Target) -> IRModule:
    from .dlight import ApplyDefaultSchedule, default_gpu_rules
    from .tir.transform.numerics.centered_variances import CenterVariances

    kernels = CenterVariances(for_device=True)(kernels)
    with target:
        scheduled: IRModule = ApplyDefaultSchedule(*default_gpu_rules(target))(kernels)
    return scheduled


def _device_module(kernels: IRModule, target: Target, pipeline: str | Pipeline | None) -> DeviceModule:
    """Kernels of a device, and the host programs that launch them."""
    if not isinstance(pipeline, str | None) and not _is_default_pipeline(pipeline):
        with target:
            kernels = pipeline(kernels)
    backend = import_module(f"{__package__}.backend.{_DEVICE_BACKENDS[target.kind.name]}.build")
    module = backend.build_device(kernels, target)
    if config.HOST_PROGRAMS.value == "native":
        module.use_native_host()
    return module


def link_kernels(
    builder: ExecBuilder, graph: IRModule, kernels: IRModule, target: Target, pipeline: str | Pipeline | None
) -> VMExecutable:
    """The executable of generated bytecode and the kernels it calls, those of devices in modules of their own."""
    target = home_of(target) if target.kind.name == "composite" else target
    host, devices = _by_device(kernels, target)
    modules = [_device_module(_schedule_for_device(k, t), t, pipeline) for t, k in devices]
    lowered = lower_kernels(host, _host_of(target), pipeline)
    executable = _native(builder, graph, lowered, _host_of(target), plans=not modules)
    executable.device_modules = modules
    executable.metadata = {"target": str(target), "devices": [[target.get_target_device_type(), 0]]}
    for module in modules:
        executable.kernels.update(module.kernels)
    if modules and not executable.requirements.triple:
        executable.requirements = _host_requirements(target)
    return executable


def _host_requirements(target: Target) -> CodeRequirements:
    """What host programs need of a machine: to be of the architecture, where another than this one's was asked for."""
    triple = str(_host_of(target).attrs.get("mtriple", ""))
    return CodeRequirements(str(_host_of(target)), triple) if is_foreign(triple) else CodeRequirements()


def _host_module(kernels: IRModule, target: Target, pipeline: str | Pipeline | None, *, schedule: bool) -> Module:
    """Machine code for this machine."""
    lowered = lower_kernels(kernels, target, pipeline, schedule=schedule)
    compiled, library, linker = _machine_code(lowered, target)
    made = Module(
        compiled.kernels,
        library,
        objects=[compiled.object_bytes],
        linker=linker,
        sources={"c": compiled.source} if target.kind.name == "c" else {"ll": compiled.llvm_text},
        type_key=target.kind.name,
        messages=compiled.messages,
    )
    made.requirements = _requirements(target)
    return made


def _requirements(target: Target) -> CodeRequirements:
    """What machine code for a target needs of the machine that runs it."""
    if target.kind.name == "c":
        return CodeRequirements(str(target), host_triple())  # the C compiler was given no CPU
    from .backend.llvm.engine import requirements

    return requirements(target)


def _machine_code(kernels: IRModule, target: Target, plans: Sequence[ExecutionPlan] = ()) -> tuple[Any, Any, Any]:
    """(compiled object, the library it is in this process, what links objects) of lowered functions for the host."""
    _check_buildable(target)
    if target.kind.name == "c":
        from .backend.c import build, compiler

        text = build.compile_c(kernels)
        linker = Linker("", list, compiler.link_shared)
        return text, compiler.load_objects([text.object_bytes]), linker
    from .backend.llvm.compile import compile_primfuncs, library_of, linker_of

    compiled = compile_primfuncs(kernels, target, plans)
    return compiled, library_of(compiled), linker_of(target)


def _relax_pipeline(pipeline: str | Pipeline | None, target: Target, mod: IRModule) -> Callable[[IRModule], IRModule]:
    from .pipeline import get_default_pipeline, pipeline_to_build

    if pipeline is None:
        return get_default_pipeline(target)
    return pipeline_to_build(pipeline, target, mod) if isinstance(pipeline, str) else pipeline


def _split(mod: IRModule) -> tuple[IRModule, IRModule]:
    """Kernels by themselves, and the module the VM code generator sees (kernels included, for their names)."""
    kernels = IRModule(dict(functions_of(mod, PrimFunc)), mod.attrs)
    return kernels, mod


def lower_kernels(
    kernels: IRModule,
    target: Target,
    pipeline: str | Pipeline | None = "default",
    *,
    schedule: bool = True,
) -> IRModule:
    """Give unscheduled functions their default schedule, then lower all of them for code generation."""
    if not kernels.functions:
        return kernels
    with target:
        if schedule:
            kernels = _default_schedules(kernels, target)
        return _tir_pipeline(pipeline, target)(_with_writes(kernels))


def _with_writes(kernels: IRModule) -> IRModule:
    """The functions with a note of the parameters that they write, which lowered code may not show."""
    from .backend.common.signature import WRITTEN, written_params

    def noted(func: Any) -> BaseFunc:
        written = written_params(func) if isinstance(func, PrimFunc) else None
        return func if written is None else func.with_attr(WRITTEN, list(written))

    return IRModule({var: noted(func) for var, func in kernels.functions.items()}, kernels.attrs, kernels.global_infos)


def _tir_pipeline(pipeline: str | Pipeline | None, target: Target) -> Callable[[IRModule], IRModule]:
    from .tir.transform import pipeline as pipelines

    if _is_default_pipeline(pipeline):
        # The backend has its own calling convention: of the default pipeline it takes what comes before packed calls.
        pipeline = "default"
    if pipeline is not None and not isinstance(pipeline, str):
        return pipeline
    if pipeline is None or pipeline == "default":
        return lambda kernels: pipelines.lower_for_cpu(kernels, target)
    named: Callable[[IRModule], IRModule] = pipelines.get_tir_pipeline(pipeline)
    return named


def _is_default_pipeline(pipeline: Any) -> bool:
    return isinstance(pipeline, Pass) and pipeline.info.name == "default_tir_pipeline"


def _default_schedules(kernels: IRModule, target: Target) -> IRModule:
    from .dlight import ApplyDefaultSchedule, default_cpu_rules
    from .tir.transform.numerics.centered_variances import exact_sums

    scheduled: IRModule = ApplyDefaultSchedule(*default_cpu_rules(target))(exact_sums(kernels))
    return scheduled


def _native(
    builder: ExecBuilder, graph: IRModule, kernels: IRModule, target: Target, *, plans: bool = True
) -> VMExecutable:
    executable = builder.get()
    executable.external_modules = list((graph.attrs or {}).get("external_mods") or ())
    if not kernels.functions:
        return executable
    from .backend.common.signature import kernel_spec

    specs = {symbol_of(g, f): kernel_spec(symbol_of(g, f), f) for g, f in kernels.functions.items()}
    executable.kernels = specs
    if plans and target.kind.name == "llvm":
        executable.plans = {plan.name: plan for plan in _plans(executable, graph)}
    compiled, library, linker = _machine_code(kernels, target, tuple(executable.plans.values()))
    executable.kernels = compiled.kernels
    executable.libraries = [library]
    executable.objects = [compiled.object_bytes]
    executable.linker = linker
    executable.requirements = _requirements(target)
    return executable


def _plans(
    executable: VMExecutable, graph: IRModule, reasons: dict[str, str] | None = None, on_device: bool = False
) -> Iterator[ExecutionPlan]:
    """Plans of all functions that have one; the others run as bytecode, for ``reasons``."""
    kernels = executable.kernels
    if on_device:
        kernels = {name: spec for m in executable.device_modules[:1] for name, spec in m.kernels.items()}
    for var, func in functions_of(graph, Function):
        name = symbol_of(var, func)
        try:
            inputs = plan_inputs(func)
            yield plan_function(name, executable.functions, executable.constants, kernels, inputs, on_device)
        except NotPlannable as reason:
            _log.info("%s runs as bytecode: %s", name, reason)
            if reasons is not None:
                reasons[name] = str(reason)


def _interpreted(builder: ExecBuilder, kernels: IRModule) -> VMExecutable:
    from .backend.vm.interpreted import interpreted_kernels

    for spec, run in interpreted_kernels(kernels):
        builder.add_kernel(spec, run)
    return builder.get()


def _evaluate_natively(func: PrimFunc, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """Constant folding by machine code: interpreting the repacking of a large weight would take minutes."""
    kernel = build_tir(func.without_attr("global_symbol"), "llvm", default_schedule=True, name="fold")
    kernel["fold"](*inputs, *outputs)
    return True


fold_constant.EVALUATORS.insert(0, _evaluate_natively)
