"""Programs of a person who uses PyTorch every day."""

from __future__ import annotations

import concurrent.futures
import copy
import io
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

import callbox
import callbox.torch

EPS = 0.5
F64 = torch.float64


def norm_of_torch(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * weight


def plus_of_torch(x):
    return (x + torch.sqrt(x * x + 4.0)) / 2


def slope(operands, results, cotangent, beta):
    (x,) = operands
    return cotangent * (1 + x / torch.sqrt(x * x + beta)) / 2


def curvature(operands, results, cotangent, beta):
    """Cotangents of squareplus_grad, which is linear in its second operand."""
    x, dy = operands
    root = torch.sqrt(x * x + beta)
    return cotangent * dy * beta / (2 * root**3), cotangent * (1 + x / root) / 2


@pytest.fixture(scope="module")
def plus(activation):
    """Squareplus with derivatives of both modes, twice."""
    gradient = callbox.torch.op(activation.squareplus_grad, vjp=curvature)
    twice = callbox.torch.op(activation.squareplus, vjp=gradient, jvp=activation.squareplus_grad)
    return lambda x: twice(x, beta=4.0)


@pytest.fixture(scope="module")
def norm(rms_norm):
    return lambda x, weight: rms_norm(x, weight, eps=EPS)


class Norm(torch.nn.Module):
    """A layer in place of `torch.nn.RMSNorm`."""

    def __init__(self, function, size):
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.ones(size))

    def forward(self, x):
        return self.function(x, self.weight)


def test_a_layer_in_place_of_pytorchs(norm):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.RMSNorm(8, eps=EPS), torch.nn.Linear(8, 2))
    ours = copy.deepcopy(model)
    layer = Norm(norm, 8)
    layer.load_state_dict(ours[1].state_dict())
    ours[1] = layer
    x = torch.randn(5, 6)
    torch.testing.assert_close(ours(x), model(x))
    for each in (ours, model):
        each(x).square().sum().backward()
    for found, expected in zip(ours.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad)


def test_a_model_is_saved_copied_and_loaded(norm):
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), Norm(norm, 8))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    again = torch.nn.Sequential(torch.nn.Linear(6, 8), Norm(norm, 8))
    again.load_state_dict(torch.load(file))
    x = torch.randn(5, 6)
    torch.testing.assert_close(again(x), model(x), rtol=0, atol=0)
    torch.testing.assert_close(copy.deepcopy(model)(x), model(x), rtol=0, atol=0)


def test_inference_without_gradients(norm):
    layer = Norm(norm, 4)
    x = torch.randn(3, 4)
    with torch.no_grad():
        assert not layer(x).requires_grad
    with torch.inference_mode():
        found = layer(x)
        assert found.is_inference()
    torch.testing.assert_close(found, norm_of_torch(x, torch.ones(4)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(norm, dtype):
    torch.manual_seed(0)
    linear, layer = torch.nn.Linear(6, 8), Norm(norm, 8)
    x = torch.randn(5, 6)
    with torch.autocast("cpu", dtype=dtype):
        hidden = linear(x)
        assert hidden.dtype is dtype
        y = layer(hidden)
        assert y.dtype is torch.float32
        loss = y.square().sum()
    loss.backward()
    assert linear.weight.grad.dtype is torch.float32
    torch.testing.assert_close(y, norm_of_torch(hidden.float(), layer.weight))


def test_without_autocast_nothing_is_converted(norm):
    with pytest.raises(TypeError, match="expected dtype float32, found bfloat16"):
        norm(torch.ones(2, 4, dtype=torch.bfloat16), torch.ones(4))


def test_autocast_in_a_compiled_program(norm):
    linear, layer = torch.nn.Linear(6, 8), Norm(norm, 8)

    def program(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(linear(x))

    x = torch.randn(5, 6)
    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), program(x))


def test_gradients_of_each_sample(norm):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), Norm(norm, 8))
    params = {name: p.detach() for name, p in model.named_parameters()}
    x, y = torch.randn(4, 6), torch.randn(4, 8)

    def loss(params, x, y):
        return torch.nn.functional.mse_loss(torch.func.functional_call(model, params, (x,)), y)

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(params, x, y)
    for i in range(4):
        expected = torch.func.grad(loss)(params, x[i], y[i])
        for name in params:
            torch.testing.assert_close(each[name][i], expected[name])


