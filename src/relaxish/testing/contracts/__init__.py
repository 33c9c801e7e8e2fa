"""Classes of tests that every implementation of an interface passes: subclass one in a test file, and say how to make it."""
