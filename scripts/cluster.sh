#!/usr/bin/env bash
# Runs three members on loopback, clients on ports 2379, 22379 and 32379, and prefixes each line of their
# logs with the member's name. Ctrl-C ends them; the data stays in DIR (default ./cluster.data) and the
# next run goes on with it.
#
#   scripts/cluster.sh [DIR] [FLAG...]       flags go to every member
#
# VIGIL is the program, by default bin/vigil, which `make build` makes. PORT moves the ports: the clients'
# are PORT, PORT+20000 and PORT+30000, those of members one above.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=${1:-cluster.data}
shift || true
vigil=${VIGIL:-bin/vigil}
port=${PORT:-2379}

ports=("$port" "$((port + 20000))" "$((port + 30000))")
members=
for i in 0 1 2; do
	members+=${members:+,}m$((i + 1))=http://127.0.0.1:$((ports[i] + 1))
done

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
pids=()
stop() {
	trap '' INT TERM
	kill -TERM "${pids[@]}" 2>/dev/null || true
	wait
	exit 0
}
trap stop INT TERM

for i in 0 1 2; do
	name=m$((i + 1))
	client=http://127.0.0.1:${ports[i]}
	peer=http://127.0.0.1:$((ports[i] + 1))
	# A member that was killed is started again with this file.
	{
		echo '#!/usr/bin/env bash'
		printf 'cd %q && exec' "$PWD"
		printf ' %q' "$vigil" --name=$name --data-dir="$dir/$name" \
			--listen-client-urls="$client" --advertise-client-urls="$client" \
			--listen-peer-urls="$peer" --initial-advertise-peer-urls="$peer" \
			--initial-cluster="$members" --initial-cluster-token=local \
			--log-format=console "$@"
		echo
	} >"$dir/start-$name"
	chmod +x "$dir/start-$name"
	# The line that the member serves is in a file, too.
	rm -f "$dir/ready-$name"
	"$dir/start-$name" > >(trap '' INT; exec sed -u -e "s/^/$name | /" -e '/ready to serve client requests/{p' -e "w $dir/ready-$name" -e 'd}') 2>&1 &
	pids+=($!)
done

# The members log until they are ready; what follows is for somebody at a terminal, below their first lines.
for i in 0 1 2; do
	for _ in $(seq 600); do
		[ -s "$dir/ready-m$((i + 1))" ] && break
		kill -0 "${pids[i]}" 2>/dev/null || break
		sleep 0.1
	done
done
rm -f "$dir"/ready-m?
echo
endpoints=
console=
lines=()
for i in 0 1 2; do
	start=$(printf %q "$dir/start-m$((i + 1))")
	if kill -0 "${pids[i]}" 2>/dev/null; then
		endpoints+=${endpoints:+,}127.0.0.1:${ports[i]}
		console=${console:-http://127.0.0.1:${ports[i]}/console/}
		lines+=("m$((i + 1))         kill it: kill -9 ${pids[i]}    restart it: $start")
	else
		lines+=("m$((i + 1))         it did not start: its lines above say why; start it: $start")
	fi
done
if [ -z "$endpoints" ]; then
	echo "no member has started: the lines above say why" >&2
	exit 1
fi
echo "endpoints  export VIGILCTL_ENDPOINTS=$endpoints"
echo "           the same for etcdctl: ETCDCTL_ENDPOINTS"
printf '%s\n' "${lines[@]}"
echo "console    $console"
echo "try        vigilctl put greeting hello; vigilctl top; Ctrl-C here ends all three"
echo
# A member that ends by itself, or is killed to see what happens, leaves the others running. The shell would report it, too.
wait -n 2>/dev/null || true
wait 2>/dev/null
