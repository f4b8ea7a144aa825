"""
title: Beam index by true division is a float and cannot index the sequences
expect: collision
thread: https://github.com/qs956/Latex_OCR_Pytorch/issues/3
fix_at: the lines that index with prev_word_inds (seqs, h)

Expectation, written first: The beam's row is found as top_k_words / vocab_size. Since integer division
became true division the quotient is float32, so the next line that gathers the surviving sequences with
it raises IndexError.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Conv2d(1, dim, 4, stride=4)

    def forward(self, images):
        return self.conv(images).flatten(2).transpose(1, 2)


class DecoderWithAttention(nn.Module):
    def __init__(self, vocab_size, dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, dim)
        self.decode_step = nn.GRUCell(dim * 2, dim)
        self.attention = nn.Linear(dim, dim)
        self.fc = nn.Linear(dim, vocab_size)

    def step(self, words, enc, h):
        alpha = torch.einsum("bnd,bd->bn", enc, self.attention(h)).softmax(dim=1)
        context = torch.einsum("bn,bnd->bd", alpha, enc)
        h = self.decode_step(torch.cat([self.embedding(words), context], dim=1), h)
        return self.fc(h), h


@torch.no_grad()
def caption_image_beam_search(encoder, decoder, image, word_map, beam_size=3, max_len=6):
    k = beam_size
    vocab_size = len(word_map)
    enc = encoder(image).expand(k, -1, -1)
    k_prev_words = torch.LongTensor([[word_map["<start>"]]] * k)
    seqs = k_prev_words
    top_k_scores = torch.zeros(k, 1)
    h = enc.mean(dim=1)
    step = 1
    while step <= max_len:
        scores, h = decoder.step(k_prev_words.squeeze(1), enc, h)
        scores = F.log_softmax(scores, dim=1)
        scores = top_k_scores.expand_as(scores) + scores
        if step == 1:
            top_k_scores, top_k_words = scores[0].topk(k, 0, True, True)
        else:
            top_k_scores, top_k_words = scores.view(-1).topk(k, 0, True, True)
        prev_word_inds = top_k_words / vocab_size  # BORN
        next_word_inds = top_k_words % vocab_size
        seqs = torch.cat([seqs[prev_word_inds], next_word_inds.unsqueeze(1)], dim=1)  # COLLIDES
        h = h[prev_word_inds]
        top_k_scores = top_k_scores.unsqueeze(1)
        k_prev_words = next_word_inds.unsqueeze(1)
        step += 1
    return seqs[top_k_scores.argmax()].tolist()


def main():
    torch.manual_seed(3)
    word_map = {w: i for i, w in enumerate(["<start>", "<end>", "\\frac", "{", "}", "x", "y", "2", "+"])}
    encoder, decoder = Encoder(16), DecoderWithAttention(len(word_map), 16)
    rev = {v: k for k, v in word_map.items()}
    seq = caption_image_beam_search(encoder, decoder, torch.rand(1, 1, 16, 32), word_map)
    print("formula", " ".join(rev[i] for i in seq))


if __name__ == "__main__":
    main()
