"""SSH, shells, and job managers that start workers."""

from __future__ import annotations

from orchestrator.diagnosis.signatures.signature import Kind, Signature

_SSH = "https://man.openbsd.org/ssh"

SIGNATURES = (
    Signature(
        id="host_answers.login",
        kind=Kind.PRIMARY,
        pattern=r"Permission denied \((?:publickey|password|gssapi|keyboard|hostbased)[\w,-]{0,80}\)"
        r"|Too many authentication failures|No supported authentication methods available",
        literals=("Permission denied (", "Too many authentication failures", "No supported authentication methods"),
        example="me@node-b: Permission denied (publickey,password).",
        cause="the SSH login was refused: no key that this account accepts, or another user name",
        check="ssh -o BatchMode=yes HOST true",
        try_this="ssh-copy-id USER@HOST",
        check_before="host_answers",
        source=_SSH,
        weight=18,
    ),
    Signature(
        id="host_answers.host_key",
        kind=Kind.PRIMARY,
        pattern=r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED"
        r"|No \w{1,20} host key is known for (?P<host>\S{1,100})",
        literals=("Host key verification failed", "REMOTE HOST IDENTIFICATION", "host key is known for"),
        example="Host key verification failed.",
        cause="the host's SSH key is unknown here, or has changed",
        check="ssh HOST by hand",
        try_this="ddp-orch trust, or ssh-keygen -R HOST where the change is known to be right",
        check_before="host_answers",
        source=_SSH,
        weight=18,
    ),
    Signature(
        id="host_answers",
        kind=Kind.PRIMARY,
        pattern=r"ssh: connect to host (?P<peer>\S{1,100}) port \d{1,5}: (?P<error>[\w ]{1,60})"
        r"|ssh: Could not resolve hostname (?P<name>[^\s:]{1,100})|kex_exchange_identification: "
        r"|ssh_exchange_identification: |Connection (?:closed|reset"
        r"|timed out) by (?:remote host )?\S{1,60} port \d{1,5}\s{0,2}(?:\[preauth\])?$"
        r"|host=(?P<peer2>\S{1,100}) was not reachable via ssh|Command 'ssh .{0,200}non-zero exit status 255",
        literals=(
            "ssh: connect to host",
            "ssh: Could not resolve hostname",
            "exchange_identification:",
            " port ",
            "not reachable via ssh",
            "Command 'ssh",
        ),
        example="ssh: connect to host node-b port 22: Connection refused",
        cause="a host could not be reached by SSH ({error})",
        check="ssh -v HOST",
        check_before="host_answers",
        source=_SSH,
        weight=14,
    ),
    Signature(
        id="host_answers.key_file",
        kind=Kind.PRIMARY,
        pattern=r"UNPROTECTED PRIVATE KEY FILE|Load key .{1,200}: (?:bad permissions|invalid format|Permission denied)",
        literals=("UNPROTECTED PRIVATE KEY FILE", "Load key"),
        example="Permissions 0644 for '/home/me/.ssh/id_ed25519' are too open. WARNING: UNPROTECTED PRIVATE KEY FILE!",
        cause="SSH passes over a private key file: others may read it, or it is no key",
        try_this="chmod 600 ~/.ssh/KEY",
        check_before="host_answers",
        source=_SSH,
        weight=16,
    ),
    Signature(
        id="ssh_connection_lost",
        kind=Kind.CONTRIBUTING,
        pattern=r"client_loop: send disconnect|Timeout, server \S{1,100} not responding"
        r"|packet_write_wait: Connection to",
        literals=("client_loop: send disconnect", " not responding", "packet_write_wait"),
        example="client_loop: send disconnect: Broken pipe",
        cause="an SSH connection broke off while the run was at work: the network, or the host is gone",
        not_this="what was started without a session of its own was ended by it",
        check="whether the host answers, and how long it has been up: ssh HOST uptime",
        check_before="session_survives",
        source=_SSH,
    ),
    Signature(
        id="interpreter_starts",
        kind=Kind.PRIMARY,
        pattern=r"(?P<command>torchrun|python[\d.]{0,5}|conda|\S{0,200}/bin/python[\d.]{0,5}"
        r"|\S{0,200}/bin/torchrun): (?:command )?not found|(?:env|exec|nohup|setsid|failed to execute|execvp?|xargs"
        r"|timeout)[: ].{0,200}(?:python|torchrun).{0,40}No such file|(?P<path>\S{1,200}/bin/(?:python[\d.]{0,5}"
        r"|torchrun)): No such file or directory|bad interpreter: |\$'\\r': command not found"
        r"|No such file or directory: '\S{0,200}/bin/python",
        literals=(": command not found", ": not found", "No such file or directory", "bad interpreter:"),
        example="bash: line 1: torchrun: command not found",
        cause="the interpreter or torchrun is not there on this host, in a shell that ssh starts without a terminal",
        not_this="that it works after a login by hand does not help: .bashrc and conda are not read here",
        check="ssh HOST 'command -v python3 torchrun'; ls -l PATH on that host",
        try_this="the full path of the interpreter: PYTHON -m torch.distributed.run",
        check_before="interpreter_starts",
        weight=16,
    ),
    Signature(
        id="slurm_ended_it",
        kind=Kind.PRIMARY,
        pattern=r"CANCELLED AT .{0,60}DUE TO (?P<reason>TIME LIMIT|PREEMPTION|NODE FAILURE|JOB)|DUE TO TIME LIMIT",
        literals=("DUE TO",),
        example="slurmstepd: error: *** STEP 4711.0 ON node-a CANCELLED AT 2025-11-03T12:00:01 DUE TO TIME LIMIT ***",
        cause="Slurm ended the job: {reason}",
        check="sacct -j JOB -o State,Elapsed,Timelimit,NodeList",
        source="https://slurm.schedmd.com/",
        weight=20,
    ),
    Signature(
        id="slurm_step_failed",
        kind=Kind.SECONDARY,
        pattern=r"srun: error: .{0,120}(?:Exited with exit code|Terminated|Killed)"
        r"|slurmstepd: error: \*\*\* STEP .{0,80}CANCELLED",
        literals=("srun: error:", "slurmstepd: error:"),
        example="srun: error: node-a: task 3: Exited with exit code 1",
        cause="Slurm tells that a task ended, and not why",
    ),
)
