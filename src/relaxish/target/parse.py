"""Reading and writing targets: command-line-like strings, dictionaries, JSON."""

from __future__ import annotations

import difflib
import shlex
from typing import Any

from ..ir.errors import CheckTypeError, CheckValueError
from ..support.errors import MalformedDataError
from ..support.untrusted import parse_json
from .kind import Option, TargetKind, get_kind, has_kind


def split_words(text: str) -> list[str]:
    """Split at spaces; quotes and braces keep their contents together."""
    if "'" in text or '"' in text:
        return shlex.split(text)
    words: list[str] = []
    depth = 0
    word = ""
    for ch in text:
        if ch == "{":
            depth += 1
        elif ch == "}":
            depth -= 1
        if ch.isspace() and depth == 0:
            if word:
                words.append(word)
            word = ""
        else:
            word += ch
    if word:
        words.append(word)
    return words


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
        config[key] = typed_value(kind, key, value)
    return config


def option_of(kind: TargetKind, key: str) -> Option:
    """The schema entry for attribute ``key`` of ``kind``; ValueError when it has none."""
    if key.startswith("feature."):
        return Option("bool")
    option = kind.schema.get(key)
    if option is None:
        near = difflib.get_close_matches(key, kind.schema, n=3, cutoff=0.5)
        hint = f"; did you mean {', '.join(near)}?" if near else f"; it has: {', '.join(sorted(kind.schema))}"
        raise CheckValueError(f'Cannot recognize attribute "{key}" of target kind "{kind.name}"{hint}')
    return option


def typed_value(kind: TargetKind, key: str, value: Any) -> Any:
    """``value``, from text or from Python, as the type the schema asks for."""
    option = option_of(kind, key)
    if key == "mcpu" and isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        value = ",".join(value)  # one program in versions for several CPUs
    try:
        return _convert(option.type, value)
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
        if isinstance(value, str):
            lowered = value.lower()
            if lowered in ("1", "true", "on", "yes"):
                return True
            if lowered in ("0", "false", "off", "no"):
                return False
            raise CheckValueError("not a boolean")
        return bool(value)
    if type_name == "list":
        if isinstance(value, str):
            return tuple(part for part in value.strip("'\"").split(",") if part)
        if not isinstance(value, (list, tuple)):
            raise TypeError("not a list")
        return tuple(str(part) for part in value)
    if type_name == "str":
        if not isinstance(value, str):
            raise TypeError("not a string")
        return value.strip("'\"")
    if type_name == "target_list":
        return tuple(value if isinstance(value, (list, tuple)) else [value])
    return value


def config_of_any(spec: str | dict[str, Any]) -> dict[str, Any]:
    """A config dictionary from a kind name, a tag, an option string, a JSON string or a dictionary."""
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
        return {**_config_of_dict(tagged), "tag": text}
    if not text:
        raise CheckValueError("Cannot parse target: the string is empty")
    first = split_words(text)[0]
    if not has_kind(first) and "/" in first:
        raise CheckValueError(f'Target tag "{first}" is not registered (see relaxish.target.list_tags())')
    return config_of_string(text)


def _config_of_dict(spec: dict[str, Any]) -> dict[str, Any]:
    from .tags import config_of_tag

    base: dict[str, Any] = {}
    tag = spec.get("tag")
    if tag and "kind" not in spec:
        tagged = config_of_tag(str(tag))
        if tagged is None:
            raise CheckValueError(f'Target tag "{tag}" is not registered (see relaxish.target.list_tags())')
        base = dict(tagged)
    merged = {**base, **spec}
    name = merged.get("kind")
    if name is None:
        raise CheckValueError(f'Field "kind" is not found in target config {spec!r}')
    if not isinstance(name, str):
        raise CheckTypeError(f'Field "kind" of a target config must be a string, got {name!r}')
    kind = get_kind(name)
    return {key: value if key == "kind" else typed_value(kind, key, value) for key, value in merged.items()}


def text_of_value(value: Any) -> str:
    """One attribute value as it stands in a target string."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (list, tuple)):
        return ",".join(text_of_value(v) for v in value)
    text = str(value)
    return f"'{text}'" if any(c.isspace() for c in text) else text
