"""The emulator's runtime, in the subset of Python that :mod:`..native` compiles."""
