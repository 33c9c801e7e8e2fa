"""Passes that change loops: vectors, unrolling, partition, hoisting and pipelines."""
