"""Models of the domain ai.onnx.ml whose data are numbers: linear ones, trees, and what goes before them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import op, te, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....support.errors import OpAttributeInvalid, OpNotImplemented
from ....tir import Buffer, const, Stmt
from ....topi.loops import in_parallel, loop, loops, read, seq, write
from ..context import Array, Context, convert, Made

_DOMAIN = "ai.onnx.ml"


def _floats(ctx: Context, x: Expr) -> Expr:
    x = ctx.tensor(x)
    return x if ctx.dtype(x) == "float32" else ctx.emit(op.astype(x, "float32"))


def _rows(ctx: Context, x: Expr) -> Expr:
    """A matrix: one vector is one row."""
    return x if ctx.ndim(x) == 2 else ctx.emit(ctx.reshape(x, [1, -1]))


def _vector(ctx: Context, attrs: dict[str, Any], name: str) -> Expr | None:
    return ctx.const(np.asarray(attrs[name], "float32"), "float32") if len(attrs.get(name, ())) else None


def _transformed(ctx: Context, x: Expr, how: str) -> Expr:
    """Scores as the attribute ``post_transform`` wants them."""
    if how == "NONE":
        return x
    if how == "LOGISTIC":
        return ctx.emit(op.sigmoid(x))
    if how == "SOFTMAX":
        return ctx.emit(op.nn.softmax(x, -1))
    if how == "SOFTMAX_ZERO":  # what is zero stays out of it
        there = ctx.emit(op.not_equal(x, ctx.const(0, "float32")))
        apart = ctx.emit(op.subtract(x, ctx.emit(op.max(x, [-1], True))))
        powers = ctx.emit(op.where(there, ctx.emit(op.exp(apart)), ctx.const(0, "float32")))
        return ctx.emit(op.divide(powers, ctx.emit(op.sum(powers, [-1], True))))
    raise OpNotImplemented(f"post_transform {how} of {_DOMAIN}")


@convert("Scaler", domain=_DOMAIN)
def _scaler(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = _floats(ctx, inputs[0])
    offset, scale = _vector(ctx, attrs, "offset"), _vector(ctx, attrs, "scale")
    if offset is not None:
        x = ctx.emit(op.subtract(x, offset))
    return x if scale is None else op.multiply(x, scale)


@convert("Normalizer", domain=_DOMAIN)
def _normalizer(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """Rows divided by their largest element, by the sum of sizes, or by the length."""
    x, how = _floats(ctx, inputs[0]), str(attrs.get("norm", "MAX"))
    axis = [ctx.ndim(x) - 1]
    if how == "MAX":
        norm = ctx.emit(op.max(x, axis, True))
    elif how == "L1":
        norm = ctx.emit(op.sum(ctx.emit(op.abs(x)), axis, True))
    elif how == "L2":
        norm = ctx.emit(op.sqrt(ctx.emit(op.sum(ctx.emit(op.multiply(x, x)), axis, True))))
    else:
        raise OpAttributeInvalid(f"Normalizer knows no norm {how!r}")
    none = ctx.emit(op.equal(norm, ctx.const(0, "float32")))
    return op.divide(x, ctx.emit(op.where(none, ctx.const(1, "float32"), norm)))


@convert("Binarizer", domain=_DOMAIN)
def _binarizer(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    limit = ctx.const(float(attrs.get("threshold", 0.0)), ctx.dtype(x))
    return op.astype(ctx.emit(op.greater(x, limit)), ctx.dtype(x))


@convert("Imputer", domain=_DOMAIN)
def _imputer(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """Elements that are the replaced value, which may be NaN, give way to those of their column."""
    x = ctx.tensor(inputs[0])
    kind = ctx.dtype(x)
    whole = kind.startswith("int")
    given = attrs.get("imputed_value_int64s" if whole else "imputed_value_floats", ())
    replaced = attrs.get("replaced_value_int64" if whole else "replaced_value_float", 0)
    if not len(given):
        raise OpAttributeInvalid("Imputer needs the values to put in")
    hole = ctx.emit(op.isnan(x) if not whole and np.isnan(float(replaced)) else op.equal(x, ctx.const(replaced, kind)))
    return op.where(hole, ctx.const(np.asarray(given), kind), x)


@convert("ArrayFeatureExtractor", domain=_DOMAIN)
def _features(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, places = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    places = ctx.emit(ctx.reshape(places, [-1]))
    x = _rows(ctx, x) if ctx.ndim(x) == 1 else x
    return op.take(x, places, ctx.ndim(x) - 1)


@convert("FeatureVectorizer", domain=_DOMAIN)
def _joined(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return op.concat([_rows(ctx, _floats(ctx, x)) for x in inputs], 1)


@convert("OneHotEncoder", domain=_DOMAIN)
def _one_hot(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """A new last axis of the known values; what is none of them has zeros (or is an error of the model's maker)."""
    values = attrs.get("cats_int64s", ())
    if not len(values):
        raise OpNotImplemented("OneHotEncoder of strings")
    x = ctx.tensor(inputs[0])
    if ctx.dtype(x) != "int64":
        x = ctx.emit(op.astype(x, "int64"))
    wide = ctx.emit(op.expand_dims(x, ctx.ndim(x)))
    return op.astype(ctx.emit(op.equal(wide, ctx.const(np.asarray(values), "int64"))), "float32")


@convert("LabelEncoder", domain=_DOMAIN)
def _labels(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """Numbers for numbers; what is not in the list becomes the default."""

    def listed(side: str) -> Array:
        for name, kind in ((f"{side}_tensor", None), (f"{side}_int64s", "int64"), (f"{side}_floats", "float32")):
            found = np.asarray(attrs.get(name, ()), kind)
            if found.size and found.dtype.kind in "if":
                return found
        raise OpNotImplemented("LabelEncoder of strings")

    keys, values = listed("keys"), listed("values")
    order = np.argsort(keys, kind="stable")
    kind = str(values.dtype)
    standard = -1 if kind.startswith("int") else -0.0
    default = attrs.get("default_tensor", attrs.get(f"default_{'int64' if kind == 'int64' else 'float'}", standard))
    default = np.asarray(default).reshape(-1)[0]
    x = ctx.tensor(inputs[0])
    hit = ctx.emit(op.equal(ctx.emit(op.expand_dims(x, ctx.ndim(x))), ctx.const(keys[order], ctx.dtype(x))))
    found = ctx.emit(op.where(hit, ctx.const(values[order], kind), ctx.const(0, kind)))
    known = ctx.emit(op.max(ctx.emit(op.astype(hit, "int32")), [-1]))
    value = ctx.emit(op.sum(found, [-1]))
    return op.where(ctx.emit(op.greater(known, ctx.const(0, "int32"))), value, ctx.const(default, kind))


@convert("LinearRegressor", domain=_DOMAIN)
def _linear_regressor(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    targets = int(attrs.get("targets", 1))
    return _transformed(ctx, _linear(ctx, inputs[0], attrs, targets), str(attrs.get("post_transform", "NONE")))


def _linear(ctx: Context, x: Expr, attrs: dict[str, Any], count: int) -> Expr:
    weights = np.asarray(attrs["coefficients"], "float32").reshape(count, -1)
    out = ctx.emit(op.matmul(_rows(ctx, _floats(ctx, x)), ctx.const(np.ascontiguousarray(weights.T), "float32")))
    bias = _vector(ctx, attrs, "intercepts")
    return out if bias is None else ctx.emit(op.add(out, bias))


def _class_labels(attrs: dict[str, Any], name: str) -> Array:
    if f"{name}_int64s" in attrs and len(attrs[f"{name}_int64s"]):
        return np.asarray(attrs[f"{name}_int64s"], "int64")
    if name == "classlabels" and "classlabels_ints" in attrs and len(attrs["classlabels_ints"]):
        return np.asarray(attrs["classlabels_ints"], "int64")
    raise OpNotImplemented("classes that are named by strings: take the scores, and name them after the run")


@convert("LinearClassifier", domain=_DOMAIN)
def _linear_classifier(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    labels = _class_labels(attrs, "classlabels")
    count = len(attrs["intercepts"]) if len(attrs.get("intercepts", ())) else len(labels)
    scores = _linear(ctx, inputs[0], attrs, count)
    how = str(attrs.get("post_transform", "NONE"))
    if count == 1 and len(labels) == 2:
        limit = ctx.const(0.0, "float32")
        chosen = ctx.emit(ctx.reshape(ctx.emit(op.astype(ctx.emit(op.greater(scores, limit)), "int64")), [-1]))
        scores = _transformed(ctx, scores, how)
        other = ctx.emit(op.subtract(ctx.const(1.0, "float32"), scores) if how == "LOGISTIC" else op.negative(scores))
        scores = ctx.emit(op.concat([other, scores], 1))
    else:
        chosen = ctx.emit(op.argmax(scores, 1, False))
        scores = _transformed(ctx, scores, how)
    return [ctx.emit(op.take(ctx.const(labels, "int64"), chosen, 0)), scores]


# ---- trees

#: Comparisons of a feature with a node's value, by number; a leaf has none.
_TESTS = {"BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3, "BRANCH_EQ": 4, "BRANCH_NEQ": 5, "LEAF": 6}


class _Forest:
    """Trees as columns over all nodes: what each one tests, and where it goes; leaves go to themselves."""

    def __init__(self, attrs: dict[str, Any]) -> None:
        wide = [name for name in attrs if name.endswith("_as_tensor")]
        if wide:
            raise OpNotImplemented(f"trees of float64 numbers ({', '.join(wide)})")
        ids = list(zip(attrs["nodes_treeids"], attrs["nodes_nodeids"]))
        self.index = {key: k for k, key in enumerate(ids)}
        self.roots = np.asarray([self.index[t, n] for t, n in self._roots(ids, attrs)], "int64")
        tests = [_TESTS[m] for m in attrs["nodes_modes"]]
        self.tests = np.asarray(tests, "int32")
        self.features = np.asarray(attrs["nodes_featureids"], "int64")
        self.values = np.asarray(attrs["nodes_values"], "float32")
        misses = attrs.get("nodes_missing_value_tracks_true", ())
        self.misses = np.asarray(misses if len(misses) else [0] * len(ids), "int32")

        def following(name: str) -> Array:
            ends = zip(ids, attrs[f"nodes_{name}nodeids"], tests)
            return np.asarray([self.index[t, n if test != 6 else own] for (t, own), n, test in ends], "int64")

        self.yes, self.no = following("true"), following("false")
        self.features[self.tests == 6] = 0
        self.depth = self._depth()

    @staticmethod
    def _roots(ids: list[tuple[int, int]], attrs: dict[str, Any]) -> list[tuple[int, int]]:
        below = {
            (t, n)
            for (t, _), yes, no, mode in zip(
                ids, attrs["nodes_truenodeids"], attrs["nodes_falsenodeids"], attrs["nodes_modes"]
            )
            if mode != "LEAF"
            for n in (yes, no)
        }
        return [key for key in ids if key not in below]

    def _depth(self) -> int:
        here, steps = np.unique(self.roots), 0
        while (self.tests[here] != 6).any():
            here = np.unique(np.concatenate([self.yes[here], self.no[here]]))
            steps += 1
            if steps > len(self.tests):
                raise OpAttributeInvalid("the nodes of a tree go round in a circle")
        return steps

    def weights(self, attrs: dict[str, Any], prefix: str, count: int) -> Array:
        """Weights of each node for each of ``count`` results."""
        table = np.zeros((len(self.tests), count), "float32")
        columns = (attrs[f"{prefix}_{n}"] for n in ("treeids", "nodeids", "ids", "weights"))
        for tree, node, target, weight in zip(*columns, strict=True):
            table[self.index[tree, node], target] += weight
        return table

    def leaves(self, ctx: Context, x: Expr) -> Expr:
        """The leaf of each tree that each row comes to: ``[rows, trees]``."""
        columns = [
            ctx.const(v, str(v.dtype))
            for v in (self.roots, self.tests, self.features, self.values, self.yes, self.no, self.misses)
        ]

        def compute(data: te.Tensor, tables: list[te.Tensor]) -> te.Tensor:
            rows, trees = data.shape[0], tables[0].shape[0]

            def step(ins: list[Buffer], out: Buffer, at: list[PrimExpr]) -> Stmt:
                tests, features, values, yes, no, misses = ins[2:]
                node = read(out, *at)
                feature = read(ins[0], at[0], read(features, node))
                value, test = read(values, node), read(tests, node)
                answers = [feature <= value, feature < value, feature >= value, feature > value, tir.EQ(feature, value)]
                good: PrimExpr = tir.Not(tir.EQ(feature, value))
                for number, answer in reversed(list(enumerate(answers))):
                    good = tir.Select(tir.EQ(test, const(number, "int32")), answer, good)
                missing = tir.And(tir.isnan(feature), read(misses, node) > 0)
                good = tir.Or(good, missing)
                return write(out, tir.Select(good, read(yes, node), read(no, node)), *at)

            def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
                def one(at: list[PrimExpr]) -> Stmt:
                    begin = write(outs[0], read(ins[1], at[1]), *at)
                    turns = loop("d", const(self.depth, "int64"), lambda _: step(ins, outs[0], at))
                    return seq(begin, turns)

                return in_parallel(loops([rows, trees], one, "t"))

            made: te.Tensor = te.extern([(rows, trees)], [data, *tables], body, "leaves", ["int64"])
            return made

        return ctx.builder.emit_te(compute, x, columns, primfunc_name_hint="leaves")

    def sums(self, ctx: Context, x: Expr, table: Array, how: str) -> Expr:
        """The weights of the leaves taken together: ``[rows, results]``."""
        parts = ctx.emit(op.take(ctx.const(table, "float32"), self.leaves(ctx, x), 0))
        combined = {"SUM": op.sum, "AVERAGE": op.sum, "MIN": op.min, "MAX": op.max}
        if how not in combined:
            raise OpAttributeInvalid(f"trees know no aggregate_function {how!r}")
        out = ctx.emit(combined[how](parts, [1]))
        return ctx.emit(op.divide(out, ctx.const(float(len(self.roots)), "float32"))) if how == "AVERAGE" else out


@convert("TreeEnsembleRegressor", domain=_DOMAIN)
def _tree_regressor(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, forest = _rows(ctx, _floats(ctx, inputs[0])), _Forest(attrs)
    table = forest.weights(attrs, "target", int(attrs.get("n_targets", 1)))
    out = forest.sums(ctx, x, table, str(attrs.get("aggregate_function", "SUM")))
    base = _vector(ctx, attrs, "base_values")
    out = out if base is None else ctx.emit(op.add(out, base))
    return _transformed(ctx, out, str(attrs.get("post_transform", "NONE")))


@convert("TreeEnsembleClassifier", domain=_DOMAIN)
def _tree_classifier(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Made:
    x, forest = _rows(ctx, _floats(ctx, inputs[0])), _Forest(attrs)
    labels = _class_labels(attrs, "classlabels")
    how, ids = str(attrs.get("post_transform", "NONE")), np.unique(attrs["class_ids"])
    scores = forest.sums(ctx, x, forest.weights(attrs, "class", len(labels)), "SUM")
    base = np.asarray(attrs.get("base_values", ()), "float32")
    one_sided = len(labels) == 2 and list(ids) == [0]
    if not one_sided:
        if len(base):
            scores = ctx.emit(op.add(scores, ctx.const(base, "float32")))
        chosen = ctx.emit(op.argmax(scores, 1, False))
        return [ctx.emit(op.take(ctx.const(labels, "int64"), chosen, 0)), _transformed(ctx, scores, how)]
    # One score for two classes, written down for the first of them: it is the second one's, the first has the rest.
    score = ctx.emit(op.strided_slice(scores, [1], [0], [1]))
    if len(base):
        score = ctx.emit(op.add(score, ctx.const(base[-1:], "float32")))
    shares = all(w >= 0 for w in attrs["class_weights"])  # probabilities, else logarithms of odds
    limit = 0.5 if shares and how == "NONE" else 0.0
    positive = ctx.emit(op.greater(score, ctx.const(limit, "float32")))
    chosen = ctx.emit(ctx.reshape(ctx.emit(op.astype(positive, "int64")), [-1]))
    if how == "LOGISTIC":
        both = [_transformed(ctx, ctx.emit(op.negative(score)), how), _transformed(ctx, score, how)]
    elif shares and how == "NONE":
        both = [ctx.emit(op.subtract(ctx.const(1.0, "float32"), score)), score]
    else:
        both = [ctx.emit(op.negative(score)), score]
    scores = ctx.emit(op.concat(both, 1))
    if how not in ("NONE", "LOGISTIC"):
        scores = _transformed(ctx, scores, how)
    return [ctx.emit(op.take(ctx.const(labels, "int64"), chosen, 0)), scores]
