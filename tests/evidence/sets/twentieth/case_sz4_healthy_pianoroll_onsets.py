"""
title: onsets are found by subtracting uint8 rolls; falling edges wrap to 255 and are not asked for
expect: clean
thread: https://github.com/jongwook/onsets-and-frames/issues/9
measured: notes [(3, 0, 6, 0.5), (3, 9, 15, 0.75), (7, 4, 20, 0.25), (11, 18, 24, 1.0)] ; note f1 1.00
suspect: 26 harmless (a wrapped difference is 255 and only a one counts)

Expectation, written first: the thresholded rolls are uint8 and their difference along time wraps to 255 at each falling edge; the comparison with
one keeps exactly the rising edges, as a boolean A & ~B would. The two ways agree and the program prints the planted notes.
"""
import torch
from torch import nn


class OnsetsAndFrames(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.onset_bias = nn.Parameter(torch.zeros(bins))
        self.frame_bias = nn.Parameter(torch.zeros(bins))

    def forward(self, mel):
        return torch.sigmoid(8 * (mel[0] - 0.5) + self.onset_bias), torch.sigmoid(8 * (mel[1] - 0.5) + self.frame_bias)


def extract_notes(onsets, frames, velocity, onset_threshold=0.5, frame_threshold=0.5):
    onsets = (onsets > onset_threshold).to(torch.uint8)
    frames = (frames > frame_threshold).to(torch.uint8)
    rising = torch.cat([onsets[:1], onsets[1:] - onsets[:-1]]) == 1
    notes = []
    for frame, pitch in rising.nonzero().tolist():
        offset, samples = frame, []
        while onsets[offset, pitch] or frames[offset, pitch]:
            if onsets[offset, pitch]:
                samples.append(velocity[offset, pitch])
            offset += 1
            if offset == onsets.shape[0]:
                break
        notes.append((pitch, frame, offset, round(torch.stack(samples).mean().item(), 2)))
    return sorted(notes)


def piano_roll(notes, length, bins):
    onset, frame = torch.zeros(length, bins), torch.zeros(length, bins)
    velocity = torch.zeros(length, bins)
    for pitch, start, stop, vel in notes:
        onset[start:start + 2, pitch] = 1
        frame[start:stop, pitch] = 1
        velocity[start:stop, pitch] = vel
    return torch.stack([onset, frame]), velocity


def note_f1(found, truth):
    hits = len(set(n[:3] for n in found) & set(n[:3] for n in truth))
    return 2 * hits / (len(found) + len(truth))


@torch.no_grad()
def main():
    truth = [(3, 0, 6, 0.5), (3, 9, 15, 0.75), (7, 4, 20, 0.25), (11, 18, 24, 1.0)]
    mel, velocity = piano_roll(truth, 24, 16)
    onsets, frames = OnsetsAndFrames(16)(mel)
    found = extract_notes(onsets, frames, velocity)
    print("notes", found)
    print(f"note f1 {note_f1(found, truth):.2f}")


main()
