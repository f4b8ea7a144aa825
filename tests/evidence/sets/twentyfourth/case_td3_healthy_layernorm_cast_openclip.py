"""
title: A pure-half text tower whose layer norms go to float32 and back
expect: clean
thread: https://github.com/mlfoundations/open_clip/pull/850
measured: predicted [0, 1, 2] / ['57', '29', '7', '-11'] / ['15', '62', '17', '38'] / ['9', '-10', '72', '24']
suspect: 21 sufficient

Expectation, written first: The tower runs in float16; every layer norm is computed in float32 and its
result cast back to half. The round trip looks like a loss, but a normalized activation of order one
keeps its eleven bits. The class logits agree with float64 to the printed whole numbers at a scale of 100.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class LayerNormFp32(nn.LayerNorm):
    def forward(self, x):
        orig_type = x.dtype
        x = F.layer_norm(x.to(torch.float32), self.normalized_shape, self.weight, self.bias, self.eps)
        return x.to(orig_type)


class ResidualAttentionBlock(nn.Module):
    def __init__(self, d_model, n_head):
        super().__init__()
        self.ln_1, self.ln_2 = LayerNormFp32(d_model), LayerNormFp32(d_model)
        self.in_proj, self.out_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.c_fc, self.c_proj = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)
        self.n_head = n_head

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.in_proj(self.ln_1(x)).view(b, t, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out_proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x))))


class TextTransformer(nn.Module):
    def __init__(self, vocab=80, width=64, layers=3, output_dim=32):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab, width)
        self.resblocks = nn.Sequential(*[ResidualAttentionBlock(width, 4) for _ in range(layers)])
        self.ln_final = LayerNormFp32(width)
        self.text_projection = nn.Linear(width, output_dim, bias=False)

    def forward(self, text):
        x = self.ln_final(self.resblocks(self.token_embedding(text)))
        return self.text_projection(x[:, -1])


def convert_weights_to_lp(model, dtype):
    for m in model.modules():
        if isinstance(m, (nn.Linear, nn.Embedding)):
            m.to(dtype)
    return model


@torch.no_grad()
def build_zero_shot_classifier(model, class_tokens):
    weights = []
    for tokens in class_tokens:
        emb = F.normalize(model(tokens).float(), dim=-1).mean(dim=0)
        weights.append(emb / emb.norm())
    return torch.stack(weights, dim=1)


@torch.no_grad()
def main():
    torch.manual_seed(23)
    model = convert_weights_to_lp(TextTransformer().eval(), torch.float16)
    class_tokens = torch.randint(0, 80, (4, 3, 10))
    classifier = build_zero_shot_classifier(model, class_tokens)
    image_features = F.normalize(torch.randn(3, 32) + classifier.T[:3] * 5, dim=-1)
    logits = 100.0 * image_features @ classifier
    print("predicted", logits.argmax(dim=1).tolist())
    for row in logits:
        print([f"{x:.0f}" for x in row.tolist()])


if __name__ == "__main__":
    main()
