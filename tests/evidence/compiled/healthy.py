"""Healthy compiled programs of usual shape: tiny models, random weights, one or two steps each.

As a script: ``python healthy.py NAME`` runs one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

PROGRAMS: dict[str, Callable[[], None]] = {}
HALF, BF16 = torch.float16, torch.bfloat16


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def train(model, forward, batches, *, autocast=None, lr=2e-2, clip=True):
    """Two steps of AdamW; ``forward(compiled, batch)`` gives the loss."""
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=autocast or BF16, enabled=autocast is not None):
            loss = forward(compiled, batch)
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert loss.isfinite()


def tokens(size=(2, 16), vocabulary=64, steps=2):
    return [torch.randint(0, vocabulary, size) for _ in range(steps)]


def language_model(config, dtype=BF16, autocast=None):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config).to(dtype)
    train(model, lambda m, ids: m(input_ids=ids, labels=ids).loss, tokens(), autocast=autocast)


SMALL = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)


@program
def llama_bfloat16():
    from transformers import LlamaConfig

    language_model(LlamaConfig(**SMALL, num_key_value_heads=2))


@program
def llama_autocast_eager_attention():
    from transformers import LlamaConfig

    language_model(LlamaConfig(**SMALL, num_key_value_heads=2, attn_implementation="eager"), torch.float32, BF16)


@program
def qwen3_bfloat16():
    from transformers import Qwen3Config

    language_model(Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=8))


@program
def gemma2_softcap_bfloat16():
    from transformers import Gemma2Config

    language_model(Gemma2Config(**SMALL, num_key_value_heads=2, head_dim=8, attn_implementation="eager"))


@program
def mixtral_router_bfloat16():
    from transformers import MixtralConfig

    language_model(MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=4, output_router_logits=True))


class Block(nn.Module):
    def __init__(self, n=32):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n), nn.LayerNorm(n)
        self.qkv, self.proj = nn.Linear(n, 3 * n), nn.Linear(n, n)
        self.mlp = nn.Sequential(nn.Linear(n, 4 * n), nn.GELU(), nn.Linear(4 * n, n))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (s.view(b, t, 2, c // 2).transpose(1, 2) for s in self.qkv(self.ln1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(64, 32), nn.Embedding(16, 32)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(32, 64, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).view(-1, 64), ids.roll(-1, 1).view(-1))


@program
def nanogpt_autocast():
    train(GPT(), lambda m, ids: m(ids), tokens((4, 16)), autocast=BF16)


@program
def nanogpt_bfloat16():
    train(GPT().to(BF16), lambda m, ids: m(ids), tokens((4, 16)))


@program
def gpt2_autocast():
    from transformers import GPT2Config

    language_model(GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=32), torch.float32, BF16)


@program
def t5_autocast():
    from transformers import T5Config, T5ForConditionalGeneration

    small = dict(vocab_size=64, d_model=32, d_ff=64, d_kv=8, num_layers=1, num_heads=4)
    model = T5ForConditionalGeneration(T5Config(**small, decoder_start_token_id=0, pad_token_id=0))
    train(model, lambda m, ids: m(input_ids=ids, labels=ids).loss, tokens(), autocast=BF16)


@program
def bert_bfloat16():
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(**SMALL)).to(BF16)
    train(model, lambda m, ids: m(input_ids=ids, labels=ids).loss, tokens())


@program
def vit_autocast():
    from transformers import ViTConfig, ViTForImageClassification

    small = {k: v for k, v in SMALL.items() if k != "vocab_size"}
    model = ViTForImageClassification(ViTConfig(**small, image_size=16, patch_size=4, num_labels=5))
    batches = [(torch.randn(2, 3, 16, 16), torch.randint(0, 5, (2,))) for _ in range(2)]
    train(model, lambda m, b: m(pixel_values=b[0], labels=b[1]).loss, batches, autocast=BF16)


@program
def clip_bfloat16():
    from transformers import CLIPTextConfig, CLIPTextModel

    model = CLIPTextModel(CLIPTextConfig(**SMALL, max_position_embeddings=32)).to(BF16)
    train(model, lambda m, ids: m(input_ids=ids).last_hidden_state.float().square().mean(), tokens())


@program
def unet_bfloat16():
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=8, block_out_channels=(32, 32), layers_per_block=1, cross_attention_dim=16, norm_num_groups=8,
        attention_head_dim=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    ).to(BF16)  # fmt: skip

    def loss(m, noisy):
        predicted = m(noisy, torch.tensor([5]), torch.ones(1, 4, 16, dtype=BF16)).sample
        return F.mse_loss(predicted.float(), noisy.float())

    train(model, loss, [torch.randn(1, 4, 8, 8).to(BF16) for _ in range(2)])


@program
def lora_llama_autocast():
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, LlamaConfig

    base = AutoModelForCausalLM.from_config(LlamaConfig(**SMALL, num_key_value_heads=2)).to(BF16)
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1))
    for p in model.parameters():
        if p.requires_grad:
            p.data = p.data.float()
    train(model, lambda m, ids: m(input_ids=ids, labels=ids).loss, tokens(), autocast=BF16)


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU6(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.Hardswish(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Dropout(0.1), nn.Linear(8, 5),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


def images():
    return [(torch.randn(2, 3, 16, 16), torch.randint(0, 5, (2,))) for _ in range(2)]


@program
def convolutions_bfloat16():
    train(Convolutional().to(BF16), lambda m, b: F.cross_entropy(m(b[0].to(BF16)).float(), b[1]), images())


@program
def convolutions_autocast_float16():
    train(
        Convolutional(),
        lambda m, b: F.cross_entropy(m(b[0]).float(), b[1], label_smoothing=0.1),
        images(),
        autocast=HALF,
    )


class Activations(nn.Module):
    """Activations and losses that limit, compare and select."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 1)
        self.prelu = nn.PReLU()

    def forward(self, x, target):
        h = F.leaky_relu(self.first(x)) + F.hardtanh(x) + F.softplus(x) + F.elu(x) + self.prelu(x)
        h = h.masked_fill(target.unsqueeze(-1) > 1, 0.0).clamp(-3, 3)
        y = self.last(h).squeeze(-1)
        return F.smooth_l1_loss(y, target) + F.huber_loss(y, target) + F.l1_loss(y, target) + F.softplus(-y).mean()


