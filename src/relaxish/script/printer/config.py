"""Options of the printer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.errors import CheckValueError

__all__ = ["PrinterConfig"]


class PrinterConfig:
    """Options of printing; ``node.script(**config)`` takes the same names.

    ``PrinterConfig(int_dtype="int64")`` prints 64-bit literals bare and 32-bit ones as ``T.int32(...)``.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        show_meta: bool = False,
        ir_prefix: str = "I",
        tir_prefix: str = "T",
        relax_prefix: str = "R",
        module_alias: str = "cls",
        buffer_dtype: str = "float32",
        int_dtype: str = "int32",
        float_dtype: str = "void",
        verbose_expr: bool = False,
        indent_spaces: int = 4,
        print_line_numbers: bool = False,
        num_context_lines: int | None = None,
        syntax_sugar: bool = True,
        show_object_address: bool = False,
        show_all_struct_info: bool = True,
        path_to_underline: Sequence[Any] | None = None,
        path_to_annotate: Mapping[Any, str] | None = None,
        obj_to_underline: Sequence[Any] | None = None,
        obj_to_annotate: Mapping[Any, str] | None = None,
        binding_names: Sequence[str] | None = None,
        extra_config: Mapping[str, Any] | None = None,
    ) -> None:
        prefixes = {"ir_prefix": ir_prefix, "tir_prefix": tir_prefix, "relax_prefix": relax_prefix}
        for option, text in (prefixes | {"module_alias": module_alias}).items():
            if text and not str(text).isidentifier():
                raise CheckValueError(f"{option} must be a name that a script can have, not {text!r}")
        self.binding_names: list[str] = [name] if name is not None else list(binding_names or ())
        self.show_meta = show_meta
        self.ir_prefix = ir_prefix
        self.tir_prefix = tir_prefix
        self.relax_prefix = relax_prefix
        self.module_alias = module_alias
        self.buffer_dtype = str(buffer_dtype)
        self.int_dtype = str(int_dtype)
        self.float_dtype = str(float_dtype)
        self.verbose_expr = verbose_expr
        self.indent_spaces = indent_spaces
        self.print_line_numbers = print_line_numbers
        self.num_context_lines = -1 if num_context_lines is None else num_context_lines
        self.syntax_sugar = syntax_sugar
        self.show_object_address = show_object_address
        self.show_all_struct_info = show_all_struct_info
        self.path_to_underline = list(path_to_underline or ())
        self.path_to_annotate = list(path_to_annotate.items()) if path_to_annotate else []
        self.obj_to_underline = list(obj_to_underline or ())
        # Expressions overload ``==``, so objects are found by identity.
        self.obj_to_annotate = {id(k): v for k, v in (obj_to_annotate or {}).items()}
        self.extra_config = dict(extra_config or {})

    def builtin_keywords(self) -> list[str]:
        """Names that variables may not take."""
        names = [self.ir_prefix, self.tir_prefix, self.relax_prefix, self.module_alias]
        return [name for name in names if name]
