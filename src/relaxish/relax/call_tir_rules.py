"""Rules that the ``call_tir`` family obeys: how its calls are normalized, and what its outputs may be.

Error messages name the operator of the call at hand, because the rules hold for all of its variants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..support.errors import RelaxishError
from .analysis.struct_info import derive_call_ret_struct_info
from .expr import Call, Tuple, TupleGetItem, Var
from .scalars import prove_equal_shapes
from .struct_info import (
    fields_of,
    tensor_dims,
    FuncStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .utils import followed

if TYPE_CHECKING:
    from .block_builder import BlockBuilder

__all__ = ["inferred_output", "normalize_call_tir", "normalize_call_tir_inplace", "validate_call_tir"]


def normalize_call_tir(builder: BlockBuilder, call: Call) -> Call:
    """The call with its arguments written out as a tuple: a variable becomes what it is bound to, or its fields.

    Raises RelaxishError for a call that is no well-formed ``call_tir``.
    """
    name = call.op.name
    if len(call.args) not in (2, 3):
        raise RelaxishError(
            f"Operation {name} expects either two arguments [callee, arg_tuple], "
            f"or three arguments [callee, arg_tuple, tir_args], but {call} has {len(call.args)} arguments."
        )
    callee, values = call.args[0], call.args[1]
    if not isinstance(callee.struct_info_, FuncStructInfo):
        raise RelaxishError(
            f"Operation {name} expects the first argument to be a TIR callee.  "
            f"However, the first argument {callee} has struct info {callee.struct_info_}"
        )
    if not isinstance(values.struct_info_, TupleStructInfo):
        raise RelaxishError(
            f"Operation {name} expects the second argument to be a tuple of relax Expr.  "
            f"However, the second argument {values} has struct info {values.struct_info_}."
        )
    if len(call.args) == 3 and not isinstance(call.args[2].struct_info_, ShapeStructInfo):
        raise RelaxishError(
            f"Operation {name} expects the optional third argument, if present, to be a ShapeTuple.  "
            f"However, the third argument {call.args[2]} has struct info {call.args[2].struct_info_}"
        )
    if isinstance(values, Tuple):
        return call
    if not isinstance(values, Var):
        raise RelaxishError(
            f"Operation {name} must hold its arguments as an in-line tuple.  However, {call} has arguments {values}, "
            "which is neither an in-line tuple, nor a variable binding that may be normalized to an in-line tuple."
        )
    made = Call(
        call.op, (callee, _written_out(builder, values), *call.args[2:]), call.attrs, call.sinfo_args, call.span
    )
    made.struct_info_ = call.struct_info_
    return made


def _written_out(builder: BlockBuilder, var: Var) -> Tuple:
    value = followed(var, builder.lookup_binding)
    if isinstance(value, Tuple):
        return value
    return Tuple([TupleGetItem(value, index) for index in range(len(value.struct_info.fields))])


def normalize_call_tir_inplace(builder: BlockBuilder, call: Call) -> Call:
    """:func:`normalize_call_tir`, with the demands that writing in place makes.

    Raises RelaxishError unless each output has an index, the indices are in range and different, and outputs have
    the shapes of the arguments that they overwrite.
    """
    call = normalize_call_tir(builder, call)
    indices = [int(i) for i in call.attrs.inplace_indices]
    info = call.sinfo_args[0]
    outputs = fields_of(info)
    if len(indices) != len(outputs):
        raise RelaxishError("There must be an in-place index specified for each output")
    check_inplace_indices(indices, len(call.args[1].fields), "call_tir")
    for number, (index, output) in enumerate(zip(indices, outputs)):
        if index != -1:
            _check_overwritten(builder, number, index, output, call.args[1].fields[index].struct_info_)
    return call


def check_inplace_indices(indices: Sequence[int], count: int, plain: str) -> None:
    """Raise RelaxishError unless the indices are in range and different, and one of them is not -1."""
    seen: set[int] = set()
    for number, index in enumerate(indices):
        if index < -1 or index >= count:
            raise RelaxishError(
                f"In-place index {number} is out of range (must be between -1 and {count - 1}, inclusive, but is {index})"
            )
        if index != -1 and index in seen:
            raise RelaxishError(f"All in-place indices must be unique, but index {index} appears more than once.")
        seen.add(index)
    if not seen - {-1}:
        raise RelaxishError(f"At least one index must have a value other than -1 (or else simply use {plain})")


def _check_overwritten(builder: BlockBuilder, number: int, index: int, output: StructInfo, source: StructInfo) -> None:
    if not isinstance(output, TensorStructInfo):
        raise RelaxishError("The output struct info must be a tensor")
    wanted = output.dims()
    given = tensor_dims(source)
    analyzer = builder.get_analyzer() if builder is not None else None
    if wanted is None or given is None or not prove_equal_shapes(given, wanted, analyzer):
        raise RelaxishError(
            f"The shape of output {number} must match input {index}, whereas we have "
            f"{output.shape} in output {number} versus {getattr(source, 'shape', None)} in input {index}"
        )


def validate_call_tir(call: Call) -> None:
    """Raise TypeError unless the declared outputs can be what the callee's signature makes of the arguments."""
    packed = call.args[2].struct_info_ if len(call.args) > 2 else None
    indices = getattr(call.attrs, "inplace_indices", None)
    explicit = call.sinfo_args[0]
    inferred = inferred_output(
        call.args[0].struct_info_,
        call.args[1].struct_info_,
        packed,
        None if indices is None else [int(i) for i in indices],
    )
    if inferred is not None and not inferred.is_base_of(explicit):
        raise TypeError(
            "The `out_sinfo` argument for R.call_tir must be compatible with the PrimFunc.  However, the PrimFunc's "
            f"signature implies that the output should be {inferred}, but the `out_sinfo` argument was {explicit}"
        )


