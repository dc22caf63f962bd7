# First process of a job's container, below the init. Its standard input is a lifeline: whoever started the
# job holds the other end, and when that closes, also by kill -9, everything in the container ends with it.
#
#   sh supervise.sh TOKEN OUT DISK COMMAND...
#
# Waits for the line `go` (the input files are there), runs COMMAND, and then writes to standard error
# `TOKEN sha256 <digest> <path>` for every file below OUT, `TOKEN killed <number>` where the kernel ended
# processes for want of memory, and `TOKEN exit <status>`. TOKEN is a word that COMMAND does not know. Then it
# waits to be let go, so that the files can be fetched. DISK is how many KiB COMMAND may have written below OUT,
# TMPDIR and HOME, 0 for any number: beyond it `TOKEN disk <KiB>` is written, and whoever reads that ends all.
[ "$PPID" -eq 1 ] || { echo "supervise.sh: only below a container's init" >&2; exit 125; }
token=$1 out=$2 disk=$3
shift 3
read -r word && [ "$word" = go ] || exit 125
exec 3<&0 </dev/null
( trap '' TERM; cat <&3 >/dev/null; kill -KILL -1 ) &
guard=$!
"$@" 3<&- &
child=$!
check_disk() {
  [ "$disk" -gt 0 ] || return 0
  used=$(du -skc "$out" "$TMPDIR" "$HOME" 2>/dev/null | tail -n 1 | cut -f 1)
  [ "${used:-0}" -le "$disk" ] || printf '%s disk %s\n' "$token" "$used" >&2
}
[ "$disk" -eq 0 ] || (
  trap '' INT TERM
  while kill -0 "$child" 2>/dev/null; do
    check_disk
    sleep 0.25
  done
) 3<&- &
# `tk` passes an interrupt on to the container, which ends the command, not the supervisor.
trap 'kill -INT "$child" 2>/dev/null' INT
trap 'kill -TERM "$child" 2>/dev/null' TERM
wait "$child"
status=$?
while kill -0 "$child" 2>/dev/null; do
  wait "$child"
  status=$?
done
check_disk
# The kernel counts in the container's control group, version 2 or 1.
killed=$(cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2>/dev/null |
  sed -n 's/^oom_kill //p' | head -n 1)
[ "${killed:-0}" = 0 ] || printf '%s killed %s\n' "$token" "$killed" >&2
cd "$out" && find . -type f | LC_ALL=C sort | while read -r path; do
  printf '%s sha256 %s\n' "$token" "$(sha256sum "$path")" >&2
done
printf '%s exit %s\n' "$token" "$status" >&2
wait "$guard"
