"""Names of intrinsics in script, and the position of their dtype argument."""

from __future__ import annotations

from ...ir.op import Op

__all__ = ["DTYPE_FIRST", "DTYPE_LAST", "script_name"]

DTYPE_FIRST = frozenset(
    """
    type_annotation reinterpret call_extern call_pure_extern call_llvm_intrin call_llvm_pure_intrin
    ptx_mma ptx_mma_sp ptx_ldmatrix ptx_cp_async mma_store mma_fill
    vectorlow vectorhigh vectorcombine dp4a get_active_lane_mask large_uint_imm_dtype
    """.split()
)
DTYPE_LAST = frozenset({"tvm_struct_get"})

_RENAMED = {
    "tvm_call_packed": "call_packed",
    "tvm_call_cpacked": "call_cpacked",
    "tvm_call_packed_lowered": "call_packed_lowered",
    "tvm_call_cpacked_lowered": "call_cpacked_lowered",
    "tvm_call_trace_packed_lowered": "call_trace_packed_lowered",
    "return": "ret",
}


def script_name(op: Op) -> str:
    """The name under which ``T`` offers an intrinsic."""
    given = op.get_attr("TScriptPrinterName")
    if given is not None:
        return str(given)
    name = op.name.removeprefix("tir.")
    return _RENAMED.get(name, name)
