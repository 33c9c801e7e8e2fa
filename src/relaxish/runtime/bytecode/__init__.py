"""The virtual machine's program: instructions, builtins, memory plans."""
