"""
title: FSDP cannot flatten a bfloat16 policy whose LoRA adapters were created in float32
expect: collision
thread: https://github.com/eric-mitchell/direct-preference-optimization/issues/90
fix_at: 25

Expectation, written first: the policy is loaded in bfloat16 as policy_dtype says. get_peft_model adds the adapters and,
by its default, keeps their weights in float32. FSDPTrainer wraps each block into one flat parameter and torch refuses
to flatten bfloat16 and float32 together; the adapters must get the dtype of the policy.
"""
import functools
import os
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import AutoModelForCausalLM, GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

config = SimpleNamespace(
    model=SimpleNamespace(policy_dtype="bfloat16", block_name="GPT2Block"),
    lora=SimpleNamespace(r=4, alpha=8, dropout=0.0),
    loss=SimpleNamespace(beta=0.1),
    lr=5e-7,
)


def preference_loss(policy_chosen, policy_rejected, reference_chosen, reference_rejected, beta):
    logits = (policy_chosen - policy_rejected) - (reference_chosen - reference_rejected)
    return -F.logsigmoid(beta * logits)


def get_batch_logps(logits, labels):
    labels = labels[:, 1:].clone()
    logits = logits[:, :-1, :]
    return torch.gather(logits.log_softmax(-1), 2, labels.unsqueeze(2)).squeeze(2).sum(-1)


class FSDPTrainer:
    def __init__(self, policy, config, reference_model):
        self.config = config
        wrap_class = {GPT2Block} if config.model.block_name == "GPT2Block" else set()
        policy_fn = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=wrap_class)
        shared_fsdp_kwargs = dict(auto_wrap_policy=policy_fn, device_id=torch.device("cpu"), use_orig_params=True)
        self.policy = FSDP(policy, **shared_fsdp_kwargs)  # COLLIDES
        self.reference_model = FSDP(reference_model, **shared_fsdp_kwargs)
        self.optimizer = torch.optim.RMSprop(self.policy.parameters(), lr=config.lr)

    def train(self, batches):
        for batch in batches:
            chosen, rejected = (get_batch_logps(self.policy(batch[k]).logits, batch[k]) for k in ("chosen", "rejected"))
            with torch.no_grad():
                ref = [get_batch_logps(self.reference_model(batch[k]).logits, batch[k]) for k in ("chosen", "rejected")]
            loss = preference_loss(chosen, rejected, *ref, self.config.loss.beta).mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            print("loss", loss.item())


def worker_main(rank, world_size, config, policy, reference_model):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29561")
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    batches = [{k: torch.randint(0, 64, (2, 8)) for k in ("chosen", "rejected")} for _ in range(2)]
    FSDPTrainer(policy, config, reference_model).train(batches)


def main():
    torch.manual_seed(0)
    model_cfg = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    policy_dtype = getattr(torch, config.model.policy_dtype)
    policy = AutoModelForCausalLM.from_config(model_cfg, dtype=policy_dtype)
    reference_model = AutoModelForCausalLM.from_config(model_cfg, dtype=policy_dtype)
    peft_config = LoraConfig(r=config.lora.r, lora_alpha=config.lora.alpha, lora_dropout=config.lora.dropout)
    policy = get_peft_model(policy, peft_config)  # BORN
    worker_main(0, 1, config, policy, reference_model)


if __name__ == "__main__":
    main()
