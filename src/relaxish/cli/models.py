"""Models from files: ONNX, exported torch programs (``.pt2``), script files, compiled models."""

from __future__ import annotations

import runpy
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..ir.module import IRModule, functions_of
from ..runtime.bytecode.plan import TensorSpec
from ..support.errors import DiagnosticError, MissingExtraError, RelaxishError, first_line
from ..ir.prim import const_int


@dataclass
class LoadedModel:
    """A module ready to build, what ``main`` takes, and the original for comparisons."""

    name: str
    kind: str
    mod: Any
    inputs: list[TensorSpec] = field(default_factory=list)
    source: Any = None

    def for_sizes(self, sizes: Mapping[str, Sequence[int]]) -> LoadedModel:
        """The model with copies for sizes of its symbolic dimensions. Raises RelaxishError where it has none so named."""
        from ..transform.specialize_sizes import SpecializeSizes

        if not sizes:
            return self
        try:
            return replace(self, mod=SpecializeSizes(sizes)(self.mod))
        except ValueError as error:
            raise RelaxishError(f"{self.name}: {error}") from None


def load_model(path: str, shapes: Mapping[str, Sequence[int]] | None = None, trust_pickle: bool = False) -> LoadedModel:
    """Read a model file; any problem is one :class:`RelaxishError`.

    ``trust_pickle`` lets a ``.pt2`` file run code while it is read.
    """
    location = Path(path)
    if not location.exists():
        raise RelaxishError(f"{path}: no such file")
    if location.is_dir():
        raise RelaxishError(f"{path}: is a directory, not a model")
    if location.stat().st_size == 0:
        raise RelaxishError(f"{path}: the file is empty")
    loader = _LOADERS.get(location.suffix.lower())
    if loader is None:
        known = ", ".join(_LOADERS)
        raise RelaxishError(f"{path}: not a model file this command knows (by extension: {known})")
    if loader is _load_exported:
        return _load_exported(location, dict(shapes or {}), trust_pickle)
    return loader(location, dict(shapes or {}))


def _load_onnx(path: Path, shapes: dict[str, Sequence[int]]) -> LoadedModel:
    try:
        import onnx
    except ImportError:
        raise MissingExtraError("onnx", "onnx", "reading ONNX models") from None
    try:
        proto = onnx.load(str(path))
        if not proto.graph.node and not proto.graph.output:
            raise RelaxishError("it has no graph")
    except RelaxishError:
        raise RelaxishError(f"{path}: not an ONNX model, or truncated (it has no graph)") from None
    except Exception as err:
        raise RelaxishError(f"{path}: not an ONNX model, or truncated ({first_line(err)})") from None
    inputs = {v.name for v in proto.graph.input}
    _check_names(path, shapes, sorted(inputs))
    from ..frontend.onnx import from_onnx

    try:
        mod = from_onnx(proto, shape_dict={k: list(v) for k, v in shapes.items()} or None)
    except RelaxishError as err:
        raise RelaxishError(f"{path}: {first_line(err)}") from err
    except Exception as err:
        raise RelaxishError(f"{path}: cannot be imported: {type(err).__name__}: {first_line(err)}") from err
    return LoadedModel(path.stem, "onnx", mod, main_inputs(mod), proto)


def _load_exported(path: Path, shapes: dict[str, Sequence[int]], trust_pickle: bool = False) -> LoadedModel:
    try:
        import torch  # noqa: F401  (told at once, in the terms of this command)
    except ImportError:
        raise MissingExtraError("torch", "torch", "reading exported torch programs") from None
    if shapes:
        raise RelaxishError(f"{path}: the shapes of an exported program are fixed; --shape does not apply")
    if not zipfile.is_zipfile(path):
        raise RelaxishError(f"{path}: not an exported torch program, or truncated (no zip archive)")
    from ..frontend.torch import from_exported_program
    from ..frontend.torch.archive import load_exported

    program = load_exported(path, trust_pickle=trust_pickle)
    try:
        mod = from_exported_program(program)
    except RelaxishError as err:
        raise RelaxishError(f"{path}: {first_line(err)}") from err
    except Exception as err:
        raise RelaxishError(f"{path}: cannot be imported: {type(err).__name__}: {first_line(err)}") from err
    return LoadedModel(path.stem, "torch", mod, main_inputs(mod), program)


def _load_script(path: Path, shapes: dict[str, Sequence[int]]) -> LoadedModel:
    from ..ir import IRModule

    try:
        names = runpy.run_path(str(path))
    except DiagnosticError:
        raise
    except SyntaxError as err:
        raise RelaxishError(f"{path}: not Python ({err.msg}, line {err.lineno})") from None
    except (Exception, SystemExit) as err:
        raise RelaxishError(f"{path}: failed while running: {type(err).__name__}: {first_line(err)}") from err
    modules = {k: v for k, v in names.items() if isinstance(v, IRModule)}
    if not modules:
        functions = {k: v for k, v in names.items() if type(v).__name__ in ("PrimFunc", "Function") and k[:1] != "_"}
        if not functions:
            raise RelaxishError(f"{path}: defines no IRModule and no function")
        mod = IRModule(dict(functions))
    else:
        mod = modules.get("Module") or modules.get("mod") or next(iter(modules.values()))
    return LoadedModel(path.stem, "script", mod, main_inputs(mod))


def _load_compiled(path: Path, shapes: dict[str, Sequence[int]]) -> LoadedModel:
    from ..runtime import VMExecutable, load_module

    if shapes:
        raise RelaxishError(f"{path}: the shapes of a compiled model are fixed; --shape does not apply")
    loaded = load_module(path)
    inputs: list[TensorSpec] = []
    if isinstance(loaded, VMExecutable):
        declared = [TensorSpec(n, tuple(s), d) for n, s, d in loaded.metadata.get("inputs", [])]
        plan = loaded.plans.get("main")
        if plan is None and not declared:
            plan = next(iter(loaded.plans.values()), None)
        inputs = declared if plan is None else [t for t in plan.inputs if t is not None]
    return LoadedModel(path.stem, "compiled", loaded, inputs)


_LOADERS = {
    ".onnx": _load_onnx,
    ".pt2": _load_exported,
    ".py": _load_script,
    ".so": _load_compiled,
    ".tar": _load_compiled,
}


def _check_names(path: Path, shapes: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in shapes:
        if name not in names:
            raise RelaxishError(f"{path}: the model has no input {name!r}; its inputs are {', '.join(names)}")


def main_inputs(mod: IRModule) -> list[TensorSpec]:
    """Tensor parameters of ``main`` (or of the only function); unknown dimensions are -1."""
    from ..relax.expr import Function

    functions = {g.name_hint: f for g, f in functions_of(mod, Function)}
    func = functions.get("main") or (next(iter(functions.values())) if len(functions) == 1 else None)
    if func is None:
        return []
    specs = []
    for param in func.params:
        info = param.struct_info_
        dims = getattr(getattr(info, "shape", None), "values", None)
        if dims is None:
            continue
        shape = tuple(const_int(d, -1) for d in dims)
        specs.append(TensorSpec(param.name_hint, shape, info.dtype))
    return specs
