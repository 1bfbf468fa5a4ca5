import pytest

import callbox.torch


@pytest.fixture(scope="session")
def activation(guests):
    return callbox.Host().load(guests / "activation.wasm")


@pytest.fixture(scope="session")
def rms_norm_module(guests):
    return callbox.Host().load(guests / "rms_norm.wasm")


@pytest.fixture(scope="session")
def typed(guests):
    return callbox.Host().load(guests / "typed_ffi.wasm")


@pytest.fixture(scope="session")
def faults(guests):
    return callbox.Host().load(guests / "faults.wasm")


@pytest.fixture(scope="session")
def squareplus(activation):
    return callbox.torch.op(activation.squareplus, vjp=activation.squareplus_grad)


@pytest.fixture(scope="session")
def rms_norm(rms_norm_module):
    return callbox.torch.op(rms_norm_module.rms_norm, vjp=rms_norm_module.rms_norm_grad)
