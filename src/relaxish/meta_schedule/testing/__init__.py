"""Helpers for tests of the tuner: fake builders and runners, workloads, sketch checks."""
