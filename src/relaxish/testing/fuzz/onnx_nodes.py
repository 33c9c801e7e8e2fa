"""One random ONNX node at a time: the table that :func:`~.onnx_graphs.random_graph` draws from."""

from __future__ import annotations

import numpy as np

from .onnx_graphs import Dim, Graph, Value, broadcast, node_maker

_LIMIT = 1e4  # values stay below, so that float32 sums stay comparable
_INT_LIMIT = {"int64": 1e15, "int32": 2e9, "int8": 127.0, "uint8": 255.0}


def _fits(value: Value, bound: float) -> bool:
    """Whether results up to ``bound`` stay in range for the element type of ``value``."""
    return bound <= (_LIMIT if value.is_float else _INT_LIMIT.get(value.dtype, 1.0))


# ---- element by element


@node_maker
def smooth_unary(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.dtype == "float32")
    if x is None:
        return None
    op = g.rng.choice(
        ["Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "LeakyRelu", "Elu", "HardSigmoid", "Sin", "Cos", "Atan",
         "Selu", "Mish", "Exp", "Sqrt", "Log", "Reciprocal", "Sinh", "Asinh", "ThresholdedRelu"]
    )  # fmt: skip
    if op == "Mish" and g.opset < 18:
        return None
    bound = max(2.0, 2 * x.bound)
    if op in ("Exp", "Sinh") and x.bound > 6:
        return None
    if op in ("Sin", "Cos") and x.bound > 50:
        return None
    if op == "ThresholdedRelu" and not x.exact:
        return None
    if op in ("Exp", "Sinh"):
        bound = float(np.exp(x.bound))
    if op in ("Sqrt", "Log", "Reciprocal"):
        x = g.add("Abs", [x], x.dtype, x.shape, exact=x.exact, bound=x.bound)
        one = g.constant(np.array(1.0, "float32"))
        x = g.add("Add", [x, one], x.dtype, x.shape, exact=x.exact, bound=x.bound + 1)
    if not _fits(x, bound):
        return None
    exact = op == "ThresholdedRelu"
    return g.add(op, [x], "float32", x.shape, exact=exact, bound=bound)


@node_maker
def exact_unary(g: Graph) -> Value | None:
    op = g.rng.choice(["Relu", "Neg", "Abs", "Identity", "Sign"])
    x = g.pick(lambda v: v.is_float if op == "Relu" else (v.is_float or v.dtype in ("int64", "int32", "int8")))
    if x is None or (op == "Sign" and not x.exact):
        return None
    return g.add(op, [x], x.dtype, x.shape, exact=x.exact, bound=max(x.bound, 1.0))


@node_maker
def rounding(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.is_float and v.exact and v.bound < 1000)
    if x is None:
        return None
    half = g.add("Mul", [x, g.constant(np.array(g.rng.choice([0.5, 0.25, -1.5]), "float32"))], x.dtype, x.shape, exact=True,
                 bound=2 * x.bound)  # fmt: skip
    op = g.rng.choice(["Floor", "Ceil", "Round"])
    return g.add(op, [half], x.dtype, x.shape, exact=True, bound=2 * x.bound + 1)


@node_maker
def arithmetic(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.is_float or v.dtype in ("int64", "int32"))
    if x is None:
        return None
    y = g.partner(x)
    shape = broadcast(x.shape, y.shape)
    op = g.rng.choice(["Add", "Sub", "Mul", "Mul", "Min", "Max"])
    bound = x.bound * y.bound if op == "Mul" else x.bound + y.bound
    if shape is None or not _fits(x, bound):
        return None
    pair = [x, y] if g.rng.random() < 0.5 else [y, x]
    return g.add(op, pair, x.dtype, shape, exact=x.exact and y.exact, bound=max(bound, 1.0))


@node_maker
def division(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.is_float or v.dtype in ("int64", "int32"))
    if x is None:
        return None
    y = g.partner(x)
    shape = broadcast(x.shape, y.shape)
    if shape is None:
        return None
    y = g.add("Abs", [y], y.dtype, y.shape, exact=y.exact, bound=y.bound)
    y = g.add("Add", [y, g.constant(np.array(1, x.dtype))], y.dtype, y.shape, exact=y.exact, bound=y.bound + 1)
    ops = ["Div", "Mod"] if x.is_int else ["Div"]
    return g.add(g.rng.choice(ops), [x, y], x.dtype, shape, exact=x.is_int and x.exact and y.exact,
                 bound=max(x.bound, y.bound))  # fmt: skip


