"""Placement of a program's parts on devices: a module and a composed target become modules for single devices.

The devices of a composition are :class:`Place`\\ s, in their order, and last the host. Tensors are where their virtual
devices say; what has none goes to the first place that can run it. A device with a runtime of its own is *self-contained*:
functions placed on it are built by themselves and called as one opaque function each.

Before (devices: ``gpu``, and ``strategy`` with a runtime of its own) and after::

    def inner(x): # on strategy                 def inner(x):
        ... many operators ...                      return R.call_dps_packed("strategy_inner", (x,), ...)
    def main(x):                                def main(x):
        y = cls.inner(x)                            y = cls.inner(x)
        z = R.call_tir(cls.on_the_cpu, (y,))        y1 = R.to_vdevice(y, host); z1 = R.call_tir(...); z = R.to_vdevice(..)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ir.expr import GlobalVar
from ..ir.functor import all_nodes
from ..ir.global_info import VDevice
from ..ir.module import IRModule, functions_of
from ..ir.op import op_name_of
from ..op.base import to_vdevice
from ..relax.analysis.tir_pattern import OpPatternKind
from ..relax.analysis.variables import post_order_visit as visit_graph
from ..relax.block_builder import BlockBuilder
from ..relax.call_forms import call_dps_packed
from ..relax.expr import Call, DataflowBlock, Expr, ExternFunc, Function, Tuple, TupleGetItem, Var, is_call_of
from ..relax.expr_functor import PyExprMutator, PyExprVisitor
from ..relax.struct_info import FuncStructInfo, StructInfo, TensorStructInfo, TupleStructInfo, fields_of
from ..support.errors import RelaxishError
from ..support.sequences import of_kind
from ..target import Target
from ..target.libraries import fitting
from ..tir import For, ForKind
from ..tir.function import PrimFunc
from .graph_partition import Group
from .grouped_functions import fuse_by_groups
from .realize_vdevice import RealizeVDevice
from .update_param_struct_info import UpdateParamStructInfo
from .vdevice import ReplaceVDevices
from ..ir.plain import plain_str

__all__ = [
    "Nested",
    "Place",
    "Placed",
    "as_composed",
    "bare",
    "device_of",
    "home_of",
    "place",
    "places_of",
    "with_inherited",
]

_CPU = 1  # DLPack's number
# Attributes that say where a function is to go; what was made for its place is without them.
_MARKS = ("Codegen", "target", "Primitive")
# Types of elements that the kind's programs have no word for.
_LACKS = {"metal": ("float64",), "webgpu": ("float64",)}


def as_composed(
    target: Target
    | str
    | Sequence[Target | str]
    | Mapping[str, str | Mapping[str, Target | str | Mapping[str, Target | str]]],
) -> Any:
    """A list of targets, or a mapping from names to targets, as a composition; anything else as it is."""
    match target:
        case list() | tuple():
            if not target:
                raise RelaxishError("the list of targets is empty")
            return Target({"kind": "composite", "devices": list(target)})
        case Mapping():
            words = {"kind", "tag", "devices", "machines", "vdevice0", "machine0"}
            is_target = any(key in words for key in target)
            return Target(dict(target) if is_target else {"kind": "composite", "devices": dict(target)})
    return target


def bare(target: Target) -> Target:
    """A device without what is said of how it is driven and measured: what code is made for."""
    if "runtime" not in target.attrs and "pool" not in target.attrs:
        return target
    return Target({name: value for name, value in target.export().items() if name not in ("runtime", "pool")})


def with_inherited(given: Target, holds: Target) -> Target:
    """Part of a composition as a target of its own: as it was given, with host and libraries of the levels above."""
    config = given.export()
    if holds.host is not None:
        config["host"] = holds.host.export()
    if holds.libs:
        config["libs"] = holds.libs
    return Target(config)


@dataclass(frozen=True)
class Place:
    """One of the devices of a composition: a single one, or a self-contained composition."""

    name: str
    target: Target
    vdevice: VDevice
    self_contained: bool = False

    def can_run(self, func: PrimFunc, as_written: bool = False) -> bool:
        """Whether a loop program can be made into code for this place; ``as_written``: without a default schedule."""
        attrs = func.attrs or {}
        own = attrs.get("target")
        kind = self.target.kind.name
        gpu = self.target.get_target_device_type() != _CPU
        if own is not None and own.kind.name != kind:
            return False
        if attrs.get("tir.is_host_func"):
            return not gpu
        threads = _has_threads(func)
        if threads != gpu and (threads or as_written or attrs.get("tir.is_scheduled")):
            return False
        return not any(self.lacks(buffer.dtype) for buffer in func.buffer_map.values())

    def lacks(self, dtype: str) -> bool:
        """Whether programs of this kind of device cannot hold elements of a type."""
        return dtype in _LACKS.get(self.target.kind.name, ())


@dataclass(frozen=True)
class Nested:
    """Functions that are built by themselves: for which device, and under which names they are called."""

    place: Place
    module: IRModule
    symbols: Mapping[str, str]


@dataclass
class Placed:
    """A module in which everything has its place, and the target of what has no other."""

    module: IRModule
    target: Target
    places: tuple[Place, ...]
    mixed: bool = False
    nested: list[Nested] = field(default_factory=list)

    @property
    def devices(self) -> list[tuple[int, int]]:
        """(device type, number) of each device, in the order a virtual machine is to be given them."""
        used = self.places if self.mixed else self.places[:1]
        return [(p.target.get_target_device_type(), int(p.vdevice.vdevice_id)) for p in used]


def places_of(composite: Target) -> tuple[list[Place], list[Place]]:
    """(places of single devices, the host last if there is no other processor; self-contained places)."""
    host = composite.resolved().host
    assert host is not None, "a composite has a host"
    places: list[Place] = []
    nested: list[Place] = []
    counts: dict[int, int] = {}
    for name, given, holds in _walk("", composite, composite.resolved()):
        if "runtime" in given.attrs:
            nested.append(Place(name, with_inherited(given, holds), VDevice(given), True))
            continue
        target = bare(holds)
        if "libs" not in given.attrs and holds.libs:
            # What a level above asks for is for those below that can use it.
            target = target.with_attrs(libs=fitting(holds.libs, target.kind.name))
        kind = target.get_target_device_type()
        if kind == _CPU:
            target = _processor(target.without_host(), host)
        places.append(Place(name, target, VDevice(target, counts.setdefault(kind, 0))))
        counts[kind] += 1
    if _CPU not in counts:
        places.append(Place("host", host, VDevice(host, 0)))
    return places, nested


def _walk(prefix: str, given: Target, holds: Target) -> Iterator[tuple[str, Target, Target]]:
    for name, child in given.devices.items():
        full = f"{prefix}{name}"
        if child.kind.name == "machines":
            raise RelaxishError(f"device {full}: machines cannot be part of one process; put them at the top")
        if child.kind.name == "composite" and "runtime" not in child.attrs:
            yield from _walk(full + ".", child, holds[name])
        else:
            yield full, child, holds[name]


def _processor(leaf: Target, host: Target) -> Target:
    """Host and processor are one process: the host says for which machine, the leaf what of it may be used."""
    if leaf.attrs.get("mtriple") in (None, host.attrs.get("mtriple")):
        return leaf
    return host if "mtriple" in host.attrs else leaf


def home_of(composite: Target) -> Target:
    """Target of code without a place of its own: the first device, with the host of the composition."""
    first = places_of(composite)[0][0].target
    return first if first.get_target_device_type() == _CPU else Target(first, composite.resolved().host)


def device_of(func: PrimFunc, target: Target) -> Target:
    """The device that a loop program is for: of a composition the one it says, else the first that can run it."""
    if target.kind.name != "composite":
        return bare(target)
    own = (func.attrs or {}).get("target")
    if own is not None:
        return Target(own)
    places = places_of(target)[0]
    able = next((p for p in places if p.can_run(func)), places[0])
    return home_of(target) if able is places[0] else able.target


# ---- placing


def place(mod: IRModule, composite: Target, as_written: bool = False) -> Placed:
    """Place a module. Raises RelaxishError for a virtual device that the composition does not have.

    ``as_written`` loop programs will not be given a default schedule.
    """
    places, nested = places_of(composite)
    default = places[0]
    named = _with_devices(mod, places, nested)
    outer, parts = _without_nested(named, nested, default)
    found = _constrained(outer, places, as_written)
    if not found and not _devices_in(outer.functions.values()) and not _lacking(outer, default):
        outer = IRModule(outer.functions, outer.attrs, _without_list(outer))
        return Placed(outer, default.target, tuple(places), False, parts)
    return Placed(_with_copies(outer, places, found), default.target, tuple(places), True, parts)


def _without_list(mod: IRModule) -> dict[str, Any]:
    return {name: infos for name, infos in (mod.global_infos or {}).items() if name != "vdevice"}


def _with_devices(mod: IRModule, places: Sequence[Place], nested: Sequence[Place]) -> IRModule:
    """The module with the devices of the composition in place of its own, and hints realised."""
    mapping: list[tuple[Any, VDevice]] = []

    def replacement(device: VDevice) -> VDevice:
        for known, new in mapping:
            if known is device or known == device:
                return new
        new = _matching(device, places, nested)
        mapping.append((device, new))
        return new

    move = ReplaceVDevices(replacement)
    functions = {v: move.visit_expr(f) if isinstance(f, Function) else f for v, f in mod.functions.items()}
    listed = [p.vdevice for p in (*places, *nested)]
    out = IRModule(functions, mod.attrs, {**(mod.global_infos or {}), "vdevice": listed})
    if not _devices_in(functions.values()):
        return out
    hinted: IRModule = RealizeVDevice()(_at_home(out, places[0]))
    return hinted


def _at_home(mod: IRModule, home: Place) -> IRModule:
    """Where functions only have hints, their arguments arrive on the first device: else one hint would move all."""
    params: set[Any] = set()
    for func in of_kind(mod.functions.values(), Function):
        look = _Devices()
        look.visit_expr(func)
        if look.found and not look.annotated:
            params.update(func.params)

    def placed(param: Var) -> StructInfo | None:
        info = param.struct_info_
        return _on(info, home.vdevice) if param in params and isinstance(info, TensorStructInfo) else None

    out: IRModule = UpdateParamStructInfo(placed)(mod)
    return out


def _matching(device: VDevice, places: Sequence[Place], nested: Sequence[Place]) -> VDevice:
    """The place that a module's virtual device stands for: the very target, else the one of that kind and number."""
    target, number = device.target, int(device.vdevice_id)
    if device.memory_scope != "global":
        raise RelaxishError(
            f"a virtual device of memory scope {device.memory_scope!r} cannot be part of a composed target; build for "
            "the single device"
        )
    for there in nested:
        if there.vdevice.target == target or there.target == target:
            return there.vdevice
    same = [p for p in places if p.target.kind == target.kind]
    exact = [p for p in same if p.target.without_host() == target.without_host() and p.vdevice.vdevice_id == number]
    if exact:
        return exact[0].vdevice
    if number < len(same):
        return same[number].vdevice
    there_are = ", ".join(f"{p.name} ({p.target.kind.name}:{p.vdevice.vdevice_id})" for p in places)
    raise RelaxishError(
        f"the module uses {target.kind.name}:{number}, which the target does not have; it has {there_are}"
    )


