"""
title: hard negative mining in DiceLoss: "bitwise_and_cpu" not implemented for 'Float'
expect: collision
thread: https://github.com/ShannonAI/dice_loss_for_NLP/issues/23

Expectation, written first: the mining condition combines two comparisons with & and no brackets. & binds tighter than ==
and >=, so the label index is and-ed with the float scores, and bitwise_and has no float kernel.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class DiceLoss(nn.Module):
    def __init__(self, smooth=1e-4, ohem_ratio=0.0, alpha=0.0, square_denominator=True):
        super().__init__()
        self.smooth = smooth
        self.ohem_ratio = ohem_ratio
        self.alpha = alpha
        self.square_denominator = square_denominator

    def _compute_dice_loss(self, flat_input, flat_target):
        flat_input = ((1 - flat_input) ** self.alpha) * flat_input
        interection = torch.sum(flat_input * flat_target, -1)
        if self.square_denominator:
            denominator = torch.sum(flat_input ** 2, -1) + torch.sum(flat_target ** 2, -1)
        else:
            denominator = flat_input.sum() + flat_target.sum()
        return 1 - ((2 * interection + self.smooth) / (denominator + self.smooth))

    def _multiple_class(self, flat_input, flat_target, logits_size):
        loss = None
        flat_target = F.one_hot(flat_target, num_classes=logits_size).float()
        flat_input = torch.softmax(flat_input, dim=1)
        for label_idx in range(logits_size):
            pos_example = flat_target[:, label_idx] == 1
            neg_example = flat_target[:, label_idx] != 1
            pos_num, neg_num = pos_example.sum(), neg_example.sum()
            keep_num = min(int(pos_num * self.ohem_ratio / logits_size), int(neg_num))
            if keep_num > 0:
                neg_scores = torch.masked_select(flat_input[:, label_idx], neg_example)
                neg_scores_sort, _ = torch.sort(neg_scores)
                threshold = neg_scores_sort[-keep_num + 1]
                cond = (torch.argmax(flat_input, dim=1) == label_idx & flat_input[:, label_idx] >= threshold) | pos_example  # BORN COLLIDES
                mask = torch.where(cond, 1.0, 0.0)
            else:
                mask = torch.ones_like(flat_input[:, label_idx])
            loss_idx = self._compute_dice_loss(flat_input[:, label_idx] * mask, flat_target[:, label_idx] * mask)
            loss = loss_idx if loss is None else loss + loss_idx
        return loss / logits_size

    def forward(self, input, target):
        return self._multiple_class(input, target, input.shape[-1])


class Tagger(nn.Module):
    def __init__(self, vocab=50, hidden=16, num_labels=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.encoder = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.classifier = nn.Linear(2 * hidden, num_labels)

    def forward(self, ids):
        return self.classifier(self.encoder(self.embed(ids))[0])


def main():
    torch.manual_seed(0)
    model, loss_fct = Tagger(), DiceLoss(ohem_ratio=0.6, alpha=0.01)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(3):
        ids = torch.randint(0, 50, (4, 20))
        labels = ids % 3
        logits = model(ids)
        loss = loss_fct(logits.view(-1, 3), labels.view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} dice {loss.item():.4f}")


if __name__ == "__main__":
    main()
