"""The run folder on the controller and on the hosts: names of files, and how records are written and read."""
