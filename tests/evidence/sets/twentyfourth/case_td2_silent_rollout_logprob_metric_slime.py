"""
title: the train / rollout log-prob gap logged to wandb is ten times too large
expect: silent:precision-loss|downcast
thread: https://github.com/THUDM/slime/pull/245
measured: abs_diff 0.0080 log_probs -6.43
widened: abs_diff 0.0008 log_probs -6.43; innocent: abs_diff 0.0080 log_probs -6.43
suspect: 46 exact (a mask of zeros and ones, fewer than 2048 of them)

Expectation, written first: the log-probs that the rollout engine returns are packed into bfloat16 tensors, so values
near -6 are held in steps of 0.03; the difference to the float32 log-probs of the trainer then measures that rounding
and not the gap of about 0.001. The mask in half is exact.
"""
import torch
import torch.nn.functional as F


class Sample:
    def __init__(self, tokens, response_length, rollout_log_probs, loss_mask):
        self.tokens = tokens
        self.response_length = response_length
        self.rollout_log_probs = rollout_log_probs
        self.loss_mask = loss_mask


def selective_log_softmax(logits, index):
    logps = F.log_softmax(logits.float(), dim=-1)
    return torch.gather(logps, -1, index.unsqueeze(-1)).squeeze(-1)


def generate_rollout(policy, num_samples, generator):
    samples = []
    for _ in range(num_samples):
        length = int(torch.randint(60, 120, (1,), generator=generator))
        tokens = torch.randint(0, 512, (length,), generator=generator)
        logp = selective_log_softmax(policy(tokens), tokens)
        noise = 1e-3 * torch.randn(length, generator=generator)
        mask = (torch.arange(length) % 9 != 0).long().tolist()
        samples.append(Sample(tokens, length, (logp + noise).tolist(), mask))
    return samples


def convert_samples_to_train_data(samples):
    return {
        "tokens": [s.tokens for s in samples],
        "rollout_log_probs": [torch.tensor(s.rollout_log_probs, dtype=torch.bfloat16) for s in samples],  # BORN
        "loss_masks": [torch.tensor(s.loss_mask, dtype=torch.float16) for s in samples],
    }


def sum_of_sample_mean(values, masks):
    return sum((v * m).sum() / m.sum() for v, m in zip(values, masks)) / len(values)


def log_rollout_data(policy, data):
    old = [selective_log_softmax(policy(t), t) for t in data["tokens"]]
    gap = [(a - b).abs() for a, b in zip(old, data["rollout_log_probs"])]
    masks = data["loss_masks"]
    return {
        "train_rollout_logprob_abs_diff": sum_of_sample_mean(gap, masks).item(),
        "log_probs": sum_of_sample_mean(old, masks).item(),
    }


class Policy(torch.nn.Module):
    def __init__(self, vocab=512, hidden=32):
        super().__init__()
        self.embed = torch.nn.Embedding(vocab, hidden)
        self.head = torch.nn.Linear(hidden, vocab)

    @torch.no_grad()
    def forward(self, tokens):
        return self.head(self.embed(tokens))


def main():
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(9)
    policy = Policy()
    samples = generate_rollout(policy, 8, generator)
    metrics = log_rollout_data(policy, convert_samples_to_train_data(samples))
    print(f"abs_diff {metrics['train_rollout_logprob_abs_diff']:.4f} log_probs {metrics['log_probs']:.2f}")


main()
