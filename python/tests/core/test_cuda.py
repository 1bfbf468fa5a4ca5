"""The platform CUDA on a stand-in for the driver, with XLA played by the tests.

CALLBOX_CUDA_STAND_IN is the path of the library of the package callbox-cuda-stand-in, which `cargo
xtask python` builds. Results from here say nothing about a GPU.
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

STAND_IN = os.environ.get("CALLBOX_CUDA_STAND_IN")


def run(scenario: str, guests: Path, stand_in: str | None) -> None:
    environment = {**os.environ, "CALLBOX_GUESTS": str(guests)}
    environment.pop("CALLBOX_CUDA_STAND_IN", None)
    if stand_in:
        environment["CALLBOX_CUDA_STAND_IN"] = stand_in
    script = Path(__file__).with_name("cuda_scenarios.py")
    done = subprocess.run(
        [sys.executable, script, scenario], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "passed\n"), f"{done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.skipif(STAND_IN is None, reason="CALLBOX_CUDA_STAND_IN is not set: there is no stand-in for the driver")
@pytest.mark.parametrize(
    "scenario",
    [
        "launches",
        "stats",
        "streams_on_both_devices",
        "twins",
        "fenced",
        "batches",
        "statuses",
        "kernels_that_cannot_be_loaded",
        "a_lost_device",
        "graphs",
        "graphs_of_batches_and_statuses",
        "what_a_graph_cannot_hold",
        "aliases",
        "errors",
        "direct",
        "shadowed",
        "shadowed_by_the_policy",
        "shadowed_within_the_tolerance_of_cases",
        "shadowed_in_batches_and_with_statuses",
        "what_cannot_be_shadowed",
    ],
)
def test_on_the_stand_in(scenario, guests):
    run(scenario, guests, STAND_IN)


def test_handlers_say_the_oldest_version_and_only_one_that_it_can_be_captured(guests):
    run("metadata", guests, None)


def test_without_a_driver_it_fails_by_name(guests):
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        run("no_driver", guests, None)
    else:
        pytest.skip("there is NVIDIA's driver")
