"""
title: An empty prompt text makes the token ids float and the text embedding refuses them
expect: collision
thread: https://github.com/AIFSH/CosyVoice-ComfyUI/issues/70
fix_at: the torch.concat of prompt and text tokens; the embedding line

Expectation, written first: The token ids go into torch.tensor without a dtype. With an empty prompt text
the list is empty and torch.tensor gives float32; concatenated with the real ids everything becomes float,
and the embedding raises for FloatTensor indices.
"""
import torch
import torch.nn as nn


class CharTokenizer:
    def __init__(self, chars):
        self.stoi = {c: i + 1 for i, c in enumerate(chars)}

    def encode(self, text):
        return [self.stoi.get(c, 0) for c in text.lower()]


class CosyVoiceFrontEnd:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def text_normalize(self, text):
        text = text.strip().replace("\n", " ")
        return [s.strip() + "." for s in text.split(".") if s.strip()]

    def _extract_text_token(self, text):
        text_token = self.tokenizer.encode(text)
        text_token = torch.tensor([text_token])  # BORN
        text_token_len = torch.tensor([text_token.shape[1]], dtype=torch.int32)
        return text_token, text_token_len

    def frontend_zero_shot(self, tts_text, prompt_text, prompt_speech):
        tts_token, tts_len = self._extract_text_token(tts_text)
        prompt_token, prompt_len = self._extract_text_token(prompt_text)
        return {"text": tts_token, "text_len": tts_len, "prompt_text": prompt_token,
                "prompt_text_len": prompt_len, "embedding": prompt_speech.mean(dim=1)}


class TransformerLM(nn.Module):
    def __init__(self, vocab, dim, speech_vocab, spk_dim):
        super().__init__()
        self.text_embedding = nn.Embedding(vocab, dim)
        self.spk_affine = nn.Linear(spk_dim, dim)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.decoder = nn.Linear(dim, speech_vocab)

    @torch.no_grad()
    def inference(self, text, text_len, prompt_text, prompt_text_len, embedding):
        text = torch.concat([prompt_text, text], dim=1)
        text_len = text_len + prompt_text_len
        text = self.text_embedding(text)  # COLLIDES
        spk = self.spk_affine(embedding).unsqueeze(1)
        h, _ = self.encoder(torch.cat([spk, text], dim=1))
        return self.decoder(h)[:, -int(text_len):].argmax(dim=-1)


def main():
    torch.manual_seed(2)
    frontend = CosyVoiceFrontEnd(CharTokenizer("abcdefghijklmnopqrstuvwxyz .,'"))
    llm = TransformerLM(40, 24, 64, 8)
    prompt_speech = torch.randn(1, 50, 8)
    for prompt_text in ("hello there.", ""):
        for sentence in frontend.text_normalize("The weather is fine. We go out."):
            model_input = frontend.frontend_zero_shot(sentence, prompt_text, prompt_speech)
            tokens = llm.inference(**model_input)
            print(repr(prompt_text), tuple(tokens.shape), tokens[0, :5].tolist())


if __name__ == "__main__":
    main()
