"""One program in two processes on loopback, with CPU collectives."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

PROGRAM = """
import os, sys, functools
import jax
rank, port = int(sys.argv[1]), sys.argv[2]
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=rank)
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import callbox.jax
try:
    shard_map = jax.shard_map
except AttributeError:
    from jax.experimental.shard_map import shard_map
    shard_map = functools.partial(shard_map, check_rep=False)

host = callbox.Host()
guests = os.environ["CALLBOX_GUESTS"]
add_n = callbox.jax.op(host.load(f"{guests}/add_n.wasm").add_n)
fail = host.load(f"{guests}/jax_misc.wasm").fail
mesh = Mesh(np.array(jax.devices()), ("i",))
assert (jax.process_count(), len(jax.devices()), len(jax.local_devices())) == (2, 4, 2)
sharding = NamedSharding(mesh, P("i"))
whole = np.arange(8, dtype=np.float32)
x = jax.make_array_from_callback((8,), sharding, lambda index: whole[index])

# The op on shards: processes exchange no operands.
mapped = jax.jit(shard_map(lambda x: add_n(x, n=1.0), mesh=mesh, in_specs=P("i"), out_specs=P("i")))
assert "all-gather" not in mapped.lower(x).compile().as_text()
for shard in mapped(x).addressable_shards:
    np.testing.assert_array_equal(shard.data, whole[shard.index] + 1)
total = jax.jit(shard_map(lambda x: jax.lax.psum(add_n(x, n=1.0).sum(), "i"), mesh=mesh, in_specs=P("i"), out_specs=P()))
assert float(total(x)) == 36.0

# One shard fails, on the second process: both get the status, after the collective.
def body(how):
    y, status = callbox.jax.call(
        fail, how[0], result_shape_dtypes=jax.ShapeDtypeStruct((), np.int32), on_error="status", api_version="API_VERSION_JAX_FFI"
    )
    return jax.lax.psum(y, "i"), jax.lax.pmax(status, "i"), status[None]
program = jax.jit(shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=(P(), P(), P("i"))))
how = np.array([0, 0, 0, 1], np.int32)
_, everywhere, each = program(jax.make_array_from_callback((4,), sharding, lambda index: how[index]))
for status in (everywhere, each):
    try:
        callbox.jax.check(status)
    except callbox.CallError as error:
        print(f"rank {rank}: {error.code}", flush=True)
    else:
        raise AssertionError("expected an error on every process")
jax.distributed.shutdown()
"""


def test_two_processes_work_on_their_shards_and_both_hear_of_a_failure(guests):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "CALLBOX_GUESTS": str(guests), "JAX_PLATFORMS": "cpu"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), str(port)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=100) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for rank, (process, (output, errors)) in enumerate(zip(processes, outputs, strict=True)):
        assert process.returncode == 0, errors
        assert output.count(f"rank {rank}: ") == 2
    codes = {line.split(": ")[1] for output, _ in outputs for line in output.splitlines() if line.startswith("rank ")}
    assert len(codes) == 1
