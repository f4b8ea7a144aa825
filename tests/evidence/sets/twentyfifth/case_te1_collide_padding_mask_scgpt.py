"""
title: Inverting a padding mask that became float in the collator
expect: collision
thread: https://github.com/bowang-lab/scGPT/issues/199
fix_at: (none beside the marked)

Expectation, written first: The collator fills the padding mask into a tensor of torch.zeros, hence float32.
The fast path wants the opposite convention and inverts the mask with ~, which torch only has for integers and
booleans: TypeError.
"""
import torch
import torch.nn as nn


class DataCollator:
    def __init__(self, pad_token_id, pad_value, max_length):
        self.pad_token_id, self.pad_value, self.max_length = pad_token_id, pad_value, max_length

    def __call__(self, examples):
        n = min(self.max_length, max(len(e["genes"]) for e in examples))
        genes = torch.full((len(examples), n), self.pad_token_id)
        expr = torch.full((len(examples), n), float(self.pad_value))
        mask = torch.zeros(len(examples), n)  # BORN
        for i, e in enumerate(examples):
            k = min(n, len(e["genes"]))
            genes[i, :k] = e["genes"][:k]
            expr[i, :k] = e["expressions"][:k]
            mask[i, k:] = 1
        return {"gene": genes, "expr": expr, "src_key_padding_mask": mask}


class FlashTransformerEncoderLayer(nn.Module):
    def __init__(self, d_model, nhead):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, nhead, batch_first=True)
        self.linear = nn.Sequential(nn.Linear(d_model, 2 * d_model), nn.ReLU(), nn.Linear(2 * d_model, d_model))
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, src, src_key_padding_mask=None):
        if not src_key_padding_mask.any().item():
            src_key_padding_mask_ = None
        else:
            # NOTE: the FlashMHA uses mask 0 for padding tokens, which is the opposite
            src_key_padding_mask_ = ~src_key_padding_mask  # BORN COLLIDES
        padding = None if src_key_padding_mask_ is None else src_key_padding_mask_ == 0
        src2 = self.self_attn(src, src, src, key_padding_mask=padding, need_weights=False)[0]
        src = self.norm1(src + src2)
        return self.norm2(src + self.linear(src))


class TransformerModel(nn.Module):
    def __init__(self, ntoken, d_model=16, nhead=2, nlayers=2):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, d_model, padding_idx=0)
        self.value_encoder = nn.Linear(1, d_model)
        self.layers = nn.ModuleList(FlashTransformerEncoderLayer(d_model, nhead) for _ in range(nlayers))
        self.decoder = nn.Linear(d_model, 1)

    def forward(self, src, values, src_key_padding_mask):
        x = self.encoder(src) + self.value_encoder(values.unsqueeze(-1))
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=src_key_padding_mask)
        return self.decoder(x).squeeze(-1)


def make_cells(lengths, ntoken):
    return [{"genes": torch.randint(1, ntoken, (n,)), "expressions": torch.rand(n) * 5} for n in lengths]


def main():
    torch.manual_seed(199)
    model = TransformerModel(40).eval()
    collator = DataCollator(pad_token_id=0, pad_value=-2, max_length=12)
    for lengths in ([8, 8, 8], [12, 7, 9]):
        batch = collator(make_cells(lengths, 40))
        with torch.no_grad():
            out = model(batch["gene"], batch["expr"], batch["src_key_padding_mask"])
        real = batch["src_key_padding_mask"] == 0
        print(lengths, "mean prediction", round(out[real].mean().item(), 4))


if __name__ == "__main__":
    main()
