"""Cases of sampling, beams, distances and byte pairs."""

import numpy as np

from case import Writer

f32 = np.float32


def sample(logits, uniform, temperature, top_k, top_p):
    if temperature == 0:
        return int(np.argmax(logits))
    weights = np.exp((logits - logits.max()) / temperature)
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[: top_k or None]
    total = sum(weights[i] for i in order)
    kept, mass = [], 0.0
    for i in order:
        if mass >= top_p * total:
            break
        kept.append(i)
        mass += weights[i]
    cumulative = np.cumsum([weights[i] for i in kept])
    return kept[min(int(np.searchsorted(cumulative, uniform * mass, "right")), len(kept) - 1)]


def distance(a, b):
    if not a or not b:
        return len(a) + len(b)
    cut = [distance(a[1:], b) + 1, distance(a, b[1:]) + 1, distance(a[1:], b[1:]) + (a[0] != b[0])]
    return min(cut)


def similarity(a, b):
    """Jaro's similarity, and Winkler's bonus for up to four equal first symbols."""
    if not a and not b:
        return 1.0
    reach = max(max(len(a), len(b)) // 2 - 1, 0)
    free, pairs = set(range(len(b))), []
    for i, symbol in enumerate(a):
        near = [j for j in sorted(free) if abs(i - j) <= reach and b[j] == symbol]
        if near:
            free.remove(near[0])
            pairs.append((i, near[0]))
    if not pairs:
        return 0.0
    found = [b[j] for j in sorted(j for _, j in pairs)]
    swapped = sum(a[i] != other for (i, _), other in zip(pairs, found, strict=True)) // 2
    m = len(pairs)
    jaro = (m / len(a) + m / len(b) + (m - swapped) / m) / 3
    if jaro <= 0.7:
        return jaro
    alike = 0
    while alike < min(4, len(a), len(b)) and a[alike] == b[alike]:
        alike += 1
    return jaro + 0.1 * alike * (1 - jaro)


def encode(text, merges):
    """Applies the lowest merge at its first place, until none applies."""
    tokens = list(text)
    while True:
        pairs = list(zip(tokens, tokens[1:], strict=False))
        ranks = [merges.index(pair) for pair in pairs if pair in merges]
        if not ranks:
            return tokens
        place = pairs.index(merges[min(ranks)])
        tokens[place : place + 2] = [256 + min(ranks)]


def write():
    rng = np.random.default_rng(4)
    out = Writer("sequences", "the definition in plain Python, by a simpler way")
    logits = (2 * rng.normal(size=(8, 12))).astype(f32)
    logits[0, 3] = logits[0, 7] = 5
    logits[1, 2] = -np.inf
    uniform = rng.random(8).astype(f32)
    rows = logits.astype(np.float64)
    settings = [("all", 1, 0, 1), ("top_k", 0.7, 3, 1), ("top_p", 1.5, 0, 0.6)]
    settings += [("both", 1, 5, 0.75), ("greedy", 0, 0, 1)]
    for name, temperature, top_k, top_p in settings:
        attributes = {
            "temperature": f32(temperature),
            "top_k": np.int32(top_k),
            "top_p": f32(top_p),
        }
        chosen = [
            sample(row, float(u), float(f32(temperature)), top_k, float(f32(top_p)))
            for row, u in zip(rows, uniform, strict=True)
        ]
        expected = [np.array(chosen, np.int32)]
        out.case(f"sample_{name}", [logits, uniform], expected, attributes, 0, "sample_tokens")
    attributes["top_p"] = f32(0)
    out.refused(
        "sample_top_p_of_none",
        "sample_tokens",
        [logits, uniform],
        ["s32[8]"],
        attributes,
        "INVALID_ARGUMENT",
        "expected top_p above 0 and at most 1, found 0",
    )

    scores = np.array([-1, -2.5, -1], f32)
    logs = (rng.integers(-8, 0, (3, 6)) / 2).astype(f32)
    sums = scores[:, None] + logs
    order = sorted(range(18), key=lambda i: (-sums.ravel()[i], i))[:7]
    best = sums.ravel()[order]
    beams, tokens = np.array(order, np.int32) // 6, np.array(order, np.int32) % 6
    out.case("beam_step", [scores, logs], [best, beams, tokens])

    words = [("kitten", "sitting"), ("", "abc"), ("flaw", "lawn"), ("saturday", "sunday")]
    words += [("same", "same")]
    rows = [np.zeros((5, 9), np.int32) for _ in range(2)]
    counts = [np.array([len(pair[i]) for pair in words], np.int32) for i in range(2)]
    for i, pair in enumerate(words):
        for side, word in enumerate(pair):
            rows[side][i, : len(word)] = [ord(letter) for letter in word]
    expected = np.array([distance(a[:8], b) for a, b in words], np.int32)
    out.case("levenshtein", [rows[0], counts[0], rows[1], counts[1]], [expected])
    out.refused(
        "levenshtein_count",
        "levenshtein",
        [rows[0], counts[0] + 3, rows[1], counts[1]],
        ["s32[5]"],
        None,
        "INVALID_ARGUMENT",
        "expected a_count from 0 to 9, found 11",
    )

    names = [("martha", "marhta"), ("dwayne", "duane"), ("dixon", "dicksonx"), ("", "")]
    names += [("", "a"), ("abc", "xyz"), ("jellyfish", "smellyfish"), ("a", "a")]
    rows = [np.zeros((8, 10), np.int32) for _ in range(2)]
    counts = [np.array([len(pair[i]) for pair in names], np.int32) for i in range(2)]
    for i, pair in enumerate(names):
        for side, word in enumerate(pair):
            rows[side][i, : len(word)] = [ord(letter) for letter in word]
    operands = [rows[0], counts[0], rows[1], counts[1]]
    out.case("jaro_winkler", operands, [np.array([similarity(a, b) for a, b in names])], None, 4)
    out.refused(
        "jaro_winkler_count",
        "jaro_winkler",
        [rows[0], counts[0] - 1, rows[1], counts[1]],
        ["f64[8]"],
        None,
        "INVALID_ARGUMENT",
        "expected a_count from 0 to 10, found -1",
    )

    text = b"aaaabdaaabac the theatre aaa"
    merges = [(97, 97), (116, 104), (256, 97), (257, 101), (259, 97), (258, 98), (98, 100)]
    tokens = encode(text, merges)
    padded = np.array(tokens + [-1] * (len(text) - len(tokens)), np.int32)
    operands = [np.frombuffer(text, np.uint8), np.array(merges, np.int32)]
    out.case("byte_pair_encode", operands, [padded, np.int32(len(tokens))])
    out.refused(
        "byte_pair_encode_unknown_token",
        "byte_pair_encode",
        [operands[0], np.array([[97, 256]], np.int32)],
        ["s32[28]", "s32[]"],
        None,
        "INVALID_ARGUMENT",
        "expected tokens below 256 in merge 0, found [97, 256]",
    )
