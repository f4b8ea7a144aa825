"""
title: mixed-precision fine-tuning of the music LLM stops at the unscaling in front of the gradient clipping
expect: collision
thread: https://github.com/QwenAudio/FunMusic/issues/28
fix_at: 45

Expectation, written first: the weights are converted to fp16 before training, so their gradients are fp16, and a GradScaler refuses to unscale
fp16 gradients (it wants fp32 master weights under autocast). The weights must stay in fp32 for `--dtype fp16`, autocast doing the rest; a
plain fp16 run without the scaler would be the other way.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class MusicLLM(nn.Module):
    def __init__(self, text_vocab=32, token_size=24, dim=32):
        super().__init__()
        self.text_embedding = nn.Embedding(text_vocab, dim)
        self.speech_embedding = nn.Embedding(token_size, dim)
        self.rnn_proj = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.llm_decoder = nn.Linear(dim, token_size + 1)

    def forward(self, batch):
        text = self.text_embedding(batch["text_token"]).mean(dim=1, keepdim=True)
        x = self.norm(F.gelu(self.rnn_proj(self.speech_embedding(batch["acoustic_token"]) + text)))
        logits = self.llm_decoder(x[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)).float(), batch["acoustic_token"][:, 1:].reshape(-1))
        return {"loss": loss}


def init_model(args):
    dtypes = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
    model = MusicLLM()
    model = model.to(dtypes[args.dtype])  # BORN
    return model, dtypes[args.dtype]


def init_optimizer_and_scheduler(args, model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, eps=1e-6)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / args.warmup))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if args.dtype == "fp16" else None
    return optimizer, scheduler, scaler


def batch_forward(model, batch, info_dict):
    with torch.autocast("cpu", dtype=info_dict["dtype"], enabled=info_dict["dtype"] != torch.float32):
        info_dict["loss_dict"] = model(batch)
    return info_dict


def batch_backward(info_dict, scaler):
    loss = info_dict["loss_dict"]["loss"]
    (scaler.scale(loss) if scaler is not None else loss).backward()
    return info_dict


def update_parameter_and_lr(model, optimizer, scheduler, info_dict, scaler):
    if scaler is not None:
        scaler.unscale_(optimizer)  # COLLIDES
    info_dict["grad_norm"] = torch.nn.utils.clip_grad_norm_(model.parameters(), info_dict["grad_clip"])
    if scaler is not None:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
    return info_dict


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="fp16", choices=["fp32", "bf16", "fp16"])
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(11)
    model, dtype = init_model(args)
    optimizer, scheduler, scaler = init_optimizer_and_scheduler(args, model)
    for step in range(3):
        batch = {"text_token": torch.randint(0, 32, (2, 6)), "acoustic_token": torch.randint(0, 24, (2, 16))}
        info = batch_backward(batch_forward(model, batch, {"dtype": dtype, "grad_clip": 1.0}), scaler)
        info = update_parameter_and_lr(model, optimizer, scheduler, info, scaler)
        print(f"step {step} loss {info['loss_dict']['loss'].item():.4f} grad_norm {float(info['grad_norm']):.4f}")