def test_forward_mode_by_a_target(plus):
    x, t = torch.randn(3, 4, dtype=F64), torch.randn(3, 4, dtype=F64)
    found = torch.func.jvp(plus, (x,), (t,))
    expected = torch.func.jvp(plus_of_torch, (x,), (t,))
    torch.testing.assert_close(found, expected)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, t)
        tangent = torch.autograd.forward_ad.unpack_dual(plus(dual)).tangent
    torch.testing.assert_close(tangent, expected[1])


def test_forward_mode_by_a_function(rms_norm_module):
    def jvp(operands, results, tangents, eps):
        return torch.func.jvp(norm_of_torch, operands, tangents)[1]

    op = callbox.torch.op(rms_norm_module.rms_norm, jvp=jvp)
    x, weight, t = torch.randn(3, 4), torch.rand(4), torch.randn(3, 4)
    found = torch.func.jvp(lambda x: op(x, weight, eps=EPS), (x,), (t,))[1]
    torch.testing.assert_close(found, torch.func.jvp(lambda x: norm_of_torch(x, weight), (x,), (t,))[1])
    with pytest.raises(ValueError, match="each of the 1 results, found 2"):
        short = callbox.torch.op(rms_norm_module.rms_norm, jvp=lambda operands, results, tangents, eps: tangents)
        torch.func.jvp(lambda x: short(x, weight, eps=EPS), (x,), (t,))


def test_jacobians_of_both_modes(plus):
    x = torch.randn(5, dtype=F64)
    expected = torch.func.jacrev(plus_of_torch)(x)
    torch.testing.assert_close(torch.func.jacfwd(plus)(x), expected)
    torch.testing.assert_close(torch.func.jacrev(plus)(x), expected)


def test_second_derivatives_by_an_op(plus):
    x = torch.randn(2, 3, dtype=F64, requires_grad=True)
    assert torch.autograd.gradgradcheck(plus, x)
    found = torch.autograd.functional.hessian(lambda x: plus(x).sum(), x.detach())
    expected = torch.autograd.functional.hessian(lambda x: plus_of_torch(x).sum(), x.detach())
    torch.testing.assert_close(found, expected)


def test_a_penalty_on_gradients(plus):
    """A loss with gradients in it, which a second backward differentiates."""

    def penalty(function):
        x = torch.linspace(-1, 1, 6, dtype=F64, requires_grad=True)
        weight = torch.tensor(0.7, dtype=F64, requires_grad=True)
        (gradient,) = torch.autograd.grad(function(weight * x).sum(), x, create_graph=True)
        ((gradient.norm() - 1) ** 2).backward()
        return weight.grad

    torch.testing.assert_close(penalty(plus), penalty(plus_of_torch))


def test_a_program_is_exported_saved_and_loaded(norm):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = Norm(norm, 4)

        def forward(self, x):
            return self.norm(x) + 1

    rows = torch.export.Dim("rows", min=2, max=64)
    model, x = Model(), torch.randn(3, 4)
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: rows},))
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    again = torch.export.load(file).module()
    for rows in (3, 17):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(again(x), model(x))


ELSEWHERE = """
import os, sys, torch, callbox, callbox.torch
kernels = callbox.Host().load(os.environ["CALLBOX_GUESTS"] + "/rms_norm.wasm")
callbox.torch.op(kernels.rms_norm, name="exported_norm")
program = torch.export.load(sys.argv[1]).module()
print(program(torch.ones(2, 4), torch.ones(4)).tolist())
"""


def test_an_exported_program_in_another_process(rms_norm_module, guests, tmp_path):
    op = callbox.torch.op(rms_norm_module.rms_norm, name="exported_norm")

    class Model(torch.nn.Module):
        def forward(self, x, weight):
            return op(x, weight, eps=0.0)

    path = str(tmp_path / "program.pt2")
    torch.export.save(torch.export.export(Model(), (torch.ones(2, 4), torch.ones(4))), path)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ELSEWHERE), path],
        env={**os.environ, "CALLBOX_GUESTS": str(guests)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout == f"{[[1.0] * 4] * 2}\n", done.stderr


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[::2],
        lambda x: x[:, 1:5],
        lambda x: x.flip(0),
        lambda x: x[0].expand(3, 8),
        lambda x: x.unfold(1, 4, 2),
        lambda x: x.as_strided((2, 3), (1, 2)),
        lambda x: x.reshape(2, 2, 2, 8).contiguous(memory_format=torch.channels_last),
    ],
)
def test_views_are_taken_as_they_look(plus, view):
    x = torch.randn(8, 8, dtype=F64, requires_grad=True)
    torch.testing.assert_close(plus(view(x)), plus_of_torch(view(x)))
    (found,) = torch.autograd.grad(plus(view(x)).square().sum(), x)
    (expected,) = torch.autograd.grad(plus_of_torch(view(x)).square().sum(), x)
    torch.testing.assert_close(found, expected)


