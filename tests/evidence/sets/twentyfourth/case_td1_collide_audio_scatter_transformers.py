"""
title: Audio features are scattered into the text embeddings under autocast without a cast
expect: collision
thread: https://github.com/huggingface/transformers/pull/47673
fix_at: (none beside the marked)

Expectation, written first: Under autocast the embedding table gives float32 and the audio projector, a
linear layer, bfloat16. The features are only moved to the embeddings' device, so masked_scatter gets
Float and BFloat16 and raises.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

AUDIO_TOKEN = 30


class AudioEncoder(nn.Module):
    def __init__(self, n_mels, dim):
        super().__init__()
        self.conv1 = nn.Conv1d(n_mels, dim, 3, padding=1)
        self.conv2 = nn.Conv1d(dim, dim, 3, stride=2, padding=1)
        self.layer_norm = nn.LayerNorm(dim)

    def forward(self, input_features):
        x = F.gelu(self.conv1(input_features))
        x = F.gelu(self.conv2(x)).transpose(1, 2)
        return self.layer_norm(x)


class MultiModalProjector(nn.Module):
    def __init__(self, audio_dim, text_dim):
        super().__init__()
        self.linear_1 = nn.Linear(audio_dim, text_dim)
        self.linear_2 = nn.Linear(text_dim, text_dim)

    def forward(self, audio_features):
        return self.linear_2(F.gelu(self.linear_1(audio_features)))  # BORN


class AudioLMForConditionalGeneration(nn.Module):
    def __init__(self, vocab=32, dim=24, audio_dim=16, n_mels=8):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.audio_tower = AudioEncoder(n_mels, audio_dim)
        self.projector = MultiModalProjector(audio_dim, dim)
        self.backbone = nn.TransformerEncoderLayer(dim, 4, 48, batch_first=True, dropout=0.0)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, input_ids, input_features=None, labels=None):
        inputs_embeds = self.embed_tokens(input_ids)
        if input_features is not None:
            audio_embeds = self.projector(self.audio_tower(input_features)).flatten(0, 1)
            special_audio_mask = (input_ids == AUDIO_TOKEN).unsqueeze(-1).expand_as(inputs_embeds)
            audio_embeds = audio_embeds.to(inputs_embeds.device)  # BORN
            inputs_embeds = inputs_embeds.masked_scatter(special_audio_mask, audio_embeds)  # BORN COLLIDES
        logits = self.lm_head(self.backbone(inputs_embeds)).float()
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        return loss, logits


def training_step(model, optimizer, batch, bf16):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        loss, _ = model(**batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def main():
    torch.manual_seed(10)
    model = AudioLMForConditionalGeneration()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(0, AUDIO_TOKEN, (2, 12))
    ids[:, 1:6] = AUDIO_TOKEN
    batch = {"input_ids": ids, "input_features": torch.randn(2, 8, 10),
             "labels": ids.masked_fill(ids == AUDIO_TOKEN, -100)}
    print("fp32", round(training_step(model, optimizer, batch, bf16=False), 4))
    print("bf16", round(training_step(model, optimizer, batch, bf16=True), 4))


if __name__ == "__main__":
    main()