@program
def activations_bfloat16():
    batches = [(torch.randn(8, 16).to(BF16), torch.rand(8).to(BF16)) for _ in range(2)]
    train(Activations().to(BF16), lambda m, b: m(*b), batches)


class Norm(nn.Module):
    """A root-mean-square norm as Llama's: float32 inside, cast back."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Gated(nn.Module):
    """Pre-norm residual blocks with a gated layer and rotary positions."""

    def __init__(self, width=32):
        super().__init__()
        self.norm, self.up, self.gate, self.down = Norm(width), *(nn.Linear(width, width) for _ in range(3))
        angles = torch.outer(torch.arange(16.0), 1e4 ** -(torch.arange(0, width, 2) / width))
        self.register_buffer("angles", torch.cat((angles, angles), -1), persistent=False)

    def forward(self, x):
        h = self.norm(x)
        cos, sin = self.angles.cos().to(x.dtype), self.angles.sin().to(x.dtype)
        left, right = h.chunk(2, -1)
        h = h * cos + torch.cat((-right, left), -1) * sin
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


@program
def gated_blocks_bfloat16():
    model = nn.Sequential(Gated(), Gated()).to(BF16)
    train(model, lambda m, x: m(x).float().square().mean(), [torch.randn(2, 16, 32).to(BF16) for _ in range(2)])


@program
def compiled_adamw_bfloat16():
    model = nn.Linear(16, 16).to(BF16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, amsgrad=True)
    step = torch.compile(optimizer.step)
    for _ in range(2):
        model(torch.randn(4, 16).to(BF16)).float().square().mean().backward()
        step()


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            [nn.TransformerEncoderLayer(32, 4, 64, 0.1, "gelu", batch_first=True) for _ in range(2)]
        )

    def forward(self, x):
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return x


@program
def checkpointed_encoder_autocast():
    batches = [torch.randn(2, 8, 32) for _ in range(2)]
    train(Checkpointed(), lambda m, x: m(x).float().square().mean(), batches, autocast=BF16)


class Variational(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(16, 8), nn.Linear(4, 16)

    def forward(self, x):
        mean, spread = self.encoder(x).chunk(2, -1)
        spread = spread.clamp(-10, 5)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * spread)
        kl = 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(-1).mean()
        return F.binary_cross_entropy_with_logits(self.decoder(z), x.sigmoid()) + 1e-3 * kl


@program
def variational_bfloat16():
    train(Variational().to(BF16), lambda m, x: m(x), [torch.randn(4, 16).to(BF16) for _ in range(2)])


class Contrastive(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(16, 8), nn.Linear(16, 8)
        self.scale = nn.Parameter(torch.tensor(2.6))

    def forward(self, a, b):
        a, b = F.normalize(self.left(a), dim=-1), F.normalize(self.right(b), dim=-1)
        logits = self.scale.exp() * a @ b.T
        labels = torch.arange(len(a))
        return (F.cross_entropy(logits.float(), labels) + F.cross_entropy(logits.float().T, labels)) / 2


@program
def contrastive_bfloat16():
    batches = [(torch.randn(6, 16).to(BF16), torch.randn(6, 16).to(BF16)) for _ in range(2)]
    train(Contrastive().to(BF16), lambda m, b: m(*b), batches)


@program
def inference_of_half_llama():
    from transformers import AutoModelForCausalLM, LlamaConfig

    model = AutoModelForCausalLM.from_config(LlamaConfig(**SMALL, num_key_value_heads=2)).to(BF16).eval()
    with torch.no_grad():
        assert torch.compile(model)(input_ids=tokens(steps=1)[0]).logits.isfinite().all()


class Rounding(nn.Module):
    """Norms that compute in float32 between layers in bfloat16: a cast down in one module, a cast up in the next."""

    def __init__(self, width=32):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.up, self.down = nn.Linear(width, 2 * width).to(BF16), nn.Linear(2 * width, width).to(BF16)

    def norm(self, x):
        dtype = x.dtype
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return (self.scale * wide).to(dtype)

    def forward(self, x):
        for _ in range(2):
            x = self.norm(x + self.down(F.silu(self.up(self.norm(x)))))
        return F.mse_loss(x.float(), torch.ones_like(x).float())


@program
def norms_with_casts_bfloat16():
    train(Rounding(), lambda m, x: m(x), [torch.randn(4, 8, 32).to(BF16) for _ in range(2)])


class MaskedAttention(nn.Module):
    """Rows that may look at nothing have probabilities that are NaN, and are replaced."""

    def __init__(self, width=16):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2) * 0.25).masked_fill(~mask, float("-inf"))
        seen = torch.nan_to_num(scores.softmax(-1))
        return torch.nan_to_num(self.out(seen @ v) + x)


@program
def masked_attention_float16():
    model = MaskedAttention().to(HALF)
    mask = torch.ones(8, 8).tril(-1).bool()
    with torch.no_grad():
        assert torch.compile(model)(torch.randn(2, 8, 16).to(HALF), mask).isfinite().all()


@program
def sampling_from_bfloat16_logits():
    head = nn.Linear(16, 64).to(BF16)

    @torch.compile
    def probabilities(hidden, temperature):
        logits = head(hidden).float() / temperature
        least = torch.topk(logits, 10, dim=-1).values[..., -1:]
        return logits.masked_fill(logits < least, float("-inf")).softmax(-1)

    with torch.no_grad():
        found = probabilities(torch.randn(32, 16).to(BF16), torch.tensor(0.7))
    assert ((found > 0).sum(-1) >= 10).all()


@program
def gamma_of_images_bfloat16():
    @torch.compile
    def gamma(x, gain):
        y = x * gain
        low, high = y.amin((-2, -1), keepdim=True), y.amax((-2, -1), keepdim=True)
        return ((y - low) / (high - low)).clamp(0, 1).sqrt()

    assert gamma(torch.rand(2, 3, 32, 32).to(BF16), torch.tensor(0.7).to(BF16)).isfinite().all()


@program
def bands_bfloat16():
    """The least and the largest are of the numbers themselves, or no function ends at them."""

    @torch.compile
    def bands(x, gain):
        y = x * gain
        wide = y.float()
        share = (y / y.amax(-1, keepdim=True)).sqrt()
        place = ((wide - wide.amin(-1, keepdim=True)) * 4).floor()
        return share, place, (wide - wide.mean(-1, keepdim=True)).square().mean(-1).sqrt()

    assert (bands(torch.rand(16, 64).to(BF16) + 1, torch.tensor(0.7).to(BF16))[1] >= 0).all()


@program
def clamped_angles_bfloat16():
    @torch.compile
    def angle(a, b):
        cosine = (F.normalize(a, dim=-1) * F.normalize(b, dim=-1)).sum(-1)
        return torch.acos(cosine.clamp(-0.99, 0.99))

    a = torch.randn(16, 32).to(BF16).requires_grad_()
    angle(a, torch.randn(16, 32).to(BF16)).float().mean().backward()
    assert a.grad.isfinite().all()


@program
def lists_of_master_weights():
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).to(BF16)
    masters = [p.detach().float().clone() for p in model.parameters()]
    averages = [m.clone() for m in masters]
    forward = torch.compile(model)

    @torch.compile
    def update(masters, averages, gradients):
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        torch._foreach_mul_(gradients, (1 / (norm + 1e-6)).clamp(max=1.0))
        torch._foreach_add_(masters, gradients, alpha=-1e-2)
        torch._foreach_lerp_(averages, masters, 0.1)

    for _ in range(2):
        model.zero_grad()
        forward(torch.randn(16, 32).to(BF16)).float().square().mean().backward()
        update(masters, averages, [p.grad.float() for p in model.parameters()])
        with torch.no_grad():
            for p, m in zip(model.parameters(), masters):
                p.copy_(m)


@program
def own_softmax_bfloat16():
    @torch.compile
    def attend(q, k, v):
        scores = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
        weights = (scores - scores.amax(-1, keepdim=True).detach()).exp()
        return (weights / weights.sum(-1, keepdim=True)).to(v.dtype) @ v

    q, k, v = (torch.randn(2, 16, 32).to(BF16).requires_grad_() for _ in range(3))
    attend(q, k, v).float().square().mean().backward()
    assert q.grad.isfinite().all()


class Scan(nn.Module):
    """A state in float32 that bfloat16 drives."""

    def __init__(self, width=16, states=4):
        super().__init__()
        self.rate = nn.Parameter(torch.zeros(width, states))
        self.gate, self.into, self.out = nn.Linear(width, width), nn.Linear(width, states), nn.Linear(width, width)

    def forward(self, x):
        delta = F.softplus(self.gate(x))
        decay = torch.exp(-delta.float()[..., None] * self.rate.float().exp())
        drive = (delta * x)[..., None] * self.into(x)[..., None, :]
        state, seen = torch.zeros_like(decay[:, 0]), []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + drive[:, t].float()
            seen.append(state.sum(-1))
        return self.out(F.silu(torch.stack(seen, 1).to(x.dtype)))


@program
def scan_bfloat16():
    train(Scan().to(BF16), lambda m, x: m(x).float().square().mean(), [torch.randn(2, 4, 16).to(BF16)] * 2)


@program
def autoencoder_autocast():
    layers = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Hardswish(), nn.ConvTranspose2d(8, 3, 4, 2, 1)
    model = nn.Sequential(*layers, nn.Sigmoid()).to(memory_format=torch.channels_last)
    train(model, lambda m, x: (m(x) - x).abs().mean(), [torch.rand(4, 3, 16, 16)] * 2, autocast=BF16)


@program
def noise_bfloat16():
    net = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 8)).to(BF16)
    keep = torch.cos(torch.linspace(0, 1.5, 100)) ** 2

    @torch.compile
    def loss(x):
        noise = torch.randn(x.shape, dtype=x.dtype)
        level = keep[torch.randint(0, 100, (x.shape[0],))][:, None]
        noisy = level.sqrt() * x.float() + (1 - level).sqrt() * noise.float()
        return (net(noisy.to(x.dtype)).float() - noise.float()).square().mean()

    loss(torch.randn(32, 8).to(BF16)).backward()
    assert net[0].weight.grad.isfinite().all()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    PROGRAMS[sys.argv[1]]()
