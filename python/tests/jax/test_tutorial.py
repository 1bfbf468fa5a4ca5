"""Runs the pages' Python blocks in order, and compares their output with the pages.

All ``python`` blocks of a page run in one process. The output of a block is what it prints,
followed by the value of its last line as in a notebook, or by the error that ends it. It must match
the following ``text`` block, or be empty without one. Three dots match anything. Words after the
language name modules that the block needs; the block is skipped without them.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parents[3]
PAGES = ["docs/python.md", "python/README.md", "README.md"]

RUN = """
import ast, contextlib, importlib.util, io, json, sys

def run(source, name, namespace):
    tree = ast.parse(source, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            exec(compile(tree, name, "exec"), namespace)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
                if value is not None:
                    print(repr(value))
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    return printed.getvalue()

namespace = {"__name__": "__main__"}
outputs = []
for source, line, needs in json.load(sys.stdin):
    is_there = all(importlib.util.find_spec(module) for module in needs)
    # Newlines in front keep the page's line numbers in errors.
    outputs.append(run("\\n" * line + source, "page", namespace) if is_there else None)
json.dump(outputs, sys.stdout)
"""


class Block:
    """A fenced block."""

    def __init__(self, language: str, needs: list[str], text: str, line: int) -> None:
        self.language, self.needs, self.text, self.line = language, needs, text, line


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    text = (ROOT / page).read_text()
    if page == "README.md":
        # The first page needs a hub: `hub/test_first_page.py` runs it.
        first = text.split("\n## ")[1]
        text = text.replace(first, "\n" * first.count("\n"))
    found = []
    for fence in re.finditer(r"^```(\w+)([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, fence.start(3))
        found.append(Block(fence[1], fence[2].split(), fence[3], line))
    return found


def expected_outputs(page: str) -> list[tuple[Block, str]]:
    """The Python blocks, each with its expected output."""
    found = blocks(page)
    following = [*found[1:], Block("", [], "", 0)]
    pairs = zip(found, following, strict=True)
    return [
        (block, after.text if after.language == "text" else "") for block, after in pairs if block.language == "python"
    ]


@pytest.fixture(scope="module")
def folder(guests, tmp_path_factory):
    """A folder with the files of a clone that the pages use, and the compiled guests."""
    folder = tmp_path_factory.mktemp("clone")
    (folder / "target").mkdir()
    (folder / "target/guests").symlink_to(guests.resolve())
    (folder / "guests").symlink_to(ROOT / "guests")
    for module in guests.glob("*.wasm"):
        (folder / module.name).symlink_to(module.resolve())
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_a_pages_python_runs_and_prints_what_the_page_says(folder, page):
    expected = expected_outputs(page)
    assert expected, f"expected blocks of Python in {page}"
    program = [(block.text, block.line, block.needs) for block, _ in expected]
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(program),
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    outputs = json.loads(done.stdout)
    checker = doctest.OutputChecker()
    wrong = [
        f"{page}:{block.line}: expected\n{text}found\n{printed}"
        for (block, text), printed in zip(expected, outputs, strict=True)
        if printed is not None and not checker.check_output(text, printed, doctest.ELLIPSIS)
    ]
    assert not wrong, "\n".join(wrong)
    assert any(printed is not None for printed in outputs)


@pytest.mark.parametrize("page", PAGES[:2])
def test_kernels_on_the_pages_are_the_guests(page):
    """The Rust blocks are copies of guests, which other tests compile."""
    sources = [path.read_text() for path in ROOT.glob("guests/*/src/lib.rs")]
    kernels = [block for block in blocks(page) if block.language == "rust"]
    assert kernels or page != PAGES[0]
    for kernel in kernels:
        parts = [part.strip() for part in re.split(r"^use .*;$", kernel.text, flags=re.MULTILINE) if part.strip()]
        assert all(any(part in source for source in sources) for part in parts), (
            f"{page}:{kernel.line}: expected a guest's source"
        )


@pytest.mark.parametrize("page", PAGES[:2])
def test_links_and_pictures_are_there(page):
    text = (ROOT / page).read_text()
    links = re.findall(r"\]\(([^)#\s]+)", text)
    assert links
    missing = [link for link in links if "://" not in link and not (ROOT / page).parent.joinpath(link).exists()]
    assert not missing
