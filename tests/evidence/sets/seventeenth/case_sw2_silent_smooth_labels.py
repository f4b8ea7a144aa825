"""
title: evaluation loss is inf with label smoothing in full fp16: the sum of log-probabilities over the vocabulary overflows
expect: silent:overflow|downcast
thread: https://github.com/huggingface/transformers/issues/10674
measured: eval loss inf, nll 9.0420
widened: eval loss 9.0410, nll 9.0423
innocent: eval loss inf, nll 9.0420
suspect: 42 half hidden states: bounded (tanh outputs, rounded by 0.05%)

Expectation, written first: LabelSmoother sums the half precision log-probabilities over 8000 tokens; 8000 * 9 passes 65504 and the
    smoothed loss is inf. The half precision of the decoder states looks guilty, but it moves the logits by a fraction of a percent only.
"""
import torch
from torch import nn


class LabelSmoother:
    def __init__(self, epsilon=0.1, ignore_index=-100):
        self.epsilon, self.ignore_index = epsilon, ignore_index

    def __call__(self, logits, labels):
        log_probs = -nn.functional.log_softmax(logits, dim=-1)  # BORN
        labels = labels.unsqueeze(-1)
        padding_mask = labels.eq(self.ignore_index)
        nll_loss = log_probs.gather(dim=-1, index=labels.clamp(min=0)).float()
        smoothed_loss = log_probs.sum(dim=-1, keepdim=True).float()  # BORN
        nll_loss.masked_fill_(padding_mask, 0.0)
        smoothed_loss.masked_fill_(padding_mask, 0.0)
        active = padding_mask.numel() - padding_mask.long().sum()
        nll_loss, smoothed_loss = nll_loss.sum() / active, smoothed_loss.sum() / (active * log_probs.shape[-1])
        return (1 - self.epsilon) * nll_loss + self.epsilon * smoothed_loss, nll_loss


class Seq2SeqModel(nn.Module):
    def __init__(self, vocab=8000, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.decoder = nn.Sequential(nn.Linear(dim, dim), nn.Tanh())
        self.lm_head = nn.Linear(dim, vocab)

    def forward(self, ids):
        hidden = self.decoder(self.embed(ids)).to(torch.float16)
        return self.lm_head(hidden.float()).to(torch.float16)  # BORN


class Trainer:
    def __init__(self, model, smoother):
        self.model, self.smoother = model, smoother

    @torch.no_grad()
    def evaluate(self, batches):
        losses = [self.smoother(self.model(ids), labels) for ids, labels in batches]
        return torch.stack([l for l, _ in losses]).mean(), torch.stack([n for _, n in losses]).mean()


torch.manual_seed(0)
batches = []
for _ in range(4):
    ids = torch.randint(0, 8000, (4, 12))
    labels = ids.roll(-1, 1).clone()
    labels[:, -3:] = -100
    batches.append((ids, labels))
loss, nll = Trainer(Seq2SeqModel(), LabelSmoother()).evaluate(batches)
print(f"eval loss {loss:.4f}, nll {nll:.4f}")