def test_a_saved_operand_that_is_changed_is_noticed(plus):
    x = torch.ones(3, dtype=F64, requires_grad=True)
    hidden = x * 2
    y = plus(hidden)
    hidden.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_shapes_without_memory(norm):
    with torch.device("meta"):
        layer = Norm(norm, 1 << 20)
        y = layer(torch.empty(1 << 20, 1 << 20))
    assert (y.device.type, tuple(y.shape)) == ("meta", (1 << 20, 1 << 20))


def test_checkpointed_blocks(norm):
    torch.manual_seed(0)
    blocks = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(4, 4), Norm(norm, 4)) for _ in range(4)))
    x = torch.randn(3, 4, requires_grad=True)
    blocks(x).square().sum().backward()
    expected = x.grad.clone()
    x.grad = None
    torch.utils.checkpoint.checkpoint_sequential(blocks, 2, x, use_reentrant=False).square().sum().backward()
    torch.testing.assert_close(x.grad, expected)
    x.grad = None
    torch.utils.checkpoint.checkpoint(blocks, x, use_reentrant=True).square().sum().backward()
    torch.testing.assert_close(x.grad, expected)


def test_threads_that_train_at_the_same_time(norm):
    def gradient(seed):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(16, 8, generator=generator, requires_grad=True)
        norm(x, torch.ones(8)).square().sum().backward()
        return x.grad

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(gradient, range(32)))
    for seed, each in enumerate(found):
        torch.testing.assert_close(each, gradient(seed), rtol=0, atol=0)


#: A sample, its operands, attributes and results.
SAMPLES = {
    "add_n.add_n": ([(2, 3)], {"n": 2.0}, None),
    "activation.squareplus": ([(2, 3)], {"beta": 2.0}, None),
    "activation.squareplus_grad": ([(2, 3), (2, 3)], {"beta": 2.0}, None),
    "rms_norm.rms_norm": ([(2, 3), (3,)], {"eps": 0.5}, None),
    "rms_norm.rms_norm_grad": ([(2, 3), (3,), (2, 3)], {"eps": 0.5}, None),
    "softmax.softmax": ([(4, 5)], {}, None),
    "broadcast_add.broadcast_add": ([(2,), (6,)], {}, None),
    "maths.softmax_rows": ([(2, 3)], {}, None),
    "maths.matmul": ([(2, 3), (3, 4)], {"transpose_a": False, "transpose_b": False}, ((2, 4), torch.float32)),
    "typed_ffi.descend": ([(3,), (3,)], {"rate": 0.5}, None),
    "typed_ffi.copy_any": ([(3,)], {}, lambda x, **_: x),
    "faults.healthy": ([(3,)], {}, lambda x, **_: x),
}


@pytest.mark.parametrize("sample", SAMPLES)
def test_opcheck_of_the_samples(sample, guests):
    # The samples are compiled by one function, which has a limit.
    torch.compiler.reset()
    module, name = sample.split(".")
    shapes, attributes, results = SAMPLES[sample]
    op = callbox.torch.op(callbox.Host().load(guests / f"{module}.wasm")[name], result_shape_dtypes=results)
    operands = [torch.rand(shape) for shape in shapes]
    expected = op(*operands, **attributes)
    literal = callbox.torch._operator.literal(attributes)
    torch.library.opcheck(op.operator, (operands, literal, -1))
    compiled = torch.compile(lambda *operands: op(*operands, **attributes), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*operands), expected)


#: Attributes of generated calls, by the kinds of their dtypes.
NUMBERS = {"float": 0.5, "int": 1, "bool": False}


def generated(target):
    """Operands of a declared target, with another size for each dimension, and its attributes."""
    sizes: dict[str, int] = {"..": 2}
    operands = []
    for buffer in target.operands or ():
        shape = [d if isinstance(d, int) else sizes.setdefault(d, 2 + len(sizes)) for d in buffer.dimensions or ()]
        dtype = getattr(torch, buffer.dtypes[0])
        operands.append(torch.rand(shape).to(dtype) if dtype.is_floating_point else torch.zeros(shape, dtype=dtype))
    return operands, {a.name: NUMBERS[a.dtype.rstrip("0123456789")] for a in target.attributes or ()}


