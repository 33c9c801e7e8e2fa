"""The options that a pass context accepts, with the type each of them takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .plain import plain

__all__ = ["OptionTable", "complete_config", "list_options", "register_config"]

# Options by name: the type key of what they take. Layers above add theirs with register_config.
_TYPES: dict[str, str] = {}

_FLAGS_AND_NUMBERS = (
    "relax.FuseOps.max_depth relax.backend.use_cuda_graph relax.fallback_device_type "
    "relax.lift_transform_params.consume_params relax.transform.apply_legalize_ops testing.immutable_module "
    "tir.debug_keep_trivial_loop tir.detect_global_barrier tir.disable_assert tir.disable_cse_tir "
    "tir.disable_storage_rewrite tir.disable_vectorize tir.dma_bypass_cache tir.enable_buffer_level_predication "
    "tir.enable_debug tir.enable_equiv_terms_in_cse_tir tir.experimental_dma_bypass_cache tir.instr_siblings "
    "tir.instrument_bound_checkers tir.instrument_lwp tir.is_entry_func tir.lwp_disable_func_prof tir.lwp_max_depth "
    "tir.lwp_min_height tir.merge_static_smem tir.noalias tir.ptx_ldg32 tir.reset_start_id tir.use_async_copy "
    "tir.vtcm_capacity"
).split()

# Options that take a table of settings: the fields of each with their defaults.
_TABLES: dict[str, dict[str, int]] = {
    "tir.HoistExpression": {"hoisted_conditionals": 7, "hoisted_let_bindings": 7},
    "tir.HoistIfThenElse": {"support_block_scope_hosting": False},
    "tir.InjectDoubleBuffer": {"split_loop": 1},
    "tir.LoopPartition": {
        "partition_const_loop": False,
        "no_unroll_loop_with_extent_one": False,
        "unroll_loop_with_partition_hint_no_interval": False,
    },
    "tir.ReduceBranchingThroughOvercompute": {"use_dataflow_analysis": False},
    "tir.RemoveNoOp": {"use_dataflow_analysis": False, "max_simplification_steps": 0},
    "tir.Simplify": {
        "transitively_prove_inequalities": False,
        "convert_boolean_to_and_of_ors": False,
        "apply_constraints_to_boolean_branches": False,
        "propagate_knowns_to_prove_conditional": False,
        "propagate_knowns_to_simplify_expressions": False,
    },
    "tir.UnrollLoop": {
        "auto_max_step": 0,
        "auto_max_depth": 8,
        "auto_max_extent": 0,
        "explicit_unroll": True,
        "unroll_local_access": False,
    },
}


class OptionTable(dict[str, Any]):
    """The settings of one option, also readable as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no setting {name!r} among {sorted(self)}") from None


def register_config(key: str, kind: str = "") -> None:
    """Let ``PassContext(config={key: ...})`` be given; ``kind`` is the type key of its value, empty for any."""
    _TYPES[key] = kind


for _key in _FLAGS_AND_NUMBERS:
    register_config(_key, "IntImm")
for _key in _TABLES:
    register_config(_key, f"tir.transform.{_key.removeprefix('tir.')}Config")
register_config("tir.add_lower_pass", "Array")
register_config("cuda.kernels_output_dir", "runtime.String")
for _key in ("relax.ext.clml.options", "relax.ext.tensorrt.options"):
    register_config(_key, f"{_key.removesuffix('options')}CompilerConfig")


def list_options() -> dict[str, dict[str, str]]:
    """Every option and the type key of its value."""
    return {key: {"type": kind or "Object"} for key, kind in sorted(_TYPES.items())}


def _fits(key: str, kind: str, value: Any) -> bool:
    held = plain(value)
    if kind == "IntImm":
        return isinstance(held, int)
    if kind == "runtime.String":
        return isinstance(held, str)
    if kind == "Array":
        return isinstance(value, list | tuple)
    if key in _TABLES and isinstance(value, Mapping):
        return all(name in _TABLES[key] for name in value)
    return not isinstance(held, int | float | str | list | tuple) if kind.endswith("Config") else True


def complete_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the defaults of settings not given.

    Raises AttributeError for an option that nobody registered, and for a value of another type than it takes.

    >>> from relaxish.transform import PassContext
    >>> PassContext(config={"tir.noalias": "yes"})
    Traceback (most recent call last):
    ...
    AttributeError: expect config tir.noalias to have type IntImm, but received error when converting the type: 'yes'
    >>> PassContext(config={"tir.UnrollLoop": {"auto_max_step": 4}}).config["tir.UnrollLoop"].explicit_unroll
    True
    """
    out = dict(config)
    for key, value in config.items():
        if key not in _TYPES:
            raise AttributeError(f"Invalid config option '{key}' candidates are: {' '.join(sorted(_TYPES))}")
        if not _fits(key, _TYPES[key], value):
            raise AttributeError(
                f"expect config {key} to have type {_TYPES[key]}, "
                f"but received error when converting the type: {value!r}"
            )
        if key in _TABLES and isinstance(value, Mapping):
            out[key] = OptionTable({**_TABLES[key], **value})
    return out
