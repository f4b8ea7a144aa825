"""
title: FSDPTrainer flattens a bf16 policy together with the fp32 LoRA adapters that were put into it
expect: collision
thread: https://github.com/eric-mitchell/direct-preference-optimization/issues/90
fix_at: 43, 60, 84

Expectation, written first: the policy is loaded in bfloat16 and the adapters are initialised in float32 (autocast_adapter_dtype is on
by default). Nothing brings them back to the policy dtype, so FSDP, which needs one dtype per flat parameter, refuses to wrap it.
"""
import os
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

warnings.filterwarnings("ignore")

class PolicyLM(nn.Module):
    def __init__(self, vocab=64, dim=16):
        super().__init__()
        self.embed, self.mixer = nn.Embedding(vocab, dim), nn.Linear(dim, dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)
    def forward(self, input_ids):
        x = self.embed(input_ids)
        return self.lm_head(x + torch.tanh(self.mixer(x.cumsum(dim=1))))

class LoraLinear(nn.Module):
    def __init__(self, base_layer, r, alpha, autocast_adapter_dtype=True):  # BORN
        super().__init__()
        self.base_layer, self.scaling = base_layer.requires_grad_(False), alpha / r
        dtype = torch.float32 if autocast_adapter_dtype else base_layer.weight.dtype  # BORN
        self.lora_A = nn.Parameter(torch.randn(r, base_layer.in_features, dtype=dtype) * 0.02)
        self.lora_B = nn.Parameter(torch.zeros(base_layer.out_features, r, dtype=dtype))
    def forward(self, x):
        result = self.base_layer(x)
        return result + ((x.to(self.lora_A.dtype) @ self.lora_A.t() @ self.lora_B.t()) * self.scaling).to(result.dtype)

def build_model(policy_dtype):
    return PolicyLM().to(getattr(torch, policy_dtype))

def add_lora(policy, r=4, alpha=8):
    policy.requires_grad_(False)
    policy.mixer = LoraLinear(policy.mixer, r, alpha)  # BORN
    return policy

def batch_logps(logits, labels):
    logps = logits[:, :-1].float().log_softmax(-1)
    return logps.gather(2, labels[:, 1:].unsqueeze(2)).squeeze(2).sum(-1)

def preference_loss(chosen, rejected, ref_chosen, ref_rejected, beta=0.1):
    return -F.logsigmoid(beta * ((chosen - rejected) - (ref_chosen - ref_rejected))).mean()

class FSDPTrainer:
    def __init__(self, policy, reference_model, lr=1e-3):
        shared = dict(device_id=torch.device("cpu"), use_orig_params=True)
        self.policy = FSDP(policy, **shared)  # COLLIDES
        self.reference_model = FSDP(reference_model, **shared)
        self.optimizer = torch.optim.RMSprop([p for p in self.policy.parameters() if p.requires_grad], lr=lr)
    def concatenated_forward(self, model, chosen, rejected):
        ids = torch.cat([chosen, rejected])
        return batch_logps(model(ids), ids).split(len(chosen))
    def train(self, batches):
        for chosen, rejected in batches:
            with torch.no_grad():
                ref = self.concatenated_forward(self.reference_model, chosen, rejected)
            loss = preference_loss(*self.concatenated_forward(self.policy, chosen, rejected), *ref)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

def worker_main(rank, world_size, policy_dtype="bfloat16"):
    store = os.path.join(tempfile.mkdtemp(), "store")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    reference_model = build_model(policy_dtype)
    policy = build_model(policy_dtype)
    policy.load_state_dict(reference_model.state_dict())
    policy = add_lora(policy)  # BORN
    trainer = FSDPTrainer(policy, reference_model)
    batches = [(torch.randint(0, 64, (2, 10)), torch.randint(0, 64, (2, 10))) for _ in range(3)]
    print(f"loss {trainer.train(batches):.4f}")
    dist.destroy_process_group()

if __name__ == "__main__":
    worker_main(0, 1)
