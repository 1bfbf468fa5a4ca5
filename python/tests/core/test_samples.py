"""The sample kernels of the package."""

import hashlib

import numpy as np
import pytest

import callbox
import callbox.samples


@pytest.mark.parametrize("name", callbox.samples.__all__)
def test_a_sample_is_what_the_sources_build(name, guests):
    path = getattr(callbox.samples, name)
    digest = hashlib.sha256((guests / f"{name}.wasm").read_bytes()).hexdigest()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert callbox.Host().load(path).digest == digest


def test_the_samples_compute():
    host = callbox.Host()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(host.load(callbox.samples.add_n).add_n(x, n=4.0), x + 4)
    norm = host.load(callbox.samples.rms_norm).rms_norm
    expected = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(norm(x, np.ones(3, np.float32), eps=1e-6), expected, rtol=1e-5)
