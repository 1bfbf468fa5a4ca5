"""What all tests share."""

import os
from pathlib import Path

import pytest

import callbox


class _Everywhere:
    """Fixtures that the package's doctests have as well, which are not in this folder."""

    @pytest.fixture(autouse=True)
    def doctests(self, request, doctest_namespace):
        doctest_namespace["guests"] = request.getfixturevalue("guests")

    @pytest.fixture(scope="session")
    @classmethod
    def guests(cls) -> Path:
        """The folder of the test guests' modules."""
        folder = Path(os.environ.get("CALLBOX_GUESTS", Path(__file__).parents[2] / "target/guests"))
        assert folder.is_dir(), f"expected the test guests in {folder}: `cargo xtask guests` builds them"
        return folder

    @pytest.fixture
    def host(self) -> callbox.Host:
        """A host of the default policy, which no other test has."""
        return callbox.Host()


def pytest_configure(config):
    config.pluginmanager.register(_Everywhere())


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out what tests start as programs: looking for doctests would import it."""
    return True if collection_path.suffix == ".py" and not collection_path.name.startswith("test_") else None
