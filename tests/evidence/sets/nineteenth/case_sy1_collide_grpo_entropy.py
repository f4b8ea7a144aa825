"""
title: GRPO with the top-entropy mask under bf16: quantile() input tensor must be either float or double dtype
expect: collision
thread: https://github.com/huggingface/trl/issues/3666
fix_at: 39, 56 (the logits before the entropy; the caller that hands the entropies on)

Expectation, written first: the policy runs in bfloat16, so the token entropies are bfloat16; the entropy mask takes a quantile of them, and
quantile exists for float32 and float64 only. The non-padded entropies must be cast to float32 before the quantile, or the entropies be
computed in float32.
"""
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM


def entropy_from_logits(logits, chunk_size=2):
    per_token_entropies = []
    for logits_chunk in logits.split(chunk_size, dim=0):
        logps = F.log_softmax(logits_chunk, dim=-1)
        chunk_entropy = -(torch.exp(logps) * logps).sum(-1)  # BORN
        per_token_entropies.append(chunk_entropy)
    return torch.cat(per_token_entropies, dim=0)


def selective_log_softmax(logits, index):
    return torch.gather(F.log_softmax(logits.float(), dim=-1), -1, index.unsqueeze(-1)).squeeze(-1)


class GRPOStep:
    def __init__(self, model, top_entropy_quantile=0.2, epsilon=0.2, temperature=1.0):
        self.model = model
        self.top_entropy_quantile = top_entropy_quantile
        self.epsilon = epsilon
        self.temperature = temperature
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def _get_per_token_logps_and_entropies(self, input_ids, logits_to_keep):
        logits = self.model(input_ids=input_ids).logits[:, :-1, :]
        logits = logits[:, -logits_to_keep:, :] / self.temperature
        logps = selective_log_softmax(logits, input_ids[:, -logits_to_keep:])
        with torch.no_grad():
            entropies = entropy_from_logits(logits)
        return logps, entropies

    def get_high_entropy_mask(self, entropies, mask, threshold):
        non_pad_entropies = entropies[mask.bool()]  # BORN
        if non_pad_entropies.numel() == 0:
            return torch.zeros_like(entropies, dtype=torch.bool)
        entropy_threshold = torch.quantile(non_pad_entropies, threshold)  # BORN COLLIDES
        masked_entropies = entropies * mask
        return (masked_entropies >= entropy_threshold) & mask.bool()

    def compute_loss(self, prompt_ids, completion_ids, completion_mask, advantages):
        input_ids = torch.cat([prompt_ids, completion_ids], dim=1)
        logps, entropies = self._get_per_token_logps_and_entropies(input_ids, completion_ids.size(1))
        entropy_mask = self.get_high_entropy_mask(entropies, completion_mask, 1 - self.top_entropy_quantile)
        ratio = torch.exp(logps - logps.detach())
        clipped = ratio.clamp(1 - self.epsilon, 1 + self.epsilon)
        per_token_loss = -torch.min(ratio * advantages[:, None], clipped * advantages[:, None]) * entropy_mask
        return (per_token_loss * completion_mask).sum() / completion_mask.sum()


def main():
    torch.manual_seed(30)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4,
    )
    trainer = GRPOStep(LlamaForCausalLM(config).to(torch.bfloat16))
    prompt, completion = torch.randint(3, 64, (4, 5)), torch.randint(3, 64, (4, 8))
    mask = torch.ones(4, 8, dtype=torch.long)
    mask[1, 5:] = 0
    rewards = torch.tensor([1.0, 0.0, 0.5, 0.0])
    loss = trainer.compute_loss(prompt, completion, mask, (rewards - rewards.mean()) / (rewards.std() + 1e-4))
    loss.backward()
    trainer.optimizer.step()
    print("loss", loss.item())


if __name__ == "__main__":
    main()
