"""
title: prompt-to-prompt reweights attention with word weights in the default dtype, the UNet is bfloat16
expect: collision
needs: diffusers
fix_at: 28, 37, 38, 52

After https://github.com/zai-org/CogCoM/issues/14 and https://github.com/AUTOMATIC1111/stable-diffusion-webui/pull/6510.
Right: the word weights take the dtype of the probabilities they multiply.
"""
import torch
from diffusers import UNet2DConditionModel

torch.manual_seed(104)
VOCABULARY = "a photo of red fox cat snow hill".split()


def word_weights(prompt, emphasis, length):
    weights = torch.ones(1, 1, length)  # BORN
    for position, word in enumerate(prompt.split()[:length]):
        weights[..., position] = emphasis.get(word, 1.0)
    return weights


class Controller:
    """Replaces the second prompt's attention maps with the first one's, reweighted word by word."""

    def __init__(self, prompts, emphasis, length):
        self.weights = word_weights(prompts[1], emphasis, length)
        self.seen = 0

    def __call__(self, probs, cross):
        self.seen += 1
        if not cross:
            return probs
        half = probs.shape[0] // 2
        base = probs[:half]
        edited = base * self.weights
        return torch.cat([base, edited])


class ControlledProcessor:
    def __init__(self, controller):
        self.controller = controller

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, temb=None, **kwargs):
        cross = encoder_hidden_states is not None
        context = encoder_hidden_states if cross else hidden_states
        query = attn.head_to_batch_dim(attn.to_q(hidden_states))
        key = attn.head_to_batch_dim(attn.to_k(context))
        value = attn.head_to_batch_dim(attn.to_v(context))
        probs = attn.get_attention_scores(query, key, attention_mask)
        probs = self.controller(probs, cross)
        out = attn.batch_to_head_dim(torch.bmm(probs, value))  # COLLIDES
        return attn.to_out[1](attn.to_out[0](out))


def embed(prompts, length, dim):
    table = torch.randn(len(VOCABULARY) + 1, dim)
    rows = [[VOCABULARY.index(w) if w in VOCABULARY else -1 for w in p.split()] for p in prompts]
    return torch.stack([table[torch.tensor(r + [-1] * (length - len(r)))] for r in rows])


@torch.no_grad()
def edit(prompts, emphasis, length=6, dtype=torch.bfloat16):
    unet = UNet2DConditionModel(sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
                                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
                                cross_attention_dim=16, attention_head_dim=8, norm_num_groups=8).to(dtype).eval()
    controller = Controller(prompts, emphasis, length)
    unet.set_attn_processor(ControlledProcessor(controller))
    text = embed(prompts, length, 16).to(dtype)
    latents = torch.randn(1, 4, 8, 8).repeat(2, 1, 1, 1).to(dtype)
    for t in (40, 20, 0):
        latents = latents - 0.3 * unet(latents, t, encoder_hidden_states=text).sample
    return (latents[0] - latents[1]).float().abs().mean().item(), controller.seen


print(edit(["a photo of red fox", "a photo of red cat"], {"red": 3.0}))
