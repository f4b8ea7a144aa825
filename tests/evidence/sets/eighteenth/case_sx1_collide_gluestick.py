"""
title: line message passing of a matcher reduces float16 updates into a float32 buffer under mixed precision
expect: collision
thread: https://github.com/cvg/glue-factory/issues/76

Expectation, written first: with mixed_precision on, the convolutions of the line layer's MLP give float16, while the
buffer of per-junction updates is allocated by torch.zeros in float32. scatter_reduce_ needs one dtype for both, so the
training forward stops there; the buffer must take the dtype of the updates or the updates be cast.
"""
import torch
import torch.nn as nn


def mlp(channels):
    layers = []
    for i in range(1, len(channels)):
        layers.append(nn.Conv1d(channels[i - 1], channels[i], kernel_size=1))
        if i < len(channels) - 1:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class LineLayer(nn.Module):
    def __init__(self, feature_dim):
        super().__init__()
        self.dim = feature_dim
        self.mlp = mlp([3 * feature_dim, 2 * feature_dim, feature_dim])

    def get_endpoint_update(self, ldesc, line_enc, lines_junc_idx):
        idx = lines_junc_idx[:, None].repeat(1, self.dim, 1)
        line_desc = torch.gather(ldesc, 2, idx)
        other = line_desc.reshape(*line_desc.shape[:2], -1, 2).flip([-1]).flatten(2)
        return self.mlp(torch.cat([line_desc, other, line_enc], dim=1))  # BORN

    def forward(self, ldesc0, line_enc0, lines_junc_idx0):
        lupdate0 = self.get_endpoint_update(ldesc0, line_enc0, lines_junc_idx0)  # BORN
        b, dim, n_junc = ldesc0.shape
        update0 = torch.zeros(b, dim, n_junc, device=ldesc0.device)  # BORN
        index = lines_junc_idx0[:, None].repeat(1, dim, 1)
        update0 = update0.scatter_reduce_(2, index, lupdate0, reduce="mean", include_self=False)  # BORN COLLIDES
        return ldesc0 + update0


class KeypointLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = mlp([dim, dim])

    def forward(self, desc):
        return desc + self.net(desc)


class AttentionalGNN(nn.Module):
    def __init__(self, dim, num_layers):
        super().__init__()
        self.layers = nn.ModuleList(KeypointLayer(dim) for _ in range(num_layers))
        self.line_layers = nn.ModuleList(LineLayer(dim) for _ in range(num_layers))

    def forward(self, desc, line_enc, lines_junc_idx):
        for layer, line_layer in zip(self.layers, self.line_layers):
            desc = layer(desc)
            desc = line_layer(desc, line_enc, lines_junc_idx)
        return desc


class GlueStick(nn.Module):
    default_conf = {"descriptor_dim": 16, "num_GNN_layers": 2}

    def __init__(self):
        super().__init__()
        dim = self.default_conf["descriptor_dim"]
        self.kenc, self.lenc = mlp([3, 32, dim]), mlp([5, 32, dim])
        self.gnn = AttentionalGNN(dim, self.default_conf["num_GNN_layers"])

    def forward(self, data):
        kpts = torch.cat([data["keypoints0"], data["scores0"][:, None]], 1)
        desc = data["descriptors0"] + self.kenc(kpts)
        return self.gnn(desc, self.lenc(data["line_feats0"]), data["lines_junc_idx0"])


if __name__ == "__main__":
    torch.manual_seed(0)
    conf = {"mixed_precision": True, "mp_dtype": torch.float16}
    model = GlueStick().train()
    batch = {"keypoints0": torch.rand(2, 2, 12), "scores0": torch.rand(2, 12), "descriptors0": torch.randn(2, 16, 12)}
    batch.update(line_feats0=torch.randn(2, 5, 8), lines_junc_idx0=torch.randint(0, 12, (2, 8)))
    with torch.autocast("cpu", enabled=conf["mixed_precision"], dtype=conf["mp_dtype"]):
        out = model(batch)
    print(out.shape)
