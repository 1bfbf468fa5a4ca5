"""`callbox.stats`: counters by target."""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import pytest

import callbox
from callbox._stats import _escaped


def counted(target: str, sha256: str) -> dict[str, object]:
    (found,) = (known for known in callbox.stats() if (known["target"], known["sha256"]) == (target, sha256))
    return found


def test_each_target_counts_its_calls_time_bytes_and_failures(host, guests):
    # A module of these tests alone: other hosts of the process count with it.
    module = host.load((guests / "add_n.wasm").read_bytes() + b"\0\x06\x05stats")
    # Not before its first call: a module can have thousands of targets that no program calls.
    assert module.digest not in {target["sha256"] for target in callbox.stats()}
    for n in (1.0, 2.0, 3.0):
        module.add_n(np.zeros(2, np.float32), n=n)
    with pytest.raises(callbox.CallError):
        module.add_n(np.zeros(2, np.float32), n=-1.0)
    found = counted("add_n", module.digest)
    assert (found["calls"], found["failures"]) == (4, {"INVALID_ARGUMENT": 1})
    total = host.stats()
    assert {key: found[key] for key in total} == total
    assert (found["platform"], found["bytes_out"]) == ("Host", 24)
    assert 0 < found["seconds"] < 3600
    # Counters stay with the host, not with the module.
    module.close()
    del module
    gc.collect()
    assert host.stats() == total


def test_counters_never_fall(guests):
    contents = (guests / "add_n.wasm").read_bytes()

    def call(times: int, section: bytes) -> str:
        module = callbox.Host().load(contents + section)
        for _ in range(times):
            module.add_n(np.zeros(2, np.float32), n=1.0)
        return module.digest

    called = call(2, b"\0\x06\x05falls")
    never_called = call(0, b"\0\x06\x05none.")
    gc.collect()
    assert counted("add_n", called)["calls"] == 2
    line = next(line for line in callbox.stats(format="prometheus").splitlines() if called in line)
    assert line.startswith("callbox_calls_total{") and line.endswith(" 2")
    assert never_called not in {target["sha256"] for target in callbox.stats()}
    # Other hosts add to them.
    host = callbox.Host()
    module = host.load(contents + b"\0\x06\x05falls")
    assert counted("add_n", called)["calls"] == 2
    with pytest.raises(callbox.CallError):
        module.add_n(np.zeros(2, np.float32), n=-1.0)
    assert host.stats()["calls"] == 1
    assert call(3, b"\0\x06\x05falls") == called
    del host, module
    gc.collect()
    found = counted("add_n", called)
    assert (found["calls"], found["bytes_out"], found["failures"]) == (6, 40, {"INVALID_ARGUMENT": 1})


def test_prometheus_reads_the_text(guests):
    program = f"""
import numpy as np
import callbox
host = callbox.Host()
kernels = host.load({str(guests / "add_n.wasm")!r})
for n in (1.0, 2.0, -1.0):
    try:
        kernels.add_n(np.zeros(2, np.float32), n=n)
    except callbox.CallError:
        pass
print(callbox.stats(format="prometheus"), end="")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    digest = callbox.Host().load(guests / "add_n.wasm").digest
    labels = f'module="add_n.wasm",sha256="{digest}",target="add_n",platform="Host"'
    assert "# TYPE callbox_calls_total counter" in lines
    assert f"callbox_calls_total{{{labels}}} 3" in lines
    assert f"callbox_operand_bytes_total{{{labels}}} 24" in lines
    assert f"callbox_result_bytes_total{{{labels}}} 16" in lines
    assert f'callbox_failures_total{{{labels},code="INVALID_ARGUMENT"}} 1' in lines
    (seconds,) = (line for line in lines if line.startswith("callbox_call_seconds_total"))
    assert float(seconds.rsplit(" ", 1)[1]) > 0


def test_labels_are_escaped():
    assert _escaped('a"b\\c\nd') == 'a\\"b\\\\c\\nd'


def test_another_format_is_refused():
    with pytest.raises(ValueError, match="expected format=None or 'prometheus', found 'json'"):
        callbox.stats(format="json")  # type: ignore[call-overload]
