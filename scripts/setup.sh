# Sourced by scripts/demo and scripts/test: the virtual environment, and system packages where they may be installed.
# Needs nothing but python3 beforehand.

say() { printf '\n== %s\n' "$*"; }

VENV=${DDP_ORCH_VENV:-$ROOT/.venv}
SYSTEM_PACKAGES="openssh-server openssh-client iproute2 nftables rsync procps"

# True where this script may install system packages: root on a machine with apt.
may_install() {
    [ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1
}

apt_install() {
    say "installing system packages: $*"
    if ! DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1; then
        # The package list may be missing or old.
        apt-get update -qq >/dev/null
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
    fi
}

# system_packages [MORE]: what the virtual hosts need, and commands whose packages have their name, installed only where something is missing. sshd refuses to start without /run/sshd.
system_packages() {
    PATH=$PATH:/usr/sbin:/sbin
    export PATH
    may_install || return 0
    for tool in sshd ssh ip nft tc rsync ps "$@"; do
        if ! command -v "$tool" >/dev/null 2>&1; then
            # shellcheck disable=SC2086 # a list of words
            apt_install $SYSTEM_PACKAGES "$@"
            break
        fi
    done
    mkdir -p /run/sshd
}

# virtual_environment EXTRAS: make or refresh $VENV with this checkout and its extras.
virtual_environment() {
    if ! command -v python3 >/dev/null 2>&1; then
        echo "python3 is needed, 3.10 or newer: https://www.python.org/downloads/" >&2
        exit 2
    fi
    if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        echo "python3 here is $(python3 -V 2>&1 | cut -d' ' -f2); ddp-orch needs 3.10 or newer" >&2
        exit 2
    fi
    if [ ! -x "$VENV/bin/python" ] || ! "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
        say "making a virtual environment in $VENV"
        if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
            if may_install; then
                apt_install "python3-venv"
            else
                echo "python3 here cannot make virtual environments. This mends it:" >&2
                echo "    sudo apt-get install -y python3-venv" >&2
                exit 2
            fi
        fi
        python3 -m venv "$VENV"
    fi
    say "installing ddp-orch, torch and what else is needed (the first time: several GB, minutes)"
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check -e "$ROOT[$1]"
}
