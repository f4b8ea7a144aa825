"""
title: audio features are written over the placeholder tokens of a speech language model
expect: collision
thread: https://github.com/huggingface/transformers/issues/47672
fix_at: 35, 47, 50, 51, 53, 71

Expectation, written first: under autocast the embedding table keeps giving float32 while the audio tower ends in a
linear layer and gives bfloat16; masked_scatter wants one dtype and refuses.
"""
import torch
import torch.nn.functional as F
from torch import nn

AUDIO = 3


class AudioTower(nn.Module):
    def __init__(self, mels, width):
        super().__init__()
        self.conv = nn.Conv1d(mels, width, 3, stride=2, padding=1)
        self.norm = nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, feats):
        x = F.gelu(self.conv(feats)).transpose(1, 2)
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


class Projector(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(width, hidden), nn.Linear(hidden, hidden)

    def forward(self, x):
        return self.linear_2(F.gelu(self.linear_1(x)))  # BORN


class SpeechLM(nn.Module):
    def __init__(self, vocab=50, hidden=32, mels=12, width=24):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, hidden)
        self.audio_tower, self.projector = AudioTower(mels, width), Projector(width, hidden)
        self.layer = nn.TransformerEncoderLayer(hidden, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.lm_head = nn.Linear(hidden, vocab, bias=False)

    def get_audio_features(self, feats):
        return self.projector(self.audio_tower(feats)).flatten(0, 1)

    def forward(self, ids, feats, labels):
        inputs_embeds = self.embed_tokens(ids)
        audio_embeds = self.get_audio_features(feats)
        slots = (ids == AUDIO).unsqueeze(-1).expand_as(inputs_embeds)
        inputs_embeds = inputs_embeds.masked_scatter(slots, audio_embeds.to(inputs_embeds.device))  # COLLIDES
        logits = self.lm_head(self.layer(inputs_embeds))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())


def collate(gen, batch=4, frames=16, text=8):
    ids = torch.randint(4, 50, (batch, frames // 2 + text), generator=gen)
    ids[:, 1 : 1 + frames // 2] = AUDIO
    labels = ids.masked_fill(ids == AUDIO, -100)
    return {"ids": ids, "feats": torch.randn(batch, 12, frames, generator=gen), "labels": labels}


class Trainer:
    def __init__(self, model, bf16=True):
        self.model, self.bf16 = model, bf16
        self.opt = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def step(self, inputs):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            loss = self.model(**inputs)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(2)
    trainer = Trainer(SpeechLM())
    losses = [trainer.step(collate(gen)) for _ in range(4)]
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
