"""What handles files inside a sandbox that only a client reaches: shell scripts that keep below the workdir. Pure.

A script answers with a line like a report's (see `inside`), whose first word is `ok`, `file`, `folder` or the name of
an errno, and at times with more behind it. No name and no content goes through a shell's quoting: names are arguments,
content is a stream.
"""

from __future__ import annotations

from dataclasses import dataclass

from evalfleet_sandboxes.inside import script

#: `resolve PATH` sets `real`: links followed, an end that does not exist kept. Refuses what leads out of the workdir.
_RESOLVE = r"""
say() { echo "evalfleet $1 0 0 - 0"; exit; }
tell() { echo "evalfleet $1 $(($(printf %s "$real" | wc -c))) 0 - 0"; printf %s "$real"; exit; }
follow() { real=$(readlink -f "$1" && echo .) || say EPERM; real=${real%??}; }
workdir=$1
[ -d "$workdir" ] || say lost
follow "$workdir"; root=$real
resolve() {
  path=$1 rest=
  while ! [ -e "$path" ] && ! [ -L "$path" ]; do rest=/${path##*/}$rest path=${path%/*}; [ -n "$path" ] || path=/; done
  case $rest/ in */../*) say EPERM ;; esac
  follow "$path"
  [ "$real" != / ] || real=
  real=$real$rest
  case $real/ in "$root"/*) ;; *) say EPERM ;; esac
}
parents() {
  [ "$real" = "$root" ] || mkdir -p "${real%/*}" 2>/dev/null || { [ ! -e "${real%/*}" ] || say ENOTDIR; say EACCES; }
}
"""

_READ = r"""
resolve "$2"
[ -e "$real" ] || say ENOENT
[ ! -d "$real" ] || say EISDIR
[ -f "$real" ] || say EINVAL
[ -r "$real" ] || say EACCES
size=$(($(wc -c <"$real")))
echo "evalfleet file $size 0 - 0"
[ $size = 0 ] || exec head -c $size "$real"
"""

#: Replaces a file by what comes in, $3 bytes; $4 is its mode, or empty to keep it.
_WRITE = r"""
resolve "$2"
[ ! -d "$real" ] || say EISDIR
[ ! -e "$real" ] || [ -f "$real" ] || say EINVAL
parents
: 2>/dev/null >>"$real" || say EACCES
cat 2>/dev/null >"$real"
[ $(($(wc -c <"$real"))) = "$3" ] || say ENOSPC
[ -z "$4" ] || chmod "$4" "$real" || say EPERM
say ok
"""

#: Makes a folder that a tar is for. The further arguments are the tar's own folders, parents first: nothing is
#: written through a link that waits in one's place.
_MAKE = r"""
resolve "$2"; shift 2
[ ! -e "$real" ] || [ -d "$real" ] || say ENOTDIR
parents
mkdir -p "$real" 2>/dev/null || say EACCES
for name; do [ ! -L "$real/$name" ] || rm -f "$real/$name"; done
"""

_UNPACK = (
    _MAKE
    + r"""
tar -C "$real" -xpof - 2>/dev/null || say EIO
say ok
"""
)

#: Answers where the folder is, or what is to be packed, for who has a tar of his own.
_PREPARE = _MAKE + "tell folder"
_FIND = r"""
resolve "$2"
[ -e "$real" ] || say ENOENT
[ ! -d "$real" ] || tell folder
[ -f "$real" ] || say EINVAL
tell file
"""

#: The tar of a file or a folder after the answer; the line behind it tells that it is whole.
_PACK = r"""
resolve "$2"
[ -e "$real" ] || say ENOENT
if [ -d "$real" ]; then
  cd "$real" 2>/dev/null || say EACCES
  echo "evalfleet folder 0 0 - 0"; tar -cf - .
else
  [ -f "$real" ] || say EINVAL
  cd "${real%/*}" || say EACCES
  echo "evalfleet file 0 0 - 0"; tar -cf - "./${real##*/}"
fi
status=$?
[ $status -gt 1 ] || echo "evalfleet whole"
"""

#: The last line of a whole tar.
WHOLE = b"evalfleet whole\n"

_PROBE = "say ok"


@dataclass(frozen=True, slots=True)
class InnerFiles:
    """The argvs of file operations below a workdir. Paths are absolute."""

    workdir: str

    def read(self, path: str) -> tuple[str, ...]:
        return self._script(_READ, path)

    def write(self, path: str, size: int, mode: int | None) -> tuple[str, ...]:
        return self._script(_WRITE, path, str(size), "" if mode is None else f"{mode:o}")

    def unpack(self, path: str, folders: tuple[str, ...]) -> tuple[str, ...]:
        return self._script(_UNPACK, path, *folders)

    def prepare(self, path: str, folders: tuple[str, ...]) -> tuple[str, ...]:
        return self._script(_PREPARE, path, *folders)

    def find(self, path: str) -> tuple[str, ...]:
        return self._script(_FIND, path)

    def pack(self, path: str) -> tuple[str, ...]:
        return self._script(_PACK, path)

    def probe(self) -> tuple[str, ...]:
        return self._script(_PROBE)

    def _script(self, text: str, *args: str) -> tuple[str, ...]:
        return script(_RESOLVE + text, self.workdir, *args)
