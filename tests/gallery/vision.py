"""Cases of images and detections. Gradients of linear functions are their transposes."""

import colorsys

import numpy as np
from scipy import ndimage

from case import Writer

f32 = np.float32


def transpose(function, sizes, cotangent):
    """Returns the cotangent of the operand of a linear function, by one unit at a time."""
    found = np.zeros(sizes)
    for place in np.ndindex(*sizes):
        unit = np.zeros(sizes)
        unit[place] = 1
        found[place] = np.sum(function(unit) * cotangent)
    return found.astype(f32)


def grid_sample(x, grid):
    """SciPy interpolates with zeros around the image."""
    n, c, h, w = x.shape
    places = [((grid[..., 1] + 1) * h - 1) / 2, ((grid[..., 0] + 1) * w - 1) / 2]
    images = [
        [ndimage.map_coordinates(x[i, j], [p[i] for p in places], order=1, mode="grid-constant")
         for j in range(c)]
        for i in range(n)
    ]  # fmt: skip
    return np.array(images)


def resize(x, rows, columns):
    """SciPy interpolates with the edge's pixels around the image."""
    h, w = x.shape[-2:]
    y = (np.arange(rows) + 0.5) * h / rows - 0.5
    z = (np.arange(columns) + 0.5) * w / columns - 0.5
    places = np.meshgrid(y, z, indexing="ij")
    planes = x.reshape(-1, h, w)
    found = [ndimage.map_coordinates(p, places, order=1, mode="nearest") for p in planes]
    return np.array(found).reshape(*x.shape[:-2], rows, columns)


def roi_align(x, regions, rows, columns, scale, samples):
    found = np.zeros((len(regions), x.shape[1], rows, columns))
    for r, (image, left, top, right, bottom) in enumerate(regions):
        left, top, right, bottom = (scale * side - 0.5 for side in (left, top, right, bottom))
        i = (np.arange(rows * samples) + 0.5) / (rows * samples)
        j = (np.arange(columns * samples) + 0.5) / (columns * samples)
        y, z = np.meshgrid(top + i * (bottom - top), left + j * (right - left), indexing="ij")
        h, w = x.shape[2:]
        far = (y < -1) | (y > h) | (z < -1) | (z > w)
        for c, plane in enumerate(x[int(image)]):
            points = ndimage.map_coordinates(plane, [y, z], order=1, mode="nearest")
            points = np.where(far, 0, points).reshape(rows, samples, columns, samples)
            found[r, c] = points.mean((1, 3))
    return found


def suppress(boxes, scores, overlap, least, most):
    """Chooses by the matrix of all overlaps."""
    left, top, right, bottom = boxes.T.astype(np.float64)
    width = np.minimum(right[:, None], right) - np.maximum(left[:, None], left)
    height = np.minimum(bottom[:, None], bottom) - np.maximum(top[:, None], top)
    common = np.clip(width, 0, None) * np.clip(height, 0, None)
    area = (right - left) * (bottom - top)
    overlaps = common / (area[:, None] + area - common)
    alive, chosen = scores > least, []
    while alive.any() and len(chosen) < most:
        i = int(np.argmax(np.where(alive, scores, -np.inf)))
        chosen.append(i)
        alive &= overlaps[i] <= overlap
        alive[i] = False
    return chosen


