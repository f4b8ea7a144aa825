"""
title: NEFTune noise is drawn in float32 and widens a bfloat16 Llama's embeddings, in training only
expect: collision
needs: transformers, peft
fix_at: 67

After huggingface/peft#1515, hiyouga/LlamaFactory#2022 (mat1 and mat2: float != c10::BFloat16 as soon as training starts, while the
reference pass in eval mode was fine). The base is bfloat16 without autocast, peft casts around its float32 adapters itself; the
noise of the embedding hook has no dtype. Right change: torch.empty_like(output) (or dtype=output.dtype).
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM


@dataclass
class DPOConfig:
    beta: float = 0.1
    learning_rate: float = 2e-3
    per_device_train_batch_size: int = 2
    num_train_epochs: int = 2
    max_grad_norm: float = 1.0
    neftune_noise_alpha: float | None = 5.0
    label_pad_token_id: int = -100
    seed: int = 42


def preference_data(n, vocab, generator):
    rows = []
    for index in range(n):
        prompt = torch.randint(3, vocab, (6,), generator=generator)
        row = {"index": index}
        for side in ("chosen", "rejected"):
            answer = torch.randint(3, vocab, (18,), generator=generator)
            row[f"{side}_input_ids"] = torch.cat([prompt, answer])
            row[f"{side}_labels"] = torch.cat([torch.full_like(prompt, -100), answer])
        rows.append(row)
    return rows


def collate(rows):
    batch = {"index": torch.tensor([row["index"] for row in rows])}
    for key in rows[0]:
        if key != "index":
            batch[key] = torch.stack([row[key] for row in rows])
    return batch


class DPOLoop:
    def __init__(self, model, peft_config, args, train_dataset):
        self.args, self.train_dataset = args, train_dataset
        self.model = get_peft_model(model, peft_config)
        self.optimizer = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], lr=args.learning_rate)
        self.ref_logps = None
        if args.neftune_noise_alpha is not None:
            embeddings = self.model.get_input_embeddings()
            embeddings.register_forward_hook(self.neftune_hook)

    def neftune_hook(self, module, inputs, output):
        if module.training:
            magnitude = self.args.neftune_noise_alpha / (output.shape[1] * output.shape[2]) ** 0.5
            noise = torch.empty(output.shape, device=output.device).uniform_(-magnitude, magnitude)  # BORN
            return output + noise
        return output

    def dataloader(self, shuffle):
        generator = torch.Generator().manual_seed(self.args.seed)
        return DataLoader(self.train_dataset, self.args.per_device_train_batch_size, shuffle=shuffle, collate_fn=collate,
                          generator=generator)

    def get_batch_logps(self, logits, labels):
        labels = labels[:, 1:].clone()
        mask = labels != self.args.label_pad_token_id
        labels[~mask] = 0
        logps = logits[:, :-1].float().log_softmax(-1).gather(2, labels.unsqueeze(2)).squeeze(2)
        return (logps * mask).sum(-1)

    def concatenated_forward(self, batch):
        ids = torch.cat([batch["chosen_input_ids"], batch["rejected_input_ids"]])
        labels = torch.cat([batch["chosen_labels"], batch["rejected_labels"]])
        logits = self.model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits  # COLLIDES
        return self.get_batch_logps(logits, labels).chunk(2)

    @torch.no_grad()
    def precompute_reference(self):
        self.model.eval()
        self.ref_logps = torch.zeros(len(self.train_dataset), 2)
        with self.model.disable_adapter():
            for batch in self.dataloader(shuffle=False):
                chosen, rejected = self.concatenated_forward(batch)
                for row, index in enumerate(batch["index"].tolist()):
                    self.ref_logps[index] = torch.stack([chosen[row], rejected[row]])

    def dpo_loss(self, chosen, rejected, reference):
        logratios = (chosen - rejected) - (reference[:, 0] - reference[:, 1])
        rewards = self.args.beta * torch.stack([chosen.detach() - reference[:, 0], rejected.detach() - reference[:, 1]])
        return -F.logsigmoid(self.args.beta * logratios).mean(), rewards

    def training_step(self, batch):
        self.model.train()
        chosen, rejected = self.concatenated_forward(batch)
        loss, rewards = self.dpo_loss(chosen, rejected, self.ref_logps[batch["index"]])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item(), (rewards[0] > rewards[1]).float().mean().item()

    def train(self):
        self.precompute_reference()
        for epoch in range(self.args.num_train_epochs):
            for batch in self.dataloader(shuffle=True):
                loss, accuracy = self.training_step(batch)
            print(f"epoch {epoch}: finite {loss == loss}, accuracy in range {0 <= accuracy <= 1}")


def main():
    args = DPOConfig()
    torch.manual_seed(args.seed)
    config = LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    data = preference_data(8, config.vocab_size, torch.Generator().manual_seed(0))
    peft_config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    DPOLoop(model, peft_config, args, data).train()


if __name__ == "__main__":
    main()
