"""Cases of counts, sparse matrices, places, prices and sets."""

from fractions import Fraction

import numpy as np
from scipy import linalg, sparse, special

from case import Writer

f32 = np.float32
DIGITS = "0123456789bcdefghjkmnpqrstuvwxyz"
WORD = 2**64


def mix(key):
    z = (key + 0x9E3779B97F4A7C15) % WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
    return z ^ z >> 31


def bits(key, hashes, count):
    a, b = mix(key), mix(key ^ 0x9E3779B97F4A7C15) | 1
    return [(a + i * b) % WORD % count for i in range(hashes)]


def price(spot, strike, years, volatility, rate, sign):
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + volatility**2 / 2) * years) / spread
    # `erfc` takes complex numbers, and `ndtr` does not.
    normal = lambda z: 0.5 * special.erfc(-z / np.sqrt(2))
    present = strike * np.exp(-rate * years)
    return sign * (spot * normal(sign * d1) - present * normal(sign * (d1 - spread)))


def geohash(latitude, longitude, length):
    """Interleaves the bits of the two fractions of the world."""
    count = (5 * length + 1) // 2
    x = int((longitude + 180) / 360 * 2**count)
    y = int((latitude + 90) / 180 * 2**count)
    text = "".join(a + b for a, b in zip(f"{x:0{count}b}", f"{y:0{count}b}", strict=True))
    return "".join(DIGITS[int(text[i : i + 5], 2)] for i in range(0, 5 * length, 5))


def turns(point, corners):
    """Whether the corners go around the point: the sum of the angles between them."""
    arms = (corners - point) @ np.array([1, 1j])
    return abs(np.sum(np.angle(np.roll(arms, -1) / arms))) > 1


def write_counts(out, rng):
    x = rng.integers(0, 6, 50, np.int32)
    out.case("bincount", [x], [np.bincount(x, minlength=8).astype(np.int32)])
    out.refused(
        "bincount_too_large",
        "bincount",
        [np.array([0, 8, 9], np.int32)],
        ["s32[8]"],
        None,
        "INVALID_ARGUMENT",
        "expected numbers from 0 to 7, found 8 at 1",
    )
    x = np.concatenate([rng.normal(size=60), [-2, 2, 3, -5, 0]]).astype(f32)
    counts = np.histogram(x, 8, (-2, 2))[0].astype(np.int32)
    x = np.append(x, np.array([np.nan, np.inf], f32))
    out.case("histogram", [x], [counts], {"low": f32(-2), "high": f32(2)})

    x = rng.normal(size=(9, 3)).astype(f32)
    segments = np.array([0, 2, 2, 0, 4, -1, 5, 2, 0], np.int32)
    hits = (segments == np.arange(5)[:, None]).astype(np.float64)
    out.case("segment_sum", [x, segments], [(hits @ x).astype(f32)], ulps=1)
    dsums = rng.normal(size=(5, 3)).astype(f32)
    out.case("segment_sum_grad", [segments, dsums], [(hits.T @ dsums).astype(f32)])

    matrix = sparse.random(6, 8, 0.4, "csr", np.float64, rng=rng)
    values, columns, starts = (matrix.data.astype(f32), matrix.indices, matrix.indptr)
    matrix.data = values.astype(np.float64)
    x, dy = rng.normal(size=8).astype(f32), rng.normal(size=6).astype(f32)
    operands = [values, columns.astype(np.int32), starts.astype(np.int32), x]
    out.case("csr_matvec", operands, [(matrix @ x).astype(f32)], ulps=4)
    rows = np.repeat(np.arange(6), np.diff(starts))
    expected = [dy[rows] * x[columns], (matrix.T @ dy.astype(np.float64)).astype(f32)]
    out.case("csr_matvec_grad", [*operands, dy], expected, ulps=4)
    out.refused(
        "csr_matvec_column",
        "csr_matvec",
        [operands[0], operands[1] + np.int32(1), operands[2], x],
        ["f32[6]"],
        None,
        "INVALID_ARGUMENT",
        "expected columns below 8, found 8",
    )


