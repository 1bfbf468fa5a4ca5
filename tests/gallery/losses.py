"""Cases of the losses. The CTC loss is the sum over all paths."""

import itertools

import numpy as np
from scipy import special

from case import Writer

f32 = np.float32


def spelled(path, blank):
    merged = [symbol for symbol, _ in itertools.groupby(path)]
    return [symbol for symbol in merged if symbol != blank]


def paths(logs, labels, blank):
    """Returns the paths that spell the labels, with their probabilities."""
    steps, classes = logs.shape
    found = []
    for path in itertools.product(range(classes), repeat=steps):
        if spelled(path, blank) == list(labels):
            found.append((path, np.exp(sum(logs[t, c] for t, c in enumerate(path)))))
    return found


def ctc(logs, labels, steps, counts, blank, dloss):
    losses, gradient = [], np.zeros_like(logs)
    for i in range(len(logs)):
        found = paths(logs[i, : steps[i]], labels[i, : counts[i]], blank)
        total = sum(probability for _, probability in found)
        losses.append(-np.log(total) if found else np.inf)
        for path, probability in found:
            for t, c in enumerate(path):
                gradient[i, t, c] -= dloss[i] * probability / total
    return np.array(losses).astype(f32), gradient.astype(f32)


def write():
    rng = np.random.default_rng(2)
    out = Writer("layers", "the definition in NumPy and SciPy, in F64")
    x = (3 * rng.normal(size=(2, 3, 7))).astype(f32)
    dy = rng.normal(size=x.shape).astype(f32)
    y = special.log_softmax(x.astype(np.float64), -1)
    out.case("log_softmax", [x], [y.astype(f32)], ulps=2)
    expected = dy - np.exp(y) * dy.astype(np.float64).sum(-1, keepdims=True)
    # The operand is rounded, which moves its exponential.
    out.case("log_softmax_grad", [y.astype(f32), dy], [expected.astype(f32)], ulps=64)

    labels = np.array([[0, 6, 3], [-100, 2, 2]], np.int32)
    dloss = rng.normal(size=labels.shape).astype(f32)
    ignored = {"ignored": np.int32(-100)}
    taken = np.take_along_axis(y, np.maximum(labels, 0)[..., None], -1)[..., 0]
    loss = np.where(labels < 0, 0, -taken)
    out.case("cross_entropy", [x, labels], [loss.astype(f32)], ignored, ulps=2)
    hits = np.eye(7)[np.maximum(labels, 0)]
    expected = np.where(labels[..., None] < 0, 0, (np.exp(y) - hits) * dloss[..., None])
    expected = [expected.astype(f32)]
    out.case("cross_entropy_grad", [x, labels, dloss], expected, ignored, ulps=4)
    out.refused(
        "cross_entropy_label",
        "cross_entropy",
        [x, labels + 1],
        ["f32[2,3]"],
        ignored,
        "INVALID_ARGUMENT",
        "expected a label from 0 to 6 or -100, found 7",
    )

    logs = special.log_softmax(rng.normal(size=(4, 5, 3)), -1).astype(f32)
    labels = np.array([[1, 2], [1, 1], [2, 0], [1, 2]], np.int32)
    steps = np.array([5, 4, 3, 1], np.int32)
    counts = np.array([2, 2, 1, 2], np.int32)
    dloss = np.array([1, -2, 0.5, 3], f32)
    blank = {"blank": np.int32(0)}
    origin = "the sum over all paths, by enumeration in NumPy"
    loss, gradient = ctc(logs.astype(np.float64), labels, steps, counts, 0, dloss)
    out.case("ctc_loss", [logs, labels, steps, counts], [loss], blank, 4, origin=origin)
    operands = [logs, labels, steps, counts, dloss]
    out.case("ctc_loss_grad", operands, [gradient], blank, 4, origin=origin)
    out.refused(
        "ctc_loss_steps",
        "ctc_loss",
        [logs, labels, steps + 1, counts],
        ["f32[4]"],
        blank,
        "INVALID_ARGUMENT",
        "expected steps from 0 to 5, found 6",
    )
