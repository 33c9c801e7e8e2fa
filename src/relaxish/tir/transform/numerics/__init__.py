"""The meaning of numbers made exact: narrow floats, extremes, intrinsics, guarded indices."""
