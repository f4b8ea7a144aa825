"""
title: voice profiles are averaged in float32 by an enrolment service, SpeechT5 runs in bfloat16
expect: collision
needs: transformers
fix_at: 31, 49

After https://github.com/dkackman/diffusers-workflow/issues/223 and https://github.com/Blaizzy/mlx-audio/issues/874.
Right: the profile is cast to the model's dtype.
"""
import torch
import torch.nn.functional as F
from torch import nn
from transformers import SpeechT5Config, SpeechT5ForTextToSpeech

torch.manual_seed(622)


class Enrolment:
    """A profile is the mean direction of some utterances' vectors."""

    def __init__(self, dim=24):
        self.net = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, dim)).eval()
        self.profiles = {}

    @torch.no_grad()
    def enrol(self, name, utterances):
        vectors = torch.stack([F.normalize(self.net(u).mean(0), dim=0) for u in utterances])
        self.profiles[name] = F.normalize(vectors.mean(0, keepdim=True), dim=-1)  # BORN

    def __getitem__(self, name):
        return self.profiles[name]


def build(dtype):
    config = SpeechT5Config(vocab_size=40, hidden_size=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
                            encoder_ffn_dim=48, decoder_ffn_dim=48, speaker_embedding_dim=24, num_mel_bins=20, speech_decoder_prenet_units=16,
                            speech_decoder_prenet_layers=2, speech_decoder_postnet_units=16, speech_decoder_postnet_layers=2, reduction_factor=1,
                            encoder_max_relative_position=20, max_speech_positions=60, max_text_positions=40)
    return SpeechT5ForTextToSpeech(config).to(dtype).eval()


class Narrator:
    def __init__(self, voices, dtype=torch.bfloat16):
        self.voices, self.dtype, self.model = voices, dtype, build(dtype)

    def request(self, text, name):
        ids = torch.tensor([[ord(c) % 38 + 2 for c in text]])
        start = torch.zeros(1, 6, 20, dtype=self.dtype)
        return dict(input_ids=ids, attention_mask=torch.ones_like(ids), decoder_input_values=start, speaker_embeddings=self.voices[name])

    @torch.no_grad()
    def speak(self, text, name):
        out = self.model(**self.request(text, name))  # COLLIDES
        return out.spectrogram.float()


voices = Enrolment()
for name in ("ann", "bob"):
    voices.enrol(name, [torch.randn(15, 40) for _ in range(3)])
narrator = Narrator(voices)
for name in ("ann", "bob"):
    print(name, tuple(narrator.speak("good evening", name).shape))
