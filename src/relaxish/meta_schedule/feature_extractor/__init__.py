"""Feature extractors: from candidates to matrices a cost model learns from."""

from .columns import NUM_FEATURES
from .feature_extractor import (
    FeatureExtractor,
    PerStoreFeature,
    PyFeatureExtractor,
    RandomFeatureExtractor,
    module_features,
)

create = FeatureExtractor.create

__all__ = [
    "FeatureExtractor",
    "NUM_FEATURES",
    "PerStoreFeature",
    "PyFeatureExtractor",
    "RandomFeatureExtractor",
    "create",
    "module_features",
]
