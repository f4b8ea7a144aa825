"""
title: cell-set transformer: a float attention mask is combined with & against a bool padding mask
expect: collision
thread: https://github.com/ArcInstitute/state/pull/213
fix_at: 38

Expectation, written first: with mask_attn the model builds its block mask with torch.ones and no dtype, so the
mask is float; the backbone then joins it bitwise with the bool padding mask, and bitwise_and does not exist for
float. The mask has to be built as bool.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class SelfAttention(nn.Module):
    def __init__(self, hidden_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(hidden_dim, 3 * hidden_dim)
        self.proj = nn.Linear(hidden_dim, hidden_dim)

    def forward(self, x, attn_mask):
        B, S, D = x.shape
        q, k, v = self.qkv(x).view(B, S, 3, self.num_heads, D // self.num_heads).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)
        return self.proj(out.transpose(1, 2).reshape(B, S, D))


class BidirectionalBackbone(nn.Module):
    def __init__(self, hidden_dim, num_heads, n_layers):
        super().__init__()
        self.num_heads = num_heads
        self.layers = nn.ModuleList([SelfAttention(hidden_dim, num_heads) for _ in range(n_layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(hidden_dim) for _ in range(n_layers)])

    def forward(self, inputs_embeds, attention_mask, padding_mask):
        mask = attention_mask & padding_mask[:, None, None, :]  # COLLIDES
        x = inputs_embeds
        for layer, norm in zip(self.layers, self.norms):
            x = x + layer(norm(x), mask)
        return x


class StateTransitionPerturbationModel(nn.Module):
    def __init__(self, input_dim, pert_dim, hidden_dim=24, num_heads=3, n_layers=2, mask_attn=True):
        super().__init__()
        self.mask_attn = mask_attn
        self.basal_encoder = nn.Linear(input_dim, hidden_dim)
        self.pert_encoder = nn.Linear(pert_dim, hidden_dim)
        self.transformer_backbone = BidirectionalBackbone(hidden_dim, num_heads, n_layers)
        self.project_out = nn.Linear(hidden_dim, input_dim)

    def forward(self, basal, pert, n_cells):
        B, S, _ = basal.shape
        seq_input = self.basal_encoder(basal) + self.pert_encoder(pert)
        padding_mask = torch.arange(S)[None, :] < n_cells[:, None]
        heads = self.transformer_backbone.num_heads
        attention_mask = torch.ones((B, heads, S, S), device=basal.device)  # BORN
        if self.mask_attn:
            eye = torch.eye(S, dtype=torch.bool, device=basal.device)
            attention_mask[:, 1:, :, : S // 2] = 0
            attention_mask[:, :, eye] = 1
        hidden = self.transformer_backbone(seq_input, attention_mask, padding_mask)
        return F.relu(self.project_out(hidden)), padding_mask


if __name__ == "__main__":
    torch.manual_seed(2)
    model = StateTransitionPerturbationModel(input_dim=30, pert_dim=5)
    basal, pert = torch.rand(2, 10, 30), F.one_hot(torch.randint(0, 5, (2, 10)), 5).float()
    pred, valid = model(basal, pert, n_cells=torch.tensor([10, 7]))
    loss = (pred - basal)[valid].pow(2).mean()
    loss.backward()
    print("mse", f"{loss.item():.5f}")
