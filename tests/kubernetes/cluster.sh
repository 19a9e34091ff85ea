#!/usr/bin/env bash
# A one-node Kubernetes on this machine for tests: etcd, the control plane and a kubelet over a Docker of its own.
# Usage: cluster.sh start | stop | run COMMAND… (with EVALFLEET_TEST_KUBECONFIG, started before and stopped after it).
# See README.md beside it for what has to be installed.
#
# K8S_BINARIES  folder of kube-apiserver, kube-controller-manager, kube-scheduler and kubelet (1.20)
# K8S_STATE     folder for everything that a running cluster writes; removed by `stop`
# K8S_IMAGES    folder in which the root file systems of the test images are kept
set -euo pipefail

BINARIES=${K8S_BINARIES:-$HOME/.cache/one-node-kubernetes/bin}
STATE=${K8S_STATE:-/tmp/evalfleet-kubernetes}
IMAGES=${K8S_IMAGES:-$HOME/.cache/evalfleet-kubernetes}
API=https://127.0.0.1:26443
TOKEN=admin-of-the-tests
BRIDGE=evalfleet0
PROGRAMS=(kubelet kube-scheduler kube-controller-manager kube-apiserver etcd dockerd)

docker_() { docker --host "unix://$STATE/docker.sock" "$@"; }
call() { curl --silent --insecure --fail --header "Authorization: Bearer $TOKEN" "$@"; }

launch() { # a program in a session of its own, its pid and output in files
    local name=$1
    shift
    setsid "$@" >"$STATE/$name.log" 2>&1 </dev/null &
    echo $! >"$STATE/$name.pid"
}

until_true() { # for at most a minute
    local what=$1
    shift
    for _ in $(seq 300); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.2
    done
    echo "cluster.sh: not within a minute: $what; see the logs in $STATE" >&2
    exit 1
}