def write():
    rng = np.random.default_rng(5)
    out = Writer("vision", "the definition in NumPy and SciPy, in F64")
    wide = lambda array: array.astype(np.float64)
    x = rng.normal(size=(2, 2, 4, 5)).astype(f32)
    grid = rng.uniform(-1.3, 1.3, (2, 3, 4, 2)).astype(f32)
    dy = rng.normal(size=(2, 2, 3, 4)).astype(f32)
    # Weights of F32, and sums that may cancel.
    out.case("grid_sample", [x, grid], [grid_sample(wide(x), wide(grid)).astype(f32)], ulps=2048)
    dx = transpose(lambda unit: grid_sample(unit, wide(grid)), x.shape, dy)
    dgrid = np.zeros(grid.shape)
    for axis in range(2):
        step = np.zeros(2)
        step[axis] = 1e-6
        ahead = grid_sample(wide(x), wide(grid) + step)
        slope = (ahead - grid_sample(wide(x), wide(grid) - step)) / 2e-6
        dgrid[..., axis] = np.sum(slope * dy, 1)
    operands = [x, grid, dy]
    out.case("grid_sample_grad", operands, [dx, dgrid.astype(f32)], ulps=4096)

    for name, rows, columns in [("larger", 7, 9), ("smaller", 2, 3)]:
        expected = resize(wide(x), rows, columns).astype(f32)
        out.case(f"resize_{name}", [x], [expected], ulps=2048, target="resize")
        dy = rng.normal(size=(2, 2, rows, columns)).astype(f32)
        dx = transpose(lambda unit, n=rows, m=columns: resize(unit, n, m), x.shape, dy)
        out.case(f"resize_grad_{name}", [dy], [dx], ulps=2048, target="resize_grad")

    regions = np.array([[0, 1, 1, 9, 7], [1, -2, 2, 12, 30], [1, 3, 3, 3.5, 4]], f32)
    attributes = {"scale": f32(0.5), "samples": np.int32(2)}
    function = lambda x: roi_align(x, wide(regions), 2, 3, 0.5, 2)
    expected = [function(wide(x)).astype(f32)]
    out.case("roi_align", [x, regions], expected, attributes, ulps=2048)
    dy = rng.normal(size=(3, 2, 2, 3)).astype(f32)
    dx = transpose(function, x.shape, dy)
    out.case("roi_align_grad", [regions, dy], [dx], attributes, ulps=4096)
    out.refused(
        "roi_align_image",
        "roi_align",
        [x, regions + f32(1)],
        ["f32[3,2,2,3]"],
        attributes,
        "INVALID_ARGUMENT",
        "expected an image below 2, found 2",
    )

    corners = rng.uniform(0, 10, (40, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(1, 5, (40, 2))], 1).astype(f32)
    scores = rng.random(40).astype(f32)
    for name, most in [("", 40), ("_of_room_for_three", 3)]:
        chosen = suppress(boxes, scores, f32(0.3), f32(0.1), most)
        padded = np.array(chosen + [-1] * (most - len(chosen)), np.int32)
        attributes = {"overlap": f32(0.3), "least": f32(0.1)}
        expected = [padded, np.int32(len(chosen))]
        target = "suppress_non_maxima"
        out.case(f"{target}{name}", [boxes, scores], expected, attributes, target=target)

    colours = rng.random((2, 4, 3)).astype(f32)
    colours[0, 0] = 0.5
    colours[0, 1] = 0
    colours[0, 2] = [0.25, 0.75, 0.75]
    pixels = wide(colours).reshape(-1, 3)
    hsv = np.array([colorsys.rgb_to_hsv(*pixel) for pixel in pixels]).reshape(colours.shape)
    rgb = np.array([colorsys.hsv_to_rgb(*pixel) for pixel in pixels]).reshape(colours.shape)
    origin = "Python's colorsys, in F64"
    # Differences of colours that are alike lose digits.
    out.case("rgb_to_hsv", [colours], [hsv.astype(f32)], ulps=256, origin=origin)
    out.case("hsv_to_rgb", [colours], [rgb.astype(f32)], ulps=256, origin=origin)
    levels = np.array([0, 0.001, 0.0031, 0.04, 0.05, 0.5, 0.9, 1], f32)
    linear = np.where(levels <= 0.04045, levels / 12.92, ((wide(levels) + 0.055) / 1.055) ** 2.4)
    srgb = np.where(
        levels <= 0.0031308, 12.92 * wide(levels), 1.055 * wide(levels) ** (1 / 2.4) - 0.055
    )
    out.case("srgb_to_linear", [levels], [linear.astype(f32)], ulps=1)
    out.case("linear_to_srgb", [levels], [srgb.astype(f32)], ulps=1)
