"""Programs that write to tensors in place, turned into functional ones by PyTorch.

A view shares its elements with the tensor that it was taken of, so that a write to the one is a change of the other.
A Relax expression is a value and shares nothing: only a program without writes can be imported node by node.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection
from typing import TYPE_CHECKING, Any
import torch

from ...support.errors import first_line, OpNotImplemented, RelaxishError
from ...support.log import get_logger

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["MUTATIONS", "functional", "graphs_of", "mutated_outputs", "plain", "writes"]

_log = get_logger("frontend.torch")
#: Kinds of outputs that are the new values of what the program wrote to.
MUTATIONS = ("BUFFER_MUTATION", "USER_INPUT_MUTATION", "PARAMETER_MUTATION")
# Written as an operator in place, but changes no element.
_HARMLESS = ("detach_",)
# Operators that write to their running statistics although their schema does not say so: where the flag stands that
# makes them, and where the statistics are.
_NORMS = {"batch_norm": (5, 3), "instance_norm": (5, 3), "cudnn_batch_norm": (5, 3)}
_DROPOUTS = ("dropout_", "feature_dropout_", "alpha_dropout_", "feature_alpha_dropout_")
# Operators with a result of their own, whatever their arguments are; and those in place that need nothing but it.
_FRESH = frozenset(
    "conv1d conv2d conv3d linear matmul mm bmm addmm batch_norm layer_norm group_norm add sub mul relu silu sigmoid tanh gelu"
    " hardswish leaky_relu".split()
)
_IN_PLACE = frozenset(
    "relu_ relu6_ hardtanh_ silu_ sigmoid_ tanh_ gelu_ hardswish_ leaky_relu_ elu_ add_ sub_ mul_".split()
)


def _norm_writes(node: torch.fx.Node) -> bool:
    name = node.target.overloadpacket.__name__
    if name not in _NORMS:
        return False
    flag, statistics = _NORMS[name]
    args = [*node.args, *[None] * 9]
    return bool(node.kwargs.get("training", args[flag])) and args[statistics] is not None


def graphs_of(module: torch.fx.GraphModule) -> list[torch.fx.Graph]:
    """The graph of a module and of all modules in it: bodies of control flow and of autograd or autocast scopes."""
    return [part.graph for part in module.modules() if hasattr(part, "graph")]


def _name(node: torch.fx.Node) -> str:
    packet = getattr(node.target, "overloadpacket", None) if node.op == "call_function" else None
    return str(getattr(packet, "__name__", ""))


def _in_passing(node: torch.fx.Node) -> bool:
    """Whether a write goes to a result of which nobody else knows, so that it is the functional operator.

    So networks are written to save memory (``relu_`` behind a batch norm); taking such programs apart takes seconds.
    """
    if _name(node) not in _IN_PLACE:
        return False
    target = node.args[0]
    if len(target.users) != 1 or not (_name(target) in _FRESH or _in_passing(target)):
        return False
    held = target.meta["val"]
    others = [a.meta.get("val") for a in node.args[1:] if hasattr(a, "meta")]
    return all(
        o is not None and getattr(o, "dtype", None) == held.dtype and tuple(o.shape) == tuple(held.shape)
        for o in others
    )


def _does_nothing(node: torch.fx.Node) -> bool:
    """Whether an operator in place changes no element: dropout outside of training."""
    return _name(node) in _DROPOUTS and len(node.args) == 3 and node.args[2] is False


def writes(program: ExportedProgram, known: Collection[str] = ()) -> set[Any]:
    """The operators of a program that write to what others can see, those named in ``known`` left out."""
    found = set()
    for graph in graphs_of(program.graph_module):
        for node in graph.nodes:
            schema = getattr(node.target, "_schema", None)
            if node.op != "call_function" or schema is None:
                continue
            if node.target.overloadpacket.__name__ in (*_HARMLESS, *known):
                continue
            if (schema.is_mutable and not _in_passing(node) and not _does_nothing(node)) or _norm_writes(node):
                found.add(node.target)
    return found


def _broadens(node: torch.fx.Node) -> bool:
    """Whether a copy changes the shape or the type of what it copies."""
    if node.op != "call_function" or str(node.target) != "aten.copy_.default":
        return False
    target, source = (arg.meta.get("val") for arg in node.args[:2])
    return tuple(target.shape) != tuple(source.shape) or target.dtype != source.dtype


def _with_plain_copies(program: ExportedProgram) -> ExportedProgram:
    """The program with sources of copies in the shape and the type of their targets.

    A copy to a whole input or buffer is its new value: PyTorch takes the source for it then, as it stands.
    """
    import torch

    if not any(_broadens(node) for node in program.graph.nodes):
        return program
    module = torch.fx.GraphModule(program.graph_module, copy.deepcopy(program.graph))
    module.meta.update(program.graph_module.meta)
    aten = torch.ops.aten
    for node in module.graph.nodes:
        if not _broadens(node):
            continue
        target, source = node.args[:2]
        with module.graph.inserting_before(node):
            for op, args in ((aten.to.dtype, (target.meta["val"].dtype,)), (aten.expand_as.default, (target,))):
                made = module.graph.call_function(op, (source, *args))
                made.meta["val"] = op(source.meta["val"], *(getattr(a, "meta", {}).get("val", a) for a in args))
                source = made
        node.args = (target, source, *node.args[2:])
    module.recompile()
    return program._update(module, program.graph_signature)


def _symbols(program: ExportedProgram) -> int:
    """How many sizes of the inputs are symbolic."""
    shapes = [node.meta["val"].shape for node in program.graph.nodes if hasattr(node.meta.get("val"), "shape")
              and node.op == "placeholder"]  # fmt: skip
    return sum(not isinstance(size, int) for shape in shapes for size in shape)


def _is_wrapped(tensor: Any) -> bool:
    """Whether a weight is made of several tensors: a class of its own, such as those of quantised weights."""
    import torch

    return isinstance(tensor, torch.Tensor) and hasattr(type(tensor), "__tensor_flatten__")


def plain(program: ExportedProgram) -> ExportedProgram:
    """The program with weights that are plain tensors, and without scopes of mixed precision, whose casts are spelled
    out; a program that has neither comes back as it is. Raises OpNotImplemented where PyTorch fails."""
    scopes = any(
        getattr(node.target, "__name__", "") == "wrap_with_autocast"
        for graph in graphs_of(program.graph_module)
        for node in graph.nodes
    )
    if not scopes and not any(map(_is_wrapped, (*program.state_dict.values(), *program.constants.values()))):
        return program
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return program.run_decompositions({})
    except Exception as err:
        raise OpNotImplemented(
            f"PyTorch fails to spell out quantised weights or mixed precision: {type(err).__name__}: {first_line(err)}"
        ) from err


def functional(program: ExportedProgram, known: Collection[str] = ()) -> ExportedProgram:
    """The program without writes: each is a new value, and what was written to an input or a buffer is an output.

    A program that does not write comes back as it is. ``known`` has names of operators that the user converts.

    Before and after, for ``y[:, 0] = 0``::

        select = aten.select.int(y, 1, 0)        select = aten.select.int(y, 1, 0)
        aten.fill_.Tensor(select, zero)          fill = aten.fill.Tensor(select, zero)
                                                 select_scatter = aten.select_scatter.default(y, fill, 1, 0)

    Raises
    ------
    OpNotImplemented
        Where PyTorch cannot take a write out; the message names the operators.
    """
    found = writes(program, known)
    if not found:
        return program
    names = ", ".join(sorted(map(str, found)))
    _log.info("made functional by PyTorch: %s", names)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            made = _with_plain_copies(program).run_decompositions({})
    except RelaxishError:
        raise
    except Exception as err:
        reason = (str(err).strip().splitlines() or [""])[0]
        raise OpNotImplemented(
            f"the program writes to tensors in place ({names}) and PyTorch cannot make it functional: "
            f"{type(err).__name__}: {reason}"
        ) from err
    if _symbols(made) != _symbols(program):
        _log.warning("PyTorch fixes sizes that were dynamic while it takes out writes (%s)", names)
    left = writes(made, known)
    if left:
        raise OpNotImplemented(
            f"operators that write to tensors in place cannot be imported: {', '.join(sorted(map(str, left)))}"
        )
    return made


def mutated_outputs(program: ExportedProgram) -> dict[str, Any]:
    """New value (a graph node) by the name of the input or the fully qualified name of the buffer written to."""
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    specs = program.graph_signature.output_specs
    return {
        spec.target: value for value, spec in zip(output.args[0], specs, strict=True) if spec.kind.name in MUTATIONS
    }
