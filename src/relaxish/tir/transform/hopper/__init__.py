"""Scheduled products of tiles as warp-specialised kernels with wgmma and bulk tensor copies."""