class _Devices(PyExprVisitor):
    """Every virtual device that struct infos and copies name."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self.annotated = False  # whether not only hints name devices

    def visit_struct_info_node(self, info: StructInfo) -> None:
        super().visit_struct_info_node(info)
        self._note(info)

    def visit_var_def(self, var: Var) -> None:
        super().visit_var_def(var)
        self._note(var.struct_info_)

    def _note(self, info: Any) -> None:
        named = list(_vdevices(info))
        self.annotated = self.annotated or bool(named)
        self.found.extend(named)

    def visit_call_(self, op: Call) -> None:
        super().visit_call_(op)
        for info in op.sinfo_args or ():
            self._note(info)
        if is_call_of(op, "relax.to_vdevice", "relax.hint_on_device"):
            self.found.append(op.attrs.dst_vdevice)
            self.annotated = self.annotated or op.op.name == "relax.to_vdevice"


def _vdevices(info: TensorStructInfo) -> Iterator[Any]:
    match info:
        case TensorStructInfo() if info.vdevice is not None:
            yield info.vdevice
        case TupleStructInfo():
            for part in info.fields:
                yield from _vdevices(part)
        case FuncStructInfo():
            for part in (*(info.params or ()), info.ret):
                yield from _vdevices(part)


def _devices_in(functions: Iterable[Any]) -> list[Any]:
    look = _Devices()
    for func in of_kind(functions, Function):
        look.visit_expr(func)
    return look.found


# ---- self-contained devices


def _without_nested(mod: IRModule, nested: Sequence[Place], default: Place) -> tuple[IRModule, list[Nested]]:
    """Functions on self-contained places become calls of what is built for those."""
    mod = _outlined(mod, nested)
    functions: dict[GlobalVar, Any] = dict(mod.functions)
    parts: list[Nested] = []
    for there in nested:
        chosen = [v for v, f in functions_of(mod, Function) if _belongs(f, there)]
        symbols = {v.name_hint: f"{there.name.replace('.', '_')}_{v.name_hint}" for v in chosen}
        if chosen:
            inside = _with_callees(mod, chosen)
            parts.append(Nested(there, _stripped(mod, inside, there), symbols))
        for var in chosen:
            functions[var] = _opaque(mod[var], symbols[var.name_hint], there)
    kept = {p.vdevice for p in nested}
    gone = ReplaceVDevices(lambda device: None if any(device is k for k in kept) else device)
    functions = {v: gone.visit_expr(f) if isinstance(f, Function) else f for v, f in functions.items()}
    listed = [d for d in mod.global_infos["vdevice"] if not any(d is k for k in kept)]
    out = IRModule(functions, mod.attrs, {**mod.global_infos, "vdevice": listed})
    return (_reachable(out) if parts else out), parts


def _outlined(mod: IRModule, nested: Sequence[Place]) -> IRModule:
    """What is computed on self-contained places inside of other functions, as functions: one for each run of bindings."""
    groups: dict[Any, Group] = {}
    for func in of_kind(mod.functions.values(), Function):
        if any(_belongs(func, there) for there in nested):
            continue
        for block in of_kind(func.body.blocks, DataflowBlock):
            current: tuple[Place, Group] | None = None
            for binding in block.bindings:
                there = next(
                    (p for p in nested if any(d is p.vdevice for d in _vdevices(binding.var.struct_info_))), None
                )
                if there is None:
                    current = None
                elif current is not None and current[0] is there:
                    current[1].num_nodes += 1
                    groups[binding.var] = current[1]
                else:
                    current = there, Group(binding.var, OpPatternKind.OPAQUE)
                    current[1].attrs = {"Codegen": there.name}
                    groups[binding.var] = current[1]
    return fuse_by_groups(mod, groups, lift_constants=False) if groups else mod


def _belongs(func: Function, there: Place) -> bool:
    """Whether a function is placed: by its attribute ``Codegen`` or ``target``, or by where its arguments live."""
    attrs = func.attrs or {}
    if plain_str(attrs.get("Codegen")) == there.name:
        return True
    if attrs.get("target") is not None:
        return attrs["target"] in (there.target, there.vdevice.target)
    infos = [*(p.struct_info_ for p in func.params), func.ret_struct_info]
    return any(device is there.vdevice for info in infos for device in _vdevices(info))


def _with_callees(mod: IRModule, wanted: Sequence[GlobalVar]) -> list[GlobalVar]:
    found: dict[GlobalVar, None] = dict.fromkeys(wanted)
    todo = list(wanted)

    def note(expr: Expr) -> None:
        if isinstance(expr, GlobalVar) and expr in mod.functions and expr not in found:
            found[expr] = None
            todo.append(expr)

    while todo:
        func = mod.functions[todo.pop()]
        if isinstance(func, Function):
            visit_graph(func, note)
    return list(found)


def _reachable(mod: IRModule) -> IRModule:
    """Private functions that only a part built by itself has called are not built once more."""
    public = [v for v, f in mod.functions.items() if (f.attrs or {}).get("global_symbol") is not None]
    kept = set(_with_callees(mod, public))
    return IRModule({v: f for v, f in mod.functions.items() if v in kept}, mod.attrs, mod.global_infos)


def _stripped(mod: IRModule, wanted: Sequence[GlobalVar], there: Place) -> IRModule:
    """The functions as a module for the place alone."""
    here = ReplaceVDevices(lambda device: None if device is there.vdevice else device)
    functions: dict[Any, Any] = {}
    for var in wanted:
        func = mod.functions[var]
        if isinstance(func, Function):
            func = here.visit_expr(func)
            for name in _MARKS:
                func = func.without_attr(name) if name in (func.attrs or {}) else func
            func = func.with_attr("global_symbol", var.name_hint)
        functions[var] = func
    return IRModule(functions, mod.attrs, _without_list(mod))


def _opaque(func: Function, symbol: str, there: Place) -> Function:
    """A function of the same signature that calls what is built for the place."""
    if any(not isinstance(p.struct_info_, TensorStructInfo) for p in func.params):
        raise RelaxishError(f"a function on {there.name} takes and returns tensors alone")
    params = [Var(p.name_hint, p.struct_info_) for p in func.params]
    builder = BlockBuilder()
    kept = {k: v for k, v in (func.attrs or {}).items() if k not in _MARKS}
    with builder.function("opaque", params, dict(kept), private=True):
        with builder.dataflow():
            called = call_dps_packed(ExternFunc(symbol), Tuple(params), _shaped(func.ret_struct_info, symbol))
            result = builder.emit_output(builder.emit(called))
        builder.emit_func_output(result)
    made: Function = builder.get()["opaque"]
    return made


def _shaped(info: StructInfo, symbol: str) -> StructInfo | list[StructInfo]:
    parts = list(fields_of(info))
    if not all(isinstance(p, TensorStructInfo) and p.shape is not None and p.dtype for p in parts):
        raise RelaxishError(
            f"{symbol} is built by itself, and its caller must know the shapes of its results; annotate what it returns"
        )
    return parts if isinstance(info, TupleStructInfo) else info


# ---- kernels that run elsewhere


def _constrained(mod: IRModule, places: Sequence[Place], as_written: bool) -> dict[GlobalVar, Place]:
    """Loop programs that the first place cannot run, and the first place that can."""
    found = {}
    for var, func in functions_of(mod, PrimFunc):
        if not places[0].can_run(func, as_written):
            able = next((p for p in places[1:] if p.can_run(func, as_written)), None)
            if able is None:
                names = ", ".join(p.name for p in places)
                raise RelaxishError(
                    f"no device of the target can run {var.name_hint} as it is scheduled (tried {names})"
                )
            found[var] = able
    return found


def _has_threads(func: PrimFunc) -> bool:
    return any(isinstance(node, For) and node.kind == ForKind.THREAD_BINDING for node in all_nodes(func.body))


class _Copies(PyExprMutator):
    """Calls of programs that run elsewhere, between copies of their arguments and results."""

    def __init__(self, mod: IRModule, places: Sequence[Place], found: Mapping[GlobalVar, Place]) -> None:
        super().__init__(mod)
        self.home = places[0]
        self.others = places[1:]
        self.places = found
        self.original: dict[tuple[Var, str], Any] = {}  # where the copy of a result came from

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        name = op_name_of(call)
        if name in ("relax.call_tir", "relax.call_tir_inplace"):
            there = self.places.get(call.args[0])
            if there is None:
                return call
            if name == "relax.call_tir_inplace":
                raise RelaxishError(
                    f"{call.args[0].name_hint} writes its arguments in place, and runs on {there.name}: its tensors must "
                    "be placed there, by R.to_vdevice"
                )
            args = Tuple([self._moved(a, there) for a in call.args[1].fields])
            infos = [_on(info, there.vdevice) for info in call.sinfo_args]
            return self._back(Call(call.op, (call.args[0], args, *call.args[2:]), call.attrs, infos, call.span), there)
        there = self._able(op) if name and not name.startswith(("relax.call_", "relax.to_vdevice")) else None
        if there is None:
            return call
        moved = [self._moved(a, there) for a in call.args]
        return self._back(Call(call.op, moved, call.attrs, call.sinfo_args, call.span), there)

    def _able(self, op: Call) -> Place | None:
        """Where an operator runs that the home place has no types for."""
        dtypes = _dtypes([op.struct_info_, *(a.struct_info_ for a in op.args)])
        if not any(self.home.lacks(d) for d in dtypes):
            return None
        return next((p for p in self.others if not any(p.lacks(d) for d in dtypes)), None)

    def _moved(self, arg: Expr, there: Place) -> Expr:
        info = arg.struct_info_
        if not isinstance(info, TensorStructInfo) or info.vdevice is there.vdevice:
            return arg
        found: Any = arg
        while isinstance(found, Var) and (found, there.name) not in self.original:
            found = self.builder_.lookup_binding(found)
        if isinstance(found, Var):
            return self.original[found, there.name]
        return self.builder_.emit(to_vdevice(arg, there.vdevice))

    def _back(self, call: Call, there: Place) -> Expr:
        """The result of a call elsewhere, brought home."""
        made = self.builder_.emit(call)
        if not isinstance(made.struct_info_, TensorStructInfo):
            fields = made.struct_info_.fields
            parts = [self.builder_.emit(TupleGetItem(made, i)) for i in range(len(fields))]
            return Tuple([self._home(part, there) for part in parts])
        return self._home(made, there)

    def _home(self, made: Expr, there: Place) -> Expr:
        copied = self.builder_.emit(to_vdevice(made, self.home.vdevice))
        self.original[copied, there.name] = made
        return copied


def _dtypes(infos: Iterable[Any]) -> list[str]:
    return [str(i.dtype) for i in of_kind(infos, TensorStructInfo) if i.dtype]


class _Types(PyExprVisitor):
    """The element types of all tensors."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def visit_var_def(self, var: Var) -> None:
        super().visit_var_def(var)
        self.found.update(_dtypes([var.struct_info_]))


def _lacking(mod: IRModule, home: Place) -> bool:
    """Whether the graph has tensors of types that the home place has none of."""
    look = _Types()
    for func in of_kind(mod.functions.values(), Function):
        look.visit_expr(func)
    return any(home.lacks(d) for d in look.found)


def _on(info: TensorStructInfo, vdevice: VDevice) -> TensorStructInfo:
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo([_on(f, vdevice) for f in info.fields])
    return TensorStructInfo(info.shape, info.dtype, vdevice, info.ndim)


def _with_copies(mod: IRModule, places: Sequence[Place], found: Mapping[GlobalVar, Place]) -> IRModule:
    """Programs say for which device they are; their callers copy what they take and give."""
    functions = {v: f.with_attr("target", found[v].target) if v in found else f for v, f in mod.functions.items()}
    out = IRModule(functions, mod.attrs, {**mod.global_infos, "vdevice": [p.vdevice for p in places]})
    copies = _Copies(out, places, found)
    for var, func in functions_of(out, Function):
        new = copies.visit_expr(func)
        if new is not func:
            copies.builder_.update_func(var, new)
    made: IRModule = copies.builder_.get()
    return IRModule(made.functions, out.attrs, out.global_infos)
