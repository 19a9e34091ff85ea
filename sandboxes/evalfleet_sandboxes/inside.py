"""What runs inside a sandbox that only a client reaches: POSIX shell scripts, and the argvs that start them. Pure.

Every exec carries a mark in its environment, inherited by all that its command starts. A command's outputs go to files
of its folder below `state`, so that a cut connection loses nothing: the report of an ended command can be asked for
again, and a running one be read. A report is one line and then the kept bytes, whose lengths the line tells; without
it the end of a command is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

#: The variable that marks the processes of a command; the keeper's own have `KEEPER`.
MARK = "EVALFLEET_COMMAND"
KEEPER = "keeper"
#: What the scripts need of an image beside its shell.
TOOLS = ("cat", "chmod", "env", "head", "mkdir", "readlink", "rm", "sleep", "tail", "tar", "wc")
#: The most bytes of one piece of output.
PIECE = 1 << 20

_HEAD = b"evalfleet "
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: The first process. As the namespace's init it reaps orphans, and no signal from inside ends it.
_KEEP = r"""
state=$1 workdir=$2 open=$3
mkdir -p "$state" && chmod 1777 "$state"
mkdir -p /tmp && chmod 1777 /tmp
[ -d "$workdir" ] || mkdir -p "$workdir"
[ "$open" = no ] || chmod 777 "$workdir"
: >"$state/ready"
while :; do sleep 1000000 & wait; done
"""

#: What is here and what is missing, as the user of the commands: lines `name value`, `ready` the last.
_FACTS = r"""
state=$1 workdir=$2; shift 2
nap() { sleep 0.05 2>/dev/null || sleep 1; }
tries=0
while ! [ -e "$state/ready" ] && [ $tries -lt 100 ]; do nap; tries=$((tries + 1)); done
[ -e "$state/ready" ] || { echo "evalfleet unprepared"; exit; }
for tool; do command -v "$tool" >/dev/null 2>&1 || echo "evalfleet missing $tool"; done
[ -w "$workdir" ] && cd "$workdir" || echo "evalfleet locked $workdir"
echo "evalfleet place $(pwd -P)"
case ${HOME:-/} in
/) home= ;;
*) if [ -d "$HOME" ] && [ -w "$HOME" ]; then home=$HOME; else home=; fi ;;
esac
if [ -z "$home" ]; then home=$state/home; mkdir -p "$home"; chmod 777 "$home"; fi
echo "evalfleet home $home"
bash=$(command -v bash) && echo "evalfleet bash $bash"
while read -r key value rest; do case $key in Uid:|Gid:) echo "evalfleet id $value" ;; esac; done </proc/self/status
echo "evalfleet ready"
"""

#: Functions of the scripts that report: the kernel's clock in hundredths of a second, its count of processes killed
#: for memory, and the report itself.
_REPORTING = r"""
clock() { read -r up idle </proc/uptime; now=${up%.*}${up#*.}; }
ooms() {
  killed=
  for account in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
    [ -r "$account" ] || continue
    while read -r name count; do [ "$name" != oom_kill ] || killed=$count; done <"$account"
  done
}
kept() {
  if [ "$2" -le "$limit" ]; then head -c "$2" "$1"
  else head -c $((limit - limit / 2)) "$1"; tail -c +$(($2 - limit / 2 + 1)) "$1" | head -c $((limit / 2)); fi
}
# a command whose exec is still on its way finds its folder taken and does not run
claim() { mkdir "$folder" 2>/dev/null && : >"$folder/claimed"; }
stop() { echo "evalfleet $1 0 0 - 0"; exit; }
report() {
  out=0 err=0
  [ ! -e "$folder/stdout" ] || out=$(($(wc -c <"$folder/stdout")))
  [ ! -e "$folder/stderr" ] || err=$(($(wc -c <"$folder/stderr")))
  if [ -z "$3" ] && [ -e "$folder/began" ]; then
    read -r began <"$folder/began"; clock
    set -- "$1" "$2" $((now - began))
  fi
  echo "evalfleet $1 $out $err ${2:--} ${3:-0}"
  [ "$out" = 0 ] || kept "$folder/stdout" "$out"
  [ "$err" = 0 ] || kept "$folder/stderr" "$err"
}
"""

#: Functions that read what the kernel says of process $1: its state, parent and user; whose mark its environment has.
#: The shell reads it itself, skipping the zero bytes: a full sandbox may have no process left for a tool.
_LOOKING = r"""
read_status() {
  life= parent= user=
  while read -r key value rest; do
    case $key in State:) life=$value ;; PPid:) parent=$value ;; Uid:) user=$value; break ;; esac
  done 2>/dev/null <"/proc/$1/status"
}
read_mark() {
  whose=nobody
  while IFS= read -r part || [ -n "$part" ]; do
    case $part in *"EVALFLEET_COMMAND=$mark"*) whose=mine ;; *EVALFLEET_COMMAND=*) whose=another ;; esac
  done 2>/dev/null <"/proc/$1/environ"
}
"""

#: Runs one command. The first line of its input is shell code that sets the command's environment.
_RUN = (
    _REPORTING
    + r"""
