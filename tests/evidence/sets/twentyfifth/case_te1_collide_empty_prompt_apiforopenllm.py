"""
title: An empty message list becomes a float tensor of token ids
expect: collision
thread: https://github.com/xusenlinzy/api-for-open-llm/issues/219
fix_at: (none beside the marked)

Expectation, written first: The prompt ids are built as a Python list and turned into a tensor without a
dtype. With words the tensor is Long; a request whose content is empty after truncation gives torch.tensor([[]]),
which is float32, and the embedding refuses float indices.
"""
import torch
import torch.nn as nn


class ByteTokenizer:
    eos_token_id = 1

    def encode(self, text):
        return [2 + (ord(c) % 62) for c in text]

    def decode(self, ids):
        return "".join(chr(33 + i) for i in ids)


class TinyCausalLM(nn.Module):
    def __init__(self, vocab=64, dim=16):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, input_ids, past=None):
        hidden = self.embed_tokens(input_ids)  # COLLIDES
        if hidden.shape[1] == 0:
            return self.lm_head(hidden.new_zeros(1, 1, hidden.shape[-1])), past
        hidden, past = self.rnn(hidden, past)
        return self.lm_head(hidden), past


def build_prompt(tokenizer, messages, context_len):
    ids = []
    for message in messages:
        ids += tokenizer.encode(message["content"])
    return ids[-context_len:]


def prepare_inputs(input_ids):
    return torch.tensor([input_ids])  # BORN


@torch.inference_mode()
def generate_stream(model, tokenizer, params):
    input_ids = build_prompt(tokenizer, params["messages"], params.get("context_len", 32))
    inputs = prepare_inputs(input_ids)  # BORN
    output_ids, past = [], None
    for _ in range(params["max_new_tokens"]):
        logits, past = model(inputs, past)
        token = int(logits[0, -1].argmax())
        output_ids.append(token)
        if token == tokenizer.eos_token_id:
            break
        inputs = torch.tensor([[token]])
    return {"text": tokenizer.decode(output_ids), "prompt_tokens": len(input_ids)}


class ModelServer:
    def __init__(self, model, tokenizer):
        self.model, self.tokenizer = model, tokenizer

    def create_chat_completion(self, messages, max_tokens=6):
        params = {"messages": messages, "max_new_tokens": max_tokens}
        return generate_stream(self.model, self.tokenizer, params)


def main():
    torch.manual_seed(219)
    server = ModelServer(TinyCausalLM().eval(), ByteTokenizer())
    requests = [
        [{"role": "user", "content": "hello there"}],
        [{"role": "system", "content": "be short"}, {"role": "user", "content": "why"}],
        [{"role": "user", "content": ""}],
    ]
    for messages in requests:
        reply = server.create_chat_completion(messages)
        print(reply["prompt_tokens"], "prompt tokens ->", repr(reply["text"]))


if __name__ == "__main__":
    main()
