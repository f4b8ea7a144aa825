"""
title: the energy gained in the last relaxation steps is wrong because total energies are stored as float32
expect: silent:precision-loss|cancellation|downcast
thread: https://github.com/deepmodeling/deepmd-kit/pull/2654
measured: energy gain of the last steps: 7.8 15.6 3.9 meV, fmax 0.03 eV/A
widened: energy gain of the last steps: 9.9 12.6 6.0 meV, fmax 0.03 eV/A ; innocent: energy gain of the last steps: 7.8 15.6 3.9 meV, fmax 0.03 eV/A
suspect: 32 range (forces are stored in fp16, where components of 0.01 to 1 eV/A keep three digits)

Expectation, written first: the set writer converts the total energies to float32; at -59455 eV its step is 3.9 meV, so the few meV
between the last frames are a multiple of that step and the per-step gain is wrong by tens of per cent. The forces go through an even
narrower type, but they are small numbers and are only compared with a threshold.
"""
import torch


class SystemData:
    def __init__(self, energies, forces):
        self.energies = energies
        self.forces = forces


class SetWriter:
    def __init__(self, energy_dtype, force_dtype):
        self.energy_dtype = energy_dtype
        self.force_dtype = force_dtype

    def dump(self, frames):
        energy = torch.tensor([f["energy"] for f in frames], dtype=torch.float64)
        force = torch.stack([f["force"] for f in frames])
        return {
            "energy": energy.to(self.energy_dtype),  # BORN
            "force": force.to(self.force_dtype),
        }


def load_set(blob):
    return SystemData(blob["energy"], blob["force"].float())


def relaxation_frames(natoms=66):
    generator = torch.Generator().manual_seed(7)
    energies = [-59455.14628376, -59455.40031997, -59455.50957327, -59455.56612404, -59455.60684196,
                -59455.64125964, -59455.67112131, -59455.69002730, -59455.70292029, -59455.71278897,
                -59455.72540161, -59455.73137573]
    frames = []
    for step, energy in enumerate(energies):
        force = torch.randn(natoms, 3, generator=generator) * 0.5 * 0.7 ** step
        frames.append({"energy": energy, "force": force})
    return frames


def step_gains(system):
    return system.energies[:-1] - system.energies[1:]


def main():
    frames = relaxation_frames()
    writer = SetWriter(energy_dtype=torch.float32, force_dtype=torch.float16)  # BORN
    system = load_set(writer.dump(frames))
    gain = 1e3 * step_gains(system)[-3:]
    fmax = system.forces[-1].norm(dim=-1).max().item()
    text = " ".join(f"{g:.1f}" for g in gain.tolist())
    print(f"energy gain of the last steps: {text} meV, fmax {fmax:.2f} eV/A")


if __name__ == "__main__":
    main()
