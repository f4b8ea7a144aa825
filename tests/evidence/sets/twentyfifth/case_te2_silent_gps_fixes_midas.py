"""
title: the speed from GPS fixes jumps between zero and twice the truth
expect: silent:precision-loss|downcast
thread: https://github.com/ISSUIUC/MIDAS-Software/pull/41
measured: speed mean 5.7 std 2.5 min 0.0 max 7.8 climb 14.75
widened: speed mean 5.0 std 0.0 min 5.0 max 5.0 climb 14.75; innocent: speed mean 5.7 std 2.5 min 0.0 max 7.8 climb 14.75
suspect: 22 exact (altitudes are multiples of 1/4 below 512 m)

Expectation, written first: latitude and longitude in degrees are stored as float32; near 88 degrees an ulp is about 0.8
m, the path between two fixes at 10 Hz is 0.5 m, so differences are zero or one step. Remedy: float64 (or integers) for
the coordinates. The altitude in half is exact.
"""
import math

import torch


class GPS:
    def __init__(self, lat, lon, alt):
        self.latitude = torch.tensor(lat, dtype=torch.float32)  # BORN
        self.longitude = torch.tensor(lon, dtype=torch.float32)  # BORN
        self.altitude = torch.tensor(alt, dtype=torch.float16)


def parse_degrees(text, hemisphere):
    raw = float(text)
    degrees = int(raw / 100)
    value = degrees + (raw - degrees * 100) / 60
    return -value if hemisphere in "SW" else value


def make_nmea(n, rate=10, speed=5.0):
    lines = []
    for i in range(n):
        north = speed * 0.6 * i / rate / 111_320
        east = speed * 0.8 * i / rate / (111_320 * math.cos(math.radians(40.1)))
        lat, lon = 40.1 + north, 88.2 - east
        alt = 220 + 0.25 * (i // 4)
        lines.append((f"{int(lat) * 100 + (lat % 1) * 60:.7f}", "N", f"{int(lon) * 100 + (lon % 1) * 60:.7f}", "W", alt))
    return lines


def read(lines):
    lat = [parse_degrees(a, b) for a, b, _, _, _ in lines]
    lon = [parse_degrees(c, d) for _, _, c, d, _ in lines]
    return GPS(lat, lon, [line[4] for line in lines])  # BORN


def speeds(gps, rate=10):
    dlat = gps.latitude.diff() * 111_320
    dlon = gps.longitude.diff() * 111_320 * math.cos(math.radians(40.1))
    return (dlat ** 2 + dlon ** 2).sqrt() * rate


def main():
    gps = read(make_nmea(240))
    v = speeds(gps)
    climb = (gps.altitude[-1] - gps.altitude[0]).item()
    print(f"speed mean {v.mean():.1f} std {v.std():.1f} min {v.min():.1f} max {v.max():.1f} climb {climb:.2f}")


main()
