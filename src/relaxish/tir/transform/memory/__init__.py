"""Passes that place buffers: flattening, sharing of storage, lifetimes."""