@node_maker
def clip(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.is_float or v.dtype in ("int64", "int32", "int8"))
    if x is None:
        return None
    low, high = sorted((g.rng.randint(-3, 3), g.rng.randint(-3, 3)))
    # An end that is left out is the type's limit for the standard, no limit at all for infinities here.
    given = 1.0 if g.special else 0.8
    ends = [g.constant(np.array(v, x.dtype)).name if g.rng.random() < given else "" for v in (low, high)]
    return g.add("Clip", [x, *ends], x.dtype, x.shape, exact=x.exact, bound=max(x.bound, 3.0))


@node_maker
def prelu(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.dtype == "float32" and v.rank > 0)
    if x is None:
        return None
    fixed = [d.const if d.fixed and g.rng.random() < 0.6 else 1 for d in x.shape[g.rng.randint(0, x.rank) :]]
    slope = g.weight(*fixed)
    if broadcast(x.shape, slope.shape) != x.shape or not _fits(x, x.bound * 4):
        return None
    return g.add("PRelu", [x, slope], x.dtype, x.shape, exact=False, bound=x.bound * 4)


@node_maker
def comparison(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.exact and (v.is_float or v.dtype in ("int64", "int32")))
    if x is None:
        return None
    y = g.partner(x)
    if not y.exact:
        y = g.add_input(x.dtype, [], "whole")
    shape = broadcast(x.shape, y.shape)
    if shape is None:
        return None
    op = g.rng.choice(["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
    return g.add(op, [x, y], "bool", shape, exact=True, bound=1.0)


@node_maker
def logic(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.dtype == "bool")
    if x is None:
        return None
    if g.rng.random() < 0.25:
        return g.add("Not", [x], "bool", x.shape, exact=True, bound=1.0)
    y = g.partner(x)
    shape = broadcast(x.shape, y.shape)
    if shape is None:
        return None
    return g.add(g.rng.choice(["And", "Or", "Xor"]), [x, y], "bool", shape, exact=True, bound=1.0)


@node_maker
def where(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.is_float or v.dtype in ("int64", "int32", "uint8"))
    if x is None:
        return None
    y, mask = g.partner(x), g.partner(x, "bool")
    pair = broadcast(x.shape, y.shape)
    shape = None if pair is None else broadcast(pair, mask.shape)
    if shape is None:
        return None
    sides = [x, y] if g.rng.random() < 0.5 else [y, x]
    return g.add("Where", [mask, *sides], x.dtype, shape, exact=x.exact and y.exact, bound=max(x.bound, y.bound))


@node_maker
def cast(g: Graph) -> Value | None:
    import onnx

    dtype = g.rng.choice(["float32", "int64", "int32", "bool", "float32", "uint8", "int8"])
    x = g.pick(lambda v: v.dtype != dtype and (v.exact or dtype == "float32") and (dtype != "uint8" or v.is_int))
    if x is None or (x.bound > 100 and dtype in ("int8", "uint8")) or (g.special and x.is_float):
        return None
    to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    bound = 255.0 if dtype == "uint8" else max(x.bound, 1.0)
    if dtype == "float32" and bound > _LIMIT:
        return None
    return g.add("Cast", [x], dtype, x.shape, exact=x.exact, bound=bound, to=to)


@node_maker
def bits(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.dtype == "uint8")
    if x is None:
        return None
    y = g.partner(x)
    shape = broadcast(x.shape, y.shape)
    if shape is None:
        return None
    direction = g.rng.choice(["LEFT", "RIGHT"])
    return g.add("BitShift", [x, y], x.dtype, shape, exact=True, bound=255.0, direction=direction)


# ---- reductions and scans


@node_maker
def reduction(g: Graph) -> Value | None:
    op = g.rng.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare", "ReduceL1",
                       "ReduceLogSumExp", "ReduceProd"])  # fmt: skip
    whole = op in ("ReduceSum", "ReduceMax", "ReduceMin")
    x = g.pick(lambda v: v.rank > 0 and (v.is_float or (whole and v.dtype in ("int64", "int32"))))
    if x is None or any(d.value(g.sizes) == 0 for d in x.shape):
        return None
    count = g.rng.randint(1, x.rank)
    axes = sorted(g.rng.sample(range(x.rank), count))
    many = 17.0**count
    bound = {"ReduceSum": x.bound * many, "ReduceSumSquare": x.bound**2 * many, "ReduceL1": x.bound * many,
             "ReduceL2": x.bound * many}.get(op, x.bound + 10)  # fmt: skip
    if not _fits(x, bound) or (op == "ReduceLogSumExp" and x.bound > 30) or (op == "ReduceProd" and x.bound > 1.5):
        return None
    keep = g.rng.choice([0, 1])
    given = [a - x.rank if g.rng.random() < 0.4 else a for a in axes]
    shape = [Dim.of(1) if i in axes else d for i, d in enumerate(x.shape) if keep or i not in axes]
    exact = x.exact and whole
    if op == "ReduceSum" or g.opset >= 18:
        return g.add(op, [x, g.ints(*given)], x.dtype, shape, exact=exact, bound=bound, keepdims=keep)
    return g.add(op, [x], x.dtype, shape, exact=exact, bound=bound, keepdims=keep, axes=given)


