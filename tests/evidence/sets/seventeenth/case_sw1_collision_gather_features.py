"""
title: half-precision features gathered across ranks into buffers that were allocated in fp32
expect: collision
thread: https://github.com/pytorch/pytorch/issues/84525
fix_at: 36, 37, 47, 55, 58, 59

Expectation, written first: the retrieval evaluation encodes in half precision, while GatherBuffers allocates the list for all_gather
with torch.zeros in the default dtype. The collective would reinterpret the bytes; torch checks the dtypes first and refuses.
"""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class TwoTower(nn.Module):
    def __init__(self, image_dim=24, text_dim=16, embed_dim=8):
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(image_dim, 32), nn.GELU(), nn.Linear(32, embed_dim))
        self.text = nn.Sequential(nn.Linear(text_dim, 32), nn.GELU(), nn.Linear(32, embed_dim))
    def encode_image(self, x):
        return F.normalize(self.visual(x), dim=-1)
    def encode_text(self, x):
        return F.normalize(self.text(x), dim=-1)

class GatherBuffers:
    def __init__(self, world_size):
        self.world_size = world_size
    def like(self, tensor):
        return [torch.zeros(tensor.shape) for _ in range(self.world_size)]  # BORN

def gather_features(features, buffers):
    gather_list = buffers.like(features)
    dist.all_gather(gather_list, features)  # COLLIDES
    return torch.cat(gather_list)

def recall_at_k(similarity, k):
    topk = similarity.topk(k, dim=1).indices
    return (topk == torch.arange(len(similarity)).unsqueeze(1)).any(dim=1).float().mean().item()

class RetrievalEvaluator:
    def __init__(self, model, precision="fp16"):
        self.input_dtype = {"fp32": torch.float32, "fp16": torch.float16}[precision]
        self.model = model.to(self.input_dtype).eval()
        self.buffers = GatherBuffers(dist.get_world_size())
    @torch.no_grad()
    def encode(self, loader):
        images, texts = [], []
        for image, text in loader:
            images.append(self.model.encode_image(image.to(self.input_dtype)))
            texts.append(self.model.encode_text(text.to(self.input_dtype)))
        return torch.cat(images), torch.cat(texts)
    def evaluate(self, loader):
        image_features, text_features = self.encode(loader)
        image_features = gather_features(image_features, self.buffers)
        text_features = gather_features(text_features, self.buffers)
        similarity = image_features.float() @ text_features.float().t()
        return {f"R@{k}": recall_at_k(similarity, k) for k in (1, 5)}

def contrastive_warmup(model, loader, steps=60):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        for image, text in loader:
            logits = 10 * model.encode_image(image) @ model.encode_text(text).t()
            loss = F.cross_entropy(logits, torch.arange(len(image)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

def main(rank=0, world_size=1):
    store = os.path.join(tempfile.mkdtemp(), "store")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    latent = torch.randn(32, 8)
    dataset = TensorDataset(latent @ torch.randn(8, 24), latent @ torch.randn(8, 16))
    loader = DataLoader(dataset, batch_size=16)
    model = TwoTower()
    contrastive_warmup(model, loader)
    print(RetrievalEvaluator(model).evaluate(loader))
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
