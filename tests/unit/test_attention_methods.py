"""Grad-CAM and attention on a model whose feature layer and weights are known (hazards V10, V11)."""

import numpy as np
import oracles
import pytest
import torch
from captum.attr import LayerGradCam

from explainbench.core.cell import stream
from explainbench.core.errors import BadInput
from explainbench.core.registry import METHODS, MODELS
from explainbench.methods.grad_cam import to_steps
from explainbench.models._blocks import steps_of_patches, steps_of_tokens


def cam_by_hand(model, windows) -> np.ndarray:
    """(n, tokens): features weighted by their mean gradients over tokens, before the cut."""
    module = model.forecaster.module
    tokens = module.embed(((torch.from_numpy(windows.context[:, :, 0]) - 100) / 20).unflatten(1, (-1, 2)))
    tokens = tokens.detach().requires_grad_()
    weights = module.weights(torch.from_numpy(windows.context.astype(np.float32)).double())
    value = 100 + 10 * (weights[:, :, None] * torch.tanh(tokens)).sum((1, 2))
    (slope,) = torch.autograd.grad(value.sum(), tokens)
    return (tokens * slope.mean(1, keepdim=True)).sum(2).detach().numpy()


def test_v10_the_library_alone_maps_features_instead_of_tokens():
    model, windows = oracles.seeing(), oracles.windows()
    context = torch.from_numpy(windows.context.astype(np.float32)).requires_grad_()
    wrong = LayerGradCam(model.torch, model.forecaster.feature_layer).attribute(context)
    assert wrong.shape[-1] == 5  # as many as features, not as tokens


def test_v10_grad_cam_is_right_on_the_time_axis():
    model, windows, masker = oracles.seeing(), oracles.windows(), oracles.masker(used=(0,))
    explanation = METHODS.build("grad_cam").explain(model, windows, masker, stream(0, "x"))
    signed = np.repeat(cam_by_hand(model, windows), 2, axis=1)  # two-step tokens
    np.testing.assert_allclose(explanation.attribution[:, :, 0], np.maximum(signed, 0), rtol=1e-4, atol=1e-5)
    assert (explanation.attribution[:, :, 1:] == 0).all()
    share = np.maximum(-signed, 0).sum(1) / np.abs(signed).sum(1)
    np.testing.assert_allclose(explanation.notes["negative_share"], share, atol=1e-4)
    assert np.array_equal(explanation.notes["zero_map"], (signed <= 0).all(axis=1).astype(float))


def test_grad_cam_of_more_windows_than_a_model_batch():
    model, masker = oracles.seeing(), oracles.masker(used=(0,))
    windows = oracles.windows().take(np.tile(np.arange(6), 12))  # 72 rows: the library keeps a layer's last call only
    found = METHODS.build("grad_cam").explain(model, windows, masker, stream(0, "x")).attribution
    np.testing.assert_allclose(found, np.tile(found[:6], (12, 1, 1)), rtol=1e-6)


def test_grad_cam_leaves_no_hook_behind():
    model = oracles.seeing()
    METHODS.build("grad_cam").explain(model, oracles.windows(), oracles.masker(), stream(0, "x"))
    assert not model.forecaster.feature_layer._forward_hooks


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        (steps_of_tokens(6, 2), [0, 0, 1, 1, 2, 2]),
        (steps_of_tokens(5, 2), [0, 1, 1, 2, 2]),
        (steps_of_tokens(3, 1), [0, 1, 2]),
        (steps_of_patches(7, 4, 2, 2), [0, 0, 0, 0.5, 0.5, 1, 1]),  # the oldest step is in no patch, two are in both
    ],
)
def test_a_step_has_the_mean_of_the_tokens_that_cover_it(shares, expected):
    assert to_steps(np.arange(len(shares), dtype=float)[None], shares.numpy())[0].tolist() == expected


def test_a_layer_that_is_not_the_declared_one_is_refused():
    with pytest.raises(BadInput, match="7 tokens, but its feature_shares place 6"):
        to_steps(np.zeros((1, 7)), np.eye(6))


def test_attention_lies_on_the_channels_in_use_in_exact_ties():
    model, windows = oracles.seeing(), oracles.windows()
    received = model.forecaster.attention(windows.context)
    method = METHODS.build("attention")
    alone = method.explain(model, windows, oracles.masker(used=(0,)), stream(0, "x")).attribution
    np.testing.assert_allclose(alone[:, :, 0], received, rtol=1e-9, atol=1e-12)
    assert (alone[:, :, 1:] == 0).all()
    masker = oracles.masker()
    both = method.explain(model, windows, masker, stream(0, "x")).attribution
    np.testing.assert_allclose(both.sum(axis=2), received, rtol=1e-9, atol=1e-12)
    groups = masker.groups.average(both)
    assert np.array_equal(groups[:, :4], groups[:, 4:])


def test_v11_the_registered_transformer_does_not_hide_its_weights():
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    seen = []
    layer.self_attn.register_forward_hook(lambda *call: seen.append(call[2][1]))
    layer(torch.zeros(1, 4, 8, requires_grad=True))
    assert seen == [None]  # the library's own layer
    from explainbench.core.forecaster import TaskShape

    entry = MODELS.build("transformer", {"width": 8, "heads": 2, "layers": 1, "epochs": 1})
    windows = oracles.windows()
    shape = TaskShape(oracles.STEPS, oracles.HORIZON, 3, 0)
    fitted = entry.fit(windows, windows, shape, stream(0, "fit"))
    received = fitted.attention(windows.context)
    np.testing.assert_allclose(received.sum(axis=1), 1, rtol=1e-5)
    assert received.std() > 0
