"""Runs the blocks of PyTorch on the pages, which the tests of the tutorial skip without PyTorch."""

from __future__ import annotations

import ast
import doctest
import re
from pathlib import Path

import pytest

import callbox

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```python torch\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["docs/python.md", "python/README.md"])
def test_blocks_print_what_the_page_says(page, guests):
    host = callbox.Host()
    rms_norm = host.load(guests / "rms_norm.wasm")
    activation = host.load(guests / "activation.wasm")
    # The names that earlier blocks of the pages define.
    namespace = {"callbox": callbox, "host": host, "norm": rms_norm, "kernels": rms_norm, "activation": activation}
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    for source, expected in blocks:
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, page, "exec"), namespace)
        value = None if last is None else eval(compile(ast.Expression(last.value), page, "eval"), namespace)
        printed = "" if value is None else f"{value!r}\n"
        assert doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS), printed
