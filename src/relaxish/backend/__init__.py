"""Code generators, one folder a target family; siblings never import each other."""
