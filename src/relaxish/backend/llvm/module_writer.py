"""State of one LLVM module: declarations, constants and fresh names."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...support import config


@dataclass
class ModuleWriter:
    """Collects functions, declarations and constants of one module."""

    features: frozenset[str]
    vector_bits: int
    functions: list[str] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)
    constants: dict[bytes, str] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)
    current: str = ""
    counter: int = 0
    # Whether divisions that are not legal end the kernel with an error; else they have some result, as on devices.
    raises: bool = True
    # Whether every access to memory is checked.
    checked: bool = field(default_factory=config.checks_memory)

    def declare(self, text: str) -> None:
        """Declare an external function once; the first declaration of a name stands."""
        name = text[text.index("@") + 1 : text.index("(")]
        self.declarations.setdefault(name, text)

    def fresh(self, stem: str) -> str:
        """A module-level name not used before."""
        self.counter += 1
        return f"{stem}{self.counter}"

    def string(self, text: str) -> str:
        """Address of a zero-terminated string."""
        return self.constant(text.encode() + b"\0")

    def constant(self, data: bytes) -> str:
        """Address of constant bytes, aligned for vectors."""
        name = self.constants.get(data)
        if name is None:
            name = self.constants[data] = f"@const{len(self.constants)}"
        return name

    def text(self) -> str:
        """The module as LLVM text."""
        width = f'"prefer-vector-width"="{self.vector_bits}" "min-legal-vector-width"="0"'
        parts = ['target triple = "TRIPLE"']
        for data, name in self.constants.items():
            body = "".join(f"\\{b:02X}" for b in data)
            parts.append(f'{name} = private unnamed_addr constant [{len(data)} x i8] c"{body}", align 64')
        parts += [text for name, text in self.declarations.items() if name not in self.defined]
        parts += self.functions
        parts.append(f"attributes #0 = {{ nounwind {width} }}")
        parts.append(f"attributes #1 = {{ nounwind noinline {width} }}")
        return "\n".join(parts)
