"""ddp-orch: train with PyTorch DDP across a few GPU machines, over plain SSH."""

__version__ = "0.1.0"
