"""Targets as custom operators of PyTorch, on the CPU.

`op` turns a target into a function on tensors. It is an operator of `torch.library` and supports
autograd, autocast, `torch.compile`, `torch.export` and `torch.func`. Each tensor is copied once,
into the guest or out of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from callbox._callbox import StaticInfo, Target

from ._operator import Operator, operators

__all__ = ["op"]


def op(
    target: Target,
    *,
    vjp: Target | Callable[..., Any] | None = None,
    jvp: Target | Callable[..., Any] | None = None,
    result_shape_dtypes: Any = None,
    name: str | None = None,
    deadline: float | None = None,
    opaque: bytes | None = None,
    static_info: bytes | StaticInfo | None = None,
    api_version: str | None = None,
) -> Callable[..., Any]:
    """Makes a function of a target: ``function(*tensors, **attributes)``.

    The function is the operator ``torch.ops.callbox.NAME``. Make it once, where a module is
    imported, because operators stay until the process ends.

    Args:
        target: A module's target, such as ``module.rms_norm``.
        vjp: The gradients, as a target, an op or a function. Default: the target that the module
            declares for them. A target takes the operands and then
            the cotangents of the results, with the same attributes, and returns the cotangents of
            the operands, as for `callbox.jax.op`. An op of such a target has gradients of its own,
            for second derivatives. A function is ``vjp(operands, results, cotangents,
            **attributes)``, with a tuple of operands, and with results and cotangents in the form
            in which the function returns its results. It returns one cotangent for each operand,
            and can itself be differentiated if it uses PyTorch's own operations. Integers have no
            cotangents: a target neither takes nor returns them, and a function gets None.
        jvp: Forward-mode derivatives, as a target, an op or a function. Default: the target that
            the module declares for them. A target takes the operands
            and then their tangents, and returns the tangents of the results, whose types must
            follow from its metadata. A function is ``jvp(operands, results, tangents,
            **attributes)``, and returns tangents in the form in which the function returns its
            results. The tangents of integers are None.
        result_shape_dtypes: The shape and dtype of the result, or a sequence of them: an object
            with ``shape`` and ``dtype`` (such as ``torch.empty(2, 3, device="meta")``) or a pair of
            shape and dtype. A function ``(*operands, **attributes)`` may return them. Default: the
            target's metadata infers them from the operands.
        name: The operator's name, after ``callbox::``. Default: the target's name with a digest of
            its module and options, which is the same in each process that makes the same operators
            in the same order.
        deadline: The time limit of a call, in seconds, under `torch.func.vmap` of all elements of
            the batch together, without PyTorch's own time. Default: the policy's. In a compiled or
            exported program each element is a call of its own, as is the fuel of the deterministic
            mode.
        opaque: The opaque bytes, for a target of XLA's older conventions.
        static_info: The static information, for a target of the JAX FFI proposal's convention.
        api_version: The convention, for a target that has several.

    Returns:
        The function. Its tensors must be on the CPU and have the dtypes and ranks that the target
        declares; tensors that are not contiguous are copied. It returns one tensor, or a tuple of
        tensors. Attributes are Python's numbers, strings, lists and dictionaries, or NumPy's
        scalars and arrays. Under `torch.compile` attributes are constants: each new value is
        compiled again, and NumPy's are not supported. A tensor as an attribute becomes an operand
        if the target declares both. Under `torch.func.vmap` the target is called once for each
        element of the batch, or, if it has the trait ``batched``, once for all. Under
        `torch.autocast` a floating-point tensor of a dtype that the target does not take becomes
        the narrowest one that it takes without a loss. Without `jvp` forward-mode derivatives raise
        `NotImplementedError`.

    Raises:
        TypeError: `target` is not a target; `vjp` or `jvp` is neither a target nor a function.
        ValueError: `name` is not an identifier, or is taken.

    The function raises the same exceptions as a direct call of the target, and
    `NotImplementedError` for a tensor that is not on the CPU.

    >>> import torch
    >>> import callbox.torch
    >>> kernels = callbox.Host().load(guests / "activation.wasm")
    >>> squareplus = callbox.torch.op(kernels.squareplus)
    >>> x = torch.tensor([-3.0, 0.0, 3.0], requires_grad=True)
    >>> y = squareplus(x, beta=16.0)
    >>> y.detach()
    tensor([1., 2., 4.])
    >>> y.sum().backward()
    >>> x.grad
    tensor([0.2000, 0.5000, 0.8000])
    """
    vjp = getattr(target, "vjp", None) if vjp is None else vjp
    jvp = getattr(target, "jvp", None) if jvp is None else jvp
    # Of a jitted function.
    target = getattr(target, "__callbox_target__", target)
    vjp, jvp = (getattr(rule, "__callbox_target__", rule) for rule in (vjp, jvp))
    if not isinstance(target, Target):
        raise TypeError(
            f"expected target to be a target of a module, such as module.add_n, found {type(target).__name__}"
        )
    for rule, given in (("vjp", vjp), ("jvp", jvp)):
        if given is not None and not callable(given):
            raise TypeError(
                f"target {target.name!r}: expected {rule} to be a target or a function, found {type(given).__name__}"
            )
    options = {"deadline": deadline, "opaque": opaque, "static_info": static_info, "api_version": api_version}
    given = {option: value for option, value in options.items() if value is not None}
    operator = Operator(target, given, result_shape_dtypes, vjp, jvp, name)
    function = operator.function()
    operators[function] = operator
    return function
