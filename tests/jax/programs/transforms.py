"""`fft`."""

import numpy as np
from jax import lax
from jax import numpy as jnp

from .registry import Subject, c64, f32, lattice, wave

SUBJECT = Subject("transforms")


def spectrum(*values):
    """The part of a signal's spectrum that a real inverse transform reads."""
    return np.fft.rfft(np.array(values)).astype(np.complex64)


@SUBJECT.program(c64(1, 2j, -3, 4 - 1j), c64([[1, 2, 3], [4, 5j, 6]]), ulps=16)
def fft_complex(x, y):
    """The result is not rounded after each step."""
    return jnp.fft.fft(x), jnp.fft.ifft(x), jnp.fft.fft(y, axis=0)


@SUBJECT.program(lattice((8,)), lattice((3, 5)), spectrum(1, 2, 4, 8, 16, 32), spectrum(1, -2, 4, -8, 16), ulps=64)
def fft_real(x, y, even, odd):
    """Even and odd lengths, forward and back."""
    return jnp.fft.rfft(x), jnp.fft.rfft(y), jnp.fft.irfft(even), jnp.fft.irfft(odd, n=5)


@SUBJECT.program(lattice((4, 6)), lattice((2, 3, 4)), ulps=16)
def fft_of_several_dimensions(x, y):
    """The half of a spectrum is that of the last dimension. The bounds are those of numbers away
    from 0."""
    back = lax.fft(lax.fft(x, "RFFT", (4, 6)), "IRFFT", (4, 6))
    parts = [part(z) + 64 for z in (jnp.fft.fft2(x), jnp.fft.rfftn(y)) for part in (jnp.real, jnp.imag)]
    return *parts, back + 64


@SUBJECT.program(c64(1, 2, 3, 4), ulps=16)
def fft_batched(x):
    """A batch of a transform, and transforms of one element and of none."""
    return jnp.fft.fft(jnp.stack([x, x[::-1]])), jnp.fft.fft(x[:1]), jnp.fft.ifft(jnp.zeros((2, 0), x.dtype).T, axis=1)


@SUBJECT.program(wave((7,)).astype(np.float64), x64=True, ulps=4096)
def fft_double(x):
    """A prime length."""
    return jnp.fft.fft(x), jnp.fft.rfft(x)


@SUBJECT.program(f32(1, 0, 0, 0, 0, 0, 0, 0), ulps=[16, 16])
def fft_of_an_impulse(x):
    """A spectrum without zeros, whose bounds are small."""
    return jnp.abs(jnp.fft.fft(x)), jnp.real(jnp.fft.fft(x))
