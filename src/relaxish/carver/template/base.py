"""Base of templates: a device, a function, and hints for the two."""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from ...ir.errors import CheckValueError
from ...tir import PrimFunc
from ..arch import TileDevice, auto_infer_current_arch, get_arch, is_ampere_arch, is_cdna_arch, is_volta_arch
from ..roller import Hint, OutputNode

__all__ = ["BaseTemplate", "check_sizes", "dtype_of"]

_NAMES = {"float": "float32", "half": "float16", "double": "float64", "int": "int32", "bf16": "bfloat16"}
_SCALAR = re.compile(r"(u?int(1|2|4|8|16|32|64)|float(16|32|64)|bfloat16|bool|float[468]_e\w+|e\dm\d_float8)")


def dtype_of(name: str) -> str:
    """A dtype by its name or a common alias of it (``float``, ``half``, ``int``).

    >>> dtype_of("float")
    'float32'
    """
    text = _NAMES.get(str(name), str(name))
    if not _SCALAR.fullmatch(text):
        raise CheckValueError(f"{name!r} is no dtype: write for example 'float16', 'bfloat16', 'float32', 'int8'")
    return text


def check_sizes(template: object, **sizes: Any) -> None:
    """Raises CheckValueError unless every size is a positive integer."""
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CheckValueError(
                f"{type(template).__name__}: {name} is the number of elements along an axis, a positive integer; got {value!r}"
            )


@dataclass
class BaseTemplate(ABC):
    """A kind of function by its sizes: ``Template(...).with_arch(arch).recommend_hints(topk=10)``."""

    _arch: TileDevice | None = field(default=None, init=False, repr=False, compare=False)
    _func: Any = field(default=None, init=False, repr=False, compare=False)
    _output_nodes: list[OutputNode] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("dtype", "in_dtype", "out_dtype", "accum_dtype"):
            if hasattr(self, name):
                setattr(self, name, dtype_of(getattr(self, name)))
        self.initialize_function()

    @abstractmethod
    def initialize_function(self) -> None:
        """Make the function from the fields. Raises CheckValueError for fields that make none."""

    # ---- device

    def with_arch(self, arch: TileDevice) -> BaseTemplate:
        """Recommend for a device, or for a target; returns the template itself."""
        self._arch = get_arch(arch)
        return self

    def has_arch(self) -> bool:
        """Whether a device was set."""
        return self._arch is not None

    @property
    def arch(self) -> TileDevice:
        """The device: the one set, else that of the current target or of this machine."""
        if self._arch is None:
            self._arch = auto_infer_current_arch()
        return self._arch

    def is_volta_arch(self) -> bool:
        """Whether the device is a Volta or Turing GPU."""
        return is_volta_arch(self.arch)

    def is_ampere_arch(self) -> bool:
        """Whether the device is an Ampere GPU."""
        return is_ampere_arch(self.arch)

    def is_cdna_arch(self) -> bool:
        """Whether the device is an AMD data centre GPU."""
        return is_cdna_arch(self.arch)

    # ---- function

    def equivalent_function(self) -> PrimFunc:
        """The function that hints are for (a list where there are several)."""
        return self._func

    def set_function(self, func: PrimFunc | list[PrimFunc]) -> BaseTemplate:
        """Recommend for another function; returns the template itself."""
        self._func = func
        return self

    @property
    def output_nodes(self) -> list[OutputNode] | None:
        """The graph of functions, where there are several."""
        return self._output_nodes

    def set_output_nodes(self, output_nodes: list[OutputNode]) -> BaseTemplate:
        """Recommend for a graph of functions; returns the template itself."""
        self._output_nodes = output_nodes
        return self

    # ---- hints

    def get_hardware_aware_configs(self, arch: Any = None, topk: int = 10) -> list[Hint]:
        """The ``topk`` best hints for a device by the published policy; for CPUs by the analytic model."""
        from ..recommend import recommend

        device = get_arch(arch) if arch is not None else self.arch
        return recommend(self, device, topk, policy="roller" if device.compute_max_core else "model")

    def recommend_hints(self, topk: int = 10, policy: str | None = None) -> list[Hint]:
        """The ``topk`` best hints; ``policy`` "model" ranks them by estimated time."""
        if policy is None:
            return self.get_hardware_aware_configs(self.arch, topk)
        from ..recommend import recommend

        return recommend(self, self.arch, topk, policy=policy)

    def params_as_dict(self) -> dict[str, Any]:
        """The template's fields."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}

    @property
    def class_attributes(self) -> dict[str, Any]:
        """The template's fields."""
        return self.params_as_dict()
