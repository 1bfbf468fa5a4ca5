"""`callbox.math` beside mpmath-like references in long double, which has 11 more bits than f64."""

import math as python_math

import numpy as np
import pytest

from callbox import math

POINTS = 3_000

# The function, its reference, the range, and the most units in the last place.
CASES = [
    ("exp", np.exp, (-87.0, 88.7), 1.0),
    ("exp", np.exp, (-103.0, -87.0), 1.0),
    ("expm1", np.expm1, (-20.0, 88.5), 1.5),
    ("expm1", np.expm1, (-0.5, 0.5), 1.5),
    ("log", np.log, (1e-38, 3e38), 1.0),
    ("log", np.log, (0.5, 2.0), 1.0),
    ("log", np.log, (1e-45, 1e-38), 1.0),
    ("log1p", np.log1p, (-0.9, 3.0), 1.5),
    ("tanh", np.tanh, (-10.0, 10.0), 1.5),
    ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), (-80.0, 80.0), 2.5),
    ("erf", np.vectorize(lambda x: np.longdouble(python_math.erf(x))), (-5.0, 5.0), 2.5),
    ("sin", np.sin, (-1000.0, 1000.0), 0.51),
    ("cos", np.cos, (-1000.0, 1000.0), 0.51),
    ("sin", np.sin, (-1048576.0, 1048576.0), 0.51),
    ("rsqrt", lambda x: 1 / np.sqrt(x), (1e-38, 3e38), 1.5),
]


@pytest.mark.parametrize(("name", "reference", "bounds", "most"), CASES)
def test_error_in_units_in_the_last_place(name, reference, bounds, most):
    random = np.random.default_rng(7)
    if bounds[0] > 0 and bounds[1] / bounds[0] > 100:
        x = np.exp(random.uniform(*np.log(bounds), POINTS)).astype(np.float32)
    else:
        x = random.uniform(*bounds, POINTS).astype(np.float32)
    with np.errstate(all="ignore"):
        found = np.array([getattr(math, name)(value) for value in x], dtype=np.float32)
    expected = reference(x.astype(np.longdouble))
    unit = np.spacing(np.abs(expected.astype(np.float32))).astype(np.longdouble)
    assert found.dtype == np.float32
    assert float(np.max(np.abs(found - expected) / unit)) <= most


INF, NAN = np.inf, np.nan
# What C99's annex F says of 0, -0, infinities and NaN.
SPECIAL = {
    "exp": [1, 1, INF, 0, NAN],
    "expm1": [0.0, -0.0, INF, -1, NAN],
    "log": [-INF, -INF, INF, NAN, NAN],
    "log1p": [0.0, -0.0, INF, NAN, NAN],
    "tanh": [0.0, -0.0, 1, -1, NAN],
    "erf": [0.0, -0.0, 1, -1, NAN],
    "sin": [0.0, -0.0, NAN, NAN, NAN],
    "cos": [1, 1, NAN, NAN, NAN],
    "sqrt": [0.0, -0.0, INF, NAN, NAN],
    "floor": [0.0, -0.0, INF, -INF, NAN],
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name):
    with np.errstate(all="ignore"):
        found = [float(getattr(math, name)(np.float32(x))) for x in (0.0, -0.0, INF, -INF, NAN)]
    np.testing.assert_array_equal(found, SPECIAL[name])
    assert list(np.signbit(found[:2])) == list(np.signbit(np.array(SPECIAL[name][:2], dtype=float)))