state=$1 mark=$2 workdir=$3 cwd=$4 limit=$5 input=$6 done=$7; shift 7
folder=$state/$mark
IFS= read -r environment || exit 1
for old in $done; do rm -rf "$state/$old"; done
mkdir "$folder" && : >"$folder/stdout" && : >"$folder/stderr" || stop broken
exec 2>"$folder/said"
[ -d "$workdir" ] || stop lost
[ -e "$cwd" ] || stop nowhere
[ -d "$cwd" ] || stop nofolder
[ -x "$cwd" ] || stop forbidden
ooms; before=$killed
clock; began=$now; echo "$began" >"$folder/began"
[ "$input" = yes ] || exec </dev/null
(
  cd "$cwd" || exit 126
  eval "$environment"
  exec "$@"
) >>"$folder/stdout" 2>>"$folder/stderr"
code=$?
clock; took=$((now - began))
ooms; [ -z "$killed" ] || killed=$((killed - ${before:-0}))
# a shell says what signal ended its child, and nothing about an exit code: so 137 is told from SIGKILL
if [ $code -gt 128 ] && [ -s "$folder/said" ]; then end=signal:$((code - 128)); else end=exit:$code; fi
# by the shell alone, since where processes are limited there may be none left for the report
echo "$end ${killed:--} $took whole" >"$folder/result"
report "$end" "$killed" $took
"""
)

#: The report of a command that was started before: of its end, or `running`, or `unknown`. Its exec's root, which has
#: no parent here, writes the result.
_AGAIN = (
    _REPORTING
    + _LOOKING
    + r"""
state=$1 mark=$2 limit=$3 looks=$4
folder=$state/$mark
claim
[ ! -e "$folder/claimed" ] || stop never
nap() { sleep 0.1 2>/dev/null || sleep 1; }
running() {
  for process in /proc/[0-9]*; do
    read_status "${process#/proc/}"
    [ "$parent" = 0 ] || continue
    read_mark "${process#/proc/}"
    [ $whose != mine ] || return 0
  done
  return 1
}
ended() {
  whole=
  [ ! -e "$folder/result" ] || read -r end killed took whole <"$folder/result"
  [ -n "$whole" ]
}
while ! ended && running; do
  [ "$looks" -gt 0 ] || { report running; exit; }
  looks=$((looks - 1)); nap
done
if ended; then report "$end" "$killed" "$took"; else report unknown; fi
"""
)

#: A piece of a stream: `evalfleet complete|partial SIZE 0 - 0` and SIZE bytes. Looked at first: what was written last.
_PIECE = r"""
state=$1 mark=$2 stream=$3 after=$4 size=$5 looks=$6
folder=$state/$mark
nap() { sleep 0.1 2>/dev/null || sleep 1; }
while :; do
  if [ -e "$folder/result" ] || [ -e "$folder/ended" ]; then how=complete; else how=partial; fi
  total=0
  [ ! -e "$folder/$stream" ] || total=$(($(wc -c <"$folder/$stream")))
  [ "$total" -le "$after" ] && [ $how = partial ] && [ "$looks" -gt 0 ] || break
  looks=$((looks - 1)); nap
