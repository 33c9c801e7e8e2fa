"""Reading an ONNX graph node by node into one Relax function."""

from __future__ import annotations

import copy
import math
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np

from ... import op, relax
from ...ir.expr import PrimExpr
from ...ir.module import IRModule
from ...relax.expr import Constant, Expr, Tuple, TupleGetItem
from ...relax.struct_info import TensorStructInfo, TupleStructInfo
from ...runtime.arrays.ndarray import array, from_numpy
from ...support.errors import OpNotImplemented, RelaxishError
from ...tir import SizeVar, Var
from .context import (
    Attribute,
    Context,
    Converter,
    CONVERTERS,
    dtype_name,
    Made,
    NodeInWork,
    RankDecidedAtRunTime,
    table_name,
)

if TYPE_CHECKING:
    import onnx

__all__ = ["from_onnx"]


class _Importer:
    """State of one import."""

    def __init__(
        self,
        shape_dict: dict[str, Any],
        dtype_dict: str | dict[str, str],
        keep_params: bool,
        sanitize: bool,
        decisions: Mapping[str, bool],
    ) -> None:
        self.shape_dict = shape_dict
        self.dtype_dict = dtype_dict
        self.keep_params = keep_params
        self.sanitize = sanitize
        self.decisions = decisions
        self.unfit: set[str] = set()
        self.values: MutableMapping[str, Expr] = {}
        self.inputs: list[Any] = []
        self.param_vars: list[Any] = []
        self.params: list[Any] = []
        self.symbols: dict[str, Var] = {}
        self.taken: set[str] = set()
        self.known_settled = 0

    # ---- names, symbolic dimensions

    def input_name(self, name: str) -> str:
        """A valid, distinct identifier for an input."""
        if not self.sanitize:
            return name
        clean = re.sub(r"\W", "_", name)
        if not clean or not (clean[0].isalpha() or clean[0] == "_"):
            clean = f"input_{clean}"
        base, count = clean, 0
        while clean in self.taken:
            count += 1
            clean = f"{base}_{count}"
        self.taken.add(clean)
        if clean != name:
            warnings.warn(f"Renaming name {name} to {clean}", stacklevel=2)
        return clean

    def dimension(self, text: str) -> PrimExpr | int:
        """A dimension name: a symbol, or a symbol combined with numbers by ``+ - * //``."""
        tokens = re.split(r"(//|[-+*])", text.replace(" ", ""))
        tokens = [t for t in tokens if t]
        simple = len(tokens) % 2 == 1 and all(re.fullmatch(r"\w+", t) for t in tokens[::2])
        if not simple or len(tokens) == 1:
            return self.symbol(text)
        value: Any = self.symbol_or_int(tokens[0])
        for sign, right in zip(tokens[1::2], tokens[2::2]):
            other = self.symbol_or_int(right)
            value = {
                "+": lambda a, b: a + b,
                "-": lambda a, b: a - b,
                "*": lambda a, b: a * b,
                "//": lambda a, b: a // b,
            }[sign](value, other)
        return value

    def symbol_or_int(self, text: str) -> Var | int:
        """A number or the symbol of that name."""
        return int(text) if text.isdigit() else self.symbol(text)

    def symbol(self, name: str) -> Var:
        """The symbolic dimension called ``name``; the same name is the same dimension."""
        if name not in self.symbols:
            self.symbols[name] = SizeVar(re.sub(r"\W", "_", name), "int64")
        return self.symbols[name]

    # ---- graph parts

    def input_info(self, value: onnx.ValueInfoProto) -> tuple[list[PrimExpr | int], str]:
        """Shape and dtype of a graph input, user's wishes first."""
        kind = value.type.tensor_type
        if value.type.HasField("optional_type"):
            kind = value.type.optional_type.elem_type.tensor_type
        if not kind.elem_type and value.type.WhichOneof("value") not in (None, "tensor_type"):
            raise OpNotImplemented(f"input {value.name!r} is no tensor: give its elements as inputs of their own")
        if value.name in self.shape_dict:
            shape = [self.symbol(d) if isinstance(d, str) else d for d in self.shape_dict[value.name]]
        else:
            shape = []
            for position, dim in enumerate(kind.shape.dim):
                # Exporters write -1 and "?" where a size has no name.
                if dim.HasField("dim_value") and dim.dim_value >= 0:
                    shape.append(int(dim.dim_value))
                elif dim.dim_param not in ("", "?"):
                    shape.append(self.dimension(dim.dim_param))
                else:
                    shape.append(self.symbol(f"{value.name}_dim_{position}"))
        if isinstance(self.dtype_dict, dict):
            dtype = self.dtype_dict.get(value.name) or (dtype_name(kind.elem_type) if kind.elem_type else "float32")
        else:
            dtype = dtype_name(kind.elem_type) if kind.elem_type else self.dtype_dict
        return shape, dtype

    def read_inputs(self, graph: onnx.GraphProto, initializers: Iterable[onnx.TensorProto]) -> None:
        """Graph inputs and weights."""
        weights = {t.name: t for t in initializers}
        for value in graph.input:
            if value.name in weights:
                continue
            shape, dtype = self.input_info(value)
            var = relax.Var(self.input_name(value.name), TensorStructInfo(shape, dtype))
            self.values[value.name] = var
            self.inputs.append(var)
        for name, proto in weights.items():
            data = self.weight(proto)
            if self.keep_params:
                info = TensorStructInfo(list(data.shape), str(data.dtype))
                var = relax.Var(self.input_name(name), info)
                self.values[name] = var
                self.param_vars.append(var)
                self.params.append(array(data))
            else:
                self.values[name] = Constant(from_numpy(data))

    def weight(self, proto: onnx.TensorProto) -> np.ndarray:
        """The array of an initializer, over the bytes of the model where they are in order."""
        import onnx

        if proto.HasField("raw_data") and sys.byteorder == "little":
            dtype = onnx.helper.tensor_dtype_to_np_dtype(proto.data_type)
            count = math.prod(proto.dims)
            if dtype.kind in "iufb" and dtype.itemsize * count >= _LARGE:
                value = np.frombuffer(proto.raw_data, dtype, count).reshape(tuple(proto.dims))
                if value.flags.aligned:
                    return value
        value = onnx.numpy_helper.to_array(proto)
        return np.ascontiguousarray(value).reshape(value.shape)  # a scalar stays one

    def check_supported(self, graph: onnx.GraphProto) -> None:
        """All operators without a converter, in one error."""
        missing = sorted({self.op_name(n) for n in all_nodes(graph)} - CONVERTERS.keys())
        if missing:
            raise OpNotImplemented(f"The following operators are not supported for frontend ONNX: {', '.join(missing)}")

    def op_name(self, node: onnx.NodeProto) -> str:
        """The operator's name in the table of converters; a name that only ONNX Runtime has needs no domain."""
        from onnx import defs

        name = table_name(str(node.op_type), str(node.domain))
        own = table_name(name, "com.microsoft")
        return own if not node.domain and own in CONVERTERS and not defs.has(name) else name

    def run_node(self, ctx: Context, node: onnx.NodeProto) -> None:
        """Convert one node and bind its outputs."""
        inputs = [self.values[name] if name else None for name in node.input]
        attrs: dict[str, Any] = {a.name: _attribute(a) for a in node.attribute}
        attrs["__outputs__"] = max((k + 1 for k, n in enumerate(node.output) if n), default=0)
        attrs["__name__"] = node.output[0] if node.output else ""
        chosen = _implementation(self.op_name(node), ctx.opset)
        name = node.name or next(iter(node.output), "")
        ctx.at = NodeInWork(node.op_type, name, tuple(zip(node.input, inputs)))
        try:
            made = chosen(ctx, inputs, attrs)
        except (RelaxishError, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
            error.add_note(f"while importing node '{name}' ({node.op_type})")
            raise
        outputs = [n for n in node.output]
        if len(outputs) == 1:
            self.values[outputs[0]] = self.bind(ctx, made if isinstance(made, Expr) else made[0])
            return
        fields = self.fields(ctx, made)
        if attrs["__outputs__"] > len(fields):
            raise OpNotImplemented(f"output {outputs[len(fields)]!r} of {node.op_type} is not supported")
        for name, field in zip(outputs, fields):
            if name:
                self.values[name] = self.bind(ctx, field)

    # ---- graphs inside of nodes

    def inline(self, ctx: Context, graph: onnx.GraphProto, inputs: Sequence[Expr]) -> list[Expr]:
        """The outputs of a subgraph, whose nodes are emitted where the context is."""
        given = dict(zip((i.name for i in graph.input), inputs))
        given |= {t.name: Constant(from_numpy(self.weight(t))) for t in graph.initializer if t.name not in given}
        with self.within(given):
            for node in graph.node:
                self.run_node(ctx, node)
                self._settle(ctx)
            return [self.values[o.name] for o in graph.output]

    @contextmanager
    def within(self, values: Mapping[str, Expr]) -> Iterator[None]:
        """A scope in which names have other values for a while."""
        outer, self.values = self.values, ChainMap(dict(values), self.values)
        try:
            yield
        finally:
            self.values = outer

    def value(self, name: str) -> Expr:
        """Value of a name."""
        return self.values[name]

    def decision(self, name: str) -> bool | None:
        """The branch that this import takes of the ``If`` whose first output has that name."""
        return self.decisions.get(name)

    def fits_not(self, name: str) -> None:
        """Only one branch of the ``If`` whose first output has that name fits the rest of this import."""
        self.unfit.add(name)

    def outside(self, graph: onnx.GraphProto) -> dict[str, Expr]:
        """Values of the names that a subgraph takes from the graphs around it."""
        return {name: self.values[name] for name in free_names(graph) if name in self.values}

    def bind(self, ctx: Context, value: Expr) -> Expr:
        """A converter's result as a value of the graph; a sequence stays a tuple."""
        return value if isinstance(value, Tuple) else ctx.with_dims(value)

    def fields(self, ctx: Context, made: Made) -> list[Expr]:
        """The results of a node with several outputs."""
        match made:
            case Sequence():
                return list(made)
            case Tuple():
                return list(made.fields)
        bound = ctx.emit(made)
        info = bound.struct_info
        if isinstance(info, TupleStructInfo):
            return [ctx.builder.emit(TupleGetItem(bound, i)) for i in range(len(info.fields))]
        return [bound]

    def run(self, graph: onnx.GraphProto, opset: int, initializers: Iterable[onnx.TensorProto]) -> IRModule:
        """The whole graph as a module with one function, ``main``. ``initializers`` are all weights of the graph."""
        self.check_supported(graph)
        builder = relax.BlockBuilder()
        self.read_inputs(graph, initializers)
        attrs: dict[str, Any] = {"num_input": len(self.inputs)}
        # Branches and loops stand between dataflow blocks, not in them.
        branching = not _BRANCHING.isdisjoint(n.op_type for n in all_nodes(graph))
        with builder.function("main", [*self.inputs, *self.param_vars]):
            ctx = Context(builder, opset, self, dict(zip(self.param_vars, self.params)))
            with nullcontext() if branching else builder.dataflow():
                for node in graph.node:
                    self.run_node(ctx, node)
                    self._settle(ctx)
                outputs = [self.output(ctx, self.values[o.name], o) for o in graph.output]
                whole = outputs[0] if len(outputs) == 1 else Tuple(outputs)
                result = builder.emit(whole) if branching else builder.emit_output(whole)
            builder.emit_func_output(result)
        module = builder.get()
        if branching:
            module = relax.transform.ConvertToDataflow()(relax.transform.DeadCodeElimination(["main"])(module))
        main = self._without_settled(ctx, module["main"]).with_attr(attrs)
        if self.params:
            main = main.with_attr({"params": self.params})
        module.update_func(module.get_global_var("main"), main)
        return module

    def _settle(self, ctx: Context) -> None:
        """Parameters that an operator needed at import time are constants for those that follow."""
        if len(ctx.settled) == self.known_settled:
            return
        self.known_settled = len(ctx.settled)
        for name, value in list(self.values.items()):
            if isinstance(value, relax.Var) and value in ctx.settled:
                self.values[name] = ctx.settled[value]

    def _without_settled(self, ctx: Context, func: relax.Function) -> relax.Function:
        """The function without the parameters that only decided the form of operators."""
        used = set(relax.analysis.all_vars(func.body)) if ctx.settled else set()
        gone = {v for v in ctx.settled if v not in used}
        if not gone:
            return func
        kept = [(v, p) for v, p in zip(self.param_vars, self.params) if v not in gone]
        self.param_vars, self.params = [v for v, _ in kept], [p for _, p in kept]
        return func.with_fields(params=tuple(v for v in func.params if v not in gone))

    def output(self, ctx: Context, value: Expr, declared: onnx.ValueInfoProto) -> Expr:
        """A graph output as a tensor (sequences stay tuples)."""
        if isinstance(value, Tuple):
            return value
        made = ctx.tensor(value)
        if made is value:
            return made
        code = declared.type.tensor_type.elem_type
        if not code:  # the model does not say
            return made
        to = dtype_name(code)  # sizes are known as int64, whatever the model cast them to
        return made if ctx.dtype(made) == to else ctx.emit(op.astype(made, to))


#: Weights of about this many bytes and more are neither checked nor copied.
_LARGE = 1 << 16

#: Operators whose graphs are run or not, and how often, by values that only the run knows.
_BRANCHING = frozenset({"If", "Loop", "Scan"})


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of the graphs inside of them."""
    for node in graph.node:
        yield node
        for inner in _subgraphs(node):
            yield from all_nodes(inner)


def free_names(graph: onnx.GraphProto) -> list[str]:
    """The values that a graph takes from around it, in order of their first use."""
    own = {v.name for v in (*graph.input, *graph.initializer)}
    found: dict[str, None] = {}
    for node in graph.node:
        inner = [name for sub in _subgraphs(node) for name in free_names(sub)]
        found |= dict.fromkeys(n for n in (*node.input, *inner) if n and n not in own)
        own |= set(node.output)
    return list(found | dict.fromkeys(o.name for o in graph.output if o.name not in own))


def _implementation(name: str, opset: int) -> Converter:
    versions = CONVERTERS[name]
    fitting = [v for v in versions if v <= opset]
    if not fitting:
        raise OpNotImplemented(f"opset {opset} of {name} is not supported: it starts at {min(versions)}")
    return versions[max(fitting)]


def _attribute(proto: onnx.AttributeProto) -> Attribute:
    import onnx

    if proto.type == onnx.AttributeProto.TENSOR:
        return onnx.numpy_helper.to_array(proto.t)
    value = onnx.helper.get_attribute_value(proto)
    match value:
        case bytes():
            return value.decode("utf-8")
        case list() | tuple() if value and isinstance(value[0], bytes):
            return [v.decode("utf-8") for v in value]
    return value


def _opset_of(model: onnx.ModelProto) -> int:
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            return int(entry.version)
    return 1


def _with_bodies(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the bodies of functions in place of their calls: its own, and those that the standard gives for
    operators without a converter."""
    import onnx.inliner

    if len(model.functions):
        model = onnx.inliner.inline_local_functions(model)
    tried: set[tuple[str, str]] = set()
    while True:
        wanted = {_schema_name(node) for node in all_nodes(model.graph) if _has_only_body(node)} - tried
        if not wanted:
            return model
        tried |= wanted
        names = sorted(wanted)
        try:
            model = onnx.inliner.inline_selected_functions(
                _spelled_out(model, wanted), names, inline_schema_functions=True
            )
        except RuntimeError as error:  # what follows names the operators that stay
            warnings.warn(f"no bodies for {', '.join(name for _, name in names)}: {error}", stacklevel=3)
            return model


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model whose large weights are inputs: the checker and the inliner copy and parse every byte."""
    import onnx

    graph = model.graph
    large = [t for t in graph.initializer if len(t.dims) and math.prod(t.dims) >= _LARGE // 4]
    if not large:
        return model
    light = onnx.ModelProto(ir_version=max(model.ir_version, 4))  # from here on weights need not be inputs
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    names = {t.name for t in large}
    given = {v.name for v in graph.input}
    light.graph.name = graph.name
    light.graph.node.extend(graph.node)
    light.graph.input.extend(graph.input)
    light.graph.output.extend(graph.output)
    light.graph.value_info.extend(graph.value_info)
    light.graph.initializer.extend(t for t in graph.initializer if t.name not in names)
    light.graph.sparse_initializer.extend(graph.sparse_initializer)
    light.graph.input.extend(
        onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in large if t.name not in given
    )
    return light


def _spelled_out(model: onnx.ModelProto, names: set[tuple[str, str]]) -> onnx.ModelProto:
    """A copy with what bodies of the operators ``names`` ask for: default attributes, and types of all weights.

    An input that is left out is a value without a name; the inliner asks for its type, too.
    """
    import onnx

    model = copy.deepcopy(model)
    known = {v.name for v in (*model.graph.input, *model.graph.value_info)}
    model.graph.value_info.extend(
        onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims)
        for t in model.graph.initializer
        if t.name not in known
    )
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("", onnx.TensorProto.FLOAT, None))
    versions = {"" if e.domain == "ai.onnx" else e.domain: e.version for e in model.opset_import}
    for node in all_nodes(model.graph):
        name = _schema_name(node)
        if name not in names:
            continue
        given = {a.name for a in node.attribute}
        schema = onnx.defs.get_schema(node.op_type, versions.get(name[0], 1), name[0])
        for name, attribute in schema.attributes.items():
            if name not in given and attribute.default_value.name:
                node.attribute.append(attribute.default_value)
    return model


def _schema_name(node: onnx.NodeProto) -> tuple[str, str]:
    """Domain and name of a node's operator, as schemas are looked up."""
    return "" if node.domain == "ai.onnx" else str(node.domain), str(node.op_type)


def _has_only_body(node: onnx.NodeProto) -> bool:
    from onnx import defs

    domain, name = _schema_name(node)
    if table_name(name, domain) in CONVERTERS or not defs.has(name, domain):
        return False
    schema = defs.get_schema(name, domain)
    return bool(schema.has_function or schema.has_context_dependent_function)


def from_onnx(
    model: onnx.ModelProto,
    shape_dict: dict[str, list[Any]] | None = None,
    dtype_dict: str | dict[str, str] = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> IRModule:
    """Import an ONNX model (``onnx.ModelProto``) as a module whose ``main`` computes its graph.

    ``shape_dict`` fixes shapes of inputs; other named dimensions become symbolic. Weights are constants, or extra
    parameters (with their values in the function attribute ``params``) if ``keep_params_in_input`` is set. The
    attribute ``num_input`` counts the real inputs. Operators that cannot be converted are reported all at once.
    """
    try:
        import onnx
    except ImportError:
        from ...support.errors import MissingExtraError

        raise MissingExtraError("onnx", "onnx", "the ONNX frontend") from None
    from . import converters  # noqa: F401  (fills the table)

    initializers = model.graph.initializer
    model = _without_weights(model)
    try:
        onnx.checker.check_model(model)
    except Exception as error:  # the checker is stricter than what can be imported
        warnings.warn(str(error), stacklevel=2)
    found = _opset_of(model)
    if opset is None:
        opset = found
    elif opset < found:
        warnings.warn(
            f"You are overwriting original opset ver = {found} by lower ver = {opset}. That might cause model "
            "conversion errors.",
            stacklevel=2,
        )
    model = _with_bodies(model)
    version = opset

    def make(decisions: Mapping[str, bool]) -> _Attempt:
        importer = _Importer(dict(shape_dict or {}), dtype_dict, keep_params_in_input, sanitize_input_names, decisions)
        return importer.run(model.graph, version, initializers), len(importer.unfit)

    return _by_rank(make, {})[0]


#: A module, and the number of branches that do not fit what was decided about others.
_Attempt = tuple[IRModule, int]
#: Branches whose ranks differ that one import decides about.
_MOST_DECISIONS = 8


def _by_rank(make: Callable[[Mapping[str, bool]], _Attempt], decisions: Mapping[str, bool]) -> _Attempt:
    """What ``make`` imports for the decisions about branches of different ranks that the rest of the graph fits best.

    The run checks that the decision was right. Raises RankDecidedAtRunTime where the rest of the graph takes either rank.
    """
    try:
        return make(decisions)
    except RankDecidedAtRunTime as undecided:
        if len(decisions) == _MOST_DECISIONS:
            raise
        made: list[_Attempt] = []
        errors: list[Exception] = []
        for taken in (True, False):
            try:
                made.append(_by_rank(make, {**decisions, undecided.name: taken}))
            except (RelaxishError, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
                errors.append(error)
        if not made:
            raise errors[0] from None
        made.sort(key=lambda attempt: attempt[1])
        if len(made) == 2 and made[0][1] == made[1][1]:
            raise
        return made[0]
