"""
title: MAE decoder scatters autocast bfloat16 tokens into float32 mask tokens
expect: collision
thread: https://github.com/lightly-ai/lightly/pull/1094

Expectation, written first: the learned mask token is a float32 parameter and stays so under autocast, the decoder
embedding is a Linear and gives bfloat16 there. utils.set_at_index scatters the one into the other and torch.scatter
wants equal dtypes; the tokens (or the mask token) need a cast where they meet.
"""
import torch
import torch.nn as nn


class utils:
    @staticmethod
    def repeat_token(token, size):
        batch_size, sequence_length = size
        return token.repeat(batch_size, sequence_length, 1)

    @staticmethod
    def get_at_index(tokens, index):
        index = index.unsqueeze(-1).expand(-1, -1, tokens.shape[-1])
        return torch.gather(tokens, 1, index)

    @staticmethod
    def set_at_index(tokens, index, value):
        index = index.unsqueeze(-1).expand(-1, -1, value.shape[-1])
        return torch.scatter(tokens, 1, index, value)  # BORN COLLIDES

    @staticmethod
    def random_token_mask(size, mask_ratio):
        noise = torch.rand(size)
        indices = torch.argsort(noise, dim=1)
        num_keep = int(size[1] * (1 - mask_ratio))
        return indices[:, :num_keep], indices[:, num_keep:]


class MAEBackbone(nn.Module):
    def __init__(self, dim, patch):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, dim, patch, patch)
        self.block = nn.TransformerEncoderLayer(dim, 2, 2 * dim, dropout=0.0, batch_first=True)

    def encode(self, images, idx_keep):
        tokens = self.conv_proj(images).flatten(2).transpose(1, 2)
        return self.block(utils.get_at_index(tokens, idx_keep))


class MAE(nn.Module):
    def __init__(self, dim=32, decoder_dim=16, patch=8, image=32):
        super().__init__()
        self.patch, self.sequence_length, self.mask_ratio = patch, (image // patch) ** 2, 0.75
        self.mask_token = nn.Parameter(torch.zeros(1, 1, decoder_dim))
        self.backbone = MAEBackbone(dim, patch)
        self.decoder_embed = nn.Linear(dim, decoder_dim)
        self.decoder_pred = nn.Linear(decoder_dim, 3 * patch**2)

    def forward_decoder(self, x_encoded, idx_keep, idx_mask):
        batch_size = x_encoded.shape[0]
        x_decode = self.decoder_embed(x_encoded)  # BORN
        x_masked = utils.repeat_token(self.mask_token, (batch_size, self.sequence_length))  # BORN
        x_masked = utils.set_at_index(x_masked, idx_keep, x_decode)  # BORN
        return self.decoder_pred(utils.get_at_index(x_masked, idx_mask))

    def training_step(self, images, criterion):
        idx_keep, idx_mask = utils.random_token_mask((images.shape[0], self.sequence_length), self.mask_ratio)
        x_pred = self.forward_decoder(self.backbone.encode(images, idx_keep), idx_keep, idx_mask)
        p = self.patch
        patches = images.unfold(2, p, p).unfold(3, p, p).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        return criterion(x_pred, utils.get_at_index(patches, idx_mask))


def main():
    torch.manual_seed(0)
    model = MAE()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.5e-4)
    for epoch in range(2):
        images = torch.rand(4, 3, 32, 32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model.training_step(images, nn.MSELoss())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
