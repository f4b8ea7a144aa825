"""
title: audio embeddings made under autocast are put among the text embeddings with masked_scatter
expect: collision
thread: https://github.com/huggingface/transformers/issues/47672
fix_at: 38, 55, 59, 61

Expectation, written first: under autocast the embedding table still gives float32 and the projector's linear layer
bfloat16; masked_scatter does not promote and refuses the pair.
"""
from dataclasses import dataclass

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

AUDIO_TOKEN = 5


@dataclass
class TrainingArguments:
    bf16: bool = True
    learning_rate: float = 1e-3
    per_device_train_batch_size: int = 2
    max_steps: int = 2


class AudioProjector(nn.Module):
    def __init__(self, audio_dim, text_dim, stack=4):
        super().__init__()
        self.stack = stack
        self.linear_1 = nn.Linear(audio_dim * stack, text_dim)
        self.linear_2 = nn.Linear(text_dim, text_dim)

    def forward(self, states):
        b, t, c = states.shape
        states = states.reshape(b, t // self.stack, c * self.stack)
        return self.linear_2(torch.nn.functional.gelu(self.linear_1(states)))  # BORN


class AudioLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.audio_tower = WhisperEncoder(WhisperConfig(
            d_model=16, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=32, num_mel_bins=20,
            max_source_positions=16,
        ))
        self.multi_modal_projector = AudioProjector(16, 24)
        self.language_model = LlamaForCausalLM(LlamaConfig(
            vocab_size=64, hidden_size=24, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=64,
        ))

    def get_audio_features(self, input_features):
        return self.multi_modal_projector(self.audio_tower(input_features).last_hidden_state)

    def forward(self, input_ids, attention_mask, input_features, labels):
        inputs_embeds = self.language_model.get_input_embeddings()(input_ids)
        audio = self.get_audio_features(input_features)
        mask = (input_ids == AUDIO_TOKEN).unsqueeze(-1).expand_as(inputs_embeds)
        inputs_embeds = inputs_embeds.masked_scatter(mask, audio.flatten(0, 1))  # COLLIDES
        return self.language_model(inputs_embeds=inputs_embeds, attention_mask=attention_mask, labels=labels).loss


class SpeechInstructions(torch.utils.data.Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(4)
        self.mel = torch.randn(n, 20, 32, generator=g)
        self.answers = torch.randint(6, 64, (n, 5), generator=g)

    def __len__(self):
        return len(self.mel)

    def __getitem__(self, i):
        return {"input_features": self.mel[i], "ids": [1] + [AUDIO_TOKEN] * 4 + self.answers[i].tolist()[: 5 - i % 2]}


def collate(samples):
    longest = max(len(s["ids"]) for s in samples)
    ids = torch.tensor([s["ids"] + [0] * (longest - len(s["ids"])) for s in samples])
    labels = ids.masked_fill((ids == 0) | (ids == AUDIO_TOKEN), -100)
    mel = torch.stack([s["input_features"] for s in samples])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "input_features": mel, "labels": labels}


def train(args):
    torch.manual_seed(0)
    model = AudioLM()
    model.audio_tower.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=args.learning_rate)
    loader = torch.utils.data.DataLoader(SpeechInstructions(4), args.per_device_train_batch_size, collate_fn=collate)
    for _, batch in zip(range(args.max_steps), loader):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
            loss = model(**batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


print(f"loss {train(TrainingArguments()):.3f}")