require() {
    local missing=() program
    for program in kube-apiserver kube-controller-manager kube-scheduler kubelet; do
        [ -x "$BINARIES/$program" ] || missing+=("$BINARIES/$program")
    done
    for program in etcd dockerd docker runc debootstrap busybox curl openssl ip python3; do
        command -v "$program" >/dev/null || missing+=("$program")
    done
    [ "$(id -u)" = 0 ] || missing+=("root")
    if [ ${#missing[@]} -gt 0 ]; then
        echo "missing: ${missing[*]} (see tests/kubernetes/README.md)" >&2
        exit 3
    fi
}

debian() { # a Debian with more packages, comma-separated, as the tar of this name
    local name=$1 root=$STATE/$1
    [ ! -f "$IMAGES/$name.tar" ] || return 0
    debootstrap --variant=minbase --include="$2" bookworm "$root" >"$STATE/debootstrap.log" 2>&1
    rm -rf "$root"/var/cache/apt "$root"/var/lib/apt/lists "$root"/usr/share/{doc,man,locale}
    tar -C "$root" -cf "$IMAGES/$name.tar.part" . && mv "$IMAGES/$name.tar.part" "$IMAGES/$name.tar"
    rm -rf "$root"
}

root_file_systems() { # built once, from the distribution's packages
    mkdir -p "$IMAGES"
    debian debian base-files
    debian python python3-minimal
    if [ ! -f "$IMAGES/busybox.tar" ]; then
        local root=$STATE/busybox
        mkdir -p "$root/bin" "$root/tmp"
        chmod 1777 "$root/tmp"
        cp "$(command -v busybox)" "$root/bin/busybox"
        busybox --list | grep -vx busybox | while read -r applet; do ln "$root/bin/busybox" "$root/bin/$applet"; done
        tar -C "$root" -cf "$IMAGES/busybox.tar.part" . && mv "$IMAGES/busybox.tar.part" "$IMAGES/busybox.tar"
        rm -rf "$root"
    fi
}

start_docker() {
    # The kubelet asks for a negative OOM score, which takes a privilege that a container of a CI service lacks.
    cat >"$STATE/runc" <<'SHELL'
#!/bin/sh
bundle=$PWD making=
for argument; do
    [ "$last" != --bundle ] || bundle=$argument
    case $argument in create | run) making=yes ;; esac
    last=$argument
done
[ -z "$making" ] || sed -i 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$bundle/config.json"
exec runc "$@"
SHELL
    chmod +x "$STATE/runc"
    ip link show "$BRIDGE" >/dev/null 2>&1 || ip link add "$BRIDGE" type bridge
    ip address replace 172.31.199.1/24 dev "$BRIDGE"
    ip link set "$BRIDGE" up
    launch dockerd dockerd --host "unix://$STATE/docker.sock" --pidfile "$STATE/docker.pid" --data-root "$STATE/docker" \
        --exec-root "$STATE/docker-exec" --storage-driver overlay2 --bridge "$BRIDGE" --iptables=false --ip6tables=false \
        --exec-opt native.cgroupdriver=cgroupfs --add-runtime "tolerant=$STATE/runc" --default-runtime tolerant
    until_true "dockerd answers" docker_ info
    docker_ import --change 'CMD ["/bin/sleep", "1000000000"]' "$IMAGES/busybox.tar" evalfleet-test/pause:1 >/dev/null
    docker_ import --change 'CMD ["/bin/sh"]' "$IMAGES/busybox.tar" evalfleet-test/busybox:1 >/dev/null
    # an entrypoint that takes no arguments as a command, and one image that lacks a tool
    docker_ import --change 'ENTRYPOINT ["/bin/bash"]' "$IMAGES/debian.tar" evalfleet-test/debian:1 >/dev/null
    docker_ import "$IMAGES/python.tar" evalfleet-test/python:1 >/dev/null
    tar --delete ./usr/bin/tar <"$IMAGES/debian.tar" | docker_ import - evalfleet-test/no-tar:1 >/dev/null
}

write_configuration() {
    openssl genrsa -out "$STATE/service-accounts.key" 2048 2>/dev/null
    {
        echo "$TOKEN,admin,admin,system:masters"
        echo "nobody-of-the-tests,nobody,nobody"
    } >"$STATE/tokens.csv"
    cat >"$STATE/kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: tests, cluster: {server: "$API", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: $TOKEN}}, {name: nobody, user: {token: nobody-of-the-tests}}]
contexts: [{name: tests, context: {cluster: tests, user: admin}}, {name: nobody, context: {cluster: tests, user: nobody}}]
current-context: tests
YAML
    cat >"$STATE/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
enforceNodeAllocatable: []
evictionHard: {memory.available: 50Mi}
failSwapOn: false
makeIPTablesUtilChains: false
maxPods: 250
podPidsLimit: 512
registryPullQPS: 0
YAML
}

start_control_plane() {
    launch etcd etcd --data-dir "$STATE/etcd" --unsafe-no-fsync \
        --listen-client-urls http://127.0.0.1:23792 --advertise-client-urls http://127.0.0.1:23792 \
        --listen-peer-urls http://127.0.0.1:23802 --initial-advertise-peer-urls http://127.0.0.1:23802 \
        --initial-cluster default=http://127.0.0.1:23802
    launch kube-apiserver "$BINARIES/kube-apiserver" --etcd-servers http://127.0.0.1:23792 --bind-address 127.0.0.1 \
        --advertise-address 127.0.0.1 --secure-port "${API##*:}" --cert-dir "$STATE/certificates" \
        --service-cluster-ip-range 10.97.0.0/16 --service-account-issuer https://kubernetes.default.svc \
        --service-account-key-file "$STATE/service-accounts.key" \
        --service-account-signing-key-file "$STATE/service-accounts.key" \
        --authorization-mode RBAC --token-auth-file "$STATE/tokens.csv" --allow-privileged
    until_true "the API server is ready" call "$API/readyz"
    launch kube-controller-manager "$BINARIES/kube-controller-manager" --kubeconfig "$STATE/kubeconfig" --leader-elect=false \
        --service-account-private-key-file "$STATE/service-accounts.key" \
        --controllers namespace,serviceaccount,serviceaccount-token,garbagecollector,podgc,resourcequota
    launch kube-scheduler "$BINARIES/kube-scheduler" --kubeconfig "$STATE/kubeconfig" --leader-elect=false
}

start_kubelet() {
    launch kubelet "$BINARIES/kubelet" --kubeconfig "$STATE/kubeconfig" --config "$STATE/kubelet.yaml" \
        --root-dir "$STATE/kubelet" --cert-dir "$STATE/kubelet-certificates" --hostname-override localhost \
        --docker-endpoint "unix://$STATE/docker.sock" --pod-infra-container-image evalfleet-test/pause:1 --network-plugin=
    until_true "the node is ready" node_is_ready
    # No controller of nodes runs here that would take away the taint of an unready one.
    call --request PATCH --header 'Content-Type: application/merge-patch+json' --data '{"spec": {"taints": null}}' \
        "$API/api/v1/nodes/localhost" >/dev/null
    until_true "pods may be made" call "$API/api/v1/namespaces/default/serviceaccounts/default"
}

node_is_ready() { call "$API/api/v1/nodes/localhost" | grep -q '"reason": "KubeletReady"'; }

start() {
    require
    if [ -e "$STATE" ]; then
        echo "cluster.sh: $STATE exists: a cluster runs, or one was not stopped; run '$0 stop' first" >&2
        exit 1
    fi
    mkdir -p "$STATE"
    root_file_systems
    write_configuration
    start_docker
    start_control_plane
    start_kubelet
    echo "$STATE/kubeconfig"
}

stop() { # each by the pid that was written when it was started
    [ -d "$STATE" ] || return 0
    local program pid
    for program in "${PROGRAMS[@]}"; do
        [ -f "$STATE/$program.pid" ] || continue
        if [ "$program" = dockerd ]; then
            docker_ ps --all --quiet 2>/dev/null | xargs --no-run-if-empty docker --host "unix://$STATE/docker.sock" rm --force >/dev/null 2>&1 || true
        fi
        pid=$(cat "$STATE/$program.pid")
        kill "$pid" 2>/dev/null || continue
        for _ in $(seq 50); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null || true
    done
    ip link delete "$BRIDGE" 2>/dev/null || true
    { grep -o "$STATE[^ ]*" /proc/mounts || true; } | sort --reverse | xargs --no-run-if-empty umount 2>/dev/null || true
    rm -rf "$STATE"
}

run() { # what the command ends with; nothing is run where something is missing
    local missing
    if ! missing=$(require 2>&1); then
        echo "skipped: $missing"
        return 0
    fi
    trap stop EXIT
    start
    EVALFLEET_TEST_KUBECONFIG=$STATE/kubeconfig "$@"
}

case ${1:-} in
    start | stop) "$1" ;;
    run)
        shift
        run "$@"
        ;;
    *)
        echo "usage: $0 start | stop | run COMMAND..." >&2
        exit 2
        ;;
esac
