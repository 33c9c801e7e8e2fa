"""Reading exported programs (``.pt2``) that may come from anywhere: nothing in the file is run.

PyTorch's own reader unpickles what the file tells it to, evaluates sizes given as text, looks up the functions of the
graph by name among all that PyTorch has, and loads compiled code. Here the archive is read member by member first,
what could run code is refused, and the reader gets a new archive of what was checked.
"""

from __future__ import annotations

import ast
import io
import json
import logging
import math
import os
import re
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, IO, Any

from ...support.errors import RelaxishError
from ..common import need

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["ArchiveError", "load_exported"]

_MEMBERS = 200_000
_JSON_BYTES = 1 << 29
# A file that unpacks to more than this many times its size is a trap: weights do not compress so well.
_RATIO, _SMALL = 50, 1 << 24
_IN_MEMORY = 1 << 28
# Example inputs are always pickled; where they are more than tensors, no inputs take their place.
_EXAMPLES = "sample_inputs"
_PICKLED = ("custom_obj_", "opaque_obj_", "script_obj_")
_OLD_EXAMPLES = "serialized_example_inputs.pt"
_REFUSED_OPERATORS = ("from_file",)
_NUMBERS = frozenset(
    "abs add and_ eq floordiv ge getitem gt invert le lshift lt mod mul ne neg not_ or_ pos pow rshift sub truediv "
    "xor".split()
)
# Functions of sizes, as PyTorch writes them down, and what it writes names and numbers as.
_SYMPY = frozenset(
    "Abs Add And BitwiseFn_bitwise_and BitwiseFn_bitwise_or CeilToInt CleanDiv Eq Equality FloatPow FloatTrueDiv "
    "FloorDiv FloorToInt Ge GreaterThan Gt Identity Infinity IntInfinity IntTrueDiv IsNonOverlappingAndDenseIndicator "
    "LShift Le LessThan Lt Max Min Mod ModularIndexing Mul Ne NegativeInfinity NegativeIntInfinity Not Or Piecewise "
    "Pow PowByNatural PythonMod RShift Rational RoundDecimal RoundToInt StrictGreaterThan StrictLessThan ToFloat "
    "TruncToFloat TruncToInt Unequality Where ceiling floor sqrt Integer".split()
)
_NAMED = {"Symbol": re.compile(r"[A-Za-z]\w*"), "Float": re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?")}
_EXPRESSION = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Name, ast.Constant, ast.Load, ast.Add, ast.Sub,
    ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.unaryop, ast.cmpop, ast.keyword,
)  # fmt: skip
_POWERS = ("Pow", "PowByNatural", "FloatPow", "LShift")


class ArchiveError(RelaxishError):
    """A ``.pt2`` file that is damaged, or holds what would run code when it is read."""


def load_exported(path: str | os.PathLike[str], *, trust_pickle: bool = False) -> ExportedProgram:
    """The ``torch.export.ExportedProgram`` in a file; example inputs that are more than tensors are left out.

    ``trust_pickle`` reads the file with PyTorch's own reader, which runs code that the file holds: only for files
    whose author is trusted.

    Raises
    ------
    ArchiveError
        For a file that is damaged or not an exported program, and for one that cannot be read without running code.
    """
    torch = need("torch", "torch")
    log = logging.getLogger("torch.export")
    level = log.level
    log.setLevel(logging.CRITICAL)  # it logs the traceback of what is reported here in one line
    try:
        if trust_pickle:
            return torch.export.load(str(path))
        with _checked(Path(path)) as archive:
            return torch.export.load(archive)
    except RelaxishError:
        raise
    except Exception as err:
        reason = (str(err).strip().splitlines() or [""])[0][:200]
        raise ArchiveError(
            f"{path}: not an exported torch program, or damaged ({type(err).__name__}: {reason})"
        ) from None
    finally:
        log.setLevel(level)


def _refuse(path: Path, member: str, why: str) -> ArchiveError:
    return ArchiveError(
        f"{path}: {member}: {why}; reading it could run code from the file. If you trust its author, allow it with "
        "--trust-pickle (trust_pickle=True)"
    )


