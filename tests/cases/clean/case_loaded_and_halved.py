"""
title: a float32 checkpoint is loaded into a half network for inference
expect: clean

The copy rounds once, exactly as casting the loaded network would have.
"""
import io

import torch
from torch import nn


def network():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Flatten(), nn.LazyLinear(4))


torch.manual_seed(0)
trained = network()
trained(torch.randn(1, 3, 6, 6))
file = io.BytesIO()
torch.save(trained.state_dict(), file)
file.seek(0)
served = network()
served(torch.randn(1, 3, 6, 6))
served.half().load_state_dict(torch.load(file))
with torch.inference_mode():
    print(served(torch.randn(2, 3, 6, 6).half()).dtype)