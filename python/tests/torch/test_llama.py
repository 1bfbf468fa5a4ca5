"""A Llama of the package `transformers` with callbox's rms_norm in place of its own."""

from __future__ import annotations

import copy

import pytest
import torch

transformers = pytest.importorskip("transformers")


class Norm(torch.nn.Module):
    """Takes the place of `LlamaRMSNorm`, and has its parameter."""

    def __init__(self, function, theirs):
        super().__init__()
        self.function = function
        self.weight = theirs.weight
        self.eps = theirs.variance_epsilon

    def forward(self, x):
        return self.function(x, self.weight, eps=self.eps)


@pytest.fixture(scope="module")
def models(rms_norm):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    theirs = transformers.LlamaForCausalLM(config).eval()
    ours = copy.deepcopy(theirs)
    names = [name for name, module in ours.named_modules() if type(module).__name__ == "LlamaRMSNorm"]
    assert len(names) == 7
    for name in names:
        ours.set_submodule(name, Norm(rms_norm, ours.get_submodule(name)))
    return ours, theirs


@pytest.fixture(scope="module")
def tokens():
    return torch.randint(0, 96, (2, 12), generator=torch.Generator().manual_seed(1))


def test_logits(models, tokens):
    ours, theirs = (model(tokens).logits for model in models)
    torch.testing.assert_close(ours, theirs)


def test_gradients(models, tokens):
    for model in models:
        model.zero_grad()
        model(tokens, labels=tokens).loss.backward()
    ours, theirs = (dict(model.named_parameters()) for model in models)
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name].grad, theirs[name].grad)


def test_generated_tokens(models, tokens):
    ours, theirs = (model.generate(tokens, max_new_tokens=8, do_sample=False) for model in models)
    assert torch.equal(ours, theirs)
    assert ours.shape == (2, 20)


def test_weights_of_one_are_those_of_the_other(models):
    ours, theirs = (model.state_dict() for model in models)
    assert ours.keys() == theirs.keys()
    models[0].load_state_dict(theirs)


def test_a_compiled_model(models, tokens):
    ours, theirs = models
    torch.compiler.reset()
    compiled = torch.compile(lambda tokens: ours(tokens, use_cache=False).logits, backend="aot_eager")
    torch.testing.assert_close(compiled(tokens), theirs(tokens).logits)
