"""FlashInfer's kernels, by the names under which models ask for them.

FlashInfer is a library of CUDA C++ templates that is compiled for each model. Its sources are not part of relaxish and
its Python package offers no interface to them, so all of these raise :class:`FlashInferMissing`; a cache with kernels of our
own is :class:`relaxish.relax.frontend.nn.llm.kv_cache.TIRPagedKVCache`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ...support.errors import RelaxishError
from ...target import Target

__all__ = [
    "FlashInferMissing",
    "gen_flashinfer_decode_module",
    "gen_flashinfer_mla_module",
    "gen_flashinfer_prefill_module",
    "gen_sampling_module",
]


class FlashInferMissing(RelaxishError, NotImplementedError):
    """Kernels of FlashInfer were asked for."""


def _missing(what: str) -> NoReturn:
    raise FlashInferMissing(
        f"{what} is made from FlashInfer's sources, which relaxish does not bundle: use TIRPagedKVCache for a cache with "
        "kernels of relaxish's own, and DispatchSampling for sampling"
    )


def gen_flashinfer_prefill_module(
    dtype_q: str, dtype_kv: str, dtype_o: str, qk_head_dim: int, v_head_dim: int, target: Target,
    enable_inline_rope: bool = True, num_threads: int = 8,
) -> list[Any]:  # fmt: skip
    """Modules with attention of several tokens. Raises FlashInferMissing."""
    _missing("a prefill module")


def gen_flashinfer_decode_module(
    dtype_q: str, dtype_kv: str, dtype_o: str, qk_head_dim: int, v_head_dim: int, target: Target, num_threads: int = 8
) -> list[Any]:
    """Modules with attention of one token. Raises FlashInferMissing."""
    _missing("a decode module")


def gen_flashinfer_mla_module(
    dtype_q: str,
    dtype_kv: str,
    dtype_o: str,
    head_dim_ckv: int,
    head_dim_kpe: int,
    target: Target,
    num_threads: int = 8,
) -> list[Any]:
    """Modules with attention over latent vectors. Raises FlashInferMissing."""
    _missing("an MLA module")


def gen_sampling_module(target: Target, num_threads: int = 8) -> list[Any]:
    """Modules with sampling. Raises FlashInferMissing."""
    _missing("a sampling module")
