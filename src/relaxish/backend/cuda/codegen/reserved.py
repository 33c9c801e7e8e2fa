"""Names that a kernel's variables cannot have: they mean something else in the text around."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files

from .intrinsics import library_names

__all__ = ["reserved_names"]

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl concept const
consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double dynamic_cast
else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
nullptr operator or or_eq private protected public register reinterpret_cast requires return short signed sizeof static
static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using
virtual void volatile wchar_t while xor xor_eq
""".split()
_BUILT_IN = (
    "threadIdx blockIdx blockDim gridDim warpSize printf assert memcpy make_float2 float2 uint2 uint4 nvcuda".split()
)
# What inner functions call their parameters, and the array of barriers.
_OWN = ("a", "b", "c", "s0", "s1", "barriers", "Vec", "Nibble")
_FUNCTION = re.compile(r"(?:RX_DEVICE|__noinline__)[^(;{]*?\b(\w+)\(")


@lru_cache(maxsize=1)
def reserved_names() -> frozenset[str]:
    """Keywords, functions of the library that intrinsics become, and what the sections of the preamble define."""
    names = {*_KEYWORDS, *_BUILT_IN, *_OWN, *library_names()}
    package = files(__package__)
    for entry in package.iterdir():
        if entry.name.endswith(".cuh"):
            names.update(_FUNCTION.findall(entry.read_text()))
    return frozenset(names)
