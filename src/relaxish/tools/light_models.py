"""The light models that ship in the ``onnx`` package, with random weights of sane scale in place of their constants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..support.errors import MissingExtraError, RelaxishError

if TYPE_CHECKING:
    import onnx

__all__ = ["light_model", "light_model_names"]


def _folder() -> Path:
    try:
        import onnx
    except ImportError:
        raise MissingExtraError("onnx", "onnx", "the light models") from None
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def light_model_names() -> list[str]:
    """Names for :func:`light_model`."""
    return sorted(p.stem.removeprefix("light_") for p in _folder().glob("light_*.onnx"))


def light_model(name: str, seed: int = 0) -> onnx.ModelProto:
    """An ONNX model of the real architecture ``name`` ("resnet50", "squeezenet", ...) with random weights.

    The files hold every weight as one repeated constant, which would hide most mistakes; here weights are normal
    numbers scaled by fan-in, and normalisations get positive scales and variances, so that activations stay in range.
    """
    path = _folder() / f"light_{name}.onnx"
    if not path.exists():
        raise RelaxishError(f"there is no light model {name!r}; those there are: {', '.join(light_model_names())}")
    import onnx

    return _with_random_weights(onnx.load(str(path)), np.random.default_rng(seed))


def _with_random_weights(model: Any, rng: np.random.Generator) -> onnx.ModelProto:
    from onnx import numpy_helper

    graph = model.graph
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    users = {name: (node.op_type, slot) for node in graph.node for slot, name in enumerate(node.input)}
    fills = [n for n in graph.node if n.op_type == "ConstantOfShape" and n.output[0] in users and n.input[0] in shapes]
    weights = []
    for node in fills:
        shape = tuple(int(d) for d in shapes[node.input[0]])
        value = _random_weight(shape, *users[node.output[0]], rng)
        weights.append(numpy_helper.from_array(value.astype("float32"), node.output[0]))
    gone = {n.input[0] for n in fills}
    made = {n.output[0] for n in fills}
    _keep(graph.node, lambda n: not made & set(n.output))
    _keep(graph.initializer, lambda i: i.name not in gone)
    _keep(graph.input, lambda i: i.name not in gone)
    graph.initializer.extend(weights)
    return model


def _random_weight(shape: tuple[int, ...], op_type: str, slot: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if len(shape) >= 2:
        return rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
    if op_type == "BatchNormalization" and slot == 1:
        return rng.uniform(0.2, 0.5, shape)
    if op_type == "BatchNormalization" and slot == 4:
        return rng.uniform(0.5, 1.5, shape)
    return rng.standard_normal(shape) * 0.1


def _keep(items: Any, wanted: Callable[..., Any]) -> None:
    kept = [x for x in items if wanted(x)]
    del items[:]
    items.extend(kept)
