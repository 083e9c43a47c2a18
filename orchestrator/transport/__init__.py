"""How to reach a host. Fabric, Paramiko and Invoke are imported in this room alone."""
