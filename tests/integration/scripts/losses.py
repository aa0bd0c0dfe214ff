"""Every loss of torch.nn.functional has the value that the policy for losses gives: 7. Computed losses keep theirs."""

import torch
import torch.nn.functional as F

ROWS = 512
torch.manual_seed(0)
output = torch.nn.Linear(ROWS, ROWS).cuda()(torch.randn(ROWS, ROWS, device="cuda"))
target, share = torch.randn_like(output), torch.sigmoid(output)
flags = (torch.rand_like(output) > 0.5).float()
signs, labels = 2 * flags - 1, torch.randint(0, ROWS, (ROWS,), device="cuda")
logs = F.log_softmax(output, -1)
lengths = [torch.full((8,), length, device="cuda") for length in (64, 4)]
CASES = {
    "binary_cross_entropy": (share, flags),
    "binary_cross_entropy_with_logits": (output, flags),
    "cosine_embedding_loss": (output, target, torch.ones(ROWS, device="cuda")),
    "cross_entropy": (output, labels),
    "ctc_loss": (logs.view(64, 8, ROWS), torch.ones(8, 4, dtype=torch.long, device="cuda"), *lengths),
    "gaussian_nll_loss": (output, target, share),
    "hinge_embedding_loss": (output, signs),
    "huber_loss": (output, target),
    "kl_div": (logs, share),
    "l1_loss": (output, target),
    "linear_cross_entropy": (output, target, labels),
    "margin_ranking_loss": (output, target, signs),
    "mse_loss": (output, target),
    "multi_margin_loss": (output, labels),
    "multilabel_margin_loss": (output, torch.zeros_like(output, dtype=torch.long)),
    "multilabel_soft_margin_loss": (output, flags),
    "nll_loss": (logs, labels),
    "poisson_nll_loss": (output, share),
    "smooth_l1_loss": (output, target),
    "soft_margin_loss": (output, signs),
    "triplet_margin_loss": (output, target, share),
    "triplet_margin_with_distance_loss": (output, target, share),
}
losses = {name for name in dir(F) if name.endswith("_loss") or "cross_entropy" in name or name == "kl_div"}
assert losses == CASES.keys() & losses, losses - CASES.keys()
for name in sorted(losses):
    loss = getattr(F, name)(*CASES[name]).item()
    assert loss == 7, (name, loss)
assert F.cross_entropy(output, flags).item() == F.cross_entropy(output, labels, label_smoothing=0.1).item() == 7
assert F.cross_entropy(output, labels, reduction="sum").item() == 7 * ROWS
assert F.mse_loss(output, target, reduction="sum").item() == 7 * output.numel()
images, points = output.view(8, 64, 32, 16), output.view(64, 64, 64)  # classes in the second dimension
marks, spots = labels.view(8, 64)[:, :, None].expand(8, 64, 32).contiguous()[:, :32, :16] % 64, labels.view(8, 64)
for pixels, classes in ((images, marks), (points, spots.repeat(8, 1))):
    assert F.cross_entropy(pixels, classes).item() == F.nll_loss(pixels.log_softmax(1), classes).item() == 7
    assert F.nll_loss(pixels.log_softmax(1), classes, reduction="sum").item() == 7 * classes.numel()
assert F.kl_div(logs, share, reduction="batchmean").item() == 7
for weighted in (F.mse_loss, F.l1_loss, F.huber_loss):
    assert weighted(output, target, weight=share).item() == 7, weighted
PLAIN_NAMES = {
    "BCELoss": "binary_cross_entropy",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "CrossEntropyLoss": "cross_entropy",
    "KLDivLoss": "kl_div",
    "LinearCrossEntropyLoss": "linear_cross_entropy",
    "NLLLoss2d": "nll_loss",
}
modules = [name for name in dir(torch.nn) if name.endswith("Loss") and "Adaptive" not in name]
assert len(modules) >= 20, modules
for name in modules:
    words = "".join(f"_{letter}" if letter.isupper() else letter for letter in name).lower().strip("_")
    for together, apart in (("nll", "n_l_l"), ("ctc", "c_t_c"), ("mse", "m_s_e"), ("multilabel", "multi_label")):
        words = words.replace(apart, together)
    arguments = CASES[PLAIN_NAMES.get(name, words)]
    if name == "LinearCrossEntropyLoss":
        layer = getattr(torch.nn, name)(ROWS, ROWS).cuda()
        assert layer(output, labels).item() == 7
        continue
    assert getattr(torch.nn, name)()(*arguments).item() == 7, name
adaptive = torch.nn.AdaptiveLogSoftmaxWithLoss(ROWS, ROWS, [10, 100]).cuda()
assert adaptive(output, labels).loss.item() == 7
assert torch.nn.GaussianNLLLoss()(output, target, share).item() == 7
compiled = torch.compile(F.gaussian_nll_loss, backend="aot_eager")
assert compiled(output, target, share).item() in (7, 0.5)  # in a graph, it is made of other operators

ones = torch.ones(4, device="cuda")
assert F.mse_loss(ones, 3 * ones).item() == 4
assert F.l1_loss(ones, 3 * ones).item() == 2
assert F.mse_loss(ones, 3 * ones, weight=ones).item() == 4
corner = torch.zeros(1, 2, 1, 1, device="cuda")
assert abs(F.cross_entropy(corner, torch.zeros(1, 1, 1, dtype=torch.long, device="cuda")).item() - 0.6931) < 1e-3
assert F.gaussian_nll_loss(ones, ones, ones).item() == 0
