# First process of a job's container, below the init. Its standard input is a lifeline: whoever started the
# job holds the other end, and when that closes, also by kill -9, everything in the container ends with it.
#
#   sh supervise.sh TOKEN OUT COMMAND...
#
# Waits for the line `go` (the input files are there), runs COMMAND, and then writes to standard error
# `TOKEN sha256 <digest> <path>` for every file below OUT and `TOKEN exit <status>`. TOKEN is a word that
# COMMAND does not know. Then it waits to be let go, so that the files can be fetched.
[ "$PPID" -eq 1 ] || { echo "supervise.sh: only below a container's init" >&2; exit 125; }
token=$1 out=$2
shift 2
read -r word && [ "$word" = go ] || exit 125
exec 3<&0 </dev/null
( trap '' TERM; cat <&3 >/dev/null; kill -KILL -1 ) &
guard=$!
"$@" 3<&- &
child=$!
# `tk` passes an interrupt on to the container, which ends the command, not the supervisor.
trap 'kill -INT "$child" 2>/dev/null' INT
trap 'kill -TERM "$child" 2>/dev/null' TERM
wait "$child"
status=$?
while kill -0 "$child" 2>/dev/null; do
  wait "$child"
  status=$?
done
cd "$out" && find . -type f | LC_ALL=C sort | while read -r path; do
  printf '%s sha256 %s\n' "$token" "$(sha256sum "$path")" >&2
done
printf '%s exit %s\n' "$token" "$status" >&2
wait "$guard"
