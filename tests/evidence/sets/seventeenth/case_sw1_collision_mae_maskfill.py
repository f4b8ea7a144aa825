"""
title: masked-autoencoder decoder fills its token grid under bf16 autocast: fp32 mask tokens, bf16 embeddings, scatter refuses
expect: collision
thread: https://github.com/lightly-ai/lightly/issues/1077
fix_at: 25, 68

Expectation, written first: under autocast the decoder embedding is a Linear and yields bfloat16, while repeat_token expands the float32
mask-token parameter, which autocast never touches. set_at_index scatters the one into the other and torch wants equal dtypes.
"""
import torch
from torch import nn

def repeat_token(token, size):
    batch_size, sequence_length = size
    return token.repeat(batch_size, sequence_length, 1)  # BORN

def expand_index_like(index, tokens):
    return index.unsqueeze(-1).expand(-1, -1, tokens.shape[-1])

def get_at_index(tokens, index):
    return torch.gather(tokens, 1, expand_index_like(index, tokens))

def set_at_index(tokens, index, value):
    index = expand_index_like(index, tokens)
    return torch.scatter(tokens, 1, index, value)  # COLLIDES

def random_token_mask(size, mask_ratio=0.6):
    batch_size, sequence_length = size
    num_keep = int(sequence_length * (1 - mask_ratio))
    noise = torch.rand(batch_size, sequence_length)
    noise[:, 0] = -1
    indices = torch.argsort(noise, dim=1)
    return indices[:, :num_keep], indices[:, num_keep:]

class MAEBackbone(nn.Module):
    def __init__(self, patch_dim, dim, seq_len):
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.patch_embed = nn.Linear(patch_dim, dim)
        self.pos = nn.Parameter(torch.randn(1, seq_len, dim) * 0.02)
        self.block = nn.TransformerEncoderLayer(dim, 4, dim * 2, dropout=0.0, batch_first=True)
    def encode(self, patches, idx_keep):
        tokens = self.patch_embed(patches)
        tokens = torch.cat([self.class_token.expand(len(tokens), -1, -1), tokens], dim=1) + self.pos
        return self.block(get_at_index(tokens, idx_keep))

class MAEDecoder(nn.Module):
    def __init__(self, seq_len, dim, decoder_dim, patch_dim):
        super().__init__()
        self.decoder_embed = nn.Linear(dim, decoder_dim)
        self.pos = nn.Parameter(torch.randn(1, seq_len, decoder_dim) * 0.02)
        self.block = nn.TransformerEncoderLayer(decoder_dim, 2, decoder_dim * 2, dropout=0.0, batch_first=True)
        self.prediction_head = nn.Linear(decoder_dim, patch_dim)
    def decode(self, tokens):
        return self.block(tokens + self.pos)

class MAE(nn.Module):
    def __init__(self, patch_dim=48, dim=32, decoder_dim=16, num_patches=16):
        super().__init__()
        self.sequence_length = num_patches + 1
        self.mask_token = nn.Parameter(torch.randn(1, 1, decoder_dim) * 0.02)
        self.backbone = MAEBackbone(patch_dim, dim, self.sequence_length)
        self.decoder = MAEDecoder(self.sequence_length, dim, decoder_dim, patch_dim)
    def forward_decoder(self, x_encoded, idx_keep, idx_mask):
        batch_size = x_encoded.shape[0]
        x_decode = self.decoder.decoder_embed(x_encoded)  # BORN
        x_masked = repeat_token(self.mask_token, (batch_size, self.sequence_length))  # BORN
        x_masked = set_at_index(x_masked, idx_keep, x_decode)
        x_decoded = self.decoder.decode(x_masked)
        return self.decoder.prediction_head(get_at_index(x_decoded, idx_mask))
    def training_step(self, patches):
        idx_keep, idx_mask = random_token_mask((len(patches), self.sequence_length))
        pred = self.forward_decoder(self.backbone.encode(patches, idx_keep), idx_keep, idx_mask)
        target = get_at_index(patches, idx_mask - 1)
        return (pred.float() - target).square().mean()

def main():
    torch.manual_seed(0)
    model = MAE()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(5):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model.training_step(torch.randn(4, 16, 48))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")

if __name__ == "__main__":
    main()
