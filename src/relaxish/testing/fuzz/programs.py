"""Random loop programs: chains of small stages, written as script text so that a failure can be read and kept."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

__all__ = ["random_program"]

_EXTENTS = (1, 2, 3, 4, 6, 7, 8, 12, 16)


@dataclass
class _Buffer:
    name: str
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)


class _Writer:
    """Collects the stages of one program."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.dtype = rng.choice(("float32", "float32", "int32"))
        self.params: list[_Buffer] = []
        self.locals: list[_Buffer] = []
        self.body: list[str] = []
        self.count = 0

    def name(self) -> str:
        """A fresh buffer name."""
        self.count += 1
        return f"B{self.count}"

    def input(self, shape: tuple[int, ...]) -> _Buffer:
        """A new parameter to read from."""
        made = _Buffer(f"A{len(self.params)}", shape)
        self.params.append(made)
        return made

    def literal(self) -> str:
        """A small constant."""
        value = self.rng.randint(-3, 3)
        return f"T.{self.dtype}({value}{'.0' if self.dtype == 'float32' else ''})"

    def stage(
        self, out: _Buffer, value: str, reduce: tuple[int, ...] = (), init: str = "", out_index: str = ""
    ) -> None:
        """A nest over ``out`` and the reduction axes; ``value`` is in terms of v0, v1, ... and r0, r1, ..."""
        extents = (*out.shape, *reduce)
        loops = [f"i{i}" for i in range(out.rank)] + [f"k{i}" for i in range(len(reduce))]
        grid = f"{', '.join(loops)} in T.grid({', '.join(map(str, extents))})"
        if len(loops) == 1:
            grid = f"{loops[0]} in range({extents[0]})"
        lines = [f"for {grid}:", f'    with T.block("{out.name}"):']
        for i, extent in enumerate(out.shape):
            lines.append(f"        v{i} = T.axis.spatial({extent}, i{i})")
        for i, extent in enumerate(reduce):
            lines.append(f"        r{i} = T.axis.reduce({extent}, k{i})")
        index = out_index or ", ".join(f"v{i}" for i in range(out.rank))
        if init:
            lines += ["        with T.init():", f"            {out.name}[{index}] = {init}"]
        lines.append(f"        {out.name}[{index}] = {value.replace('@', f'{out.name}[{index}]')}")
        self.body += lines

    def text(self) -> str:
        """The whole function."""
        params = ", ".join(f'{b.name}: T.Buffer({_shape(b.shape)}, "{self.dtype}")' for b in self.params)
        lines = ["@T.prim_func", f"def main({params}):"]
        lines += [f'    {b.name} = T.alloc_buffer({_shape(b.shape)}, "{self.dtype}")' for b in self.locals]
        lines += ["    " + line for line in self.body]
        return "\n".join(lines) + "\n"


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _at(buffer: _Buffer, indices: list[str]) -> str:
    return f"{buffer.name}[{', '.join(indices)}]"


def _same(buffer: _Buffer) -> str:
    return _at(buffer, [f"v{i}" for i in range(buffer.rank)])


# -- kinds of stages: each gives the shape of its result and writes it ------------------------------------------


def _elementwise(w: _Writer, source: _Buffer, out: _Buffer) -> None:
    one = _same(source)
    forms = [f"{one} * {w.literal()} + {w.literal()}", f"T.max({one}, {w.literal()})", f"{one} - {w.literal()}"]
    same = [b for b in (*w.params, *w.locals) if b.shape == source.shape and b is not out and b.name != out.name]
    if same:
        forms.append(f"{one} + {_same(w.rng.choice(same))}")
    w.stage(out, w.rng.choice(forms))


def _transpose(w: _Writer, source: _Buffer, out: _Buffer) -> None:
    w.stage(out, _at(source, [f"v{out.rank - 1 - i}" for i in range(out.rank)]))


def _pad(w: _Writer, source: _Buffer, out: _Buffer) -> None:
    inside = f"1 <= v0 and v0 < {source.shape[0] + 1}"
    index = ["v0 - 1", *[f"v{i}" for i in range(1, source.rank)]]
    w.stage(out, f"T.if_then_else({inside}, {_at(source, index)}, {w.literal()})")


def _window(w: _Writer, source: _Buffer, out: _Buffer) -> None:
    width = source.shape[0] - out.shape[0] + 1
    index = ["v0 + r0", *[f"v{i}" for i in range(1, source.rank)]]
    if w.rng.random() < 0.5:
        w.stage(out, f"@ + {_at(source, index)}", (width,), _zero(w))
    else:
        lowest = f'T.min_value("{w.dtype}")'
        w.stage(out, f"T.max(@, {_at(source, index)})", (width,), lowest)


def _zero(w: _Writer) -> str:
    return f"T.{w.dtype}(0{'.0' if w.dtype == 'float32' else ''})"


def _row_sum(w: _Writer, source: _Buffer, out: _Buffer) -> None:
    index = [*[f"v{i}" for i in range(out.rank)], "r0"]
    w.stage(out, f"@ + {_at(source, index)}", (source.shape[-1],), _zero(w))