def write_places(out, rng):
    places = np.array([[52.52, 13.405], [48.8566, 2.3522], [-33.87, 151.21], [0, 0], [90, 0]])
    others = np.roll(places, -1, 0)
    a, b = np.radians(places), np.radians(others)
    unit = lambda p: np.stack(
        [np.cos(p[:, 0]) * np.cos(p[:, 1]), np.cos(p[:, 0]) * np.sin(p[:, 1]), np.sin(p[:, 0])], 1
    )
    chord = np.linalg.norm(np.cross(unit(a), unit(b)), axis=1)
    distance = 6371.0088 * np.arctan2(chord, np.sum(unit(a) * unit(b), 1))
    operands = [places[:, 0], places[:, 1], others[:, 0], others[:, 1]]
    origin = "the angle between unit vectors, in NumPy"
    radius = {"radius": np.float64(6371.0088)}
    out.case("haversine", operands, [distance], radius, ulps=64, origin=origin)

    corners = np.array([[0, 0], [4, 0], [4, 4], [2, 1], [0, 4]], np.float64)
    points = rng.uniform(-1, 5, (3, 20, 2))
    inside = [[turns(point, corners) for point in row] for row in points]
    origin = "the sum of the angles between the corners, in NumPy"
    out.case("point_in_polygon", [points, corners], [np.array(inside)], origin=origin)

    latitude = np.array([57.64911, -25.38262, 0.0, 37.8324])
    longitude = np.array([10.40744, -49.26561, 0.0, 112.5584])
    texts = [geohash(*place, 9) for place in zip(latitude, longitude, strict=True)]
    assert texts[0] == "u4pruydqq", "Wikipedia's example is u4pruydqqvj"
    rows = np.array([list(text.encode()) for text in texts], np.uint8)
    origin = "interleaved bits, in Python; u4pruydqqvj is Wikipedia's example"
    out.case("geohash_encode", [latitude, longitude], [rows], origin=origin)
    west, south = np.full(4, -180.0), np.full(4, -90.0)
    for i, text in enumerate(texts):
        code = "".join(f"{DIGITS.index(digit):05b}" for digit in text)
        west[i] += 360 * int(code[0::2], 2) / 2**23
        south[i] += 180 * int(code[1::2], 2) / 2**22
    errors = [np.full(4, 180 / 2**23), np.full(4, 360 / 2**24)]
    expected = [south + errors[0], west + errors[1], *errors]
    out.case("geohash_decode", [rows], expected, ulps=4, origin=origin)
    out.refused(
        "geohash_decode_letter",
        "geohash_decode",
        [np.frombuffer(b"ezs42a", np.uint8)],
        ["f64[]"] * 4,
        None,
        "INVALID_ARGUMENT",
        "expected digits and letters but a, i, l and o, found the byte 97",
    )


def write_prices(out):
    spot = np.array([100.0, 90, 110, 42])
    strike = np.array([100.0, 100, 100, 40])
    years = np.array([1.0, 0.25, 2, 0.5])
    volatility = np.array([0.2, 0.35, 0.1, 0.2])
    operands, dprice = [spot, strike, years, volatility], np.array([1.0, 2, -1, 0.5])
    for name, sign in [("call", 1), ("put", -1)]:
        attributes = {"rate": np.float64(0.1), "put": sign < 0}
        expected = price(*operands, 0.1, sign)
        if sign > 0:
            assert round(expected[3], 2) == 4.76, "Hull's example"
        out.case(f"black_scholes_{name}", operands, [expected], attributes, 1024, "black_scholes")
        slopes = []
        for i in range(4):
            moved = [operand.astype(complex) for operand in operands]
            moved[i] += 1e-30j
            slopes.append(np.imag(price(*moved, 0.1, sign)) / 1e-30 * dprice)
        target = "black_scholes_grad"
        name = f"{target}_{name}"
        out.case(name, [*operands, dprice], slopes, attributes, 4096, target)


