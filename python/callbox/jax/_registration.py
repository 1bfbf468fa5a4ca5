"""Checks the version of JAX, and registers callbox's handlers."""

from __future__ import annotations

from callbox import _callbox

#: The first version of JAX with a public `jax.ffi`.
OLDEST = (0, 5, 0)

#: The attribute of the extension that is set after the registration.
_DONE = "_registered_with_jax"


def check_jax() -> None:
    """Checks that JAX is installed and recent enough.

    Raises:
        ImportError: JAX is missing or too old.
    """
    needed = "callbox.jax needs JAX " + ".".join(map(str, OLDEST)) + " or newer"
    advice = "pip install 'callbox[jax]' installs one"
    try:
        import jax
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        raise ImportError(f"{needed}, found none: {advice}", name="jax") from error
    if jax.__version_info__ < OLDEST:
        raise ImportError(f"{needed}, found {jax.__version__}: {advice}", name="jax")


def register() -> None:
    """Registers the handlers with XLA and the annotations of JAX's profiler, once in a process.

    Before a backend exists, XLA silently accepts a second function for a name, and then the backend
    fails to start. Therefore the extension remembers the registration: unlike this module, it is
    never loaded twice.
    """
    if getattr(_callbox, _DONE, False):
        return
    import jax

    _callbox.set_trace_annotation(jax.profiler.TraceAnnotation)
    capsules = _callbox.ffi_capsules()
    for name, cuda in (
        (_callbox.FFI_TARGET, capsules["cuda"]),
        (_callbox.FFI_TARGET_COMMAND_BUFFER, capsules["cuda_command_buffer"]),
    ):
        jax.ffi.register_ffi_target(name, capsules["cpu"], platform="cpu")
        # Without CUDA this registration has no effect.
        jax.ffi.register_ffi_target(name, cuda, platform="CUDA")
    setattr(_callbox, _DONE, True)
