"""Indices of GPU programs as formulas: functions of linear indices, and digits of loops that were split again."""

from types import SimpleNamespace

import numpy as np
import pytest

from relaxish import tir
from relaxish.meta_schedule.feature_extractor.probes import gains
from relaxish.arith.affine import affine
from relaxish.meta_schedule.search_strategy.affine_digits import JointPlace, Nest, fit_leaf
from relaxish.meta_schedule.search_strategy.device_index import over_coordinates
from relaxish.meta_schedule.search_strategy.device_reading import LoopFacts
from relaxish.meta_schedule.search_strategy.device_sizes import DeviceEnvironment, DeviceFitter
from relaxish.meta_schedule.search_strategy.fitting import Formula

TILES = np.array([[2, 32], [32, 2], [4, 16], [16, 4], [8, 8], [1, 64]])


def loops_of(extents, parts=None):
    facts = zip(extents, parts or [(extent,) for extent in extents], strict=True)
    return [LoopFacts(tir.Var(f"l{i}", "int32"), extent, "serial", part) for i, (extent, part) in enumerate(facts)]


def check_moves(leaf_or_index, nest, forms, matrix):
    """Compare what formulas and programs gain by first and last steps."""
    env = DeviceEnvironment(matrix)
    sizes = [np.array([loops[at].extent for loops in nest.loops], dtype="float32") for at in range(len(nest.loops[0]))]
    moves = leaf_or_index(env, sizes)
    for at in range(len(sizes)):
        for k, form in enumerate(forms):
            first, last = gains(form, nest.loops[k][at].var, nest.loops[k][at].extent)
            move = moves.get(at)
            mine = (0, 0) if move is None else (np.broadcast_to(x, len(forms))[k] for x in (move.first, move.last))
            assert tuple(mine) == (first, last), (at, k)


def test_a_copy_reads_a_function_of_where_it_writes():
    """``S[u] = X[u // 12 + 5]``: u is tiled, and the program simplifies where tiles are multiples of the divisor."""
    forms, written, loops = [], [], []
    for outer, inner in TILES:
        own = loops_of((int(outer), int(inner)))
        u = own[0].var * int(inner) + own[1].var
        # The last but one example is written otherwise.
        expr = own[0].var * (int(inner) // 4) + own[1].var // 4 if inner == 8 else u // 4
        forms.append(affine(expr * 3 % 24 + u // 12 + 5, {}))
        written.append(affine(u, {}))
        loops.append(own)
    fitter = DeviceFitter([(0, 2)], {}, TILES)
    nest = Nest(loops, [(Formula(0.0, ((1.0, ((0, 1),)),)),), (Formula(0.0, ((1.0, ((1, 2),)),)),)])
    stores = [SimpleNamespace(accesses=[SimpleNamespace(indices=[[w]])]) for w in written]
    found = over_coordinates(fitter, forms, stores, nest)
    assert found is not None and len(found.leaves) == 1
    leaf, env = found.leaves[0], DeviceEnvironment(TILES)
    outer = found.outer.map(lambda size: size(env))
    base = np.array([form.value({}) for form in forms])
    start = leaf.const(env)
    assert (np.broadcast_to(outer.value({0: start}), len(base)) == base).all()

    def moves(env, sizes):
        form = found.form(env, sizes, -1, None, {})
        each = leaf.whole_moves(env, sizes, -1)
        assert form.positions == frozenset(each)

        def gain(by):
            return outer.value({0: start + by}) - outer.value({0: start})

        return {at: SimpleNamespace(first=gain(move.first), last=gain(move.last)) for at, move in each.items()}

    check_moves(moves, nest, forms, TILES)


def test_what_is_no_function_of_the_place_is_not_found():
    forms, written, loops = [], [], []
    for outer, inner in TILES:
        own = loops_of((int(outer), int(inner)))
        forms.append(affine((own[0].var + own[1].var) // 2, {}))
        written.append(affine(own[0].var * int(inner) + own[1].var, {}))
        loops.append(own)
    stores = [SimpleNamespace(accesses=[SimpleNamespace(indices=[[w]])]) for w in written]
    fitter = DeviceFitter([(0, 2)], {}, TILES)
    nest = Nest(loops, [(Formula(0.0, ((1.0, ((0, 1),)),)),), (Formula(0.0, ((1.0, ((1, 2),)),)),)])
    assert over_coordinates(fitter, forms, stores, nest) is None


@pytest.mark.parametrize("threads", [4, 16, 64])
def test_digits_of_a_fused_loop_that_was_split_again(threads):
    """Two tiles fused to 64 iterations, which blocks and threads share."""
    forms, loops, parts = [], [], []
    for outer, inner in TILES:
        block, thread = loops_of((64 // threads, threads))
        fused = block.var * threads + thread.var
        forms.append(affine(fused // int(inner) * 7 + fused % int(inner) * int(outer) + 1, {}))
        loops.append([block, thread])
        parts.append((int(outer), int(inner)))
    columns = [Formula(0.0, ((1.0, ((i, i + 1),)),)) for i in (0, 1)]
    fixed = [(Formula(64.0 / threads),), (Formula(float(threads)),)]
    nest = Nest(loops, fixed, [JointPlace((0, 1), parts, tuple(columns))])
    leaf = fit_leaf(DeviceFitter([(0, 2)], {}, TILES), forms, nest)
    assert len(leaf.joint) == 1 and not leaf.moves
    check_moves(lambda env, sizes: leaf.whole_moves(env, sizes, -1), nest, forms, TILES)
