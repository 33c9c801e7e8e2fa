"""Reading and writing targets: command-line-like strings, dictionaries, JSON."""

from __future__ import annotations

import difflib
import json
from typing import Any

from ..ir.errors import CheckTypeError, CheckValueError
from ..support.errors import MalformedDataError
from ..support.untrusted import parse_json
from .compose import CHILD_FIELDS, check_pool, check_runtime, gather, is_child
from .kind import Option, TargetKind, get_kind, has_kind

_OPENING, _CLOSING, _QUOTES = "{[", "}]", "'\""
_SPECIAL = frozenset("{}[]'\"\\")


class _Scanner:
    """A walk over target text that knows, for every character, whether it is inside braces or quotes."""

    def __init__(self) -> None:
        self.depth = 0
        self.quote = ""
        self._escaped = False

    def step(self, ch: str) -> bool:
        """Go past ``ch``; whether it is plain text of the outermost level."""
        if self.quote:
            if self._escaped:
                self._escaped = False
            elif ch == "\\":
                self._escaped = True
            elif ch == self.quote:
                self.quote = ""
            return False
        if ch in _QUOTES:
            self.quote = ch
        elif ch in _OPENING:
            self.depth += 1
        elif ch in _CLOSING:
            self.depth = max(0, self.depth - 1)
        else:
            return self.depth == 0
        return False

    def check_closed(self, text: str) -> None:
        """Raise ValueError when the text ended inside of quotes or braces."""
        if self.quote or self.depth:
            open_one = f"quote {self.quote}" if self.quote else "brace"
            raise CheckValueError(f"Cannot parse target {_short(text)}: a {open_one} is not closed")


def split_words(text: str) -> list[str]:
    """Split at spaces; quotes, braces and brackets keep their contents together. Quotes stay in the words."""
    return [word for word in _split(text, str.isspace) if word]


def _split(text: str, separates: Any) -> list[str]:
    scanner = _Scanner()
    parts = [""]
    for ch in text:
        if scanner.step(ch) and separates(ch):
            parts.append("")
        else:
            parts[-1] += ch
    scanner.check_closed(text)
    return parts


def unquoted(text: str) -> str:
    """The text without its outermost quotes, in which a backslash stands before a quote or a backslash."""
    out = []
    depth, quote, i = 0, "", 0
    while i < len(text):
        ch = text[i]
        i += 1
        if quote:
            if ch == "\\" and i < len(text) and text[i] in _QUOTES + "\\":
                if depth:
                    out.append(ch)
                ch = text[i]
                i += 1
            elif ch == quote:
                quote = ""
                if not depth:
                    continue
        elif ch in _QUOTES:
            quote = ch
            if not depth:
                continue
        elif ch in _OPENING:
            depth += 1
        elif ch in _CLOSING:
            depth = max(0, depth - 1)
        out.append(ch)
    return "".join(out)


def config_of_string(text: str) -> dict[str, Any]:
    """``"cuda -arch=sm_80"`` -> ``{"kind": "cuda", "arch": "sm_80"}``; values are typed by the kind's schema."""
    words = split_words(text)
    if not words:
        raise CheckValueError("Cannot parse target: the string is empty")
    kind = get_kind(words[0])
    config: dict[str, Any] = {"kind": kind.name}
    i = 1
    while i < len(words):
        word = words[i]
        i += 1
        if not word.startswith("-"):
            raise CheckValueError(f'Cannot parse target "{text}": "{word}" is not an attribute (they start with "-")')
        key, eq, value = word.lstrip("-").partition("=")
        if not eq:
            # "-num-cores 4" takes the next word; a lone switch means true.
            if i < len(words) and not words[i].startswith("-"):
                value = words[i]
                i += 1
            else:
                value = "1"
        if key in config:
            raise CheckValueError(f'Cannot parse target "{text}": attribute "{key}" is given twice')
        config[key] = _children_of_text(value) if key == CHILD_FIELDS.get(kind.name) else unquoted(value)
    return _typed(gather(config))


def _children_of_text(text: str) -> list[str] | dict[str, str]:
    """``{llvm},gpu:{cuda -arch=sm_80}`` as a list of specs, or as a mapping where names are given."""
    children: list[tuple[str | None, str]] = []
    for part in _split(text, lambda ch: ch == ","):
        name, colon, spec = part.partition(":")
        named = bool(colon) and spec.startswith("{") and not name.startswith("{")
        children.append((name, spec) if named else (None, unquoted(part)))
    if all(name is None for name, _ in children):
        return [spec for _, spec in children]
    if any(name is None for name, _ in children):
        raise CheckValueError(f"Cannot parse targets {_short(text)}: either all of them have names, or none has")
    return dict(_distinct(children))


def _distinct(children: list[tuple[str | None, str]]) -> list[tuple[str, str]]:
    names = [str(name) for name, _ in children]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CheckValueError(f"Two targets have the name {twice[0]}")
    return [(str(name), spec) for name, spec in children]


def option_of(kind: TargetKind, key: str) -> Option:
    """The schema entry for attribute ``key`` of ``kind``; ValueError when it has none."""
    if key.startswith("feature."):
        return Option("bool")
    option = kind.schema.get(key)
    if option is None:
        if is_child(key):
            raise CheckValueError(
                f'"{key}" names a device of a composition, and kind "{kind.name}" is a single device; '
                'write {"kind": "composite", ...}'
            )
        near = difflib.get_close_matches(key, kind.schema, n=3, cutoff=0.5)
        hint = f"; did you mean {', '.join(near)}?" if near else f"; it has: {', '.join(sorted(kind.schema))}"
        raise CheckValueError(f'Cannot recognize attribute "{key}" of target kind "{kind.name}"{hint}')
    return option


