"""That there is a JAX of the right age, and that it knows callbox's handlers."""

from __future__ import annotations

from callbox import _callbox

#: The first JAX with a public `jax.ffi`.
OLDEST = (0, 5, 0)

#: What the extension remembers it by.
_DONE = "_registered_with_jax"


def check_jax() -> None:
    """Checks that JAX is there and not too old.

    Raises:
        ImportError: says what is needed and what was found.
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
    """Tells XLA the handlers, once in a process.

    XLA takes a second function for a name without a word before a backend is there, and then has a backend that does not start. So it
    is the extension, which has the functions and is never loaded twice, that remembers; this module can be reloaded.
    """
    if getattr(_callbox, _DONE, False):
        return
    import jax

    capsules = _callbox.ffi_capsules()
    for name, cuda in (
        (_callbox.FFI_TARGET, capsules["cuda"]),
        (_callbox.FFI_TARGET_COMMAND_BUFFER, capsules["cuda_command_buffer"]),
    ):
        jax.ffi.register_ffi_target(name, capsules["cpu"], platform="cpu")
        # On a machine without CUDA this is a name that nobody looks up.
        jax.ffi.register_ffi_target(name, cuda, platform="CUDA")
    setattr(_callbox, _DONE, True)
