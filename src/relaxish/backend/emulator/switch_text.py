"""Switching stacks: the few instructions that no language has, for x86-64 (System V) and AArch64.

A stopped fiber is its stack pointer: what a called function must preserve lies on the stack above it. A new fiber's
stack is laid out as if it had stopped just before :data:`ENTRY`, with the fiber's address in a preserved register.
"""

from __future__ import annotations

from ...support.errors import RelaxishError

__all__ = ["INITIAL_WORDS", "processor", "switch_text"]

INITIAL_WORDS = {"x86_64": (7, 4, 3, 6), "aarch64": (20, 8, 9, 19)}
"""For each processor: words on a new fiber's stack, and which hold the fiber, its function and where to begin."""

_X86 = (
    "pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15; movq %rsp, (%rdi); movq %rsi, %rsp;"
    " popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp; retq"
)
_X86_ENTRY = "movq %rbx, %rdi; callq *%r12"
_ARM = (
    "sub sp, sp, #160; stp x19, x20, [sp, #64]; stp x21, x22, [sp, #80]; stp x23, x24, [sp, #96];"
    " stp x25, x26, [sp, #112]; stp x27, x28, [sp, #128]; stp x29, x30, [sp, #144]; stp d8, d9, [sp];"
    " stp d10, d11, [sp, #16]; stp d12, d13, [sp, #32]; stp d14, d15, [sp, #48]; mov x9, sp; str x9, [x0]; mov sp, x1;"
    " ldp x19, x20, [sp, #64]; ldp x21, x22, [sp, #80]; ldp x23, x24, [sp, #96]; ldp x25, x26, [sp, #112];"
    " ldp x27, x28, [sp, #128]; ldp x29, x30, [sp, #144]; ldp d8, d9, [sp]; ldp d10, d11, [sp, #16];"
    " ldp d12, d13, [sp, #32]; ldp d14, d15, [sp, #48]; add sp, sp, #160; ret"
)
_ARM_ENTRY = "mov x0, x19; blr x20"


def processor(triple: str) -> str:
    """The name that this file has for a triple's processor. Raises RelaxishError for one without a context switch."""
    arch = {"arm64": "aarch64", "amd64": "x86_64"}.get(triple.split("-")[0], triple.split("-")[0])
    if arch not in INITIAL_WORDS:
        raise RelaxishError(f"the emulator has no context switch for {arch}; it runs on x86-64 and AArch64")
    return arch


def switch_text(arch: str) -> str:
    """``rx_switch_stack(save, to)`` and ``rx_fiber_entry`` as LLVM text."""
    switch, entry = (_X86, _X86_ENTRY) if arch == "x86_64" else (_ARM, _ARM_ENTRY)
    return (
        f"define void @rx_switch_stack(ptr %save, ptr %to) naked noinline nounwind {{\n"
        f'  call void asm sideeffect "{_escaped(switch)}", ""()\n  unreachable\n}}\n'
        f"define void @rx_fiber_entry() naked noinline nounwind {{\n"
        f'  call void asm sideeffect "{_escaped(entry)}", ""()\n  unreachable\n}}\n'
    )


def _escaped(assembly: str) -> str:
    return assembly.replace("; ", "\\0A").replace(";", "\\0A")
