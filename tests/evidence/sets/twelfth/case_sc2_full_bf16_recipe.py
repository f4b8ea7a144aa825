"""
title: a full fine-tune recipe keeps the decoder in bf16 and AdamW writes straight into the bf16 weights
expect: silent:lost-update
thread: https://github.com/meta-pytorch/torchtune/issues/2254
measured: loss 6.12 -> 5.98, weights that moved 8%
widened: loss 6.00 -> 3.74, weights that moved 100%

Expectation, written first: each AdamW step is about the learning rate, 1e-4; a bf16 weight of 0.3 has steps of 2e-3,
so nearly all weights (and every norm weight) stay where they are and the loss hardly falls. The loss mask in float16
holds zeros and ones only and makes no difference.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM


@dataclass
class RecipeConfig:
    seed: int = 7
    batch_size: int = 12
    max_steps: int = 120
    lr: float = 1e-4
    vocab: int = 48
    seq_len: int = 20


class ProgressionDataset(Dataset):
    """token rows a, a+d, a+2d, ... modulo the vocabulary; the first two tokens are the prompt"""

    def __init__(self, cfg, n=2048):
        g = torch.Generator().manual_seed(cfg.seed)
        start = torch.randint(0, cfg.vocab, (n, 1), generator=g)
        step = torch.randint(1, 4, (n, 1), generator=g)
        self.rows = (start + step * torch.arange(cfg.seq_len)) % cfg.vocab

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    tokens = torch.stack(rows)
    mask = torch.ones_like(tokens, dtype=torch.float16)
    mask[:, :2] = 0
    return {"input_ids": tokens, "loss_mask": mask}


class FullFinetuneRecipe:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.loader = DataLoader(ProgressionDataset(cfg), cfg.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
        self.model = self.setup_model()
        self.start = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=0.0)

    def setup_model(self):
        config = LlamaConfig(
            vocab_size=self.cfg.vocab, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64, initializer_range=0.3,
        )
        return LlamaForCausalLM(config).to(dtype=torch.bfloat16)  # BORN

    def loss_step(self, batch):
        logits = self.model(input_ids=batch["input_ids"]).logits[:, :-1].float()
        token_loss = F.cross_entropy(logits.flatten(0, 1), batch["input_ids"][:, 1:].flatten(), reduction="none")
        keep = batch["loss_mask"][:, 1:].flatten()
        return (token_loss * keep).sum() / keep.sum()

    def train(self):
        losses, done = [], 0
        while done < self.cfg.max_steps:
            for batch in self.loader:
                loss = self.loss_step(batch)
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
                losses.append(loss.item())
                done += 1
                if done == self.cfg.max_steps:
                    break
        return losses

    def moved(self):
        same = sum((p.detach() == self.start[n]).sum().item() for n, p in self.model.named_parameters())
        return 1 - same / sum(p.numel() for p in self.model.parameters())


if __name__ == "__main__":
    recipe = FullFinetuneRecipe(RecipeConfig())
    losses = recipe.train()
    first, last = sum(losses[:10]) / 10, sum(losses[-10:]) / 10
    print(f"loss {first:.2f} -> {last:.2f}, weights that moved {100 * recipe.moved():.0f}%")
