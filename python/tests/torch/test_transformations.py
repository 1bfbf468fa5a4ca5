"""PyTorch's transformations: gradients, `torch.compile`, `torch.export`, `torch.func.vmap`."""

import pytest
import torch

import callbox
import callbox.torch

EPS = 1e-3


def rms_norm_of_torch(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * weight


def squareplus_vjp(operands, results, cotangent, beta):
    (x,) = operands
    assert results.shape == x.shape
    return cotangent * (1 + x / torch.sqrt(x * x + beta)) / 2


def variables(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, dtype=dtype, generator=generator).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 3)])
def test_opcheck(squareplus, rms_norm, shape):
    for op, operands, attributes in [
        (squareplus, variables(shape), "{'beta': 2.0}"),
        (squareplus, variables(shape, dtype=torch.float64), "{'beta': 2.0}"),
        (rms_norm, variables(shape, (3,)), "{'eps': 0.001}"),
        (rms_norm, [x.detach() for x in variables(shape, (3,))], "{'eps': 0.001}"),
    ]:
        torch.library.opcheck(op.operator, (operands, attributes, -1))


def test_gradients_by_a_target(squareplus):
    assert torch.autograd.gradcheck(lambda x: squareplus(x, beta=2.0), variables((2, 3), dtype=torch.float64))


def test_gradients_by_a_target_of_several_operands(rms_norm):
    x, weight = variables((2, 4, 3), (3,))
    rms_norm(x, weight, eps=EPS).square().sum().backward()
    expected = torch.autograd.grad(rms_norm_of_torch(x, weight).square().sum(), (x, weight))
    torch.testing.assert_close((x.grad, weight.grad), expected)


def test_gradients_by_a_function_and_theirs(activation):
    squareplus = callbox.torch.op(activation.squareplus, vjp=squareplus_vjp)
    x = variables((2, 3), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: squareplus(x, beta=2.0), x)
    assert torch.autograd.gradgradcheck(lambda x: squareplus(x, beta=2.0), x)


def test_gradients_of_complex_numbers_are_pytorchs(typed):
    like = {"result_shape_dtypes": lambda x, *_: x}
    by_function = callbox.torch.op(typed.conjugate, vjp=lambda operands, results, ct: ct.conj(), **like)
    assert torch.autograd.gradcheck(by_function, variables((3,), dtype=torch.complex128))


def test_a_target_gives_cotangents_as_jax_has_them(typed):
    # The target returns its operand as the cotangent. PyTorch conjugates complex cotangents.
    like = {"result_shape_dtypes": lambda x, *_: x}
    copy = callbox.torch.op(typed.copy_any, vjp=typed.copy_remaining, **like)
    (x,) = variables((3,), dtype=torch.complex128)
    copy(x).real.sum().backward()
    torch.testing.assert_close(x.grad, x.detach().conj())


def test_integers_have_no_gradients(typed):
    def vjp(operands, results, cotangents):
        assert [ct is None for ct in cotangents] == [False, True]
        return 2 * cotangents[0], None

    copy = callbox.torch.op(typed.copy_remaining, result_shape_dtypes=lambda *operands: operands, vjp=vjp)
    (x,) = variables((3,))
    y, numbers = copy(x, torch.arange(3))
    assert not numbers.requires_grad
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 2.0))


def test_declared_gradients_need_no_argument(activation, squareplus):
    plain = callbox.torch.op(activation.squareplus)
    (x,) = variables((3,))
    (found,) = torch.autograd.grad(plain(x, beta=1.0).sum(), x)
    (expected,) = torch.autograd.grad(squareplus(x, beta=1.0).sum(), x)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_without_vjp_there_are_no_gradients(guests, squareplus):
    plain = callbox.torch.op(callbox.Host().load(guests / "softmax.wasm").softmax)
    (x,) = variables((3,))
    with pytest.raises(RuntimeError, match=r"'softmax' cannot be differentiated.*vjp="):
        plain(x).sum().backward()
    (gradient,) = torch.autograd.grad(squareplus(x, beta=1.0).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="'squareplus_grad' cannot be differentiated"):
        gradient.sum().backward()


