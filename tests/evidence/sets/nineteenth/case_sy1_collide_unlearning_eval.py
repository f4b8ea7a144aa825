"""
title: probability metric of a bf16 model: Got unsupported ScalarType BFloat16
expect: collision
thread: https://github.com/locuslab/open-unlearning/pull/156
fix_at: 25 (the logits could be widened there as well)

Expectation, written first: the evaluated Llama is loaded in bfloat16, its per-token losses and their average stay bfloat16, and the metric
turns them into NumPy arrays, which know no bfloat16: torch refuses .numpy(). The averages must be cast to float32 before .numpy(), or the
loss computed in float32.
"""
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

IGNORE_INDEX = -100


def evaluate_probability(model, batch):
    batch = {k: v.to(model.device) for k, v in batch.items()}
    with torch.no_grad():
        output = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    logits = output.logits
    labels = batch["labels"].to(logits.device)
    shifted_labels = labels[..., 1:].contiguous()
    logits = logits[..., :-1, :].contiguous()
    loss_function = torch.nn.CrossEntropyLoss(ignore_index=IGNORE_INDEX, reduction="none")
    losses = loss_function(logits.transpose(-1, -2), shifted_labels).sum(dim=-1)  # BORN
    num_token_gt = (shifted_labels != IGNORE_INDEX).sum(-1)
    avg_losses = losses / num_token_gt
    normalized_probs = torch.exp(-avg_losses)
    avg_losses = avg_losses.cpu().numpy().tolist()  # BORN COLLIDES
    normalized_probs = normalized_probs.cpu().numpy().tolist()  # BORN
    return [{"prob": prob, "avg_loss": loss} for prob, loss in zip(normalized_probs, avg_losses)]


def run_batchwise_evals(model, dataloader, batch_eval_fn):
    evals = {}
    for batch in dataloader:
        indices = batch.pop("index").cpu().numpy().tolist()
        batch_evals = batch_eval_fn(model=model, batch=batch)
        evals.update(dict(zip(indices, batch_evals)))
    return evals


def get_model(model_args):
    config = LlamaConfig(
        vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )
    torch_dtype = getattr(torch, model_args["torch_dtype"])
    return LlamaForCausalLM(config).to(torch_dtype).eval()


def forget_set(n=4, seq=10):
    rows = []
    for i in range(n):
        ids = torch.randint(3, 96, (seq,))
        labels = ids.clone()
        labels[:4] = IGNORE_INDEX
        rows.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels, "index": torch.tensor(i)})
    return rows


def main():
    torch.manual_seed(0)
    model = get_model({"torch_dtype": "bfloat16"})
    loader = torch.utils.data.DataLoader(forget_set(), batch_size=2)
    evals = run_batchwise_evals(model, loader, evaluate_probability)
    probs = np.array([e["prob"] for e in evals.values()])
    print("forget_Q_A_Prob", probs.mean())


if __name__ == "__main__":
    main()
