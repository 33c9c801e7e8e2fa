"""Object paths, under the module path of the public API."""

from ..support.object_path import (
    ArrayIndexPath,
    AttributeAccessPath,
    MapValuePath,
    MissingArrayElementPath,
    MissingMapEntryPath,
    ObjectPath,
    RootPath,
    UnknownAttributeAccessPath,
)

__all__ = [
    "ArrayIndexPath", "AttributeAccessPath", "MapValuePath", "MissingArrayElementPath", "MissingMapEntryPath",
    "ObjectPath", "RootPath", "UnknownAttributeAccessPath",
]  # fmt: skip
