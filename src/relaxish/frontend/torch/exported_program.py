"""Importing a ``torch.export.ExportedProgram`` into a Relax module."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ... import relax, tir
from ...ir import IRModule
from ...relax.expr import Expr
from ...relax.scalars import prove_equal
from ...support.errors import OpNotImplemented
from ..common import need
from . import (
    attention,
    backward,
    complex_numbers,
    control,
    creation,
    elementwise,
    indexing,
    losses,
    neural,
    norms,
    ordering,
    quantized,
    randomness,
    reduction,
    resample,
    scalars,
    shape,
    special,
    windows,
)
from .archive import load_exported
from .control import has_branches
from .decompose import decompose
from .importer import Deferred, Dim, Importer, Number, torch_dtype
from .mutation import functional, graphs_of, mutated_outputs, plain
from .table import find, Made
from ...ir.expr import as_expr

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["from_exported_program", "import_program", "name_of", "returned_values"]

_ = (
    attention,
    backward,
    complex_numbers,
    control,
    creation,
    elementwise,
    indexing,
    losses,
    neural,
    norms,
    ordering,
    quantized,
    randomness,
    reduction,
    resample,
    scalars,
    shape,
    special,
    windows,
)  # imported for the converters that they register
_IGNORED = ("_assert_scalar", "sym_constrain_range_for_size", "_assert_async", "_set_grad_enabled",
            "_enter_autocast", "_exit_autocast")  # fmt: skip


def from_exported_program(
    exported_program: ExportedProgram | str | os.PathLike[str],
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    trust_pickle: bool = False,
) -> IRModule:
    """Import a program exported by ``torch.export.export``.

    Parameters
    ----------
    exported_program
        The program, or the path of a ``.pt2`` file.
    keep_params_as_input
        Keep parameters as inputs after the user's; their values go to the function attribute ``params``.
        Otherwise they become constants, as buffers always do. Buffers that the program writes to are kept with them,
        so that a caller can pass their state from call to call.
    unwrap_unit_return_tuple
        Return the only output itself instead of a tuple of one.
    no_bind_return_tuple
        Do not bind the returned tuple to a variable.
    trust_pickle
        Read a ``.pt2`` file that can run code while it is read. Without it, such a file is refused.

    Operators without a converter are taken apart by PyTorch's decompositions first.

    The function is pure. A program that writes to its inputs or buffers (``x.add_(1)``, a cache, the statistics of a
    batch norm in training) is made functional: behind the outputs of the model come the new values of what it writes
    to, each of them once, so one that the model returns itself is not repeated. If any are added, the function
    attribute ``mutated`` maps the name of every input or buffer written to, to the position of its new value among
    the outputs. :class:`ExportedModel` calls such a function with the semantics of PyTorch.

    Raises
    ------
    OpNotImplemented
        One error that lists every operator without converter and decomposition.
    ArchiveError
        For a file that is damaged, or that could run code when it is read.
    """
    need("torch", "torch")
    if isinstance(exported_program, (str, bytes)) or hasattr(exported_program, "__fspath__"):
        exported_program = load_exported(os.fsdecode(exported_program), trust_pickle=trust_pickle)
    return import_program(
        exported_program,
        keep_params=keep_params_as_input,
        unwrap=unwrap_unit_return_tuple,
        no_bind=no_bind_return_tuple,
    )


def import_program(
    program: ExportedProgram,
    *,
    keep_params: bool,
    unwrap: bool,
    no_bind: bool,
    custom: dict[Any, Callable[..., Any]] | None = None,
    reached: Callable[[torch.fx.Node], None] | None = None,
    result: str = "tuple",
    symbols: dict[str, tir.Var] | None = None,
) -> IRModule:
    """Import a program; ``custom`` has converters of the user by operator name, ``reached`` is told every node before
    it is converted.  Its outputs are returned as a ``"tuple"`` of their own; as the ``"node"`` that they are all the
    results of, if they are; or, being numbers, as one ``"shape"``.  ``symbols`` are the variables of symbolic sizes,
    where the caller has some."""
    custom = custom or {}
    program = functional(plain(program), [name.partition(".")[0] for name in custom])
    importer = _ExportedProgramImporter(_covered(program, custom), custom, reached, result)
    importer.importer.symbols.update(symbols or {})
    return importer.run(keep_params, unwrap, no_bind)


def name_of(target: Any) -> str:
    """``add.Tensor`` for an ATen overload, ``mul`` for a Python operator."""
    overload = getattr(target, "_overloadname", None)
    if overload is not None:
        return f"{target.overloadpacket.__name__}.{overload}"
    return str(getattr(target, "__name__", target))


def _custom(custom: dict[Any, Callable[..., Any]], name: str) -> Callable[..., Any] | None:
    return custom.get(name) or custom.get(name.partition(".")[0])


def _gaps(program: ExportedProgram, custom: dict[Any, Callable[..., Any]]) -> set[Any]:
    """The operators of a program that have no converter."""
    found = set()
    for graph in graphs_of(program.graph_module):
        for node in graph.nodes:
            name = name_of(node.target)
            known = node.op != "call_function" or find(name) is not None or _custom(custom, name) is not None
            if not known and not _ignored(node):
                found.add(node.target)
    return found


def _covered(program: ExportedProgram, custom: dict[Any, Callable[..., Any]]) -> ExportedProgram:
    """The program with operators that have converters only. Raises OpNotImplemented where that cannot be had."""
    if not _gaps(program, custom):
        return program
    made = decompose(program, lambda part: _gaps(part, custom))
    missing = sorted(name_of(target) for target in _gaps(made, custom))
    if missing:
        raise OpNotImplemented(f"The following operators are not supported by the torch frontend: {', '.join(missing)}")
    return made


def _ignored(node: torch.fx.Node) -> bool:
    return any(name_of(node.target).startswith(name) for name in _IGNORED)


class _ExportedProgramImporter:
    """Walks the graph of one program in order, keeping the value of every node."""

    def __init__(
        self,
        program: ExportedProgram,
        custom: dict[Any, Callable[..., Any]],
        reached: Callable[[torch.fx.Node], None] | None = None,
        result: str = "tuple",
    ) -> None:
        self.program = program
        self.result, self.whole = result, False
        self.custom = custom
        self.reached = reached
        self.builder = relax.BlockBuilder()
        self.importer = Importer(self.builder, self._inlined)
        self.values = self.importer.env
        self.mutated = mutated_outputs(program)
        self.attrs: dict[str, Any] = {}

    def _dim(self, size: torch.SymInt | int, within: Importer | None = None) -> Dim:
        if isinstance(size, int):
            return size
        name = str(size.node.expr) if hasattr(size, "node") else str(size)
        symbols = (within or self.importer).symbols
        if name.isidentifier():
            return symbols.setdefault(name, tir.SizeVar(name, "int64"))
        return _parse_dim(name, symbols)

    def _inputs(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Variables of user inputs and of parameters, by placeholder name."""
        kinds = {spec.arg.name: spec for spec in self.program.graph_signature.input_specs if hasattr(spec.arg, "name")}
        users: dict[str, Any] = {}
        params: dict[str, Any] = {}
        for node in self.program.graph.nodes:
            if node.op != "placeholder":
                continue
            value = node.meta.get("val")
            spec = kinds.get(node.name)
            if not hasattr(value, "shape"):
                self.values[node] = self._scalar_input(node, value, users)
                continue
            info = relax.TensorStructInfo([self._dim(d) for d in value.shape], torch_dtype(value.dtype))
            var = relax.Var(node.name, info)
            self.values[node] = var
            if spec is None or spec.kind.name == "USER_INPUT":
                users[node.name] = var
            elif spec.kind.name == "PARAMETER" or spec.target in self.mutated:
                params[node.name] = var
        return users, params

    def _scalar_input(
        self, node: torch.fx.Node, value: torch.SymInt | Number | str | None, users: dict[str, Any]
    ) -> Number | str | None:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        symbol = self._dim(value)
        users[node.name] = relax.Var(node.name, relax.ShapeStructInfo([symbol]))
        return symbol

    def _weights(self) -> dict[str, np.ndarray[Any, Any]]:
        """Values of parameters, buffers and lifted constants, by placeholder name."""
        out: dict[str, np.ndarray[Any, Any]] = {}
        for spec in self.program.graph_signature.input_specs:
            kind = spec.kind.name
            if kind in ("PARAMETER", "BUFFER"):
                source = self.program.state_dict
                tensor = source.get(spec.target)
                if tensor is None:
                    tensor = self.program.constants[spec.target]
            elif kind == "CONSTANT_TENSOR":
                tensor = self.program.constants[spec.target]
            else:
                continue
            out[spec.arg.name] = _to_numpy(tensor)
        return out

    def _argument(self, arg: Any) -> Any:
        if hasattr(arg, "graph") and hasattr(arg, "op"):
            return self.values[arg]
        if isinstance(arg, (list, tuple)):
            return [self._argument(a) for a in arg]
        return arg

    def _call(self, node: torch.fx.Node, into: Importer) -> Made:
        name = name_of(node.target)
        if _ignored(node):
            return None
        own = _custom(self.custom, name)
        if own is not None:
            return own(node, into)
        args = [self._argument(a) for a in node.args]
        function = complex_numbers.for_pairs(name, args) or find(name)
        assert function is not None  # coverage was checked before the first node
        kwargs = {k: self._argument(v) for k, v in node.kwargs.items()}
        if node.target is operator.getitem:
            if not isinstance(args[0], (list, tuple)):
                return function(into, *args)
            part = args[0][args[1]]
            return part.value() if isinstance(part, Deferred) and node.users else part
        try:
            return function(into, *args, **kwargs)
        except (ValueError, TypeError, IndexError) as err:
            raise type(err)(f"while importing node {node.name} = {name}{tuple(node.args)}: {err}") from err

    def _settled(self, node: torch.fx.Node, value: Made, into: Importer) -> Made:
        """A result, cast to the type and the shape that torch found where ours is not known to be that one."""
        value = self._typed(node, value, into)
        found = getattr(node.meta.get("val"), "shape", None)
        if found is None or not into.is_tensor(value) or all(isinstance(d, int) for d in found):
            return value
        try:
            wanted = [self._dim(d, into) for d in found]
        except ValueError:
            return value  # sizes with minima and the like stay as we infer them
        have = value.struct_info.dims()
        if (
            have is not None
            and len(have) == len(wanted)
            and all(prove_equal(a, as_expr(b)) for a, b in zip(have, wanted))
        ):
            return value
        return into.builder.match_cast(value, relax.TensorStructInfo(wanted, value.struct_info.dtype))

    @staticmethod
    def _typed(node: torch.fx.Node, value: Made, into: Importer) -> Made:
        """Converters follow torch's promotion of types; this holds them to it."""
        found = getattr(node.meta.get("val"), "dtype", None)
        if found is None or not into.is_tensor(value) or not value.struct_info.dtype:
            return value
        return into.cast(value, torch_dtype(found))

    def _node(self, node: torch.fx.Node, module: torch.fx.GraphModule, into: Importer) -> None:
        """Convert one node of a graph that computes."""
        if self.reached is not None:
            self.reached(node)
        into.node = node
        if node.op == "call_function":
            self.values[node] = self._settled(node, self._call(node, into), into)
        elif node.op == "get_attr":
            held = _attribute(module, node.target)
            self.values[node] = held if isinstance(held, torch.nn.Module) else relax.const(_to_numpy(held))

    def _inlined(self, into: Importer, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
        """The results of a graph inside of the program."""
        given = iter(inputs)
        results: list[Any] = []
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = next(given)
            elif node.op == "output":
                made = self._argument(node.args[0])
                results = made if isinstance(made, list) else [made]
            else:
                self._node(node, module, into)
        return results

    def run(self, keep_params: bool, unwrap: bool, no_bind: bool) -> IRModule:
        """The imported module."""
        users, params = self._inputs()
        weights = self._weights()
        for node in self.program.graph.nodes:
            bound = node.op == "placeholder" and node.name in weights
            if bound and not (keep_params and node.name in params):
                self.values[node] = relax.const(weights[node.name])
        inputs = [*users.values(), *(params.values() if keep_params else ())]
        attrs: dict[str, Any] = {"num_input": len(users)} if keep_params else {}
        # Branches and loops stand between dataflow blocks, not in them.
        branching = has_branches(self.program.graph_module)
        with self.builder.function("main", inputs, attrs=attrs or None):
            result: Any = None
            with nullcontext() if branching else self.builder.dataflow():
                for node in self.program.graph.nodes:
                    self._node(node, self.program.graph_module, self.importer)
                    if node.op == "output":
                        result = self._output(unwrap, no_bind, branching)
            self.builder.emit_func_output(result)
        mod = self.builder.get()
        if branching:
            mod = relax.transform.ConvertToDataflow()(relax.transform.DeadCodeElimination(["main"])(mod))
        elif self.whole:
            mod = relax.transform.DeadCodeElimination(["main"])(mod)  # the fields that nobody takes
        if self.attrs:
            mod["main"] = mod["main"].with_attrs(self.attrs)
        if keep_params:
            from ...runtime.arrays.ndarray import array

            mod["main"] = mod["main"].with_attr("params", [array(weights[name]) for name in params])
        return mod

    def _output(self, unwrap: bool, no_bind: bool, branching: bool) -> Expr:
        nodes, added, places = returned_values(self.program)
        if added:
            self.attrs["mutated"] = places
        kept = [v for v in self._argument(nodes) if v is not None]
        if any(isinstance(v, complex_numbers.ComplexPair) for v in kept):
            raise OpNotImplemented("complex results: give torch.view_as_real of them")
        emit = self.builder.emit if branching else self.builder.emit_output
        if self.result == "shape" and not any(self.importer.is_tensor(v) for v in kept):
            return emit(relax.ShapeExpr(kept))
        kept = [v if isinstance(v, relax.Expr) else self.importer.tensor(v) for v in kept]
        whole = self._fields_of(kept) if self.result == "node" else None
        if whole is not None:
            self.whole = True
            return emit(whole)
        if unwrap and len(kept) == 1:
            return emit(kept[0])
        if no_bind:
            return relax.Tuple([emit(v) for v in kept])
        return emit(relax.Tuple(kept))

    def _fields_of(self, values: Sequence[Expr]) -> Expr | None:
        """The tuple whose fields the values are, all of them and in order; None if there is none."""
        bound = [self.builder.lookup_binding(v) for v in values if isinstance(v, relax.Var)]
        fields = [b for b in bound if isinstance(b, relax.TupleGetItem)]
        if not fields or [f.index for f in fields] != list(range(len(values))):
            return None
        source = fields[0].tuple_value
        same = all(f.tuple_value.same_as(source) for f in fields)
        return source if same and len(source.struct_info.fields) == len(values) else None


def returned_values(program: ExportedProgram) -> tuple[list[Any], int, dict[str, int]]:
    """Graph nodes (or numbers) that the function of a program returns, how many of them are new values of inputs and
    buffers added behind the outputs of the model, and where among all of them each new value is."""
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    given = zip(output.args[0], program.graph_signature.output_specs, strict=True)
    kept = [v for v, spec in given if spec.kind.name == "USER_OUTPUT" and v is not None]
    mutated = mutated_outputs(program)
    count = len(kept)
    kept.extend(v for v in dict.fromkeys(mutated.values()) if v not in kept)
    return kept, len(kept) - count, {name: kept.index(value) for name, value in mutated.items()}


def _to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    detached = tensor.detach().cpu()
    if str(detached.dtype) == "torch.bfloat16":
        import ml_dtypes
        import torch

        return detached.contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    array: np.ndarray[Any, Any] = np.ascontiguousarray(detached.numpy())
    return array.reshape(tuple(detached.shape))


def _attribute(module: torch.nn.Module, path: str) -> torch.Tensor | torch.nn.Module:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _parse_dim(text: str, symbols: dict[str, Any]) -> Dim:
    """A size such as ``2*s0 + 1`` as an expression; only integers, names and arithmetic are understood."""
    import ast

    def walk(node: ast.AST) -> Dim:
        match node:
            case ast.Expression():
                return walk(node.body)
            case ast.Constant() if isinstance(node.value, int):
                return node.value
            case ast.Name():
                return symbols.setdefault(node.id, tir.SizeVar(node.id, "int64"))
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                return _ARITHMETIC[type(node.op)](walk(node.left), walk(node.right))
            case ast.UnaryOp() if isinstance(node.op, ast.USub):
                return -walk(node.operand)
        raise ValueError(f"cannot understand the symbolic size {text!r}")

    _ARITHMETIC: dict[type, Any] = {
        ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod, ast.Pow: operator.pow,
    }  # fmt: skip
    return walk(ast.parse(text, mode="eval"))
