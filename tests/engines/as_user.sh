#!/usr/bin/env bash
# Runs a command as an ordinary user with subordinate ids, in mount and process namespaces of its own: nothing of this
# machine's users is changed, and nothing outlives it. For rootless podman; an ordinary user's command is just run.
# Usage: as_user.sh COMMAND...
set -euo pipefail

[ "$(id -u)" = 0 ] || exec "$@"
missing=()
for program in podman runc newuidmap setpriv unshare; do
    command -v "$program" >/dev/null || missing+=("$program")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "skipped: missing: ${missing[*]} (apt-get install podman runc uidmap)"
    exit 0
fi
folder=$(mktemp -d /tmp/evalfleet-user-XXXXXX)
chmod 755 "$folder"
trap 'rm -rf "$folder"' EXIT
unshare --mount --pid --fork --kill-child --mount-proc bash -euo pipefail -s -- "$folder" "$@" <<'SHELL' || exit $?
folder=$1 user=61000 home=$(getent passwd 0 | cut -d: -f6)
shift
mkdir "$folder"/{etc,home,tmp,run,was}
chown "$user:$user" "$folder"/{home,tmp,run}
chmod 700 "$folder/run"
for file in passwd group subuid subgid; do cp "/etc/$file" "$folder/etc/$file" 2>/dev/null || : >"$folder/etc/$file"; done
echo "evalfleet-tester:x:$user:$user::$folder/home:/bin/sh" >>"$folder/etc/passwd"
echo "evalfleet-tester:x:$user:" >>"$folder/etc/group"
for kind in subuid subgid; do echo "evalfleet-tester:7000000:65536" >"$folder/etc/$kind"; done
for file in passwd group subuid subgid; do mount --bind "$folder/etc/$file" "/etc/$file"; done
# networks of rootless containers are made of it, and it is not everywhere for everybody
if [ -c /dev/net/tun ]; then
    mknod -m 666 "$folder/tun" c 10 200
    mount --bind "$folder/tun" /dev/net/tun
fi
# an interpreter that lies in a home which nobody else may look into
python=$(readlink -f .venv/bin/python)
if [ "${python#"$home"/}" != "$python" ]; then
    part=${python#"$home"/}
    part=${part%%/*}
    mount --bind "$home/$part" "$folder/was"
    mount -t tmpfs -o mode=755 tmpfs "$home"
    mkdir "$home/$part"
    mount --move "$folder/was" "$home/$part"
fi
mount --make-rshared /
exec setpriv --reuid "$user" --regid "$user" --clear-groups env --ignore-environment PATH="$PATH" LANG=C.UTF-8 \
    HOME="$folder/home" TMPDIR="$folder/tmp" XDG_RUNTIME_DIR="$folder/run" PYTHONDONTWRITEBYTECODE=1 "$@" </dev/null
SHELL