def runge_kutta(slope, x, step):
    """One step, in exact arithmetic."""
    move = lambda x, factor, slope: [a + factor * b for a, b in zip(x, slope, strict=True)]
    k1 = slope(x)
    k2 = slope(move(x, step / 2, k1))
    k3 = slope(move(x, step / 2, k2))
    k4 = slope(move(x, step, k3))
    for weight, k in [(1, k1), (2, k2), (2, k3), (1, k4)]:
        x = move(x, weight * step / 6, k)
    return x


def write_equations(out, rng):
    x, a = rng.normal(size=(3, 4)), rng.normal(size=(4, 4))
    # A step of a linear equation is the exponential's series up to the fourth power.
    power, transition = np.eye(4), np.eye(4)
    for k in range(1, 5):
        power = power @ (0.125 * a) / k
        transition = transition + power
    attributes = {"step": np.float64(0.125), "steps": np.int32(3)}
    expected = x @ np.linalg.matrix_power(transition, 3).T
    origin = "the series of the exponential, in NumPy"
    out.case("linear_ode", [x, a], [expected], attributes, 16, origin=origin)
    attributes = {"step": np.float64(1 / 1024), "steps": np.int32(1024)}
    expected = x @ linalg.expm(a).T
    # The method's error is the fourth power of a step's.
    origin = "scipy.linalg.expm"
    out.case("linear_ode_to_one", [x, a], [expected], attributes, 4096, "linear_ode", origin)
    out.refused(
        "linear_ode_steps",
        "linear_ode",
        [x, a],
        ["f64[3,4]"],
        {"step": np.float64(0.5), "steps": np.int32(-1)},
        "INVALID_ARGUMENT",
        "expected steps from 0 to 1000000, found -1",
    )

    names = ["alpha", "beta", "gamma", "delta"]
    values = dict(zip(names, [1.5, 0.75, 3.0, 1.25], strict=True))
    alpha, beta, gamma, delta = (Fraction(value) for value in values.values())
    slope = lambda x: [
        alpha * x[0] - beta * x[0] * x[1],
        delta * x[0] * x[1] - gamma * x[1],
    ]
    x = np.array([[10.0, 5.0], [1.0, 2.0], [0.0, 1.0]])
    rows = [[Fraction(value) for value in row] for row in x]
    for _ in range(2):
        rows = [runge_kutta(slope, row, Fraction(1, 64)) for row in rows]
    expected = np.array([[float(value) for value in row] for row in rows])
    attributes = {name: np.float64(value) for name, value in values.items()}
    attributes |= {"step": np.float64(1 / 64), "steps": np.int32(2)}
    out.case("lotka_volterra", [x], [expected], attributes, 4, origin="fractions, in Python")


def write_filters(out, rng):
    keys = rng.integers(0, WORD, 12, np.uint64)
    old = np.zeros(16, np.uint8)
    old[3] = 5
    new = old.copy()
    for key in keys:
        for bit in bits(int(key), 3, 128):
            new[bit // 8] |= 1 << bit % 8
    hashes = {"hashes": np.int32(3)}
    out.case("bloom_insert", [old, keys], [new], hashes)
    asked = np.concatenate([keys[:4], rng.integers(0, WORD, 28, np.uint64)]).reshape(2, 16)
    is_set = lambda bit: new[bit // 8] >> bit % 8 & 1
    found = [all(is_set(bit) for bit in bits(int(key), 3, 128)) for key in asked.ravel()]
    out.case("bloom_query", [new, asked], [np.array(found).reshape(2, 16)], hashes)


def write():
    rng = np.random.default_rng(6)
    out = Writer("tables", "the definition in NumPy, SciPy and Python")
    write_counts(out, rng)
    write_places(out, rng)
    write_prices(out)
    write_filters(out, rng)
    write_equations(out, rng)