def _product(w: _Writer, source: _Buffer, out: _Buffer) -> None:
    other = w.input((source.shape[1], out.shape[1]))
    w.stage(out, f"@ + {_at(source, ['v0', 'r0'])} * {_at(other, ['r0', 'v1'])}", (source.shape[1],), _zero(w))


def _flatten(w: _Writer, source: _Buffer, out: _Buffer) -> None:
    inner = source.shape[1]
    w.stage(out, _at(source, [f"v0 // {inner}", f"v0 % {inner}"]))


def _unflatten(w: _Writer, source: _Buffer, out: _Buffer) -> None:
    w.stage(out, _at(source, [f"v0 * {out.shape[1]} + v1"]))


def _stride(w: _Writer, source: _Buffer, out: _Buffer) -> None:
    w.stage(out, _at(source, ["v0 * 2", *[f"v{i}" for i in range(1, source.rank)]]))


def _broadcast(w: _Writer, source: _Buffer, out: _Buffer) -> None:
    """Rows and columns of their own, one of them perhaps of an earlier stage."""
    row = next((b for b in w.locals if b.shape == source.shape[-1:] and b is not out), None) or w.input(
        source.shape[-1:]
    )
    column = w.input((source.shape[0],))
    last = f"v{source.rank - 1}"
    w.stage(out, f"({_same(source)} - {_at(row, [last])}) * {_at(column, ['v0'])} + {_same(source)}")


def _softmax(w: _Writer, source: _Buffer, out: _Buffer) -> None:
    """Maximum, exponential, sum and quotient along the last axis, each a stage."""
    rows = source.shape[:-1]
    most, powers, total = _Buffer(w.name(), rows), _Buffer(w.name(), source.shape), _Buffer(w.name(), rows)
    w.locals += [most, powers, total]
    along = [*[f"v{i}" for i in range(len(rows))], "r0"]
    width = (source.shape[-1],)
    w.stage(most, f"T.max(@, {_at(source, along)})", width, f'T.min_value("{w.dtype}")')
    w.stage(powers, f"T.exp({_same(source)} - {_same(most)})".replace(_same(most), _at(most, along[:-1])))
    w.stage(total, f"@ + {_at(powers, along)}", width, _zero(w))
    w.stage(out, f"{_same(powers)} / {_at(total, along[:-1])}")


def _convolution(w: _Writer, source: _Buffer, out: _Buffer) -> None:
    """A convolution over the first two axes; the last is the channels."""
    height, width = (a - b + 1 for a, b in zip(source.shape[:2], out.shape[:2], strict=True))
    weight = w.input((height, width, source.shape[2], out.shape[2]))
    value = f"{_at(source, ['v0 + r0', 'v1 + r1', 'r2'])} * {_at(weight, ['r0', 'r1', 'r2', 'v2'])}"
    w.stage(out, f"@ + {value}", (height, width, source.shape[2]), _zero(w))


def _choices(rng: Random, source: _Buffer, dtype: str) -> list[tuple[object, tuple[int, ...]]]:
    """(writer, result shape) of every stage that can read ``source``."""
    shape = source.shape
    out: list[tuple[object, tuple[int, ...]]] = [(_elementwise, shape), (_elementwise, shape)]
    out.append((_pad, (shape[0] + 2, *shape[1:])))
    if len(shape) > 1:
        out += [(_transpose, shape[::-1]), (_row_sum, shape[:-1])]
    if len(shape) == 2:
        out += [(_product, (shape[0], rng.choice(_EXTENTS))), (_product, (shape[0], rng.choice(_EXTENTS)))]
        out.append((_flatten, (shape[0] * shape[1],)))
        out.append((_broadcast, shape))
    if len(shape) > 1 and dtype == "float32":
        out.append((_softmax, shape))
    if len(shape) == 3 and min(shape[:2]) > 2 and shape[0] * shape[1] * shape[2] <= 400:
        kernel = rng.choice((1, 2, 3)), rng.choice((1, 3))
        size = shape[0] - kernel[0] + 1, shape[1] - kernel[1] + 1
        out += 2 * [(_convolution, (*size, rng.choice((1, 3, 4, 8))))]
    if len(shape) == 1 and shape[0] % 4 == 0:
        out.append((_unflatten, (shape[0] // 4, 4)))
    if shape[0] > 3:
        out.append((_window, (shape[0] - 2, *shape[1:])))
        out.append((_stride, (shape[0] // 2, *shape[1:])))
    return out


def random_program(rng: Random) -> str:
    """Script text of a function ``main`` of one to four stages over small buffers.

    >>> from random import Random
    >>> "T.prim_func" in random_program(Random(0))
    True
    """
    w = _Writer(rng)
    shape = tuple(rng.choice(_EXTENTS) for _ in range(rng.choice((1, 2, 2, 2, 3))))
    current = w.input(shape)
    stages = rng.randint(1, 4)
    for number in range(stages):
        write, made = rng.choice(_choices(rng, current, w.dtype))
        out = _Buffer(w.name(), made)
        last = number == stages - 1
        (w.params if last else w.locals).append(out)
        write(w, current, out)  # type: ignore[operator]
        current = out
    return w.text()
