"""Damaged ONNX models: whatever the file says, the answer is a result or an exception, never a dead or stuck process.

Models are damaged by structure (extreme attributes, wrong types, missing and repeated inputs, odd dimensions, cycles,
truncated weights, unknown operators) and byte by byte. What still runs in ONNX Runtime must give the same results.
"""

from __future__ import annotations

import random
import resource
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxish.testing.fuzz.child import in_child
from relaxish.testing.fuzz.differential import GraphCase, make_graph_case
from relaxish.testing.fuzz.onnx_model import peer_outputs, to_model

_EXTREMES = [0, 1, -1, 2, -2, 7, 2**31 - 1, -(2**31), 2**31, 2**40, -(2**40), 2**63 - 1, -(2**63)]
_MEMORY = 12 << 30


def _attributes(model: Any, rng: random.Random) -> None:
    attrs = [a for n in model.graph.node for a in n.attribute]
    if not attrs:
        return
    attr = rng.choice(attrs)
    if attr.ints:
        attr.ints[rng.randrange(len(attr.ints))] = rng.choice(_EXTREMES)
        if rng.random() < 0.3:
            del attr.ints[-1]
        if rng.random() < 0.2:
            attr.ints.append(rng.choice(_EXTREMES))
    elif attr.HasField("i"):
        attr.i = rng.choice(_EXTREMES)
    elif attr.HasField("f"):
        attr.f = rng.choice([float("nan"), float("inf"), -1e30, 0.0])
    elif attr.HasField("s"):
        attr.s = rng.choice([b"", b"\xff\xfe", b"reflect", b"x" * 5000])
    if rng.random() < 0.2:
        attr.name = rng.choice(["", "axis", "to", "pads", "no such attribute"])


