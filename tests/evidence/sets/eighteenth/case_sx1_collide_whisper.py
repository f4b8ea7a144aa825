"""
title: Whisper's output projection is upcast for training and evaluation generates without autocast
expect: collision
thread: https://github.com/Vaibhavs10/fast-whisper-finetuning/issues/14
fix_at: 78

Expectation, written first: the model is loaded in float16 and the preparation step upcasts the output embedding
(proj_out) to float32 for a stable loss. The training step runs under autocast and works, the evaluation loop generates
outside of it, so half decoder states meet the float32 projection.
"""
from dataclasses import dataclass

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import WhisperConfig, WhisperForConditionalGeneration


def prepare_model_for_training(model, output_embedding_layer_name="proj_out"):
    for param in model.parameters():
        param.requires_grad = False
    output_embedding_layer = getattr(model, output_embedding_layer_name)
    setattr(model, output_embedding_layer_name, output_embedding_layer.to(torch.float32))  # BORN
    return model


@dataclass
class DataCollatorSpeechSeq2SeqWithPadding:
    pad_token_id: int
    decoder_start_token_id: int

    def __call__(self, features):
        input_features = torch.stack([f["input_features"] for f in features])
        labels = torch.nn.utils.rnn.pad_sequence([f["labels"] for f in features], True, self.pad_token_id)
        return {"input_features": input_features, "labels": labels.masked_fill(labels == self.pad_token_id, -100)}


def load_model():
    config = WhisperConfig(
        vocab_size=60, num_mel_bins=16, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=20,
        max_target_positions=24, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
        suppress_tokens=None, begin_suppress_tokens=None, tie_word_embeddings=False,
    )
    model = WhisperForConditionalGeneration(config).to(torch.float16)
    model.generation_config.suppress_tokens = None
    model.generation_config.begin_suppress_tokens = None
    return model


def train(model, loader, lr=1e-3):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)
    model.train()
    for batch in loader:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(input_features=batch["input_features"].half(), labels=batch["labels"]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print("train loss", round(loss.item(), 3))


def evaluate(model, loader):
    model.eval()
    errors = total = 0
    for batch in loader:
        with torch.no_grad():
            generated = model.generate(input_features=batch["input_features"].half(), max_new_tokens=8)  # BORN COLLIDES
        labels = batch["labels"]
        n = min(generated.shape[1], labels.shape[1])
        errors += (generated[:, :n] != labels[:, :n]).sum().item()
        total += (labels != -100).sum().item()
    return 100 * errors / total


def main():
    torch.manual_seed(0)
    model = prepare_model_for_training(load_model())
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], bias="none"))
    data = [{"input_features": torch.randn(16, 40), "labels": torch.randint(4, 60, (6 + i,))} for i in range(4)]
    loader = DataLoader(data, batch_size=2, collate_fn=DataCollatorSpeechSeq2SeqWithPadding(0, 3))
    train(model, loader)
    print("wer", evaluate(model, loader))


if __name__ == "__main__":
    main()
