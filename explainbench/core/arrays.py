"""Array types.

Axis letters everywhere: n windows, t context steps, c channels, h horizon, q quantiles, g groups, r runs.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Texts = NDArray[np.str_]
Stamps = NDArray[np.datetime64]
