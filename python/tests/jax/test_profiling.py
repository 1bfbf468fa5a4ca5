"""What profilers show of a call."""

from __future__ import annotations

import gzip
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import callbox.jax

pytestmark = pytest.mark.newest


@pytest.fixture
def program(load):
    module = load("rms_norm")
    norm = callbox.jax.op(module.rms_norm, vjp=module.rms_norm_grad, defaults={"eps": 0.5})
    return jax.jit(jax.grad(lambda x: jnp.sum(jnp.tanh(norm(x, jnp.ones(8))))))


def test_the_metadata_names_targets(program):
    text = program.lower(jnp.ones((4, 8))).compile().as_text()
    calls = [line for line in text.splitlines() if 'custom_call_target="callbox.v1"' in line]
    names = [re.search(r'op_name="([^"]*)"', line)[1].split("/") for line in calls]
    assert sorted(name for path in names for name in path if name.startswith("rms_norm")) == [
        "rms_norm",
        "rms_norm_grad",
    ]


def test_a_trace_has_loads_and_direct_calls(guests, tmp_path):
    host = callbox.Host()
    names = [b"callbox load add_n.wasm", b"callbox compile add_n.wasm", b"callbox call add_n"]
    with jax.profiler.trace(str(tmp_path)):
        add_n = host.load(guests / "add_n.wasm").add_n
        add_n(np.ones(3, np.float32), n=1.0)
        host.load((guests / "add_n.wasm").read_bytes())
        with pytest.raises(callbox.CallError):
            host.load(b"no module")
    (trace,) = tmp_path.rglob("*.xplane.pb")
    text = trace.read_bytes()
    assert [name in text for name in [*names, b"callbox load a module"]] == [True] * 4
    # Nothing is recorded now.
    assert add_n(np.ones(3, np.float32), n=1.0)[0] == 2.0


def test_events_of_a_trace_lead_to_targets(program, tmp_path):
    """XLA gives an event the name of the instruction, whose metadata has that of the target."""
    x = jnp.ones((4, 8))
    compiled = program.lower(x).compile()
    compiled(x).block_until_ready()
    with jax.profiler.trace(str(tmp_path)):
        for _ in range(3):
            compiled(x).block_until_ready()
    targets = {
        re.search(r"%?([\w.-]+) = ", line)[1]: re.search(r'op_name="[^"]*?(rms_norm\w*)', line)[1]
        for line in compiled.as_text().splitlines()
        if 'custom_call_target="callbox.v1"' in line
    }
    (trace,) = tmp_path.rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    found = [targets[event["name"]] for event in events if event.get("name") in targets]
    assert sorted(found) == ["rms_norm"] * 3 + ["rms_norm_grad"] * 3
    # The program itself is in the trace, too, for tools that show it.
    (plane,) = tmp_path.rglob("*.xplane.pb")
    assert b"rms_norm_grad" in plane.read_bytes()