def _checked(path: Path) -> IO[bytes]:
    """A new archive with the members of the one at ``path``, each of them checked."""
    made = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # handed to the caller
    try:
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as target:
            for info in _members(path, source):
                data = source.read(info)
                if len(data) != info.file_size:
                    raise ArchiveError(f"{path}: {info.filename}: has {len(data)} bytes, {info.file_size} declared")
                target.writestr(info.filename, _safe(path, info.filename, data))
        made.seek(0)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError) as err:
        made.close()
        raise ArchiveError(f"{path}: not an exported torch program, or truncated ({err})") from None
    except BaseException:
        made.close()
        raise
    return made


def _members(path: Path, source: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The members, none of them outside of the archive's folder, doubled, linked, encrypted or larger than can be."""
    members = [info for info in source.infolist() if not info.is_dir()]
    if len(members) > _MEMBERS:
        raise ArchiveError(f"{path}: {len(members)} members, more than any program has")
    names = [info.filename for info in members]
    if len(set(names)) != len(names):
        raise ArchiveError(f"{path}: two members have the same name")
    for info in members:
        name = info.filename
        parts = PurePosixPath(name).parts
        if "\\" in name or "\0" in name or name.startswith("/") or ".." in parts or ":" in parts[0]:
            raise ArchiveError(f"{path}: the member name {name!r} leads out of the archive")
        if (info.external_attr >> 16) & 0o170000 == 0o120000:
            raise ArchiveError(f"{path}: {name} is a link")
        if info.flag_bits & 1:
            raise ArchiveError(f"{path}: {name} is encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ArchiveError(f"{path}: {name} is compressed by a method that PyTorch does not use")
    size = path.stat().st_size
    total = sum(info.file_size for info in members)
    if sum(info.compress_size for info in members) > size or total > max(_SMALL, _RATIO * size):
        raise ArchiveError(f"{path}: {size} bytes claim to hold {total}")
    return members


def _safe(path: Path, name: str, data: bytes) -> bytes:
    """The contents of a member, or what takes their place; raises ArchiveError if they could run code."""
    import torch

    parts = PurePosixPath(name).parts
    base = parts[-1]
    if "aotinductor" in parts or base.endswith((".so", ".cpp", ".cubin", ".py", ".pyc")):
        raise _refuse(path, name, "compiled code")
    if base.startswith(_PICKLED):
        raise _refuse(path, name, "a pickled object")
    if base.endswith(".json"):
        return _safe_json(path, name, data)
    if not base.endswith((".pt", ".pth", ".pkl", ".pickle")):
        return data
    try:
        torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except Exception:
        if _EXAMPLES not in parts and base != _OLD_EXAMPLES:
            raise _refuse(path, name, "pickled, and not tensors alone") from None
        buffer = io.BytesIO()
        torch.save(((), {}), buffer)
        return buffer.getvalue()
    return data


def _safe_json(path: Path, name: str, data: bytes) -> bytes:
    if len(data) > _JSON_BYTES:
        raise ArchiveError(f"{path}: {name}: {len(data)} bytes, more than any program has")
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError) as err:
        raise ArchiveError(f"{path}: {name}: not JSON ({type(err).__name__})") from None
    if not isinstance(tree, dict):
        return data
    for part in _objects(tree):
        _check_object(path, name, part)
    for symbol in tree.get("range_constraints") or {}:
        if not _is_size(symbol):
            raise _refuse(path, name, f"the size {symbol[:80]!r} is not arithmetic")
    if tree.get("guards_code"):
        tree["guards_code"] = []  # Python text that checks inputs; the importer does not need it
    return json.dumps(tree).encode()


def _objects(tree: Any) -> Iterator[dict[str, Any]]:
    """All objects of a JSON tree; without recursion, whatever its depth."""
    waiting = [tree]
    while waiting:
        item = waiting.pop()
        match item:
            case dict():
                yield item
                waiting.extend(item.values())
            case list():
                waiting.extend(item)


def _check_object(path: Path, name: str, part: dict[str, Any]) -> None:
    if part.get("use_pickle"):
        raise _refuse(path, name, f"{part.get('path_name')!r} is pickled")
    place = part.get("path_name")
    if isinstance(place, str) and (place != os.path.basename(place) or place.startswith(_PICKLED)):
        raise _refuse(path, name, f"{place!r} is no file of tensors")
    text = part.get("expr_str")
    if text is not None and not (isinstance(text, str) and _is_size(text)):
        raise _refuse(path, name, f"the size {str(text)[:80]!r} is not arithmetic")
    target = part.get("target")
    if isinstance(target, str) and "inputs" in part and not _is_operator(target):
        raise _refuse(path, name, f"{target[:80]!r} is not an operator")
    for key in ("in_spec", "out_spec"):
        if "__enum__" in str(part.get(key, "")):
            raise _refuse(path, name, "its inputs or outputs name an enumeration to import")


def _is_size(text: str) -> bool:
    """Whether a text is arithmetic of numbers, names and functions of sizes, and no other Python."""
    try:
        tree = ast.parse(text, mode="eval") if len(text) < 10_000 else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    if tree is None:
        return False
    return all(_is_arithmetic(node) for node in _parts(tree))


def _parts(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of an expression; the text that names a symbol or a number counts with its call."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMED
        text = node.args[:1] if isinstance(node, ast.Call) and named else []
        waiting.extend(part for part in ast.iter_child_nodes(node) if part not in text)


def _is_arithmetic(node: ast.AST) -> bool:
    if not isinstance(node, _EXPRESSION):
        return False
    match node:
        case ast.Name():
            return not node.id.startswith("_")
        case ast.Constant():
            return isinstance(node.value, (int, float, bool))
        case ast.keyword():
            return isinstance(node.value, ast.Constant)
        case ast.Call():
            if not isinstance(node.func, ast.Name) or (node.func.id not in _SYMPY and node.func.id not in _NAMED):
                return False
            if node.func.id in _NAMED and not _is_named(node, _NAMED[node.func.id]):
                return False
    return not _is_power(node) or _is_small_power(node)


def _is_named(node: ast.Call, form: re.Pattern[str]) -> bool:
    name = node.args[0] if len(node.args) == 1 else None
    return isinstance(name, ast.Constant) and form.fullmatch(str(name.value)) is not None


def _is_power(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Pow)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _POWERS


def _is_small_power(node: ast.AST) -> bool:
    """A power that is computed at once: a power of a power of numbers could fill the memory."""
    base, *exponent = [node.left, node.right] if isinstance(node, ast.BinOp) else getattr(node, "args", [])
    if len(exponent) != 1 or any(_is_power(part) for part in ast.walk(base)):
        return False
    power = exponent[0]
    if isinstance(power, ast.Call) and len(power.args) == 1:  # Integer(2)
        power = power.args[0]
    value = getattr(power, "value", None)
    return isinstance(value, (int, float)) and abs(value) <= 64


def _is_operator(target: str) -> bool:
    """Whether a name is that of an operator that computes: of PyTorch's operator libraries, or of Python's numbers."""
    import torch

    first, *rest = target.split(".")
    if first == "_operator":
        return len(rest) == 1 and rest[0] in _NUMBERS
    if first == "math":
        return len(rest) == 1 and hasattr(math, rest[0])
    if first != "torch" or not rest:
        return False
    if len(rest) == 1:
        return rest[0].startswith("sym_") and hasattr(torch, rest[0])
    if rest[0] != "ops" or len(rest) not in (3, 4) or rest[2] in _REFUSED_OPERATORS:
        return target == "torch._check"
    library = getattr(torch.ops, rest[1], None)
    if type(library).__name__ not in ("_OpNamespace", "_HigherOrderNamespace"):
        return False
    packet = getattr(library, rest[2], None)
    if isinstance(packet, torch._ops.HigherOrderOperator):
        return len(rest) == 3
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return False
    return len(rest) == 3 or isinstance(getattr(packet, rest[3], None), torch._ops.OpOverload)
