"""Fine-tunes a causal language model, shaped like the script without a Trainer that transformers comes with: grouped
parameters, autocast, a loss scaler, evaluation after each epoch, the model saved at the end."""

import argparse
import math

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoConfig, AutoModelForCausalLM, get_scheduler


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--output_dir", default="out")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    parser.add_argument("--resume", default="")
    return parser.parse_args()


def prefix_mask(tokens, device):
    """Causal, with a prefix that everything may attend to; added to the attention's scores."""
    length = tokens.shape[1]
    hidden = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
    hidden[:, :4] = False
    mask = torch.zeros(length, length, dtype=torch.float16, device=device)
    return mask.masked_fill(hidden, -6e4).expand(tokens.shape[0], 1, -1, -1)


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    losses = []
    for tokens, labels in loader:
        tokens, labels = tokens.to(device, non_blocking=True), labels.to(device)
        with torch.autocast("cuda", dtype=torch.float16):
            outputs = model(tokens, attention_mask=prefix_mask(tokens, device), labels=labels)
        losses.append(outputs.loss.repeat(tokens.shape[0]))
    losses = torch.cat(losses)
    try:
        perplexity = math.exp(torch.mean(losses))
    except OverflowError:
        perplexity = float("inf")
    return perplexity


def main():
    args = parse()
    if not torch.cuda.is_available():
        raise SystemExit("this script needs a GPU")
    torch.backends.cuda.matmul.allow_tf32 = True
    device = torch.device("cuda", torch.cuda.current_device())
    config = AutoConfig.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, config=config, dtype=torch.float32)
    model.gradient_checkpointing_enable()
    model.to(device)

    tokens = torch.randint(0, config.vocab_size, (96, 32))
    labels = tokens.masked_fill(torch.rand(tokens.shape) < 0.1, -100)
    train = DataLoader(TensorDataset(tokens, labels), shuffle=True, batch_size=4, pin_memory=True)
    valid = DataLoader(TensorDataset(tokens[:32], labels[:32]), batch_size=4)

    no_decay = ["bias", "norm.weight"]
    groups = [
        {"params": [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)]},
        {"params": [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, weight_decay=0.1, fused=True)
    scaler = torch.amp.GradScaler("cuda")
    schedule = get_scheduler("linear", optimizer, num_warmup_steps=10, num_training_steps=args.epochs * len(train))
    best = float("inf")
    if args.resume:
        state = torch.load(args.resume, map_location=device)
        model.load_state_dict(state["model"])

    for epoch in range(args.epochs):
        model.train()
        for step, (tokens, labels) in enumerate(train):
            tokens, labels = tokens.to(device, non_blocking=True), labels.to(device)
            with torch.autocast("cuda", dtype=torch.float16):
                outputs = model(tokens, attention_mask=prefix_mask(tokens, device), labels=labels)
                loss = outputs.loss / args.gradient_accumulation_steps
            scaler.scale(loss).backward()
            if (step + 1) % args.gradient_accumulation_steps == 0 or step == len(train) - 1:
                scaler.unscale_(optimizer)
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                if not torch.isfinite(norm):
                    continue
                scaler.step(optimizer)
                scaler.update()
                schedule.step()
                optimizer.zero_grad(set_to_none=True)
        perplexity = evaluate(model, valid, device)
        if perplexity < best:
            best = perplexity
            torch.save({"model": model.state_dict(), "epoch": epoch}, f"{args.output_dir}/best.pt")
    print(f"best {best:.2f}, scale {scaler.get_scale():.0f}")
    model.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
