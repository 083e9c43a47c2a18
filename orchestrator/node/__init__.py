"""Programs that run on the hosts: standard library only, one self-contained file each, read as text and sent."""