def test_a_vjp_of_too_few_cotangents_is_refused(rms_norm_module):
    op = callbox.torch.op(rms_norm_module.rms_norm, vjp=lambda operands, results, ct, eps: ct)
    x, weight = variables((2, 3), (3,))
    with pytest.raises(ValueError, match="each of the 2 operands, found 1"):
        op(x, weight, eps=EPS).sum().backward()


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_compiled_programs(squareplus, rms_norm, dynamic):
    def loss(x, weight, beta):
        return (squareplus(rms_norm(x.T, weight, eps=EPS), beta=beta) * weight).sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for columns, beta in [(2, 2.0), (5, 2.0), (7, 3.5)]:
        x, weight = variables((3, columns), (3,))
        expected = torch.autograd.grad(loss(x, weight, beta), (x, weight))
        found = torch.autograd.grad(compiled(x, weight, beta), (x, weight))
        torch.testing.assert_close(found, expected)


def test_new_sizes_are_not_compiled_anew(rms_norm):
    compilations = []

    def backend(graph, example_inputs):
        compilations.append(graph)
        return graph

    compiled = torch.compile(lambda x, w: rms_norm(x, w, eps=EPS), fullgraph=True, backend=backend, dynamic=True)
    for rows, columns in [(2, 3), (5, 3), (4, 8), (9, 7), (6, 5)]:
        x, weight = torch.randn(rows, columns), torch.randn(columns)
        torch.testing.assert_close(compiled(x, weight), rms_norm_of_torch(x, weight))
    assert len(compilations) == 1


def test_a_failure_of_a_compiled_program_is_the_targets(squareplus):
    compiled = torch.compile(lambda x: squareplus(x, beta=-1.0) + 1, fullgraph=True, backend="aot_eager")
    with pytest.raises(callbox.CallError) as caught:
        compiled(torch.ones(2))
    assert caught.value.code == "INVALID_ARGUMENT"


def test_exported_programs_name_the_operator(squareplus):
    class Model(torch.nn.Module):
        def forward(self, x):
            return squareplus(x, beta=2.0) * 2

    x = torch.randn(4)
    exported = torch.export.export(Model(), (x,))
    assert any(node.target is squareplus.operator for node in exported.graph.nodes)
    torch.testing.assert_close(exported.module()(x), squareplus(x, beta=2.0) * 2)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_vmap_is_a_loop(rms_norm, dim):
    x, weight = torch.randn(2, 3, 3), torch.randn(3)
    batched = torch.func.vmap(lambda x: rms_norm(x, weight, eps=EPS), in_dims=dim)(x)
    expected = torch.stack([rms_norm_of_torch(each, weight) for each in x.unbind(dim)])
    torch.testing.assert_close(batched, expected)


def test_vmap_of_some_operands_in_vmap(rms_norm):
    x, weight = torch.randn(2, 4, 3), torch.randn(5, 3)
    inner = torch.func.vmap(lambda x, w: rms_norm(x, w, eps=EPS), in_dims=(None, 0))
    batched = torch.func.vmap(inner, in_dims=(0, None))(x, weight)
    expected = torch.stack([torch.stack([rms_norm_of_torch(a, w) for w in weight]) for a in x])
    torch.testing.assert_close(batched, expected)


def test_vmap_of_nothing(squareplus):
    batched = torch.func.vmap(lambda x: squareplus(x, beta=1.0))(torch.empty(0, 3, dtype=torch.float64))
    assert batched.shape == (0, 3)
    assert batched.dtype is torch.float64


def test_gradients_through_vmap(rms_norm):
    x, weight = variables((4, 2, 3), (3,))
    torch.func.vmap(lambda x: rms_norm(x, weight, eps=EPS))(x).square().sum().backward()
    expected = torch.autograd.grad(rms_norm_of_torch(x, weight).square().sum(), (x, weight))
    torch.testing.assert_close((x.grad, weight.grad), expected)


