"""Printing of tensors spread over meshes of devices."""

from __future__ import annotations


from ... import relax
from ...ir.structural import structural_equal
from ...relax import distributed
from ...relax.distributed import DeviceMesh, Placement
from ...support.object_path import ObjectPath
from .doc import Doc, ExprDoc, LiteralDoc, TupleDoc
from .docsifier import Docsifier, printer_of
from .relax_sinfo import shape_var

__all__: list[str] = []


@printer_of(distributed.Placement)
def _placement(node: Placement, path: ObjectPath, d: Docsifier) -> Doc:
    return LiteralDoc(str(node), path)


@printer_of(distributed.DeviceMesh)
def _mesh(node: DeviceMesh, path: ObjectPath, d: Docsifier) -> Doc:
    """``R.device_mesh(...)`` where it is defined, ``"mesh[0]"`` inside the functions of its module."""
    in_function = any(frame.kind == "relax" for frame in d.frames)
    if in_function and d.frames[0].kind == "ir":
        for name, infos in d.module_infos.items():
            for index, info in enumerate(infos):
                if info is node or structural_equal(info, node):
                    return LiteralDoc(f"{name}[{index}]", path)
        raise ValueError("Cannot find device mesh in global infos")
    devices, where = (
        (node.device_ids, "device_ids") if node.device_range is None else (node.device_range, "device_range")
    )
    shape = TupleDoc([LiteralDoc(extent) for extent in node.shape])
    return d.prefix("relax", "device_mesh").call(shape, d.doc(devices, path.attr(where)))


@printer_of(distributed.DTensorStructInfo)
def _dtensor(node: distributed.DTensorStructInfo, path: ObjectPath, d: Docsifier) -> Doc:
    tensor = node.tensor_sinfo
    args: list[ExprDoc] = []
    kwargs: dict[str, ExprDoc] = {}

    def add(name: str, shown: ExprDoc) -> None:
        # Once something is left out, what follows is told by name.
        if positional:
            args.append(shown)
        else:
            kwargs[name] = shown

    positional = tensor.shape is not None
    if isinstance(tensor.shape, relax.ShapeExpr):
        values = path.attr("shape").attr("values")
        args.append(TupleDoc([shape_var(v, values.array_index(i), d) for i, v in enumerate(tensor.shape.values)]))
    elif tensor.shape is not None:
        args.append(d.doc(tensor.shape, path.attr("shape")))
    if tensor.dtype and tensor.dtype != "void":
        add("dtype", LiteralDoc(tensor.dtype, path.attr("dtype")))
    else:
        positional = False
    add("device_mesh", d.doc(node.device_mesh, path.attr("device_mesh")))
    add("placement", d.doc(node.placement, path.attr("placement")))
    if tensor.shape is None and tensor.ndim != -1:
        kwargs["ndim"] = LiteralDoc(tensor.ndim, path.attr("ndim"))
    return d.prefix("relax", "DTensor").call(*args, **kwargs)
