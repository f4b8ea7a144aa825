"""
title: lidar rings break up when points go through UTM-sized global coordinates in float32 on their way to the camera frame
expect: silent:precision-loss|cancellation|downcast
thread: https://github.com/nutonomy/nuscenes-devkit/pull/1182
measured: ring thickness in the camera frame: 10 cm
widened: ring thickness in the camera frame: 0 cm ; innocent: ring thickness in the camera frame: 10 cm
suspect: 33 range (the sweep is stored as fp16, but its coordinates stay under 32 m, where fp16 keeps about a centimetre)

Expectation, written first: the sweep goes sensor -> ego -> global -> ego -> camera by four separate float32 steps, and the ego pose has
UTM translations of several million metres, where float32 has a step of half a metre; adding the pose and subtracting it again quantises
every point. The fp16 storage of the sweep costs millimetres only.
"""
import math

import torch

POSE_DTYPE = torch.float32  # BORN


def yaw_matrix(yaw):
    c, s = math.cos(yaw), math.sin(yaw)
    return torch.tensor([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]], dtype=POSE_DTYPE)


class LidarPointCloud:
    def __init__(self, points):
        self.points = points

    @classmethod
    def from_sweep(cls, beams=1200, radius=24.0, z=-1.6):
        azimuth = torch.linspace(0, 2 * math.pi, beams)
        xyz = torch.stack([radius * azimuth.cos(), radius * azimuth.sin(), torch.full_like(azimuth, z)])
        return cls(xyz.to(torch.float16))

    def as_pose_dtype(self):
        self.points = self.points.to(POSE_DTYPE)
        return self

    def translate(self, x):
        self.points = self.points + torch.tensor(x, dtype=POSE_DTYPE).unsqueeze(1)  # BORN

    def rotate(self, rot_matrix):
        self.points = rot_matrix @ self.points


def map_pointcloud_to_camera(pc, lidar_calib, pose_lidar, pose_cam, cam_calib):
    pc.rotate(yaw_matrix(lidar_calib["yaw"]))
    pc.translate(lidar_calib["translation"])
    pc.rotate(yaw_matrix(pose_lidar["yaw"]))
    pc.translate(pose_lidar["translation"])  # BORN
    pc.translate([-v for v in pose_cam["translation"]])  # BORN
    pc.rotate(yaw_matrix(pose_cam["yaw"]).T)
    pc.translate([-v for v in cam_calib["translation"]])
    pc.rotate(yaw_matrix(cam_calib["yaw"]).T)
    return pc


def ring_thickness(pc, center):
    delta = pc.points.double() - torch.tensor(center, dtype=torch.float64).unsqueeze(1)
    radius = delta[:2].norm(dim=0)
    return (radius - radius.mean()).std().item()


def main():
    lidar_calib = {"yaw": 0.0, "translation": [0.0, 0.0, 1.8]}
    cam_calib = {"yaw": 0.0, "translation": [0.0, 0.0, 1.5]}
    pose_lidar = {"yaw": 0.7, "translation": [691603.25, 5335812.40, 518.0]}
    pose_cam = {"yaw": 0.7, "translation": [691603.25, 5335812.40, 518.0]}
    pc = LidarPointCloud.from_sweep().as_pose_dtype()
    pc = map_pointcloud_to_camera(pc, lidar_calib, pose_lidar, pose_cam, cam_calib)
    print(f"ring thickness in the camera frame: {100 * ring_thickness(pc, [0.0, 0.0, 0.3]):.0f} cm")


if __name__ == "__main__":
    main()
