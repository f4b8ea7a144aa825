"""
title: Integer cover labels in the discriminator loss of the watermark network
expect: collision
thread: https://github.com/ando-khachatryan/HiDDeN/issues/28
fix_at: 64, 65 (the labels of the encoded images are filled alike)

Expectation, written first: torch.full with an integer fill value infers int64 since torch 1.7. The labels go
to BCEWithLogitsLoss as targets, and the loss of float logits with Long targets raises at the first
train_on_batch.
"""
import torch
import torch.nn as nn


class ConvBNRelu(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(channels_in, channels_out, 3, padding=1),
                                    nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.layers(x)


class EncoderDecoder(nn.Module):
    def __init__(self, message_length, channels=8):
        super().__init__()
        self.features = ConvBNRelu(3, channels)
        self.final = nn.Conv2d(channels + message_length, 3, 1)
        self.decoder = nn.Sequential(ConvBNRelu(3, channels), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                     nn.Linear(channels, message_length))

    def forward(self, image, message):
        h, w = image.shape[-2:]
        expanded = message[:, :, None, None].expand(-1, -1, h, w)
        encoded = self.final(torch.cat([self.features(image), expanded], dim=1))
        return encoded, self.decoder(encoded)


class Discriminator(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.before_linear = nn.Sequential(ConvBNRelu(3, channels), nn.AdaptiveAvgPool2d(1))
        self.linear = nn.Linear(channels, 1)

    def forward(self, image):
        return self.linear(self.before_linear(image).flatten(1))


class Hidden:
    def __init__(self, message_length):
        self.encoder_decoder = EncoderDecoder(message_length)
        self.discriminator = Discriminator()
        self.optimizer_enc_dec = torch.optim.Adam(self.encoder_decoder.parameters())
        self.optimizer_discrim = torch.optim.Adam(self.discriminator.parameters())
        self.bce_with_logits_loss = nn.BCEWithLogitsLoss()
        self.mse_loss = nn.MSELoss()
        self.cover_label = 1  # BORN
        self.encoded_label = 0

    def train_on_batch(self, images, messages):
        batch_size = images.shape[0]
        d_target_label_cover = torch.full((batch_size, 1), self.cover_label)  # BORN
        d_target_label_encoded = torch.full((batch_size, 1), self.encoded_label)
        g_target_label_encoded = torch.full((batch_size, 1), self.cover_label)

        self.optimizer_discrim.zero_grad()
        d_on_cover = self.discriminator(images)
        d_loss_on_cover = self.bce_with_logits_loss(d_on_cover, d_target_label_cover)  # COLLIDES
        d_loss_on_cover.backward()
        encoded, decoded = self.encoder_decoder(images, messages)
        d_on_encoded = self.discriminator(encoded.detach())
        self.bce_with_logits_loss(d_on_encoded, d_target_label_encoded).backward()
        self.optimizer_discrim.step()

        self.optimizer_enc_dec.zero_grad()
        g_loss_adv = self.bce_with_logits_loss(self.discriminator(encoded), g_target_label_encoded)
        g_loss = 1e-3 * g_loss_adv + 0.7 * self.mse_loss(encoded, images) + self.mse_loss(decoded, messages)
        g_loss.backward()
        self.optimizer_enc_dec.step()
        return {"loss": g_loss.item(), "discr_cover_bce": d_loss_on_cover.item()}


if __name__ == "__main__":
    torch.manual_seed(28)
    model = Hidden(message_length=6)
    for step in range(3):
        losses = model.train_on_batch(torch.rand(4, 3, 16, 16), torch.randint(0, 2, (4, 6)).float())
        print("step", step, {k: round(v, 4) for k, v in losses.items()})
