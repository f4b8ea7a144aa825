"""
title: length-normalised MiniLLM advantages are NaN at the end of long completions
expect: silent:underflow
thread: https://github.com/huggingface/trl/issues/6626
measured: finite share 0.48 mean advantage 1.000 loss nan
widened: finite share 1.00 mean advantage 1.000 loss 2.000; innocent: finite share 0.48 mean advantage 1.000 loss nan
suspect: 50 exact (a mask of zeros and ones)

Expectation, written first: the powers gamma**i are taken in float32; with gamma 0.9 they underflow to zero after some
980 positions, so that numerator and denominator of the late positions are both zero and the advantage NaN. Remedy: the
powers in float64 (or a recurrence). The bfloat16 mask is exact.
"""
import torch


class MiniLLMConfig:
    def __init__(self, gamma=0.9, length_normalization=True):
        self.gamma = gamma
        self.length_normalization = length_normalization


def reverse_cumsum(x):
    return torch.flip(torch.cumsum(torch.flip(x, dims=[1]), dim=1), dims=[1])


class MiniLLMTrainer:
    def __init__(self, config):
        self.gamma = config.gamma
        self.length_normalization = config.length_normalization

    def _compute_advantage(self, student_log_probs, teacher_log_probs, mask):
        rewards = (teacher_log_probs - student_log_probs) * mask
        positions = torch.arange(rewards.shape[1])
        gamma_pow = torch.pow(torch.tensor(self.gamma, dtype=rewards.dtype), positions)  # BORN
        advantages = reverse_cumsum(rewards * gamma_pow)  # BORN
        if self.length_normalization:
            lengths = reverse_cumsum(mask * gamma_pow)
            advantages = advantages / lengths
        return advantages

    def compute_loss(self, student_log_probs, teacher_log_probs, mask):
        advantages = self._compute_advantage(student_log_probs.detach(), teacher_log_probs, mask)
        loss = -(advantages * student_log_probs * mask).sum() / mask.sum()
        return loss, advantages


class DataCollator:
    def __call__(self, lengths, max_length):
        rows = torch.arange(max_length)[None] < torch.tensor(lengths)[:, None]
        return rows.to(torch.bfloat16)


def log_probs(batch, length, generator):
    student = -2.0 + 0.1 * torch.randn(batch, length, generator=generator)
    teacher = student + 1.0 + 0.05 * torch.randn(batch, length, generator=generator)
    return student, teacher


def summarize(advantages):
    finite = torch.isfinite(advantages)
    return finite.float().mean().item(), advantages[finite].mean().item()


def main():
    generator = torch.Generator().manual_seed(6626)
    trainer = MiniLLMTrainer(MiniLLMConfig())
    student, teacher = log_probs(2, 2048, generator)
    student.requires_grad_(True)
    mask = DataCollator()([2048, 2048], 2048)
    loss, advantages = trainer.compute_loss(student, teacher, mask)
    share, mean = summarize(advantages)
    print(f"finite share {share:.2f} mean advantage {mean:.3f} loss {loss.item():.3f}")


main()
