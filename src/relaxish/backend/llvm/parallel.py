"""Parallel loops: the body becomes a function of its own, run in slices by the thread pool."""

from __future__ import annotations

from typing import Any

from .index_gen import Lin
from ...ir import dtype as dt
from ...ir.functor import pre_order_visit
from ...ir.node import Node
from ...ir.prim import Var
from ...tir import BufferLoad, BufferStore, ForKind
from ...tir.stmt import For, Stmt
from .emit import FunctionWriter
from .ltypes import llvm_type
from .stmt_gen import StmtGen

LAUNCH = "rx_parallel_launch"


def _free_vars(node: Stmt) -> list[Any]:
    """Variables used inside ``node``, in order of first use (bound ones included)."""
    seen: dict[Any, None] = {}

    def look(item: Node) -> bool:
        match item:
            case Var():
                seen.setdefault(item)
            case BufferLoad() | BufferStore():
                buffer = item.buffer
                seen.setdefault(buffer.data)
                for extra in (*buffer.shape, *(buffer.strides or ()), buffer.elem_offset):
                    if extra is not None:
                        pre_order_visit(extra, look)
        return True

    pre_order_visit(node, look)
    return list(seen)


def parallel_loop(gen: StmtGen, node: For, low: Lin, extent: Lin) -> None:
    """Emit ``for i in parallel(low, extent)``; inside another parallel loop it simply runs in order."""
    w = gen.w
    if getattr(gen, "inside_parallel", False):
        gen._serial(node, low, extent)
        return
    captured: list[tuple[Any, str, str]] = []  # variable, llvm type, operand here
    for var in _free_vars(node.body):
        if var in gen.pointers:
            captured.append((var, "ptr", gen.pointers[var]))
        elif var in gen.lin_cache:
            captured.append((var, "i64", gen.materialize(gen.lin_cache[var])))
        elif var in gen.vars:
            captured.append((var, llvm_type(var.dtype), gen.vars[var]))
    name = w.module.fresh(f"{w.module.current}.par")
    _emit_body(gen, node, name, captured, low, extent)
    env_type = "{ " + ", ".join(ty for _, ty, _ in captured) + " }" if captured else "{ i8 }"
    env = w.alloca(f"{env_type}, align 64", "env")
    for i, (_, ty, operand) in enumerate(captured):
        slot = w.effect(f"getelementptr {env_type}, ptr {env}, i32 0, i32 {i}")
        w.line(f"store {ty} {operand}, ptr {slot}")
    begin = gen.materialize(low)
    count = gen.materialize(extent)
    w.module.declare(f"declare i32 @{LAUNCH}(ptr, ptr, i64, i64)")
    code = w.effect(f"call i32 @{LAUNCH}(ptr @{name}.task, ptr {env}, i64 {begin}, i64 {count})")
    w.touch_all()
    good, bad = w.label("ok"), w.label("fail")
    failed = w.effect(f"icmp ne i32 {code}, 0")
    w.line(f"br i1 {failed}, label %{bad}, label %{good}")
    w.start_block(bad)
    gen.leave(code)
    w.start_block(good)
    if gen.tiles is not None:
        gen.tiles.reconfigure()


def _emit_body(gen: StmtGen, node: For, name: str, captured: list[tuple[Any, str, str]], low: Lin, extent: Lin) -> None:
    """Two functions: ``name.task`` unpacks the environment, ``name`` has parameters that may say ``noalias``."""
    module = gen.w.module
    child = StmtGen(FunctionWriter(module), gen.features, gen.noalias)
    child.inside_parallel = True  # type: ignore[attr-defined]
    child.private = set(gen.private)
    child.volatile = gen.volatile
    child.roots = dict(gen.roots)
    child.never_promote = gen.never_promote
    child.ranges = dict(gen.ranges)
    child.sizes = gen.sizes.copy()
    child.room = {var: room for var, room in gen.room.items() if not room[0]}
    params = ["i64 %begin", "i64 %end"]
    for i, (var, ty, operand) in enumerate(captured):
        arg = f"%a{i}.in"
        distinct = gen.noalias and var not in gen.roots and ty == "ptr"
        params.append(f"{ty}{' noalias nocapture' if distinct else ''} {arg}")
        if ty == "ptr":
            child.pointers[var] = arg
        elif var in gen.lin_cache:
            child.lin_cache[var] = ({arg: 1}, 0)
            if operand in gen.nonneg or operand.isdigit():
                child.nonneg.add(arg)
        else:
            child.vars[var] = arg

    def body(index: str) -> None:
        if gen._is_nonneg(gen.lin(node.min)):
            child.nonneg.add(index)
        child.lin_cache[node.loop_var] = ({index: 1}, 0)
        if not low[0] and not extent[0]:
            child.ranges[node.loop_var] = (low[1], low[1] + extent[1] - 1)
        with child.sizes.inside(node.extent):
            child.stmt(node.body)

    child.counted_loop("%begin", "%end", child.writes_of(node), False, body)
    child.finish()
    module.functions.append(f"define internal i32 @{name}({', '.join(params)}) #1 {{\n{child.w.text()}\n}}\n")
    env_type = "{ " + ", ".join(ty for _, ty, _ in captured) + " }" if captured else "{ i8 }"
    lines = []
    args = ["i64 %begin", "i64 %end"]
    for i, (_, ty, _) in enumerate(captured):
        lines.append(f"  %p{i} = getelementptr {env_type}, ptr %env, i32 0, i32 {i}")
        lines.append(f"  %a{i} = load {ty}, ptr %p{i}")
        args.append(f"{ty} %a{i}")
    lines.append(f"  %code = call i32 @{name}({', '.join(args)})")
    lines.append("  ret i32 %code")
    module.functions.append(
        f"define internal i32 @{name}.task(ptr %env, i64 %begin, i64 %end) #0 {{\n" + "\n".join(lines) + "\n}\n"
    )


__all__ = ["LAUNCH", "ForKind", "dt", "parallel_loop"]