def _typed(config: dict[str, Any]) -> dict[str, Any]:
    kind = get_kind(config["kind"])
    return {key: value if key == "kind" else typed_value(kind, key, value) for key, value in config.items()}


def typed_value(kind: TargetKind, key: str, value: Any) -> Any:
    """``value``, from text or from Python, as the type the schema asks for."""
    option = option_of(kind, key)
    if key == "mcpu" and isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        value = ",".join(value)  # one program in versions for several CPUs
    try:
        converted = _convert(option.type, value)
        return tuple(_library_name(name) for name in converted) if key == "libs" else converted
    except CheckValueError:
        raise
    except (TypeError, ValueError) as err:
        raise CheckValueError(
            f'Attribute "{key}" of target kind "{kind.name}" must be of type {option.type}, got {value!r}: {err}'
        ) from None


def _convert(type_name: str, value: Any) -> Any:
    if type_name == "int":
        if isinstance(value, (list, dict)):
            raise TypeError("not an integer")
        return int(value)
    if type_name == "float":
        return float(value)
    if type_name == "bool":
        return _truth(value)
    if type_name == "list":
        parts = _elements(value) if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple)):
            raise TypeError("not a list")
        return tuple(str(part) for part in parts if str(part))
    if type_name == "str":
        if not isinstance(value, str):
            raise TypeError("not a string")
        return value
    if type_name == "runtime":
        return check_runtime(value)
    if type_name == "pool":
        return check_pool(parse_json(value, "pool") if isinstance(value, str) and value[:1] in _OPENING else value)
    return value


def _truth(value: bool | str) -> bool:
    if not isinstance(value, str):
        return bool(value)
    lowered = value.lower()
    if lowered in ("1", "true", "on", "yes"):
        return True
    if lowered in ("0", "false", "off", "no"):
        return False
    raise ValueError("not a boolean")


def _elements(text: str) -> list[str]:
    """The parts of a list in text: separated by commas, of which one behind a backslash belongs to its part."""
    parts = [""]
    escaped = False
    for ch in text:
        if escaped:
            parts[-1] += ch if ch in ",\\" else "\\" + ch
            escaped = False
        elif ch == "\\":
            escaped = True
        elif ch == ",":
            parts.append("")
        else:
            parts[-1] += ch
    if escaped:
        parts[-1] += "\\"
    return [part for part in parts if part]


def _library_name(name: str) -> str:
    """Libraries are known by names without dashes."""
    return {"tensor-rt": "tensorrt"}.get(name.lower(), name)


def config_of_any(spec: str | dict[str, Any]) -> tuple[dict[str, Any], str]:
    """A config dictionary from a kind name, a tag, an option string, a JSON string or a dictionary.

    With it the tag that was looked up, if one was.
    """
    from .tags import config_of_tag

    if isinstance(spec, dict):
        return _config_of_dict(spec)
    text = spec.strip()
    if text.startswith("{") and text.endswith("}"):
        try:
            loaded = parse_json(text, "target", max_depth=50, max_bytes=1 << 24)
        except MalformedDataError:
            inner = text[1:-1].strip()
            if inner.startswith("{"):
                raise
            return config_of_any(inner)
        return _config_of_dict(loaded)
    tagged = config_of_tag(text)
    if tagged is not None:
        return {**_config_of_dict(tagged)[0], "tag": text}, text
    if not text:
        raise CheckValueError("Cannot parse target: the string is empty")
    first = split_words(text)[0]
    if not has_kind(first) and "/" in first:
        raise CheckValueError(unknown_tag(first))
    return config_of_string(text), ""


def unknown_tag(name: str) -> str:
    """Error text for a tag that is not registered, with similar names."""
    from .tags import list_tag_names

    near = difflib.get_close_matches(name, list_tag_names(), n=3, cutoff=0.6)
    hint = f"; did you mean {', '.join(near)}?" if near else " (see relaxish.target.list_tags())"
    return f'Target tag "{name}" is not registered{hint}'


def _config_of_dict(spec: dict[str, Any]) -> tuple[dict[str, Any], str]:
    from .tags import config_of_tag

    base: dict[str, Any] = {}
    tag = ""
    if spec.get("tag") and "kind" not in spec:
        tag = str(spec["tag"])
        tagged = config_of_tag(tag)
        if tagged is None:
            raise CheckValueError(unknown_tag(tag))
        base = dict(tagged)
    merged = gather({**base, **spec})
    name = merged.get("kind")
    if name is None:
        raise CheckValueError(f'Field "kind" is not found in target config {spec!r}')
    if not isinstance(name, str):
        raise CheckTypeError(f'Field "kind" of a target config must be a string, got {name!r}')
    return _typed(merged), tag


def text_of_value(value: Any) -> str:
    """One attribute value as it stands in a target string."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
        return json.dumps(value, separators=(",", ":"), sort_keys=True)
    if isinstance(value, (list, tuple)):
        return _in_quotes(",".join(str(v).replace("\\", "\\\\").replace(",", "\\,") for v in value))
    return _in_quotes(str(value))


def _in_quotes(text: str) -> str:
    if not any(c.isspace() or c in _SPECIAL for c in text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