@pytest.mark.skipif(
    torch.__version__.startswith("2.5."), reason="PyTorch 2.5 fails to trace the vmap of any operator of torch.library"
)
def test_vmap_in_a_compiled_program(squareplus):
    compiled = torch.compile(torch.func.vmap(lambda x: squareplus(x, beta=1.0)), fullgraph=True, backend="aot_eager")
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), squareplus(x, beta=1.0))


def test_a_model_learns(squareplus, rms_norm):
    torch.manual_seed(0)
    first, last = torch.nn.Linear(2, 16), torch.nn.Linear(16, 1)
    weight = torch.nn.Parameter(torch.ones(16))
    optimizer = torch.optim.Adam([*first.parameters(), *last.parameters(), weight], lr=0.02)
    x = torch.randn(64, 2)
    y = (x[:, :1] * x[:, 1:]).sign()
    losses = []
    for _ in range(60):
        hidden = squareplus(rms_norm(first(x), weight, eps=EPS), beta=4.0)
        loss = torch.nn.functional.mse_loss(last(hidden), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


#: The derivative of squareplus at -3, 0 and 3 with beta=16: (1 + x / sqrt(x² + 16)) / 2.
POINTS, SLOPES = [-3.0, 0.0, 3.0], [0.2, 0.5, 0.8]


@pytest.fixture(params=["target", "function"])
def differentiable(request, activation):
    vjp = activation.squareplus_grad if request.param == "target" else squareplus_vjp
    squareplus = callbox.torch.op(activation.squareplus, vjp=vjp)
    return lambda x: squareplus(x, beta=16.0)


def test_checkpointed_calls_have_gradients(differentiable):
    x = torch.tensor(POINTS, requires_grad=True)
    torch.utils.checkpoint.checkpoint(differentiable, x, use_reentrant=False).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor(SLOPES))


def test_functional_gradients(differentiable):
    x = torch.tensor(POINTS)
    slopes = torch.tensor(SLOPES)
    gradient = torch.func.grad(lambda x: differentiable(x).sum())
    torch.testing.assert_close(gradient(x), slopes)
    torch.testing.assert_close(torch.func.vjp(differentiable, x)[1](2 * torch.ones(3))[0], 2 * slopes)
    torch.testing.assert_close(torch.func.jacrev(differentiable)(x), torch.diag(slopes))
    torch.testing.assert_close(torch.func.vmap(gradient)(torch.stack([x, x])), torch.stack([slopes, slopes]))


def test_second_functional_gradients_by_a_function(activation):
    squareplus = callbox.torch.op(activation.squareplus, vjp=squareplus_vjp)

    def f(x):
        return squareplus(x, beta=16.0).sum()

    x = torch.tensor(POINTS)
    # The second derivative is beta / (2 (x² + beta)^(3/2)).
    expected = torch.diag(8 / (x * x + 16) ** 1.5)
    torch.testing.assert_close(torch.func.jacrev(torch.func.grad(f))(x), expected)


def test_forward_mode_is_refused(differentiable):
    x = torch.tensor(POINTS)
    with pytest.raises(NotImplementedError, match="no forward-mode derivatives"):
        torch.func.jvp(differentiable, (x,), (torch.ones(3),))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones(3))
        with pytest.raises(NotImplementedError, match="no forward-mode derivatives"):
            differentiable(dual)