def _inputs(model: Any, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    names = [i for n in model.graph.node for i in (*n.input, *n.output)] + ["", "no such value"]
    if not node.input or rng.random() < 0.2:
        node.input.append(rng.choice(names))
    elif rng.random() < 0.5:
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    else:
        del node.input[rng.randrange(len(node.input))]


def _outputs(model: Any, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    if rng.random() < 0.5 and node.output:
        node.output[0] = rng.choice([o for n in model.graph.node for o in n.output] or [""])
    else:
        node.output.append(f"more{rng.random()}")


def _weights(model: Any, rng: random.Random) -> None:
    if not model.graph.initializer:
        return
    weight = rng.choice(model.graph.initializer)
    kind = rng.randrange(5)
    if kind == 0:
        weight.raw_data = weight.raw_data[: rng.randint(0, len(weight.raw_data))]
    elif kind == 1 and weight.dims:
        weight.dims[rng.randrange(len(weight.dims))] = rng.choice(_EXTREMES)
    elif kind == 2:
        weight.data_type = rng.randint(0, 30)
    elif kind == 3:
        weight.raw_data = bytes(rng.getrandbits(8) for _ in weight.raw_data)
    else:
        weight.name = rng.choice(["", "x1", model.graph.output[0].name])


def _dimensions(model: Any, rng: random.Random) -> None:
    value = rng.choice([*model.graph.input, *model.graph.output])
    dims = value.type.tensor_type.shape.dim
    if dims and rng.random() < 0.7:
        dim = dims[rng.randrange(len(dims))]
        if rng.random() < 0.5:
            dim.dim_value = rng.choice(_EXTREMES)
        else:
            dim.dim_param = rng.choice(["", "n", "?", "a // 0", "n*n*n", "-1", "__import__('os')", "9" * 400])
    else:
        value.type.tensor_type.elem_type = rng.randint(0, 30)


def _nodes(model: Any, rng: random.Random) -> None:
    kind = rng.randrange(4)
    node = rng.choice(model.graph.node)
    if kind == 0:
        node.op_type = rng.choice([n.op_type for n in model.graph.node] + ["Gather", "Reshape", "NoSuchOperator", ""])
    elif kind == 1:
        node.domain = rng.choice(["com.microsoft", "ai.onnx.ml", "nobody"])
    elif kind == 2:
        model.graph.node.insert(rng.randrange(len(model.graph.node) + 1), node)
    else:
        model.graph.node.remove(node)


def _header(model: Any, rng: random.Random) -> None:
    if rng.random() < 0.5:
        model.opset_import[0].version = rng.choice([-1, 0, 1, 7, 9, 11, 13, 24, 99, 2**62])
    else:
        del model.graph.output[:]


_DAMAGES: list[Callable[[Any, random.Random], None]] = [
    _attributes, _attributes, _inputs, _inputs, _outputs, _weights, _weights, _dimensions, _dimensions, _nodes, _header,
]  # fmt: skip


def _flip_bytes(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        out[rng.randrange(len(out))] = rng.getrandbits(8)
    return bytes(out[: rng.randint(0, len(out))] if rng.random() < 0.2 else out)


def damaged(case: GraphCase, rng: random.Random) -> Any:
    """The model of a case with a few things wrong; None if no model is left."""
    import onnx

    model = to_model(case.graph, case.outputs, dynamic=case.route.dynamic)
    try:
        if rng.random() < 0.25:
            return onnx.load_model_from_string(_flip_bytes(model.SerializeToString(), rng))
        for _ in range(rng.randint(1, 3)):
            rng.choice(_DAMAGES)(model, rng)
    except Exception:  # the damage did not take
        return None
    return model


def _attempt(model: Any, inputs: dict[str, Any]) -> tuple[str, Any]:
    """Import, build and run under a limit of memory."""
    from relaxish import VirtualMachine, build, cpu, nd
    from relaxish.frontend.onnx import from_onnx

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            machine = VirtualMachine(build(from_onnx(model), "llvm"), cpu())
            made = machine["main"](*[nd.array(a) for a in inputs.values()])
    except Exception as error:  # an exception of any class is a good answer
        return "refused", f"{type(error).__name__}: {str(error)[:200]}"
    parts = list(made) if not hasattr(made, "numpy") else [made]
    return "ran", [p.numpy() for p in parts if hasattr(p, "numpy")]


def _agrees(ours: list[Any], theirs: list[Any]) -> bool:
    return len(ours) == len(theirs) and all(
        a.shape == np.shape(b)
        and np.allclose(a.astype("float64"), np.asarray(b, "float64"), 1e-2, 1e-2, equal_nan=True)
        for a, b in zip(ours, theirs)
    )


def campaign(budget_s: float, seed: int) -> dict[str, int]:
    """Files ``tried``; ``refused`` and ``ran`` are good answers, ``crashed``, ``hung`` and ``wrong`` are not."""
    end = time.monotonic() + budget_s
    rng = random.Random(seed)
    figures: Counter[str] = Counter(tried=0, refused=0, ran=0, crashed=0, hung=0, wrong=0)
    while time.monotonic() < end or not figures["tried"]:
        number = seed * 1_000_000 + figures["tried"]
        figures["tried"] += 1
        case = make_graph_case(number, nodes=6)
        model = damaged(case, rng)
        if model is None:
            continue
        inputs = case.inputs()
        found = in_child(lambda: _attempt(model, inputs), 60)
        if isinstance(found, str):
            figures["hung" if "SIGALRM" in found else "crashed"] += 1
            print(f"model {number}: {found}\n{_text(model)}", file=sys.stderr, flush=True)
            continue
        figures[found[0]] += 1
        theirs = in_child(lambda: peer_outputs(model, inputs), 60) if found[0] == "ran" else None
        if isinstance(theirs, list) and not _agrees(found[1], theirs):
            figures["wrong"] += 1
            print(f"model {number} differs\n{_text(model)}", file=sys.stderr, flush=True)
    return dict(figures)


def _text(model: Any) -> str:
    import onnx

    try:
        return str(onnx.printer.to_text(model))
    except Exception as error:  # damaged models need not print
        return f"(does not print: {error})"
