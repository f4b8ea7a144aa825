"""
title: Time-LLM run without the accelerate bf16 setting: patches cast to bfloat16 meet a float32 conv1d
expect: collision
thread: https://github.com/KimMeen/Time-LLM/issues/3
fix_at: 23

Expectation, written first: the forecasting model casts the normalised series to bfloat16 before the patch embedding because it expects to run in bf16.
The model is built in float32 and nothing casts it, so the token convolution has float32 weights and refuses the bfloat16 patches. Either the cast goes
or the model is made bfloat16.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class TokenEmbedding(nn.Module):
    def __init__(self, c_in, d_model):
        super().__init__()
        self.tokenConv = nn.Conv1d(c_in, d_model, kernel_size=3, padding=1, padding_mode="circular", bias=False)
        nn.init.kaiming_normal_(self.tokenConv.weight, mode="fan_in", nonlinearity="leaky_relu")

    def forward(self, x):
        return self.tokenConv(x.permute(0, 2, 1)).transpose(1, 2)  # COLLIDES


class PatchEmbedding(nn.Module):
    def __init__(self, d_model, patch_len, stride):
        super().__init__()
        self.patch_len, self.stride = patch_len, stride
        self.value_embedding = TokenEmbedding(patch_len, d_model)

    def forward(self, x):
        n_vars = x.shape[1]
        x = F.pad(x, (0, self.stride), mode="replicate")
        x = x.unfold(-1, self.patch_len, self.stride).flatten(0, 1)
        return self.value_embedding(x), n_vars


class Normalize(nn.Module):
    def forward(self, x, mode):
        if mode == "norm":
            self.mean = x.mean(dim=1, keepdim=True).detach()
            self.stdev = torch.sqrt(x.var(dim=1, keepdim=True, unbiased=False) + 1e-5).detach()
            return (x - self.mean) / self.stdev
        return x * self.stdev + self.mean


class Model(nn.Module):
    def __init__(self, seq_len=48, pred_len=12, d_model=16, patch_len=8, stride=4):
        super().__init__()
        self.normalize_layers = Normalize()
        self.patch_embedding = PatchEmbedding(d_model, patch_len, stride)
        patches = (seq_len - patch_len) // stride + 2
        self.llm_model = nn.TransformerEncoderLayer(d_model, 2, 32, batch_first=True, dropout=0.0)
        self.output_projection = nn.Linear(d_model * patches, pred_len)

    def forecast(self, x_enc):
        x_enc = self.normalize_layers(x_enc, "norm").permute(0, 2, 1).contiguous()
        enc_out, n_vars = self.patch_embedding(x_enc.to(torch.bfloat16))  # BORN
        dec_out = self.llm_model(enc_out).flatten(1)
        dec_out = self.output_projection(dec_out).view(-1, n_vars, self.output_projection.out_features)
        return self.normalize_layers(dec_out.permute(0, 2, 1), "denorm")

    def forward(self, batch_x):
        return self.forecast(batch_x)


def main():
    torch.manual_seed(2021)
    model = Model().float()  # BORN
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    t = torch.arange(60).float()
    series = torch.stack([torch.sin(t / 5), torch.cos(t / 7), t / 60], dim=-1).repeat(4, 1, 1)
    outputs = model(series[:, :48].float())
    loss = F.mse_loss(outputs, series[:, 48:])
    loss.backward()
    optimizer.step()
    print("train loss", loss.item())


if __name__ == "__main__":
    main()