def test_a_target_that_takes_batches_gets_them_whole(guests):
    linear = callbox.torch.op(callbox.Host().load(guests / "layers.wasm").linear)
    generator = torch.Generator().manual_seed(0)

    def quarters(*shape):
        return torch.randint(-8, 9, shape, generator=generator) / 4

    x, weight, bias = quarters(5, 3, 4), quarters(4, 2), quarters(2)
    expected = x @ weight + bias
    found = torch.func.vmap(lambda x: linear(x, weight, bias))(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    moved = torch.func.vmap(lambda x: linear(x, weight, bias), in_dims=2, out_dims=1)(x.permute(1, 2, 0))
    torch.testing.assert_close(moved, expected.movedim(0, 1), rtol=0, atol=0)
    # A weight for each element is a call for each.
    weights = quarters(5, 4, 2)
    each = torch.func.vmap(linear, in_dims=(0, 0, None))(x, weights, bias)
    torch.testing.assert_close(each, x @ weights + bias, rtol=0, atol=0)
    grads = torch.func.vmap(torch.func.grad(lambda x: (linear(x, weight, bias) ** 2).sum()))(x)
    torch.testing.assert_close(grads, 2 * expected @ weight.T)


def test_the_size_of_one_call_is_that_of_the_batch(assemble):
    body = (
        b"\x20\x00\x28\x02\x10\x28\x02\x00\x20\x00\x28\x02\x10\x28\x02\x04"
        b"\x20\x00\x28\x02\x10\x28\x02\x04\xfc\x0b\x00\x41\x00"
    )
    buffer = {"name": "x", "element_types": ["u8"], "dimensions": ["batch", "n"]}
    declaration = {"name": "size", "traits": ["batched"], "operands": [buffer, buffer], "results": [buffer]}
    size = callbox.torch.op(callbox.Host().load(assemble({"size": body}, [declaration])).size)
    x = torch.zeros(7, 2, 3, dtype=torch.uint8)
    found = torch.func.vmap(size, in_dims=(0, None))(x, x[0])
    torch.testing.assert_close(found, torch.full_like(x, 42))
    assert torch.func.vmap(size)(x[:0], x[:0]).shape == (0, 2, 3)


#: In pseudocode: copy the bytes of operand `i`, whose record is 36 bytes long, to the first result.
_COPY = (
    b"\x20\x00\x28\x02\x10\x28\x02\x00\x20\x00\x28\x02\x08\x28\x02%c"
    b"\x20\x00\x28\x02\x10\x28\x02\x04\xfc\x0a\x00\x00\x41\x00"
)


def test_derivatives_that_are_declared_have_declared_derivatives(assemble):
    """`f(x) = x` with the vjp `g(x, d) = d`, whose jvp is `t(x, d, tx, td) = tx`, and so on."""

    def declared(name, operands, of=None, mode="vjp"):
        arrays = [{"name": x, "element_types": ["f32"], "dimensions": [".."]} for x in operands]
        derivative = {"derivative_of": of, "derivative_mode": mode} if of else {}
        result = {"name": "y", "element_types": ["f32"], "dimensions": [".."]}
        return {"name": name, "operands": arrays, "results": [result], **derivative}

    declarations = [
        declared("f", "x"),
        declared("g", "xd", "f"),
        declared("j", "xt", "f", "jvp"),
        declared("t", ["x", "d", "tx", "td"], "g", "jvp"),
        declared("u", ["x", "t", "tx", "tt"], "j", "jvp"),
    ]
    copied = {"f": 0, "g": 1, "j": 1, "t": 2, "u": 2}
    module = callbox.Host().load(assemble({name: _COPY % (36 * i) for name, i in copied.items()}, declarations))
    f = callbox.torch.op(module.f)
    x, direction = torch.tensor([3.0, 4.0]), torch.tensor([5.0, 6.0])

    def gradient(x):
        return torch.func.grad(lambda x: f(x).sum())(x)

    def slope(x):
        return torch.func.jvp(f, (x,), (torch.ones(2),))[1]

    for function in (gradient, slope):
        value, tangent = torch.func.jvp(function, (x,), (direction,))
        torch.testing.assert_close(value, torch.ones(2))
        torch.testing.assert_close(tangent, direction)
    torch.testing.assert_close(torch.func.jacfwd(gradient)(x), torch.eye(2))