def inferred_output(
    callee: StructInfo | None,
    args: StructInfo | None,
    packed: StructInfo | None = None,
    inplace_indices: Sequence[int] | None = None,
) -> StructInfo | None:
    """Output of a function in destination-passing style for arguments like these.

    Its parameters are the inputs, then the outputs, then the ``packed`` integers; outputs in place are inputs.  None
    if nothing is known, as for distributed tensors.  Raises TypeError or ValueError for arguments that cannot fit.
    """
    if not isinstance(callee, FuncStructInfo):
        raise TypeError(f"The first argument to `R.call_tir` must be a function, but is of type {callee}")
    if callee.params is None:
        raise ValueError(f"The first argument to `R.call_tir` must have known argument types, but is {callee}")
    if not isinstance(args, TupleStructInfo):
        raise TypeError(f"The second argument to `R.call_tir` must be a tuple, but is of type {args}")
    trailing, known = 0, None
    if packed is not None:
        if not isinstance(packed, ShapeStructInfo) or packed.ndim < 0:
            raise TypeError(
                "The third argument to `R.call_tir`, if present, must be a ShapeTuple with known dimensionality, "
                f"but is of type {packed}"
            )
        trailing, known = packed.ndim, packed.values
    params, leading = callee.params, len(args.fields)
    if leading + trailing > len(params):
        raise ValueError(
            f"R.call_tir attempted to call a function using {leading} input arguments and {trailing} trailing integer "
            f"arguments.  However, the callee only accepts {len(params)} arguments in total."
        )
    if _holds_distributed(args):
        return None
    end = len(params) - trailing
    outputs = list(params[leading:end])
    for position, index in enumerate(inplace_indices or ()):
        if index >= 0:
            outputs.insert(position, params[index])
    result = outputs[0] if len(outputs) == 1 else TupleStructInfo(outputs)
    signature = FuncStructInfo((*params[:leading], *params[end:]), result)
    values = [Var("leading", info) for info in args.fields]
    for index in range(trailing):
        info = PrimStructInfo("int64") if known is None else PrimStructInfo(value=known[index])
        values.append(Var("trailing", info))
    return derive_call_ret_struct_info(signature, Call(Var("callee", signature), values), None)


def _holds_distributed(info: StructInfo | None) -> bool:
    if isinstance(info, TupleStructInfo):
        return any(map(_holds_distributed, info.fields))
    return hasattr(info, "tensor_sinfo")
