"""Budgets of time and the state of runs that go on after a kill."""
