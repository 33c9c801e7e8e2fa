"""The shape of a scheduled program, before postprocs, with every number taken out into slots."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arith.affine import Affine, Rest, Term, affine
from ...ir import IRModule
from ...tir import PrimFunc
from ...ir.prim import const_int
from ..analysis import blocks as ba
from ..feature_extractor.forms import ColumnForm, ColumnRest, ColumnTerm
from ..feature_extractor.program import Program, extract_program
from .fitting import Environment, Fitter, Formula, Unfit, Unlike
from ...support.sequences import of_kind

__all__ = ["BlockShape", "Reading", "columns", "fit_forms", "part_unlike", "read_program"]

NAN = float("nan")


@dataclass
class BlockShape:
    """A block directly under the root: its loops, whether each may be fused (parallel, and not annotated by a rule), and
    the regions it touches."""

    name: str
    loops: list[int]
    data_parallel: list[bool]
    single: list[bool]
    regions: list[list[Affine[int]]]
    shapes: list[list[int]]
    spatial: bool


@dataclass
class Reading:
    """One concrete program as the vectoriser sees it."""

    program: Program
    blocks: list[BlockShape]

    def signature(self) -> tuple[object, ...]:
        """Everything but the numbers; equal for programs of one structural variant."""
        return (
            len(self.program.loops),
            tuple(
                (
                    s.buffer.name,
                    tuple(s.loops),
                    tuple(s.ops),
                    len(s.index_forms),
                    tuple((a.buffer.name, a.kind, tuple(len(i) for i in a.indices)) for a in s.accesses),
                )
                for s in self.program.stores
            ),
            tuple((b.name, tuple(b.loops), tuple(b.data_parallel), tuple(b.single), b.spatial) for b in self.blocks),
        )


def read_program(mod: IRModule) -> Reading:
    """Read a module after its trace and before its postprocs. Raises :class:`Unfit` for shapes not covered."""
    funcs = list(of_kind(mod.functions.values(), PrimFunc))
    program = extract_program(funcs)
    number = {loop.var: i for i, loop in enumerate(program.loops)}
    blocks = []
    for func in funcs:
        found = ba.places(func)
        root = next((p.realize.block for p in found if p.scope is None), None)
        for place in found:
            if place.scope is None:
                continue
            if place.scope is not root:
                raise Unfit("blocks within blocks")
            if place.realize.block.match_buffers or place.realize.block.annotations.get("meta_schedule.auto_tensorize"):
                raise Unfit("tensor intrinsics")
            blocks.append(_block_shape(place, number))
    return Reading(program, blocks)


def _block_shape(place: ba.Place, number: dict[Any, int]) -> BlockShape:
    block = place.realize.block
    bindings = dict(zip((iv.var for iv in block.iter_vars), place.realize.iter_values, strict=True))
    regions, shapes = [], []
    for region in (*block.reads, *block.writes):
        regions.append([affine(dim.min, bindings) for dim in region.region])
        shapes.append([const_int(x) or 1 for x in region.buffer.shape])
    if any(loop.thread_binding is not None for loop in place.loops):
        raise Unfit("loops with bindings")
    return BlockShape(
        block.name_hint,
        [number[loop.loop_var] for loop in place.loops],
        [ba.is_parallel(place, loop) and not ba.has_annotation_or_binding(loop) for loop in place.loops],
        [ba.is_single_statement(loop.body) for loop in place.loops],
        regions,
        shapes,
        ba.is_spatial(block),
    )


def part_unlike(readings: Sequence[Reading]) -> None:
    """Raises :class:`Unlike` where some programs have indices of other operations than most; the others can be fitted."""
    each: list[dict[Hashable, Affine[int]]] = []
    for reading in readings:
        found: dict[Hashable, Affine[int]] = {}
        for b, block in enumerate(reading.blocks):
            found.update({(b, i, d): f for i, region in enumerate(block.regions) for d, f in enumerate(region)})
        for s, store in enumerate(reading.program.stores):
            found.update({(s, i): form for i, form in enumerate(store.index_forms)})
            for a, access in enumerate(store.accesses):
                found.update({(s, a, m, d): f for m, fs in enumerate(access.indices) for d, f in enumerate(fs)})
        each.append(found)
    unlike = {}
    for name in each[0]:
        written = [_operations(found[name]) for found in each]
        most = max(sorted(set(written), key=repr), key=written.count)
        if any(ops != most for ops in written):
            unlike[name] = [ops == most for ops in written]
    if unlike:
        raise Unlike(unlike)


def _operations(form: Affine[int]) -> tuple[object, ...]:
    return tuple((r.op, *(_operations(f) for f in r.forms)) for r in form.rests)


def columns(form: Affine[Formula], env: Environment) -> ColumnForm:
    """A form in formulas for every row of the environment; extents and divisors are formulas as well."""
    return ColumnForm(
        form.const(env),
        [ColumnTerm(t.coef(env), t.var, 1, t.extent(env), t.coef.nonnegative) for t in form.terms],
        [ColumnRest(r.coef(env), r.op, [columns(f, env) for f in r.forms], r.divisor(env)) for r in form.rests],
    )


def fit_forms(
    fitter: Fitter, forms: Sequence[Affine[int]], loops: Sequence[Sequence[Any]], extents: Sequence[Formula]
) -> Affine[Formula]:
    """One index in several examples; ``loops[k]`` are example ``k``'s :class:`LoopInfo` in position order, ``extents``
    the formulas of their sizes. The variables of the form are positions, its extents and divisors formulas."""
    places = [{loop.var: i for i, loop in enumerate(own)} for own in loops]
    table: dict[tuple[int, int], tuple[list[float], list[float]]] = {}
    count = len(forms)
    idle = {at for at in range(len(loops[0])) if all(own[at].extent == 1 for own in loops)}
    for k, form in enumerate(forms):
        seen: dict[int, int] = {}
        for term in sorted(form.terms, key=lambda t: -abs(t.coef)):
            at = places[k].get(term.var)
            if at is None:
                raise Unfit("an index depends on a loop outside its block")
            extent = loops[k][at].extent
            if extent == 1 and at not in idle:
                continue  # whether such a term is still written down says nothing
            order = seen.get(at, 0)
            seen[at] = order + 1
            # A digit that is not written down has one value.
            coefs, widths = table.setdefault((at, order), ([NAN] * count, [1.0] * count))
            left = -(-extent // term.lower)
            coefs[k] = float(term.coef)
            widths[k] = float(min(term.extent, left) if term.extent else left)
    # A loop that never runs counts as walking its dimension where every program says so.
    table = {key: found for key, found in table.items() if key[0] not in idle or not np.isnan(found[0]).any()}
    terms = [
        Term(fitter.fit(coefs, extents[at].product), at, 1, fitter.fit(widths))
        for (at, _), (coefs, widths) in sorted(table.items())
    ]
    rests = []
    for i, rest in enumerate(forms[0].rests):
        every = [f.rests[i] for f in forms]
        inner = [fit_forms(fitter, [r.forms[j] for r in every], loops, extents) for j in range(len(rest.forms))]
        coef = fitter.fit([float(r.coef) for r in every])
        rests.append(Rest(coef, rest.op, inner, fitter.fit([float(r.divisor) for r in every])))
    return Affine(fitter.fit([float(f.const) for f in forms]), terms, rests)
