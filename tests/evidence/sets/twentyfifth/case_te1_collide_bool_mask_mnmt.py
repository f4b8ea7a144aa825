"""
title: 1 - mask on the boolean source mask of a multimodal translator
expect: collision
thread: https://github.com/Eurus-Holmes/MNMT/issues/4
fix_at: (none beside the marked)

Expectation, written first: sequence_mask compares positions with lengths and gives a bool mask in today's
torch. The global attention still fills 1 - mask with -inf; subtraction with a bool tensor is refused.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def sequence_mask(lengths, max_len=None):
    batch_size = lengths.numel()
    max_len = max_len or lengths.max().item()
    return torch.arange(0, max_len).repeat(batch_size, 1).lt(lengths.unsqueeze(1))  # BORN


class GlobalAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear_in = nn.Linear(dim, dim, bias=False)
        self.linear_out = nn.Linear(dim * 2, dim, bias=False)
        self.mask = None

    def apply_mask(self, mask):
        self.mask = mask

    def score(self, h_t, h_s):
        return torch.bmm(self.linear_in(h_t), h_s.transpose(1, 2))

    def forward(self, input, context):
        align = self.score(input, context)
        if self.mask is not None:
            mask = self.mask.unsqueeze(1)
            align.masked_fill_(1 - mask, -float("inf"))  # BORN COLLIDES
        align_vectors = F.softmax(align, dim=-1)
        c = torch.bmm(align_vectors, context)
        attn_h = torch.tanh(self.linear_out(torch.cat([c, input], 2)))
        return attn_h, align_vectors


class MultiModalNMT(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, dim, img_dim):
        super().__init__()
        self.src_emb, self.tgt_emb = nn.Embedding(src_vocab, dim, 0), nn.Embedding(tgt_vocab, dim, 0)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.encoder_images = nn.Linear(img_dim, dim)
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.attn = GlobalAttention(dim)
        self.generator = nn.Linear(dim, tgt_vocab)

    def forward(self, src, tgt, lengths, img_feats):
        context, _ = self.encoder(self.src_emb(src))
        h0 = torch.tanh(self.encoder_images(img_feats)).unsqueeze(0)
        out, _ = self.decoder(self.tgt_emb(tgt), h0)
        self.attn.apply_mask(sequence_mask(lengths, src.size(1)))
        out, _ = self.attn(out, context)
        return self.generator(out)


def make_batch(batch, src_len, tgt_len, img_dim):
    lengths = torch.randint(3, src_len + 1, (batch,))
    lengths[0] = src_len
    src = torch.randint(1, 20, (batch, src_len))
    for i, n in enumerate(lengths.tolist()):
        src[i, n:] = 0
    return src, torch.randint(1, 20, (batch, tgt_len)), lengths, torch.randn(batch, img_dim)


def main():
    torch.manual_seed(4)
    model = MultiModalNMT(20, 20, 16, 10)
    optim = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(3):
        src, tgt, lengths, feats = make_batch(6, 9, 7, 10)
        logits = model(src, tgt[:, :-1], lengths, feats)
        loss = F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=0)
        optim.zero_grad()
        loss.backward()
        optim.step()
        print("step", step, "xent", round(loss.item(), 3))


if __name__ == "__main__":
    main()
