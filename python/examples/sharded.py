"""A kernel on four devices, followed by a collective, and its failure on one of them."""

import os
from functools import partial
from pathlib import Path

import callbox
import callbox.jax
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

GUESTS = Path(os.environ.get("CALLBOX_GUESTS", Path(__file__).parent / "../../target/guests"))

# Four virtual devices of one CPU. This must be set before JAX is first used.
jax.config.update("jax_num_cpu_devices", 4)


def main() -> None:
    host = callbox.Host()
    activation = host.load(GUESTS / "activation.wasm")
    faults = host.load(GUESTS / "faults.wasm")
    # Failures are results: if a shard raised an error, XLA would wait for it, and then end the
    # process.
    squareplus = callbox.jax.op(activation.squareplus, on_error="status")
    broken = callbox.jax.op(faults.write_out_of_bounds, on_error="status", result_shape_dtypes=lambda x: x)

    mesh = jax.make_mesh((4,), ("i",))

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(P("i"), P()), out_specs=(P(), P()))
    def total(x, bad_shard):
        y, status = jax.lax.cond(
            jax.lax.axis_index("i") == bad_shard,
            broken,
            lambda x: squareplus(x, beta=4.0),
            x,
        )
        return jax.lax.psum(jnp.sum(y), "i"), jax.lax.pmax(status, "i")

    x = jax.device_put(jnp.linspace(-1, 1, 4096), NamedSharding(mesh, P("i")))
    y, status = total(x, -1)
    callbox.jax.check(status)
    expected = jnp.sum(jax.nn.squareplus(x))
    print(f"four good shards: {y:.3f}, JAX alone: {expected:.3f}")
    assert jnp.allclose(y, expected)
    assert "all-gather" not in total.lower(x, -1).compile().as_text()

    y, status = total(x, 2)
    print(f"shard 2 broken: {y}, status {status}")
    try:
        callbox.jax.check(status)
    except callbox.CallError as error:
        print(error)
        assert error.code == "OUT_OF_RANGE"
    else:
        raise AssertionError("the failure was not found")


if __name__ == "__main__":
    main()
