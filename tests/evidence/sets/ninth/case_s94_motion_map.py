"""
title: camera motion score from uint8 frames with the averaged map in half
expect: silent:overflow
thread: https://github.com/waveform80/picamera/pull/263
measured: alarms: 60 of 60 with motion, 60 of 60 without
widened: alarms: 60 of 60 with motion, 0 of 60 without
fix_at: 41

Expectation, written first: frame minus background in uint8 wraps where the scene is a
grey level darker, so quiet noise looks like a jump of 255 and the alarm is always on.
The half map only stores averages; in float32 the alarm stays on.
"""
import torch


class Camera:
    def __init__(self, size=48, seed=0):
        self.gen = torch.Generator().manual_seed(seed)
        self.scene = torch.randint(60, 180, (size, size), generator=self.gen).float()
        self.size = size

    def frame(self, moving):
        img = self.scene + torch.randn(self.scene.shape, generator=self.gen)
        if moving:
            y, x = torch.randint(4, self.size - 16, (2,), generator=self.gen).tolist()
            img[y : y + 12, x : x + 12] += 70
        return img.clamp(0, 255).round()


class MotionDetector:
    def __init__(self, frame_dtype, map_dtype, threshold=6.0):
        self.frame_dtype, self.map_dtype, self.threshold = frame_dtype, map_dtype, threshold
        self.background = None

    def learn(self, frames):
        stack = torch.stack(frames)
        self.background = stack.median(0).values.to(self.frame_dtype)

    def score(self, frame):
        img = frame.to(self.frame_dtype)
        delta = (img - self.background).float().abs()
        blocks = delta.view(12, 4, 12, 4).mean((1, 3)).to(self.map_dtype)
        return float(blocks.max())

    def alarm(self, frame):
        return self.score(frame) > self.threshold


def evaluate(detector, camera, n=60):
    false = sum(detector.alarm(camera.frame(False)) for _ in range(n))
    found = sum(detector.alarm(camera.frame(True)) for _ in range(n))
    return found, false


def main():
    camera = Camera()
    detector = MotionDetector(
        frame_dtype=torch.uint8,  # BORN
        map_dtype=torch.float16,
    )
    detector.learn([camera.frame(False) for _ in range(15)])
    found, false = evaluate(detector, camera)
    print(f"alarms: {found} of 60 with motion, {false} of 60 without")


main()