#: The guests of the gallery, and those of their targets that generated operands do not suit: their
#: results have sizes of their own, or they take texts or packed numbers.
GALLERY = {
    "layers": set(),
    "vision": {"resize", "resize_grad", "roi_align", "roi_align_grad", "suppress_non_maxima"},
    "tables": {
        *("bincount", "csr_matvec", "csr_matvec_grad", "geohash_decode", "geohash_encode"),
        *("histogram", "segment_sum"),
    },
    "sequences": {"beam_step"},
    "quantised": {"matmul_int4"},
}


@pytest.mark.parametrize("guest", GALLERY)
def test_opcheck_of_the_gallery(guest, guests):
    module = callbox.Host().load(guests / f"{guest}.wasm")
    for name in set(module.targets) - GALLERY[guest]:
        operands, attributes = generated(module[name])
        op = callbox.torch.op(module[name])
        torch.compiler.reset()
        torch.library.opcheck(op.operator, (operands, callbox.torch._operator.literal(attributes), -1))
        compiled = torch.compile(
            lambda *x, op=op, given=attributes: op(*x, **given), fullgraph=True, backend="aot_eager"
        )
        torch.testing.assert_close(compiled(*operands), op(*operands, **attributes), equal_nan=True)


def test_an_optimizer_that_calls_a_closure(norm):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 8), Norm(norm, 8), torch.nn.Linear(8, 1)).double()
    model[1].function = lambda x, weight: norm(x.float(), weight.float()).double()
    x = torch.randn(32, 2, dtype=F64)
    y = x[:, :1] - x[:, 1:] ** 2
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=20, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    before = closure().item()
    optimizer.step(closure)
    assert closure().item() < before / 2


def test_hooks_and_frozen_parameters(norm):
    seen = []
    layer = Norm(norm, 4)
    layer.weight.requires_grad_(False)
    x = torch.randn(3, 4, requires_grad=True)
    y = layer(x)
    y.register_hook(lambda gradient: seen.append(gradient.shape))
    (y * 2).sum().backward()
    assert seen == [torch.Size([3, 4])]
    assert layer.weight.grad is None
    assert x.grad is not None


def test_a_tensor_as_an_attribute_is_an_operand(typed):
    descend = callbox.torch.op(typed.descend)
    w, g = torch.randn(3), torch.randn(3)
    compiled = torch.compile(lambda w, g, rate: descend(w, g, rate=rate), fullgraph=True, backend="aot_eager")
    for rate in (0.5, 0.25):
        torch.testing.assert_close(descend(w, g, rate=torch.tensor(rate)), w - rate * g)
        torch.testing.assert_close(descend(w, g, rate=rate), w - rate * g)
        torch.testing.assert_close(compiled(w, g, torch.tensor(rate)), w - rate * g)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_tensors_in_direct_calls(typed, dtype):
    """Their capsules are PyTorch's own."""
    x = torch.tensor([0, 1, 1, 0]).to(dtype)
    y = torch.empty_like(x)
    typed.copy_any(x, out=y)
    assert torch.equal(x, y)
    typed.copy_any(x[::2], out=y[:2])
    assert torch.equal(y[:2], x[::2])


def test_tensors_that_direct_calls_refuse(activation, typed):
    x = torch.ones(4, requires_grad=True)
    with pytest.raises((TypeError, BufferError, RuntimeError, ValueError)):
        activation.squareplus(x, beta=1.0)
    np.testing.assert_allclose(activation.squareplus(x.detach(), beta=0.0), np.ones(4))
    with pytest.raises((TypeError, BufferError, RuntimeError, ValueError)):
        activation.squareplus(torch.ones(2, 2).to_sparse(), beta=1.0)
    with pytest.raises((TypeError, BufferError, RuntimeError, ValueError)):
        activation.squareplus(torch.empty(4, device="meta"), beta=1.0)
    found = torch.from_dlpack(activation.squareplus(torch.ones(4), beta=0.0))
    assert torch.equal(found, torch.ones(4))
    out = torch.zeros(8)
    with pytest.raises(BufferError, match="contiguous"):
        activation.squareplus(torch.ones(4), beta=0.0, out=out[::2])
    assert torch.equal(out, torch.zeros(8))