done
count=$((total - after))
[ $count -ge 0 ] || count=0
if [ $count -gt "$size" ]; then count=$size how=partial; fi
echo "evalfleet $how $count 0 - 0"
[ $count = 0 ] || tail -c +$((after + 1)) "$folder/$stream" | head -c $count
"""

#: Ends a command's whole tree: what carries its mark or descends from such a process. A process that nobody's mark is
#: on, neither on its ancestors up to the keeper, shed its past and is ended too. An exec's own root has no parent here.
#: Without capabilities a tree is of one user, so others' processes are left. Proven by a look that finds nothing.
_END = (
    _REPORTING
    + _LOOKING
    + r"""
state=$1 mark=$2 limit=$3
folder=$state/$mark
nap() { sleep 0.02 2>/dev/null || sleep 1; }
read_status $$; me=$user
look() {
  living=
  for process in /proc/[0-9]*; do
    pid=${process#/proc/}
    read_status "$pid"
    [ "$user" = "$me" ] && [ "$pid" != 1 ] || continue
    read_mark "$pid"
    eval "parent_$pid=$parent whose_$pid=$whose"
    case $life in Z|X) ;; *) living="$living $pid" ;; esac
  done
  doomed=
  for pid in $living; do
    at=$pid of=nobody
    while :; do
      eval "up=\${parent_$at:-1} whose=\${whose_$at:-nobody}"
      [ $whose != mine ] || { of=mine; break; }
      [ $whose != another ] && [ "$up" != 0 ] || of=another
      [ "$up" -gt 1 ] || break
      at=$up
    done
    [ $of = another ] || doomed="$doomed $pid"
  done
}
kept_here=
while IFS= read -r part || [ -n "$part" ]; do
  case $part in *"$state"*) kept_here=yes ;; esac
done 2>/dev/null </proc/1/cmdline
claim
tries=0 how=alive
# never among processes that are not a sandbox's own
while [ -n "$kept_here" ] && [ $tries -lt 200 ]; do
  look
  [ -n "$doomed" ] || { how=dead; break; }
  kill -STOP $doomed 2>/dev/null
  kill -KILL $doomed 2>/dev/null
  tries=$((tries + 1))
  [ $tries -lt 3 ] || nap
