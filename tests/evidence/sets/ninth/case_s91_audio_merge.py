"""
title: audio features of a bf16 encoder merged into float32 text embeddings
expect: collision
thread: https://github.com/huggingface/transformers/issues/47672
fix_at: 43

Expectation, written first: the audio tower is put in bfloat16 to save memory, the
text embeddings stay float32; masked_scatter wants one dtype. The tower's cast is the
birth; casting the features at the merge is the fix the thread chose.
"""
import torch
from torch import nn

AUDIO_TOKEN = 31


class AudioTower(nn.Module):
    def __init__(self, mels=16, dim=24):
        super().__init__()
        self.conv = nn.Conv1d(mels, dim, 3, stride=2, padding=1)
        self.ln = nn.LayerNorm(dim)

    def forward(self, mel):
        h = torch.relu(self.conv(mel)).transpose(1, 2)
        return self.ln(h)


class SpeechLM(nn.Module):
    def __init__(self, vocab=32, dim=24):
        super().__init__()
        self.tower = AudioTower(dim=dim)
        self.embed = nn.Embedding(vocab, dim)
        self.proj = nn.Linear(dim, vocab)

    def freeze_tower(self):
        self.tower.requires_grad_(False)
        self.tower.to(torch.bfloat16)  # BORN
        return self

    def merge(self, ids, audio_embeds):
        text = self.embed(ids)
        mask = (ids == AUDIO_TOKEN).unsqueeze(-1).expand_as(text)
        return text.masked_scatter(mask, audio_embeds)  # COLLIDES

    def forward(self, ids, mel):
        audio = self.tower(mel.to(self.tower.conv.weight.dtype))
        return self.proj(self.merge(ids, audio))


def collate(n=2, text_len=6, frames=8):
    mel = torch.randn(n, 16, frames)
    ids = torch.randint(0, 31, (n, text_len + frames // 2))
    ids[:, : frames // 2] = AUDIO_TOKEN
    return ids, mel


def train(steps=3):
    torch.manual_seed(3)
    model = SpeechLM().freeze_tower()
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for step in range(steps):
        ids, mel = collate()
        logits = model(ids, mel)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, round(loss.item(), 4))


train()