@node_maker
def arg_reduction(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank > 0 and v.exact and (v.is_float or v.dtype in ("int32", "int8", "uint8")))
    if x is None or any(d.value(g.sizes) == 0 for d in x.shape) or (g.special and x.is_float):
        return None
    axis = g.axis(x)
    keep = g.rng.choice([0, 1])
    shape = [Dim.of(1) if i == axis % x.rank else d for i, d in enumerate(x.shape) if keep or i != axis % x.rank]
    op = g.rng.choice(["ArgMax", "ArgMin"])
    return g.add(op, [x], "int64", shape, exact=True, bound=64.0, axis=axis, keepdims=keep)


@node_maker
def normalisation(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.dtype == "float32" and v.rank > 0 and v.bound < 100)
    if x is None or any(d.value(g.sizes) == 0 for d in x.shape):
        return None
    op = g.rng.choice(["Softmax", "LogSoftmax", "LayerNormalization"])
    if op == "LayerNormalization":
        last = x.shape[-1]
        if g.opset < 17 or not last.fixed or last.const < 2:
            return None
        scale, bias = g.weight(last.const), g.weight(last.const)
        return g.add(op, [x, scale, bias], x.dtype, x.shape, exact=False, bound=30.0, axis=-1)
    return g.add(op, [x], x.dtype, x.shape, exact=False, bound=2 * x.bound + 10, axis=g.axis(x))


@node_maker
def cumulative_sum(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank > 0 and (v.is_float or v.dtype in ("int64", "int32")))
    if x is None or not _fits(x, x.bound * 17):
        return None
    axis = g.constant(np.array(g.axis(x), "int64"))
    return g.add("CumSum", [x, axis], x.dtype, x.shape, exact=x.exact, bound=x.bound * 17,
                 exclusive=g.rng.choice([0, 1]), reverse=g.rng.choice([0, 1]))  # fmt: skip


@node_maker
def top_k(g: Graph) -> list[Value] | None:
    x = g.pick(lambda v: v.rank > 0 and v.is_float and v.exact)
    if x is None or g.special:
        return None
    axis = g.axis(x)
    if not x.shape[axis].fixed or x.shape[axis].const < 1:
        return None
    k = g.rng.randint(1, x.shape[axis].const)
    shape = list(x.shape)
    shape[axis] = Dim.of(k)
    return g.add_many("TopK", [x, g.ints(k)], [(x.dtype, shape, True), ("int64", shape, True)],
                      bound=max(x.bound, 64.0), axis=axis, largest=g.rng.choice([0, 1]))  # fmt: skip


# ---- products and windows


@node_maker
def matmul(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.dtype == "float32" and v.rank > 0)
    if x is None:
        return None
    depth = x.shape[-1]
    bound = x.bound * 3 * 17
    if not _fits(x, bound):
        return None
    if x.rank > 1 and g.rng.random() < 0.4:
        swap = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        other = g.add("Transpose", [x], x.dtype, [x.shape[i] for i in swap], exact=x.exact, bound=x.bound, perm=swap)
        if not _fits(x, x.bound**2 * 17):
            return None
        shape = [*x.shape[:-1], x.shape[-2]]
        return g.add("MatMul", [x, other], x.dtype, shape, exact=False, bound=x.bound**2 * 17)
    if not depth.fixed:
        return None
    n = g.rng.choice([1, 2, 5, 8, 16, 33])
    if x.rank == 2 and g.rng.random() < 0.5:
        flip = g.rng.choice([0, 1])
        w = g.weight(n, depth.const) if flip else g.weight(depth.const, n)
        c = g.weight(*g.rng.choice([(n,), (1, n), ()]))
        return g.add("Gemm", [x, w, c], x.dtype, [x.shape[0], Dim.of(n)], exact=False, bound=bound + 3, transB=flip,
                     alpha=g.rng.choice([1.0, 0.5]), beta=g.rng.choice([1.0, 2.0]))  # fmt: skip
    vector = g.rng.random() < 0.15
    w = g.weight(depth.const) if vector else g.weight(depth.const, n)
    shape = [*x.shape[:-1]] if vector else [*x.shape[:-1], Dim.of(n)]
    return g.add("MatMul", [x, w], x.dtype, shape, exact=False, bound=bound)


