"""References of the computations of ``topi`` in plain NumPy; for tests.

>>> import numpy as np
>>> conv2d_nchw_python(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), 1, 0)[0, 0].tolist()
[[4.0, 4.0], [4.0, 4.0]]
"""

from __future__ import annotations

from .arrangement import *  # noqa: F403
from .convolution import *  # noqa: F403
from .image import *  # noqa: F403
from .normalization import *  # noqa: F403
from .pooling import *  # noqa: F403
