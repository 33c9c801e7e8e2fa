"""Key-value caches, recurrent state and sampling of language models."""