@node_maker
def convolution(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.dtype == "float32" and v.rank in (3, 4) and v.shape[1].fixed and v.shape[1].const > 0)
    if x is None:
        return None
    channels, spatial = x.shape[1].const, x.rank - 2
    groups = g.rng.choice([1, 1, channels])
    kernel = [g.rng.choice([1, 2, 3]) for _ in range(spatial)]
    out = groups * g.rng.choice([1, 2, 8]) if groups > 1 else g.rng.choice([1, 3, 8, 16])
    bound = x.bound * 3 * 9 * channels / groups
    if not _fits(x, bound):
        return None
    pads = [g.rng.choice([0, 1]) for _ in range(2 * spatial)]
    shape = [x.shape[0], Dim.of(out)]
    for i, k in enumerate(kernel):
        dim = x.shape[2 + i] + Dim.of(pads[i] + pads[i + spatial] - k + 1)
        if dim.value(g.sizes) < 1 or (not dim.fixed and dim.const < 0):
            return None
        shape.append(dim)
    inputs: list[Value] = [x, g.weight(out, channels // groups, *kernel)]
    if g.rng.random() < 0.5:
        inputs.append(g.weight(out))
    return g.add("Conv", inputs, x.dtype, shape, exact=False, bound=bound, kernel_shape=kernel, pads=pads, group=groups)


@node_maker
def pooling(g: Graph) -> Value | None:
    """A pooling. Of windows with NaN ONNX Runtime's maximum is a number; here, as in PyTorch, it is NaN."""
    x = g.pick(lambda v: v.dtype == "float32" and v.rank in (3, 4))
    if x is None:
        return None
    op = g.rng.choice(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"])
    if (g.special and "Max" in op) or any(d.value(g.sizes) == 0 for d in x.shape):
        return None
    if op.startswith("Global"):
        shape = [*x.shape[:2], *([Dim.of(1)] * (x.rank - 2))]
        return g.add(op, [x], x.dtype, shape, exact=x.exact and "Max" in op, bound=x.bound)
    kernel = [g.rng.choice([1, 2, 3]) for _ in range(x.rank - 2)]
    shape = list(x.shape[:2])
    for dim, k in zip(x.shape[2:], kernel):
        out = dim + Dim.of(1 - k)
        if out.value(g.sizes) < 1 or (not out.fixed and out.const < 0):
            return None
        shape.append(out)
    return g.add(op, [x], x.dtype, shape, exact=x.exact and op == "MaxPool", bound=x.bound, kernel_shape=kernel)


# ---- shapes


@node_maker
def transpose(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank > 1)
    if x is None:
        return None
    perm = list(range(x.rank))
    g.rng.shuffle(perm)
    return g.add("Transpose", [x], x.dtype, [x.shape[i] for i in perm], exact=x.exact, bound=x.bound, perm=perm)


@node_maker
def unsqueeze(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank < 5)
    if x is None:
        return None
    axis = g.rng.randint(0, x.rank)
    shape = list(x.shape)
    shape.insert(axis, Dim.of(1))
    given = axis - len(shape) if g.rng.random() < 0.4 else axis
    return g.add("Unsqueeze", [x, g.ints(given)], x.dtype, shape, exact=x.exact, bound=x.bound)


@node_maker
def squeeze(g: Graph) -> Value | None:
    x = g.pick(lambda v: any(d == Dim.of(1) for d in v.shape))
    if x is None:
        return None
    axis = g.rng.choice([i for i, d in enumerate(x.shape) if d == Dim.of(1)])
    shape = [d for i, d in enumerate(x.shape) if i != axis]
    return g.add("Squeeze", [x, g.ints(axis)], x.dtype, shape, exact=x.exact, bound=x.bound)


@node_maker
def reshape(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank > 1 and sum(not d.fixed for d in v.shape) <= v.rank)
    if x is None or any(d.value(g.sizes) == 0 for d in x.shape):
        return None
    axis = g.rng.randrange(x.rank - 1)
    left, right = x.shape[axis], x.shape[axis + 1]
    if left.fixed:
        merged = right.times(left.const)
    elif right.fixed:
        merged = left.times(right.const)
    else:
        return None
    shape = [*x.shape[:axis], merged, *x.shape[axis + 2 :]]
    numbers = [0 if i < axis else (-1 if i == axis else None) for i in range(len(shape))]
    for i in range(axis + 1, len(shape)):
        if not shape[i].fixed:
            return None
        numbers[i] = shape[i].const
    return g.add("Reshape", [x, g.ints(*[int(n) for n in numbers if n is not None])], x.dtype, shape, exact=x.exact,
                 bound=x.bound)  # fmt: skip


@node_maker
def flatten_like_shape_of(g: Graph) -> Value | None:
    """Reshape to dimensions that are computed in the graph."""
    x = g.pick(lambda v: v.rank > 0)
    if x is None or any(d.value(g.sizes) == 0 for d in x.shape):
        return None
    shape = g.add("Shape", [x], "int64", [Dim.of(x.rank)], exact=True, bound=64.0)
    length = _product(x.shape)
    back = g.add("Reshape", [x, g.ints(-1)], x.dtype, [length or Dim.of(-1)], exact=x.exact, bound=x.bound)
    if length is None:
        g.values.remove(back)
    return g.add("Reshape", [back, shape], x.dtype, x.shape, exact=x.exact, bound=x.bound)


def _product(shape: tuple[Dim, ...]) -> Dim | None:
    total = Dim.of(1)
    for dim in shape:
        if dim.fixed:
            total = total.times(dim.const)
        elif total.fixed:
            total = dim.times(total.const)
        else:
            return None
    return total


@node_maker
def slicing(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    axis = g.axis(x)
    dim = x.shape[axis]
    shape = list(x.shape)
    if dim.fixed:
        start, end = g.rng.randint(-dim.const - 1, dim.const), g.rng.randint(-dim.const - 1, dim.const + 2)
        step = g.rng.choice([1, 1, 2, -1, -2])
        shape[axis] = Dim.of(len(range(dim.const)[start:end:step]))
    else:
        start, end, step = g.rng.choice([(0, 2**40, 1), (0, 2**40, 1), (-(2**40), 2**40, 1)])
        if g.rng.random() < 0.3:
            start, end, step = -1, -(2**40), -1
    if shape[axis] == Dim.of(0) and g.rng.random() < 0.9:
        return None
    inputs: list[Value | str] = [x, g.ints(start), g.ints(end), g.ints(axis), g.ints(step)]
    return g.add("Slice", inputs, x.dtype, shape, exact=x.exact, bound=x.bound)


@node_maker
def concat(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    axis = g.axis(x)
    rest = [d for i, d in enumerate(x.shape) if i != axis % x.rank]
    y = g.pick(lambda v: v.dtype == x.dtype and v.rank == x.rank
               and [d for i, d in enumerate(v.shape) if i != axis % x.rank] == rest)  # fmt: skip
    assert y is not None
    shape = list(x.shape)
    shape[axis] = shape[axis] + y.shape[axis]
    if shape[axis].value(g.sizes) > 64:
        return None
    return g.add("Concat", [x, y], x.dtype, shape, exact=x.exact and y.exact, bound=max(x.bound, y.bound), axis=axis)


@node_maker
def splitting(g: Graph) -> list[Value] | None:
    x = g.pick(lambda v: v.rank > 0 and any(d.fixed and d.const > 1 for d in v.shape))
    if x is None:
        return None
    axis = g.rng.choice([i for i, d in enumerate(x.shape) if d.fixed and d.const > 1])
    first = g.rng.randint(1, x.shape[axis].const - 1)
    results = []
    for size in (first, x.shape[axis].const - first):
        shape = list(x.shape)
        shape[axis] = Dim.of(size)
        results.append((x.dtype, shape, x.exact))
    sizes = g.ints(first, x.shape[axis].const - first)
    return g.add_many("Split", [x, sizes], results, bound=x.bound, axis=axis)


@node_maker
def padding(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank > 0 and (v.is_float or v.dtype in ("int64", "int32")))
    if x is None:
        return None
    before = [g.rng.choice([0, 0, 1, 2]) for _ in x.shape]
    after = [g.rng.choice([0, 0, 1]) for _ in x.shape]
    shape = [d + Dim.of(b + a) for d, b, a in zip(x.shape, before, after)]
    mode = g.rng.choice(["constant", "constant", "edge", "reflect"])
    if mode == "edge" and any(d.value(g.sizes) == 0 for d in x.shape):
        return None
    if mode == "reflect" and any(d.value(g.sizes) < 4 or not d.fixed for d in x.shape):
        return None
    inputs: list[Value | str] = [x, g.ints(*before, *after)]
    if mode == "constant":
        inputs.append(g.constant(np.array(g.rng.randint(-2, 2), x.dtype)))
    return g.add("Pad", inputs, x.dtype, shape, exact=x.exact, bound=max(x.bound, 2.0), mode=mode)


@node_maker
def expanding(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank < 4)
    if x is None:
        return None
    numbers = [g.rng.choice([1, 1, 3]) if d == Dim.of(1) else 1 for d in x.shape]
    shape = [Dim.of(n) if d == Dim.of(1) else d for n, d in zip(numbers, x.shape)]
    if g.rng.random() < 0.5:
        numbers.insert(0, 2)
        shape.insert(0, Dim.of(2))
    if not numbers:
        return None
    return g.add("Expand", [x, g.ints(*numbers)], x.dtype, shape, exact=x.exact, bound=x.bound)


@node_maker
def tiling(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    repeats = [g.rng.choice([1, 1, 2, 3]) for _ in x.shape]
    shape = [d.times(r) for d, r in zip(x.shape, repeats)]
    if any(d.value(g.sizes) > 64 for d in shape):
        return None
    return g.add("Tile", [x, g.ints(*repeats)], x.dtype, shape, exact=x.exact, bound=x.bound)


@node_maker
def triangle(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank > 1 and (v.is_float or v.dtype in ("int64", "int32")))
    if x is None or g.opset < 14:
        return None
    k = g.constant(np.array(g.rng.randint(-2, 2), "int64"))
    return g.add("Trilu", [x, k], x.dtype, x.shape, exact=x.exact, bound=x.bound, upper=g.rng.choice([0, 1]))


# ---- indices


def _indices(g: Graph, extent: int, shape: list[int]) -> Value:
    drawn = np.random.default_rng(g.rng.getrandbits(32)).integers(-extent, extent, shape)
    return g.constant(drawn.astype(g.rng.choice(["int64", "int32"])))


@node_maker
def gathering(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank > 0 and any(d.fixed and d.const > 0 for d in v.shape))
    if x is None:
        return None
    axis = g.rng.choice([i for i, d in enumerate(x.shape) if d.fixed and d.const > 0])
    picked = [g.rng.choice([1, 2, 4]) for _ in range(g.rng.choice([0, 1, 1, 2]))]
    shape = [*x.shape[:axis], *map(Dim.of, picked), *x.shape[axis + 1 :]]
    given = axis - x.rank if g.rng.random() < 0.4 else axis
    indices = _indices(g, x.shape[axis].const, picked)
    return g.add("Gather", [x, indices], x.dtype, shape, exact=x.exact, bound=x.bound, axis=given)


@node_maker
def gathering_elements(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank > 0 and all(d.fixed and d.const > 0 for d in v.shape))
    if x is None:
        return None
    axis = g.axis(x)
    shape = [g.rng.randint(1, d.const) for d in x.shape]
    indices = _indices(g, x.shape[axis].const, shape)
    return g.add("GatherElements", [x, indices], x.dtype, [Dim.of(d) for d in shape], exact=x.exact, bound=x.bound,
                 axis=axis)  # fmt: skip


@node_maker
def gathering_nd(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank > 0 and all(d.fixed and d.const > 0 for d in v.shape))
    if x is None:
        return None
    depth = g.rng.randint(1, x.rank)
    rng = np.random.default_rng(g.rng.getrandbits(32))
    columns = [rng.integers(-d.const, d.const, 3) for d in x.shape[:depth]]
    indices = g.constant(np.stack(columns, -1).astype("int64"))
    return g.add("GatherND", [x, indices], x.dtype, [Dim.of(3), *x.shape[depth:]], exact=x.exact, bound=x.bound)


@node_maker
def scattering(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank > 0 and (v.is_float or v.dtype == "int64")
               and all(d.fixed and d.const > 0 for d in v.shape))  # fmt: skip
    if x is None:
        return None
    rng = np.random.default_rng(g.rng.getrandbits(32))
    extent = x.shape[0].const
    rows = rng.permutation(extent)[: g.rng.randint(1, extent)]
    rows = np.where(rng.random(rows.shape) < 0.3, rows - extent, rows).astype("int64")
    tail = [d.const for d in x.shape[1:]]
    updates = g.add_input(x.dtype, [Dim.of(d) for d in (len(rows), *tail)])
    exact, bound = x.exact and updates.exact, x.bound + updates.bound
    if g.rng.random() < 0.5:
        return g.add("ScatterND", [x, g.constant(rows[:, None]), updates], x.dtype, x.shape, exact=exact, bound=bound)
    full = np.broadcast_to(rows.reshape(-1, *([1] * len(tail))), (len(rows), *tail)).copy()
    return g.add("ScatterElements", [x, g.constant(full), updates], x.dtype, x.shape, exact=exact, bound=bound, axis=0)


@node_maker
def one_hot(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.dtype == "int64" and v.rank < 4 and v.bound < 100)
    if x is None:
        return None
    depth = g.constant(np.array(g.rng.choice([3, 5]), "int64"))
    values = g.constant(np.array([-1.0, 2.0], "float32"))
    shape = [*x.shape, Dim.of(int(g.initializers[depth.name]))]
    return g.add("OneHot", [x, depth, values], "float32", shape, exact=True, bound=2.0, axis=-1)


# ---- statistics, images, number types


@node_maker
def statistics(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.dtype == "float32" and v.rank in (3, 4) and v.shape[1].fixed and v.shape[1].const > 0)
    if x is None or any(d.value(g.sizes) == 0 for d in x.shape) or x.bound > 100:
        return None
    channels = x.shape[1].const
    scale, bias = g.weight(channels), g.weight(channels)
    if g.rng.random() < 0.5:
        if all(d == Dim.of(1) for d in x.shape[2:]):
            return None  # the variance is nothing but rounding
        return g.add("InstanceNormalization", [x, scale, bias], x.dtype, x.shape, exact=False, bound=60.0, epsilon=0.01)
    mean = g.weight(channels)
    variance = g.constant(np.abs(g.initializers[g.weight(channels).name]) + np.float32(0.5), exact=False)
    bound = 8 * (x.bound + 4)
    return g.add("BatchNormalization", [x, scale, bias, mean, variance], x.dtype, x.shape, exact=False, bound=bound)


@node_maker
def padded_pooling(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.dtype == "float32" and v.rank == 4 and all(d.fixed and d.const > 1 for d in v.shape[2:]))
    if x is None or any(d.value(g.sizes) == 0 for d in x.shape):
        return None
    op = g.rng.choice(["AveragePool"] if g.special else ["MaxPool", "AveragePool"])
    kernel, strides = [2, 2], [g.rng.choice([1, 2]) for _ in range(2)]
    pads = [g.rng.choice([0, 1]) for _ in range(4)]
    shape = list(x.shape[:2])
    for i in range(2):
        shape.append(Dim.of((x.shape[2 + i].const + pads[i] + pads[i + 2] - 2) // strides[i] + 1))
    inside = g.rng.choice([0, 1]) if op == "AveragePool" else None
    return g.add(op, [x], x.dtype, shape, exact=x.exact and op == "MaxPool", bound=x.bound, kernel_shape=kernel,
                 strides=strides, pads=pads, count_include_pad=inside)  # fmt: skip


@node_maker
def strided_convolution(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.dtype == "float32" and v.rank == 4 and all(d.fixed and d.const > 2 for d in v.shape[2:])
               and v.shape[1].fixed and v.shape[1].const > 0)  # fmt: skip
    if x is None:
        return None
    channels, out = x.shape[1].const, g.rng.choice([1, 3, 8])
    bound = x.bound * 3 * 9 * channels
    if not _fits(x, bound) or x.shape[0].value(g.sizes) == 0:
        return None
    transposed = g.rng.random() < 0.4
    stride, dilation, pad = g.rng.choice([1, 2]), g.rng.choice([1, 2]), g.rng.choice([0, 1])
    k = 2 if dilation == 2 else 3
    reach = dilation * (k - 1)
    if transposed:
        sizes = [(d.const - 1) * stride - 2 * pad + reach + 1 for d in x.shape[2:]]
        weight = g.weight(channels, out, k, k)
    else:
        sizes = [(d.const + 2 * pad - reach - 1) // stride + 1 for d in x.shape[2:]]
        weight = g.weight(out, channels, k, k)
    if min(sizes) < 1:
        return None
    shape = [x.shape[0], Dim.of(out), *map(Dim.of, sizes)]
    return g.add("ConvTranspose" if transposed else "Conv", [x, weight], x.dtype, shape, exact=False, bound=bound,
                 kernel_shape=[k, k], strides=[stride] * 2, dilations=[dilation] * 2, pads=[pad] * 4)  # fmt: skip


@node_maker
def blocks_of_pixels(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank == 4 and v.is_float and all(d.fixed for d in v.shape[1:]))
    if x is None:
        return None
    _, c, h, w = (d.const for d in x.shape)
    if c % 4 == 0 and c and g.rng.random() < 0.6:
        shape = [x.shape[0], *map(Dim.of, (c // 4, h * 2, w * 2))]
        mode = g.rng.choice(["DCR", "CRD"])
        return g.add("DepthToSpace", [x], x.dtype, shape, exact=x.exact, bound=x.bound, blocksize=2, mode=mode)
    if h % 2 or w % 2 or not h or not w:
        return None
    shape = [x.shape[0], *map(Dim.of, (c * 4, h // 2, w // 2))]
    return g.add("SpaceToDepth", [x], x.dtype, shape, exact=x.exact, bound=x.bound, blocksize=2)


@node_maker
def enlarging(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.rank == 4 and v.dtype == "float32" and all(d.fixed and d.const > 0 for d in v.shape[2:]))
    if x is None or any(d.value(g.sizes) == 0 for d in x.shape[:2]):
        return None
    factors = [g.rng.choice([1.0, 2.0, 3.0]) for _ in range(2)]
    scales = g.constant(np.array([1.0, 1.0, *factors], "float32"))
    shape = [*x.shape[:2], *(d.times(int(f)) for d, f in zip(x.shape[2:], factors))]
    if any(d.value(g.sizes) > 64 for d in shape):
        return None
    mode = g.rng.choice(["nearest", "linear"])
    where = "asymmetric" if mode == "nearest" else g.rng.choice(["half_pixel", "asymmetric", "align_corners"])
    return g.add("Resize", [x, "", scales], x.dtype, shape, exact=x.exact and mode == "nearest", bound=x.bound,
                 mode=mode, coordinate_transformation_mode=where, nearest_mode="floor")  # fmt: skip


@node_maker
def einstein_sum(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.dtype == "float32" and v.rank in (2, 3) and v.bound < 20)
    if x is None:
        return None
    letters = "abc"[: x.rank]
    kept = g.rng.sample(letters, g.rng.randint(1, x.rank))
    shape = [x.shape[letters.index(k)] for k in kept]
    equation = f"{letters},{letters}->{''.join(kept)}"
    return g.add("Einsum", [x, x], x.dtype, shape, exact=False, bound=x.bound**2 * 17**2, equation=equation)


@node_maker
def odd_numbers(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.dtype == "float32")
    if x is None:
        return None
    op = g.rng.choice(["IsNaN", "IsInf"])
    return g.add(op, [x], "bool", x.shape, exact=True, bound=1.0)


@node_maker
def through_half(g: Graph) -> Value | None:
    import onnx

    x = g.pick(lambda v: v.dtype == "float32" and v.exact and v.bound < 1000)
    if x is None:
        return None
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    low = g.add("Cast", [x], "float16", x.shape, exact=True, bound=x.bound, to=half)
    low = g.add(g.rng.choice(["Neg", "Abs", "Relu"]), [low], "float16", x.shape, exact=True, bound=x.bound)
    g.values = [v for v in g.values if v.dtype != "float16"]
    return g.add("Cast", [low], "float32", x.shape, exact=True, bound=x.bound, to=single)


@node_maker
def quantised(g: Graph) -> Value | None:
    x = g.pick(lambda v: v.dtype == "float32" and v.exact and v.bound < 1000)
    if x is None or g.special:
        return None
    kind = g.rng.choice(["int8", "uint8"])
    scale = g.constant(np.array(g.rng.choice([0.5, 0.25, 2.0]), "float32"))
    zero = g.constant(np.array(g.rng.randint(0, 9), kind))
    made = g.add("QuantizeLinear", [x, scale, zero], kind, x.shape, exact=True, bound=255.0)
    return g.add("DequantizeLinear", [made, scale, zero], "float32", x.shape, exact=True, bound=600.0)


@node_maker
def chosen_elements(g: Graph) -> Value | None:
    """Gather by indices that are computed: clipped into range, as real models do."""
    x = g.pick(lambda v: v.rank > 0 and v.shape[0].fixed and v.shape[0].const > 0)
    index = g.pick(lambda v: v.dtype == "int64" and v.rank < 3)
    if x is None or index is None or x.rank + index.rank > 5:
        return None
    extent = x.shape[0].const
    ends = [g.constant(np.array(v, "int64")) for v in (-extent, extent - 1)]
    clipped = g.add("Clip", [index, *ends], "int64", index.shape, exact=True, bound=float(extent))
    return g.add("Gather", [x, clipped], x.dtype, [*index.shape, *x.shape[1:]], exact=x.exact, bound=x.bound, axis=0)
