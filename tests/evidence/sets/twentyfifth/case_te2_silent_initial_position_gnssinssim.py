"""
title: whole-number start coordinates give another GPS track than the same numbers with a point
expect: silent:integer-division|precision-loss|downcast
thread: https://github.com/Aceinna/gnss-ins-sim/issues/37
measured: start lat 0.00 lon 114.59 moved east 3.9 arcsec axes 6
widened: start lat 32.00 lon 120.00 moved east 4.6 arcsec axes 6; innocent: start lat 0.00 lon 114.59 moved east 3.9 arcsec axes 6
suspect: 55 exact (axis flags)

Expectation, written first: the start [32, 120, 0] becomes an int64 tensor; writing degrees times D2R back into it cuts
0.56 and 2.09 rad to 0 and 2. The track starts on the equator at 114.6 degrees. Remedy: a float64 tensor. The axis flags
in int16 are exact.
"""
import math

import torch

D2R = math.pi / 180
RE = 6378137.0


class MotionDef:
    ini_pos = [32, 120, 0]
    ini_vel = [8.0, 2.0, 0.0]
    axis = 9


def parse_motion_def(motion):
    ini_pos_n = torch.tensor(motion.ini_pos)  # BORN
    for i in range(2):
        ini_pos_n[i] = ini_pos_n[i] * D2R  # BORN
    ini_vel_n = torch.tensor(motion.ini_vel, dtype=torch.float64)
    return ini_pos_n, ini_vel_n


def earth_radii(lat):
    e2 = 0.00669437999
    s = torch.sin(lat)
    w = torch.sqrt(1 - e2 * s * s)
    return RE * (1 - e2) / w ** 3, RE / w


def path_gen(ini_pos_n, ini_vel_n, duration, dt=0.1):
    lat, lon, alt = (v.double() for v in ini_pos_n)
    track = []
    for _ in range(int(duration / dt)):
        rm, rn = earth_radii(lat)
        lat = lat + ini_vel_n[0] / (rm + alt) * dt
        lon = lon + ini_vel_n[1] / ((rn + alt) * torch.cos(lat)) * dt
        track.append(torch.stack([lat, lon, alt]))
    return torch.stack(track)


class Imu:
    def __init__(self, axis):
        flags = torch.ones(axis, dtype=torch.int16)
        flags[6:] = 0
        self.enabled = int(flags.sum())


def main():
    motion = MotionDef()
    pos, vel = parse_motion_def(motion)  # BORN
    track = path_gen(pos, vel, 60.0)
    start, end = track[0] / D2R, track[-1] / D2R
    moved = ((end - start)[1] * 3600).item()
    print(f"start lat {start[0]:.2f} lon {start[1]:.2f} moved east {moved:.1f} arcsec axes {Imu(motion.axis).enabled}")


main()
