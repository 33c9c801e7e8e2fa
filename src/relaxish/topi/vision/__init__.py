"""Computations of detectors: regions of images."""

from __future__ import annotations

from .regions import AlignedRegions, roi_align_nchw, roi_align_nhwc, roi_pool_nchw

__all__ = ["AlignedRegions", "roi_align_nchw", "roi_align_nhwc", "roi_pool_nchw"]
