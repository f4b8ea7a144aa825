"""
title: 16-bit samples are halved before they are normalised, their variance is infinite and the waves become zero
expect: silent:overflow|downcast
needs: transformers
fix_at: 34, 35, 46

After https://github.com/vadimkantorov/convasr/pull/73 and https://github.com/microsoft/onnxruntime/issues/31626.
Right: mean and variance are taken in float32.
"""
import torch
import torch.nn.functional as F
from transformers import Wav2Vec2Config, Wav2Vec2ForSequenceClassification

torch.manual_seed(215)


def clips(count, length=400):
    """Low and high tones, as 16-bit samples."""
    label = torch.randint(0, 2, (count,))
    pitch = torch.where(label == 1, 0.9, 0.15)[:, None]
    wave = 15000 * torch.sin(pitch * torch.arange(length) + 6.28 * torch.rand(count, 1)) + 1500 * torch.randn(count, length)
    return [w.round().clamp(-32768, 32767).to(torch.int16) for w in wave], label


class Processor:
    def __init__(self, dtype=torch.float16):
        self.dtype = dtype

    def batch(self, waves):
        return torch.stack(waves).to(self.dtype)  # BORN

    def __call__(self, waves):
        x = self.batch(waves)
        mean, variance = x.mean(1, keepdim=True), x.var(1, keepdim=True)
        return ((x - mean) / torch.sqrt(variance + 1e-7)).float()


def tiny():
    config = Wav2Vec2Config(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, conv_dim=(16, 16),
                            conv_kernel=(8, 4), conv_stride=(4, 4), num_feat_extract_layers=2, num_conv_pos_embeddings=8,
                            num_conv_pos_embedding_groups=2, classifier_proj_size=16, num_labels=2, hidden_dropout=0.0, attention_dropout=0.0,
                            feat_proj_dropout=0.0, final_dropout=0.0, layerdrop=0.0, mask_time_prob=0.0)
    return Wav2Vec2ForSequenceClassification(config)


model, processor = tiny(), Processor()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(25):
    waves, label = clips(16)
    loss = F.cross_entropy(model(processor(waves)).logits, label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
waves, label = clips(128)
with torch.no_grad():
    inputs = processor(waves)
    right = (model.eval()(inputs).logits.argmax(-1) == label).float().mean().item()
print("spread of the input", round(inputs.std().item(), 3), "accuracy", round(right, 3))
