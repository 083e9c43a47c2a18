"""Virtual hosts on this machine: real Linux hosts for the network, the file system and OpenSSH, without hardware."""

from orchestrator.lab.lab import Lab
from orchestrator.lab.places import LabHost

__all__ = ["Lab", "LabHost"]
