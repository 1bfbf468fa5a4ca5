"""More programs of a person who uses PyTorch every day, with the kernels of the gallery."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  PyTorch's own name for it
from torch.fx.experimental.proxy_tensor import make_fx

import callbox
import callbox.torch

EPS = 1e-5
close = functools.partial(torch.testing.assert_close, atol=1e-4, rtol=1e-3)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(17)


@pytest.fixture(scope="module")
def kernels(guests):
    return callbox.Host().load(guests / "layers.wasm")


@pytest.fixture(scope="module")
def gelu(kernels):
    return callbox.torch.op(kernels.gelu)


@pytest.fixture(scope="module")
def norm(rms_norm_module):
    return functools.partial(callbox.torch.op(rms_norm_module.rms_norm), eps=EPS)


class Norm(torch.nn.Module):
    def __init__(self, function, size):
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.ones(size))

    def forward(self, x):
        return self.function(x, self.weight)


def same_gradients(found, expected, *operands):
    """Compares the results of two functions, and the gradients of all operands."""
    leaves = [x.detach().requires_grad_() for x in operands]
    ours, theirs = found(*leaves), expected(*leaves)
    close(ours, theirs)
    close(torch.autograd.grad(ours.sin().sum(), leaves), torch.autograd.grad(theirs.sin().sum(), leaves))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_a_transformer(kernels, causal):
    attention = callbox.torch.op(kernels.attention)
    same_gradients(
        lambda q, k, v: attention(q, k, v, scale=0.5, causal=causal),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.5),
        *torch.randn(3, 2, 3, 5, 4),
    )


def test_a_layer_norm_whose_rule_is_a_function(kernels):
    gradient = callbox.torch.op(kernels.layer_norm_grad)

    def vjp(operands, result, cotangent, eps):
        return gradient(operands[0], operands[1], cotangent, eps=eps)

    layer_norm = callbox.torch.op(kernels.layer_norm, vjp=vjp)
    same_gradients(
        lambda x, weight, bias: layer_norm(x, weight, bias, eps=EPS),
        lambda x, weight, bias: F.layer_norm(x, (6,), weight, bias, EPS),
        *(torch.randn(4, 6), torch.rand(6), torch.randn(6)),
    )


def test_a_loss_with_labels_that_are_left_out(kernels):
    cross_entropy = callbox.torch.op(kernels.cross_entropy)
    labels = torch.tensor([0, 3, -100, 5], dtype=torch.int32)
    same_gradients(
        lambda x: cross_entropy(x, labels, ignored=-100),
        lambda x: F.cross_entropy(x, labels.long(), ignore_index=-100, reduction="none"),
        torch.randn(4, 6),
    )


def test_gates_of_two_operands(kernels):
    swiglu = callbox.torch.op(kernels.swiglu)
    same_gradients(swiglu, lambda gate, up: F.silu(gate) * up, torch.randn(3, 8), torch.randn(3, 8))


def test_batches_of_matrices_and_a_weight(kernels):
    linear = callbox.torch.op(kernels.linear)
    same_gradients(linear, lambda x, w, b: F.linear(x, w.T, b), torch.randn(4, 3), torch.randn(3, 5), torch.randn(5))


def test_images_are_sampled_at_points(guests):
    sample = callbox.torch.op(callbox.Host().load(guests / "vision.wasm").grid_sample)
    same_gradients(
        sample,
        lambda x, grid: F.grid_sample(x, grid, align_corners=False),
        *(torch.randn(2, 3, 5, 6), torch.rand(2, 4, 4, 2) * 1.8 - 0.9),
    )


def test_training_takes_the_same_steps(norm):
    def train(layer):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), layer, torch.nn.GELU(), torch.nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
        x = torch.randn(32, 6)
        for _ in range(20):
            optimizer.zero_grad(set_to_none=True)
            loss = F.mse_loss(model(x)[:, 0], x[:, 0] * x[:, 1])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        return loss.item()

    assert train(Norm(norm, 8)) == pytest.approx(train(torch.nn.RMSNorm(8, eps=EPS)), rel=1e-2)


def test_gradients_are_accumulated_over_microbatches(norm):
    layer, x = Norm(norm, 6), torch.randn(8, 6)
    layer(x).square().sum().backward()
    whole, layer.weight.grad = layer.weight.grad, None
    for part in x.split(2):
        layer(part).square().sum().backward()
    close(layer.weight.grad, whole)


class Scaled(torch.utils.data.Dataset):
    """Calls a kernel in the worker processes of a loader."""

    def __init__(self, target):
        self.target = target

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return torch.from_dlpack(self.target(np.full(3, i, np.float32), n=0.5))


def test_kernels_in_the_processes_of_a_loader(guests):
    """The processes are forks."""
    target = callbox.Host().load(guests / "add_n.wasm").add_n
    target(np.zeros(3, np.float32), n=1.0)
    loader = torch.utils.data.DataLoader(Scaled(target), batch_size=2, num_workers=2, multiprocessing_context="fork")
    found = torch.cat(list(loader))
    close(found, torch.arange(6.0)[:, None].expand(6, 3) + 0.5)


def test_an_ensemble_of_models(norm):
    models = [torch.nn.Sequential(torch.nn.Linear(4, 6), Norm(norm, 6)) for _ in range(3)]
    params, buffers = torch.func.stack_module_state(models)
    x = torch.randn(5, 4)

    def call(params, buffers, x):
        return torch.func.functional_call(models[0], (params, buffers), (x,))

    found = torch.func.vmap(call, in_dims=(0, 0, None))(params, buffers, x)
    close(found, torch.stack([model(x) for model in models]))


def test_a_compiled_step_for_any_batch(norm):
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), Norm(norm, 6))

    @torch.compile(fullgraph=True, dynamic=True, backend="aot_eager")
    def loss(x):
        return model(x).square().mean()

    for rows in (3, 5, 17):
        x = torch.randn(rows, 4)
        model.zero_grad()
        loss(x).backward()
        found = model[1].weight.grad.clone()
        model.zero_grad()
        model(x).square().mean().backward()
        close(found, model[1].weight.grad)


def test_a_graph_has_the_operator_once(gelu):
    graph = make_fx(lambda x: gelu(gelu(x)) + 1)(torch.randn(3)).graph
    calls = [str(node.target) for node in graph.nodes if "gelu" in str(node.target)]
    assert len(calls) == 2


def test_saved_tensors_are_packed(norm):
    packed = []

    def pack(x):
        packed.append(tuple(x.shape))
        return x.to(torch.float64)

    x = torch.randn(4, 6, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x.to(torch.float32)):
        y = norm(x, torch.ones(6))
    (found,) = torch.autograd.grad(y.square().sum(), x)
    (expected,) = torch.autograd.grad(norm(x, torch.ones(6)).square().sum(), x)
    close(found, expected)
    assert (4, 6) in packed


def test_a_parametrization_by_a_kernel(norm):
    """The rows of a weight are normalised."""

    class Rows(torch.nn.Module):
        def forward(self, weight):
            return norm(weight, torch.ones(weight.shape[-1]))

    linear = torch.nn.Linear(6, 4, bias=False)
    torch.nn.utils.parametrize.register_parametrization(linear, "weight", Rows())
    x = torch.randn(3, 6)
    original = linear.parametrizations.weight.original
    close(linear(x), x @ F.rms_norm(original, (6,), eps=EPS).T)
    linear(x).square().sum().backward()
    assert original.grad.abs().sum() > 0


def test_a_function_of_the_users_own(kernels):
    """Direct calls on tensors, without an operator."""

    class Gelu(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.from_dlpack(kernels.gelu(x.detach()))

        @staticmethod
        def backward(ctx, ct):
            (x,) = ctx.saved_tensors
            return torch.from_dlpack(kernels.gelu_grad(x, ct.contiguous()))

    same_gradients(Gelu.apply, F.gelu, torch.randn(3, 5))


def test_a_failure_in_a_backward_pass(guests, gelu):
    faults = callbox.torch.op(callbox.Host().load(guests / "faults.wasm").panic, result_shape_dtypes=lambda x, **_: x)
    op = callbox.torch.op(
        callbox.Host().load(guests / "activation.wasm").squareplus,
        vjp=lambda operands, results, cotangent, beta: faults(cotangent),
    )
    x = torch.randn(3, requires_grad=True)
    for _ in range(3):
        with pytest.raises(callbox.CallError, match="ABORTED: faults.wasm") as caught:
            op(x, beta=1.0).sum().backward()
        assert (caught.value.target, caught.value.blame, x.grad) == ("panic", "guest", None)
    gelu(x).sum().backward()
    close(x.grad, torch.func.grad(lambda x: F.gelu(x).sum())(x.detach()))


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected")
def test_anomalies_are_found(gelu):
    x = torch.tensor([1.0, -1.0], requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="nan"):
        (gelu(x) * torch.tensor([1.0, float("nan")])).sum().backward()
    gelu(x).sum().backward()
    assert torch.isfinite(x.grad).all()


def test_a_profile_names_the_operator(norm):
    x = torch.randn(4, 6)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(3):
            norm(x, torch.ones(6))
    (event,) = [event for event in profile.key_averages() if event.key.startswith("callbox::rms_norm")]
    assert event.count == 3


def test_tensors_without_elements_and_without_dimensions(gelu, norm):
    assert gelu(torch.tensor(0.0)).shape == ()
    x = torch.empty(0, 6, requires_grad=True)
    weight = torch.ones(6, requires_grad=True)
    norm(x, weight).sum().backward()
    assert (tuple(x.grad.shape), weight.grad.tolist()) == ((0, 6), [0.0] * 6)


def test_arguments_that_are_wrong_are_said(norm, gelu):
    with pytest.raises(TypeError, match="expected dtype float32, found float64"):
        gelu(torch.randn(3, dtype=torch.float64))
    with pytest.raises(TypeError, match="operand"):
        gelu()
    with pytest.raises(ValueError, match="weight"):
        norm(torch.randn(4, 6), torch.ones(5))
    with pytest.raises(ValueError, match="one device, found operand 0 on cpu and operand 1 on meta"):
        norm(torch.randn(4, 6), torch.ones(6, device="meta"))
