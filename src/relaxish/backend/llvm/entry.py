"""The whole model as one native function: kernel calls in order over a table of slots."""

from __future__ import annotations

from typing import Any

from ...runtime.kernels.failures import RECORDED
from ...runtime.bytecode.plan import ExecutionPlan
from .ltypes import float_literal, kernel_symbol, quoted
from .module_writer import ModuleWriter


def generate_entry(module: ModuleWriter, plan: ExecutionPlan) -> None:
    """Add ``i32 @<plan.symbol>(ptr slots)``, which returns 0 or ``((call index + 1) << 8) | code``."""
    lines: list[str] = ["entry:"]
    slots: dict[int, str] = {}
    pointers: dict[tuple[int, int], str] = {}
    words: set[str] = set()
    for call in plan.calls:
        for operand in call.operands:
            if operand.kind == "ptr":
                _pointer(lines, slots, pointers, operand.slot, operand.offset)
            elif operand.kind == "word" and f"%word{operand.slot}" not in words:
                words.add(f"%word{operand.slot}")
                lines.append(f"  %atw{operand.slot} = getelementptr i64, ptr %slots, i64 {operand.slot}")
                lines.append(f"  %word{operand.slot} = load i64, ptr %atw{operand.slot}, align 8")
    for index, call in enumerate(plan.calls):
        args, types = [], []
        for operand in call.operands:
            ty, text = _argument(operand, pointers)
            types.append(ty)
            args.append(f"{ty} {text}")
        symbol = quoted(kernel_symbol(call.kernel))
        module.declare(f"declare i32 @{symbol}({', '.join(types)})")
        lines.append(f"  %code{index} = call i32 @{symbol}({', '.join(args)})")
        lines.append(f"  %ok{index} = icmp eq i32 %code{index}, 0")
        lines.append(f"  br i1 %ok{index}, label %call{index + 1}, label %fail")
        lines.append(f"call{index + 1}:")
    lines.append("  ret i32 0")
    if plan.calls:
        lines.append("fail:")
        codes = ", ".join(f"[ %code{i}, %{'entry' if i == 0 else f'call{i}'} ]" for i in range(len(plan.calls)))
        marks = ", ".join(f"[ {(i + 1) << 8}, %{'entry' if i == 0 else f'call{i}'} ]" for i in range(len(plan.calls)))
        lines.append(f"  %code = phi i32 {codes}")
        lines.append(f"  %mark = phi i32 {marks}")
        lines.append("  %low = and i32 %code, 255")
        lines.append("  %brief = or i32 %mark, %low")
        lines.append(f"  %recorded = icmp uge i32 %code, {RECORDED}")
        lines.append("  %result = select i1 %recorded, i32 %code, i32 %brief")
        lines.append("  ret i32 %result")
    module.defined.add(plan.symbol)
    body = "\n".join(lines)
    module.functions.append(f"define i32 @{quoted(plan.symbol)}(ptr nocapture %slots) #0 {{\n{body}\n}}\n")


def _pointer(
    lines: list[str], slots: dict[int, str], pointers: dict[tuple[int, int], str], slot: int, offset: int
) -> None:
    if slot not in slots:
        slots[slot] = f"%slot{slot}"
        lines.append(f"  %at{slot} = getelementptr ptr, ptr %slots, i64 {slot}")
        lines.append(f"  %slot{slot} = load ptr, ptr %at{slot}, align 8")
    key = (slot, offset)
    if key not in pointers:
        pointers[key] = slots[slot]
        if offset:
            pointers[key] = f"%p{slot}.{offset}"
            lines.append(f"  %p{slot}.{offset} = getelementptr i8, ptr {slots[slot]}, i64 {offset}")


def _argument(operand: Any, pointers: dict[tuple[int, int], str]) -> tuple[str, str]:
    if operand.kind == "ptr":
        return "ptr", pointers[(operand.slot, operand.offset)]
    if operand.kind == "word":
        return "i64", f"%word{operand.slot}"
    if operand.kind == "int":
        return "i64", str(int(operand.value))
    return "double", float_literal(float(operand.value), "float64")