done
[ $how = alive ] || : >"$folder/ended"
report $how
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a script reported: `how` it went, the kept outputs and their whole sizes, the kernel's kills for memory.

    `duration` is how long the command has run or ran, in seconds.

    `how` is `exit:N`, `signal:N`, or a word: `running`, `unknown`, `never`, `lost`, `broken`, `nowhere`, `nofolder`,
    `forbidden`, `dead`, `alive`, `complete`, `partial`.
    """

    how: str
    stdout: bytes
    stderr: bytes
    stdout_bytes: int
    stderr_bytes: int
    oom_kills: int | None
    duration: float

    @property
    def exit_code(self) -> int | None:
        return int(self.how[5:]) if self.how.startswith("exit:") else None

    @property
    def signal(self) -> int | None:
        return int(self.how[7:]) if self.how.startswith("signal:") else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a sandbox's image offers: `missing` tools, a writable `home`, `bash` if any, whether it was `prepared`.

    `place` is the workdir with all links followed; `locked` says that its user can't write there. `owner` has the ids
    of that user and its group.
    """

    missing: tuple[str, ...]
    locked: bool
    place: str
    home: str
    bash: str | None
    owner: tuple[int, int]
    prepared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """Where things are inside: our own folder, whose content anybody in the sandbox may change, and the workdir."""

    state: str
    workdir: str

    def keep(self, *, open_to_all: bool) -> tuple[str, ...]:
        """The first process. `open_to_all` lets every user write to the workdir; run it as the folder's owner."""
        return script(_KEEP, self.state, self.workdir, "yes" if open_to_all else "no")

    def facts(self) -> tuple[str, ...]:
        return _marked(KEEPER, _FACTS, self.state, self.workdir, *TOOLS)

    def run(
        self, mark: str, argv: tuple[str, ...], cwd: str, *, limit: int, stdin: bool, done: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Run `argv` to its end in the absolute `cwd` and report; its input starts with a line of `exports`.

        `done` are marks of ended commands whose folders may go.
        """
        given = ("yes" if stdin else "no", " ".join(done))
        return _marked(mark, _RUN, self.state, mark, self.workdir, cwd, str(limit), *given, *argv)

    def again(self, mark: str, *, limit: int, looks: int = 0) -> tuple[str, ...]:
        """Report on a command, after waiting for its end for about `looks` tenths of a second."""
        return _marked(KEEPER, _AGAIN, self.state, mark, str(limit), str(looks))

    def piece(self, mark: str, stream: str, *, after: int, looks: int = 0) -> tuple[str, ...]:
        """At most `PIECE` bytes of a stream from byte `after` on, as a report's stdout: `complete` or `partial`."""
        return _marked(KEEPER, _PIECE, self.state, mark, stream, str(after), str(PIECE), str(looks))

    def end(self, mark: str, *, limit: int) -> tuple[str, ...]:
        """End a command's tree and report its outputs: `dead` when that is proven, else `alive`. As its user."""
        return _marked(KEEPER, _END, self.state, mark, str(limit))


def mark_of(number: int) -> str:
    """The mark of a sandbox's n-th command; of one width, so that none is the beginning of another."""
    return f"{number:08d}"


def exports(env: Mapping[str, str]) -> bytes:
    """A line of shell code that sets the environment: ASCII, whatever the values are. Raises ValueError for a name.

    A command's environment goes this way since an argument can be read by anybody who lists processes.
    """
    return ("".join(_export(name, value) for name, value in env.items()) + ":\n").encode("ascii")


def parse_report(output: bytes, limit: int) -> Report | None:
    """The report in a script's output; None when it is not whole."""
    line, newline, rest = output.partition(b"\n")
    fields = line.removeprefix(_HEAD).split()
    if not newline or not line.startswith(_HEAD) or len(fields) != 5:
        return None
    how, out, err, killed, took = (field.decode("ascii", "replace") for field in fields)
    if not (out.isdecimal() and err.isdecimal() and took.isdecimal()):
        return None
    kept = min(int(out), limit)
    if len(rest) != kept + min(int(err), limit):
        return None
    return Report(
        how=how,
        stdout=rest[:kept],
        stderr=rest[kept:],
        stdout_bytes=int(out),
        stderr_bytes=int(err),
        oom_kills=int(killed) if killed.isdecimal() else None,
        duration=int(took) / 100,
    )


def parse_facts(output: bytes) -> Facts | None:
    """What `facts` printed; None when it is not whole."""
    lines = [line.removeprefix("evalfleet ") for line in output.decode("utf-8", "replace").splitlines()]
    if not lines or lines[-1] not in ("ready", "unprepared"):
        return None
    said = [line.partition(" ") for line in lines]
    ids = [int(value) for name, _, value in said if name == "id" and value.isdecimal()]
    return Facts(
        missing=tuple(value for name, _, value in said if name == "missing"),
        locked=any(name == "locked" for name, _, _ in said),
        place=next((value for name, _, value in said if name == "place"), "/"),
        home=next((value for name, _, value in said if name == "home"), "/"),
        bash=next((value for name, _, value in said if name == "bash"), None),
        owner=(ids[0], ids[1]) if len(ids) == 2 else (0, 0),
        prepared=lines[-1] == "ready",
    )


def _marked(mark: str, text: str, *args: str) -> tuple[str, ...]:
    return ("env", f"{MARK}={mark}", *script(text, *args))


def script(text: str, *args: str) -> tuple[str, ...]:
    """The argv of a shell that runs a text with arguments."""
    return ("sh", "-c", text, "sh", *args)


def _export(name: str, value: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name for an environment variable of a shell")
    if _PLAIN.fullmatch(value):
        return f"{name}={value}; export {name}; "
    octal = "".join(f"\\{byte:03o}" for byte in value.encode("utf-8", "surrogateescape"))
    # the dot keeps newlines at the end, which a substitution would drop
    return f"{name}=$(printf '{octal}.'); {name}=${{{name}%.}}; export {name}; "
