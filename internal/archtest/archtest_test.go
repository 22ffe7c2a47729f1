package archtest

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// module is the path of the root module, as go.mod declares it.
var module = func() string {
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		panic(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(first, "module ")
}()

// A rule lists what one package may import: packages of this module by their path below it, and
// other modules by prefix. The standard library is always allowed. Test files may also import what
// testOnly allows.
type rule struct {
	inside  []string
	outside []string
	tests   []string // what only its test files may import of this module
	why     string   // why it may import nothing else: printed with a violation
}

const (
	raftLib = "go.etcd.io/raft/v3"
	apiLib  = "go.etcd.io/etcd/api/v3"
	grpcLib = "google.golang.org/grpc"
	pbLib   = "google.golang.org/protobuf"
	promLib = "github.com/prometheus/client_golang"
	sysLib  = "golang.org/x/sys"

	gatewayLib    = "github.com/grpc-ecosystem/grpc-gateway/v2"
	netLib        = "golang.org/x/net"
	systemdLib    = "github.com/coreos/go-systemd/v22"
	lumberjackLib = "gopkg.in/natefinch/lumberjack.v2"
	zapLib        = "go.uber.org/zap"
	otelLib       = "go.opentelemetry.io"

	genprotoLib = "google.golang.org/genproto/googleapis/api"

	ageLib  = "filippo.io/age"
	zstdLib = "github.com/klauspost/compress/zstd"

	jwtLib    = "github.com/golang-jwt/jwt/v5"
	cryptoLib = "golang.org/x/crypto"

	cobraLib = "github.com/spf13/cobra"
	pflagLib = "github.com/spf13/pflag"
	yamlLib  = "go.yaml.in/yaml/v3"
)

// commandsWhy is the reason why a package of vigilctl's commands imports nothing else.
const commandsWhy = "commands: they share packages below them and never import each other"

var table = map[string]rule{
	"internal/kv":       {why: "the vocabulary imports nothing, so that everything can import it"},
	"internal/allocs":   {why: "numbers, and the comparison with them"},
	"internal/archtest": {why: "it reads source files and needs none of them linked"},
	"internal/vfs": {inside: []string{"internal/kv", "internal/spelling"},
		outside: []string{sysLib},
		why:     "it does not interpret the content of files, returns kv's errors, and says what to do about a file that is gone"},
	"internal/vfs/memfs": {inside: []string{"internal/vfs"},
		why: "a file system for tests"},
	"internal/vfs/faultfs": {inside: []string{"internal/vfs"},
		why: "a file system for tests"},
	"internal/vfs/vfstest": {inside: []string{"internal/vfs"},
		why: "the contract of a file system, as a test of every implementation"},
	"internal/bucket": {inside: []string{"internal/vfs"},
		tests: []string{"internal/bucket/buckettest", "internal/bucket/serve"},
		why:   "objects and keys: what is in them is not its business"},
	"internal/bucket/serve": {inside: []string{"internal/bucket"},
		why: "calls on a bucket: which one it is, the program knows"},
	"internal/bucket/buckettest": {inside: []string{"internal/bucket"},
		why: "the contract of a bucket, as a test of every implementation"},
	"internal/histogram": {why: "arithmetic on durations"},
	"internal/logline": {outside: []string{systemdLib, lumberjackLib, zapLib},
		why: "the process's log: other packages decide what is logged"},
	"internal/tracing": {outside: []string{otelLib, grpcLib},
		why: "spans and their export: other packages decide what is traced"},
	"internal/throttle":  {why: "it counts"},
	"internal/amount":    {why: "numbers as texts"},
	"internal/debugpage": {why: "types that members write and vigilctl reads"},
	"internal/health": {inside: []string{"internal/amount", "internal/spelling"},
		outside: []string{apiLib, "github.com/prometheus/client_model",
			"github.com/prometheus/common"},
		why: "functions of measurements: the command doctor and the console take these themselves"},
	"internal/bitflip": {why: "arithmetic on checksums"},
	"internal/store/wal": {inside: []string{"internal/kv", "internal/vfs", "internal/bitflip",
		"internal/histogram"}, outside: []string{raftLib, pbLib},
		why: "a leaf: the log stores entries and does not know what they mean"},
	"internal/store/history/format": {inside: []string{"internal/kv"},
		why: "the bytes of a segment: no file and no log"},
	"internal/store/history/garbage": {why: "bitmaps and arithmetic: no file"},
	"internal/store/history/metas": {inside: []string{"internal/store/history/format"},
		why: "maps in memory: no file"},
	"internal/store/history/segfile": {inside: []string{"internal/kv", "internal/vfs",
		"internal/store/history/format", "internal/store/pace"},
		why: "one file, opened for reading: it knows no other file and no log"},
	"internal/store/history/growing": {inside: []string{"internal/kv", "internal/vfs",
		"internal/store/history/format", "internal/store/history/segfile"},
		why: "one file that is written: it knows no other file and no log"},
	"internal/store/history/inspect": {inside: []string{"internal/kv", "internal/vfs",
		"internal/bitflip", "internal/store/history/format", "internal/store/history/segfile",
		"internal/store/history/growing"},
		why: "it reads files and has no log"},
	"internal/store/history": {inside: []string{"internal/kv", "internal/vfs",
		"internal/store/history/format", "internal/store/history/garbage",
		"internal/store/history/segfile", "internal/store/history/growing",
		"internal/store/history/metas", "internal/store/pace"},
		tests: []string{"internal/store/history/inspect"},
		why:   "a leaf: it stores records in revision order and knows no index, raft or client"},
	"internal/offline/datadir": {inside: []string{"internal/kv", "internal/vfs",
		"internal/store/wal", "internal/store/history", "internal/store/history/inspect"},
		why: "it reads files through the packages that own their formats; an offline tool links no running part"},
	"internal/store/mvcc/slab": {why: "memory: it knows nothing of what is in it"},
	"internal/store/mvcc/keytree": {inside: []string{"internal/store/mvcc/slab"},
		why: "an ordered map"},
	"internal/store/mvcc/index": {inside: []string{"internal/kv", "internal/store/mvcc/slab",
		"internal/store/mvcc/keytree"},
		why: "revisions of keys: it reads no record and has no limits"},
	"internal/store/pace":        {why: "time: it knows no work"},
	"internal/store/ration":      {why: "memory and a limit: it does not interpret the content"},
	"internal/store/mvcc/record": {why: "an encoding"},
	"internal/store/mvcc/meter": {inside: []string{"internal/kv", "internal/store/history"},
		why: "arithmetic; the limit of a record is that of history"},
	"internal/store/mvcc/pagecount": {inside: []string{"internal/store/mvcc/keytree"},
		why: "counts: it reads no record"},
	"internal/store/mvcc": {inside: []string{"internal/kv", "internal/store/history",
		"internal/store/mvcc/index", "internal/store/mvcc/keytree", "internal/store/mvcc/record",
		"internal/store/mvcc/meter", "internal/store/mvcc/pagecount", "internal/store/pace",
		"internal/store/ration", "internal/histogram"},
		why: "it depends on history and on nothing above"},
	"internal/store/stream": {inside: []string{"internal/kv", "internal/store/history"},
		why: "an encoding of records: no file and no connection"},
	"internal/store/archive": {inside: []string{"internal/kv", "internal/store/history",
		"internal/store/stream"}, outside: []string{raftLib, ageLib, zstdLib},
		why: "encodings of objects: it reads and writes none"},
	"internal/store/watch/interval": {why: "an interval index"},
	"internal/store/watch": {inside: []string{"internal/kv", "internal/store/watch/interval"},
		why: "it declares the Source it reads from and does not depend on the store"},
	"internal/state/record": {why: "fields of records: bytes in, values out"},
	"internal/state/cluster": {inside: []string{"internal/kv", "internal/state/record"},
		outside: []string{raftLib, pbLib},
		why:     "replicated state: no goroutine, clock, file or network"},
	"internal/member/compactor": {inside: []string{"internal/kv"},
		why: "when to compact, at which revision: its caller knows the leader and compacts"},
	"internal/state/auth": {inside: []string{"internal/kv", "internal/state/record"},
		why: "replicated state: permissions follow from users and roles, not from a clock, a token or a connection"},
	"internal/state/auth/token": {inside: []string{"internal/kv", "internal/state/auth"},
		outside: []string{jwtLib},
		why:     "tokens: it maps them to users and does not know permissions"},
	"internal/state/auth/password": {inside: []string{"internal/kv"}, outside: []string{cryptoLib},
		why: "hashing, a few at a time"},
	"internal/state/lineage": {inside: []string{"internal/state/record"},
		why: "replicated state: ids are data, and random where they are proposed"},
	"internal/state/lease": {inside: []string{"internal/kv", "internal/state/record"},
		why: "replicated state and arithmetic on times: no goroutine, clock, file or network"},
	"internal/member/stage": {why: "it knows nothing of the work that it carries out"},
	"internal/member/raftnode": {inside: []string{"internal/kv", "internal/member/stage",
		"internal/store/wal"}, outside: []string{raftLib, pbLib},
		why: "it moves entries; fsm interprets them"},
	"internal/member/calls": {why: "a table and an interface: what a call means is the business of the packages that make and answer it"},
	"internal/member/archiver": {inside: []string{"internal/debugpage", "internal/kv",
		"internal/bucket", "internal/store/archive", "internal/store/history",
		"internal/store/mvcc", "internal/state/cluster", "internal/state/lineage",
		"internal/member/calls"}, outside: []string{raftLib},
		tests: []string{"internal/offline/archived"},
		why:   "it reads entries and states through an interface of its own, writes objects, and knows nothing of the replica"},
	"internal/member/peer": {inside: []string{"internal/portmux", "internal/histogram",
		"internal/member/calls"}, outside: []string{raftLib, pbLib, promLib, sysLib},
		why: "it carries messages between members and does not interpret them"},
	"internal/state/fsm": {inside: []string{"internal/kv", "internal/store/mvcc",
		"internal/store/history", "internal/state/cluster", "internal/state/lease",
		"internal/state/auth", "internal/state/lineage"}, outside: []string{raftLib, pbLib},
		why: "apply depends on (state, entry) only: no clock, network, raft node or watcher"},
	"internal/offline/snapshot/boltfile": {why: "pages, keys and values: snapshot interprets them"},
	"internal/offline/snapshot": {inside: []string{"internal/kv", "internal/state/cluster",
		"internal/state/lease", "internal/state/auth", "internal/offline/snapshot/boltfile"},
		outside: []string{raftLib, apiLib, pbLib},
		why:     "a file format: it does not depend on the source and the destination of a state"},
	"internal/member/replica/lessor": {inside: []string{"internal/kv", "internal/state/auth",
		"internal/state/lease", "internal/state/fsm", "internal/member/calls",
		"internal/member/raftnode"},
		why: "the leader's clock: it proposes through an interface of its own and knows nothing of the replica"},
	"internal/member/replica/revtime": {inside: []string{"internal/kv", "internal/state/fsm",
		"internal/store/mvcc"}, tests: []string{"internal/store/history"},
		why: "the clock of revisions: it stamps what is proposed, reads the store through an interface of its own, and knows nothing of the replica"},
	"internal/member/replica/audit": {inside: []string{"internal/kv", "internal/state/cluster",
		"internal/store/mvcc", "internal/member/calls", "internal/member/raftnode"},
		why: "it compares stores and proposes alarms through interfaces of its own and knows nothing of the replica"},
	"internal/member/replica/transfer": {inside: []string{"internal/kv", "internal/vfs",
		"internal/offline/datadir", "internal/store/wal", "internal/store/history",
		"internal/store/stream", "internal/store/mvcc", "internal/state/fsm",
		"internal/member/calls", "internal/member/raftnode"},
		outside: []string{raftLib},
		why:     "it moves a state between members through interfaces of its own and knows nothing of the replica"},
	"internal/member/replica/access": {inside: []string{"internal/kv", "internal/state/auth",
		"internal/state/auth/password", "internal/state/auth/token", "internal/state/fsm",
		"internal/state/lease", "internal/throttle"},
		why: "it proposes changes of users and roles through an interface of its own and knows nothing of the replica"},
	"internal/member/replica/proposal": {inside: []string{"internal/kv", "internal/state/fsm"},
		why: "it holds requests until their result: raft takes groups from it, apply brings results, and it knows neither"},
	"internal/member/replica/freespace": {inside: []string{"internal/vfs"},
		why: "it asks a file system, and knows nothing of what is written there"},
	"internal/member/replica/gets": {inside: []string{"internal/kv",
		"internal/member/replica/proposal"},
		why: "it holds reads until they are ready, and knows nothing of the replica"},
	"internal/member/replica/position": {inside: []string{"internal/kv",
		"internal/member/raftnode"},
		why: "it holds reads until a position is applied, which it asks for through interfaces of its own"},
	"internal/member/replica/timing": {inside: []string{"internal/kv", "internal/state/fsm",
		"internal/histogram", "internal/throttle"},
		why: "it counts durations and describes requests"},
	"internal/member/replica/handle": {inside: []string{"internal/kv", "internal/state/lease",
		"internal/store/history", "internal/store/mvcc"},
		why: "it has the store that serves: what is read there, and by whom, is not its business"},
	"internal/member/replica/damage": {inside: []string{"internal/kv",
		"internal/member/replica/handle", "internal/store/history", "internal/vfs"},
		why: "it counts what was found damaged and knows nothing of the replica"},
	"internal/member/replica/custody": {inside: []string{"internal/kv",
		"internal/member/replica/handle", "internal/store/wal", "internal/vfs"},
		why: "it compares files with their places and knows nothing of the replica"},
	"internal/member/replica/contact": {inside: []string{"internal/kv", "internal/member/raftnode",
		"internal/state/cluster"},
		why: "functions of connections, through interfaces of its own"},
	"internal/member/replica/space": {inside: []string{"internal/kv",
		"internal/member/replica/freespace", "internal/member/replica/handle",
		"internal/member/replica/proposal", "internal/store/history", "internal/store/mvcc"},
		why: "it measures and raises alarms through interfaces of its own and knows nothing of the replica"},
	"internal/member/replica/truncate": {inside: []string{"internal/member/raftnode",
		"internal/member/replica/freespace", "internal/member/replica/handle",
		"internal/member/replica/position", "internal/member/replica/transfer",
		"internal/store/history", "internal/store/wal"},
		why: "it shortens a log: who wants entries of it is behind interfaces"},
	"internal/member/replica/members": {inside: []string{"internal/kv", "internal/member/raftnode",
		"internal/member/replica/proposal", "internal/state/auth", "internal/state/cluster",
		"internal/state/fsm"},
		outside: []string{raftLib},
		why:     "it proposes changes of the membership through interfaces of its own and knows nothing of the replica"},
	"internal/member/replica/leadership": {inside: []string{"internal/kv",
		"internal/member/raftnode", "internal/state/cluster"},
		why: "it moves leadership through interfaces of its own and knows nothing of the replica"},
	"internal/member/replica/alarms": {inside: []string{"internal/kv",
		"internal/member/replica/audit", "internal/state/fsm"},
		why: "it proposes alarms through an interface of its own and knows nothing of the replica"},
	"internal/member/replica/level": {inside: []string{"internal/kv", "internal/state/fsm"},
		why: "it proposes levels through an interface of its own and knows nothing of the replica"},
	"internal/member/replica/source": {inside: []string{"internal/member/replica/handle",
		"internal/state/cluster", "internal/state/fsm", "internal/state/lineage",
		"internal/store/history", "internal/store/mvcc"},
		outside: []string{raftLib},
		why:     "it reads applied entries: what an archive makes of them is not its business"},
	"internal/member/replica/apply": {inside: []string{"internal/kv", "internal/member/raftnode",
		"internal/member/replica/proposal", "internal/state/auth", "internal/state/cluster",
		"internal/state/fsm", "internal/state/lease", "internal/state/lineage",
		"internal/store/history", "internal/store/mvcc"},
		outside: []string{raftLib},
		why:     "it applies entries and emits commits: who follows them is not its business"},
	"internal/member/replica/install": {inside: []string{"internal/kv",
		"internal/member/replica/apply", "internal/member/replica/handle",
		"internal/member/replica/transfer", "internal/state/fsm", "internal/store/history",
		"internal/vfs"},
		why: "it replaces a store through interfaces of its own and knows nothing of the replica"},
	"internal/member/replica": {inside: []string{"internal/member/replica/apply",
		"internal/member/replica/install", "internal/member/stage",
		"internal/member/replica/handle", "internal/member/replica/damage",
		"internal/member/replica/custody", "internal/member/replica/contact",
		"internal/member/replica/space", "internal/member/replica/truncate",
		"internal/member/replica/members", "internal/member/replica/leadership",
		"internal/member/replica/alarms", "internal/member/replica/level", "internal/member/replica/source", "internal/member/replica/access", "internal/member/replica/freespace", "internal/member/replica/gets", "internal/member/replica/position", "internal/member/replica/proposal", "internal/member/replica/timing", "internal/member/calls", "internal/member/replica/lessor", "internal/member/replica/revtime", "internal/member/replica/audit", "internal/member/replica/transfer", "internal/offline/snapshot", "internal/kv", "internal/vfs", "internal/store/wal", "internal/store/history", "internal/offline/datadir", "internal/store/mvcc", "internal/store/watch", "internal/state/cluster", "internal/state/lease", "internal/state/auth", "internal/state/lineage", "internal/member/raftnode", "internal/state/fsm"},
		outside: []string{raftLib, pbLib},
		why:     "one member's pipeline depends on the packages below it and on no RPC"},
	"internal/edge/rpc/wire": {inside: []string{"client/pbfield", "internal/kv"},
		why: "encodings of messages, no behaviour"},
	"internal/holder": {outside: []string{sysLib},
		why: "it reads what the kernel shows of processes, and starts and ends none"},
	"internal/folders":  {why: "arithmetic on keys: ls and the console read the pages themselves"},
	"internal/spelling": {why: "arithmetic on words"},
	"internal/release":  {why: "constants"},
	"internal/edge/rpc/lockpb": {outside: []string{pbLib, apiLib, genprotoLib},
		why: "descriptors of messages, no behaviour"},
	"internal/edge/rpc/transport/h2": {outside: []string{grpcLib, netLib, sysLib},
		why: "frames, windows and turns: what is in a body is the business of transport. Of grpc-go it has the buffers only"},
	"internal/edge/rpc/transport/h2http": {inside: []string{"internal/edge/rpc/transport/h2"},
		outside: []string{grpcLib, netLib},
		why:     "requests for an http.Handler: what that serves is not its business. Of grpc-go it has the buffers only"},
	"internal/edge/rpc/transport": {inside: []string{"internal/kv", "internal/edge/rpc/wire",
		"internal/edge/rpc/transport/h2", "internal/edge/rpc/transport/h2http",
		"internal/store/ration"}, outside: []string{grpcLib, pbLib, netLib},
		why: "it carries messages: which methods there are and what they do is the business of rpc"},
	"internal/edge/rpc/apierror": {inside: []string{"internal/kv"},
		outside: []string{grpcLib, apiLib}, why: "a table of errors"},
	"internal/edge/rpc/validate": {inside: []string{"internal/kv"},
		outside: []string{grpcLib, apiLib}, why: "functions of a request"},
	"internal/edge/rpc/delivery": {inside: []string{"internal/kv", "internal/store/ration",
		"internal/edge/rpc/apierror", "internal/edge/rpc/transport", "internal/edge/rpc/wire"},
		outside: []string{pbLib, promLib},
		why:     "memory of answers: what is in them is the business of the services"},
	"internal/edge/rpc/inprocess": {inside: []string{"internal/edge/rpc/delivery",
		"internal/edge/rpc/transport"}, outside: []string{apiLib, grpcLib},
		why: "it calls methods as a transport does, and knows none"},
	"internal/edge/rpc/streams": {outside: []string{apiLib}, why: "it lists what it can end"},
	"internal/edge/rpc/gate": {inside: []string{"internal/edge/rpc/apierror",
		"internal/edge/rpc/delivery", "internal/edge/rpc/streams", "internal/edge/rpc/transport",
		"internal/edge/rpc/wire", "internal/kv", "internal/throttle"},
		outside: []string{grpcLib, pbLib, apiLib, promLib, netLib},
		why:     "what is common to all calls: rpc lists the methods, and the services implement them"},
	"internal/edge/rpc/authapi": {inside: []string{"internal/edge/rpc/apierror",
		"internal/edge/rpc/gate", "internal/edge/rpc/inprocess", "internal/edge/rpc/transport",
		"internal/kv"}, outside: []string{apiLib},
		why: "a service knows no other one but the times of revisions"},
	"internal/edge/rpc/clusterapi": {inside: []string{"internal/edge/rpc/apierror",
		"internal/edge/rpc/gate", "internal/edge/rpc/validate", "internal/kv"},
		outside: []string{grpcLib, apiLib},
		why:     "a service knows no other one but the times of revisions"},
	"internal/edge/rpc/maintenanceapi": {inside: []string{"internal/edge/rpc/apierror",
		"internal/edge/rpc/gate", "internal/edge/rpc/transport", "internal/edge/rpc/validate",
		"internal/kv"}, outside: []string{grpcLib, apiLib, promLib},
		why: "a service knows no other one but the times of revisions"},
	"internal/edge/rpc/healthapi": {inside: []string{"internal/edge/rpc/gate",
		"internal/edge/rpc/transport"}, outside: []string{grpcLib},
		why: "a service knows no other one but the times of revisions"},
	"internal/edge/rpc/watchapi": {inside: []string{"internal/edge/rpc/apierror",
		"internal/edge/rpc/gate", "internal/edge/rpc/timesapi", "internal/edge/rpc/transport",
		"internal/edge/rpc/wire", "internal/kv", "internal/store/watch"},
		outside: []string{grpcLib, apiLib, promLib},
		why:     "a service knows no other one but the times of revisions"},
	"internal/edge/rpc/leaseapi": {inside: []string{"internal/edge/rpc/apierror",
		"internal/edge/rpc/delivery", "internal/edge/rpc/gate", "internal/edge/rpc/transport",
		"internal/edge/rpc/wire", "internal/kv"}, outside: []string{apiLib},
		why: "a service knows no other one but the times of revisions"},
	"internal/edge/rpc/kvapi": {inside: []string{"internal/edge/rpc/apierror",
		"internal/edge/rpc/delivery", "internal/edge/rpc/gate", "internal/edge/rpc/timesapi",
		"internal/edge/rpc/transport", "internal/edge/rpc/validate", "internal/edge/rpc/wire",
		"internal/kv"}, outside: []string{apiLib},
		why: "a service knows no other one but the times of revisions"},
	"internal/edge/rpc/lockapi": {inside: []string{"internal/edge/rpc/apierror",
		"internal/edge/rpc/delivery", "internal/edge/rpc/gate", "internal/edge/rpc/lockpb",
		"internal/edge/rpc/transport", "internal/edge/rpc/validate", "internal/kv",
		"internal/store/watch"}, outside: []string{grpcLib, pbLib, apiLib},
		why: "a service knows no other one but the times of revisions"},
	"internal/edge/rpc/timesapi": {inside: []string{"internal/edge/rpc/apierror",
		"internal/edge/rpc/gate", "internal/edge/rpc/lockpb", "internal/kv"},
		outside: []string{grpcLib, pbLib},
		why:     "it asks the member when revisions were made"},
	"internal/edge/rpc": {inside: []string{"internal/edge/rpc/apierror",
		"internal/edge/rpc/authapi", "internal/edge/rpc/clusterapi", "internal/edge/rpc/delivery",
		"internal/edge/rpc/gate", "internal/edge/rpc/healthapi", "internal/edge/rpc/inprocess",
		"internal/edge/rpc/kvapi", "internal/edge/rpc/leaseapi", "internal/edge/rpc/lockapi",
		"internal/edge/rpc/lockpb", "internal/edge/rpc/maintenanceapi", "internal/edge/rpc/streams",
		"internal/edge/rpc/timesapi", "internal/edge/rpc/transport", "internal/edge/rpc/validate",
		"internal/edge/rpc/watchapi", "internal/kv", "internal/store/ration", "internal/store/watch"}, outside: []string{grpcLib, apiLib, promLib},
		why: "services depend on interfaces that they declare, not on the member's parts: transport and store can change separately"},
	"internal/member/discovery": {inside: []string{"internal/kv"},
		outside: []string{apiLib, grpcLib},
		why:     "it finds the members of a new cluster and depends on no part of this member"},
	"internal/portmux": {why: "it recognizes protocols and does not interpret their content"},
	"internal/edge/gateway": {inside: []string{"internal/edge/rpc/lockpb",
		"internal/edge/rpc/transport"},
		outside: []string{grpcLib, pbLib, apiLib, genprotoLib, gatewayLib, netLib},
		why:     "a client of the services, which check its permissions"},
	"internal/edge/listen": {inside: []string{"internal/holder", "internal/portmux"},
		outside: []string{sysLib},
		why:     "URLs and sockets: what is served on them is not its business"},
	"internal/edge/certs": {why: "files and crypto/tls: who listens, dials or configures is not its business"},
	"internal/edge/console": {inside: []string{"internal/edge/console/assets",
		"internal/edge/console/decode", "internal/edge/rpc/lockpb", "internal/folders",
		"internal/kv", "internal/store/watch", "internal/health"},
		outside: []string{grpcLib, pbLib, apiLib, promLib, "github.com/rogpeppe/go-internal/diff"},
		why:     "a client of the services, which check its permissions; what is not a call of the API comes through its Config"},
	"internal/edge/console/assets": {why: "files that make console has built"},
	"internal/edge/console/decode": {outside: []string{pbLib},
		why: "functions of the bytes of a value"},
	"docs": {why: "files only"},
	"internal/edge/manual": {outside: []string{"github.com/yuin/goldmark"},
		tests: []string{"docs", "internal/health"},
		why:   "pages are a function of files, and say nothing of the cluster"},
	"internal/edge/httpd": {inside: []string{"internal/debugpage", "internal/kv",
		"internal/store/watch"}, outside: []string{promLib, netLib, sysLib},
		why: "plain HTTP next to gRPC; it uses the member through a small interface that it declares"},
	"server": {inside: []string{"server/metrics", "internal/bucket", "internal/store/archive",
		"internal/member/archiver", "internal/member/calls", "internal/member/replica/access",
		"internal/member/replica/members", "internal/member/replica/timing", "internal/kv",
		"internal/vfs", "internal/holder", "internal/offline/datadir", "internal/tracing",
		"internal/state/cluster", "internal/member/replica", "internal/store/watch",
		"internal/edge/rpc", "internal/edge/rpc/clusterapi", "internal/edge/rpc/maintenanceapi",
		"internal/edge/rpc/watchapi", "internal/edge/rpc/apierror", "internal/edge/httpd", "internal/edge/manual", "docs", "internal/edge/console", "internal/edge/gateway", "internal/edge/certs", "internal/edge/listen", "internal/portmux", "internal/store/wal", "internal/store/history", "internal/store/history/inspect", "internal/store/mvcc", "internal/member/raftnode", "internal/state/fsm", "internal/store/ration", "internal/state/auth/token", "internal/state/auth/password", "internal/member/peer", "internal/member/compactor", "internal/member/discovery", "internal/release", "internal/health"},
		outside: []string{grpcLib, promLib, raftLib, sysLib},
		tests:   []string{"internal/edge/rpc/validate", "internal/offline/restore"},
		why:     "the only wiring"},
	"server/metrics": {inside: []string{"internal/debugpage", "internal/member/archiver",
		"internal/member/replica", "internal/member/replica/timing",
		"internal/member/replica/lessor", "internal/edge/rpc", "internal/histogram",
		"internal/store/watch", "internal/store/mvcc", "internal/store/ration", "internal/release",
		"internal/edge/certs"}, outside: []string{promLib},
		why: "it reads what the parts count, and changes nothing"},
	"client": {inside: []string{"client/internal/attempt", "client/internal/inbox",
		"client/internal/namespace", "client/internal/pool", "client/internal/rawconn",
		"client/internal/reload", "client/internal/request", "client/internal/session",
		"client/internal/credential", "client/pbfield"}, outside: []string{grpcLib, pbLib, apiLib},
		tests: []string{"client/internal/serverprocess", "client/internal/randfield"},
		why:   "a library for programs: nothing of the server is linked into them, and metrics and traces go through its own hooks"},
	"client/lease": {inside: []string{"client"},
		tests: []string{"client/internal/serverprocess"},
		why:   "it uses only the library's public API"},
	"client/concurrency": {inside: []string{"client", "client/lease"},
		tests: []string{"client/internal/serverprocess"},
		why:   "it uses only the library's public API"},
	"client/times": {inside: []string{"client", "client/pbfield"},
		outside: []string{grpcLib, pbLib}, tests: []string{"client/internal/serverprocess"},
		why: "it uses only the library's public API"},
	"client/mirror": {inside: []string{"client"},
		outside: []string{"github.com/tidwall/btree"},
		tests:   []string{"client/internal/serverprocess"},
		why:     "it uses only the library's public API"},
	"client/internal/pool": {outside: []string{grpcLib},
		why: "connections and the choice among them: what calls carry is not its business"},
	"client/internal/credential": {outside: []string{grpcLib, apiLib},
		why: "it keeps tokens; the client obtains them"},
	"client/pbfield": {why: "fields of messages, for modules that must not depend on each other"},
	"client/internal/request": {inside: []string{"client/pbfield"},
		outside: []string{grpcLib, pbLib}, tests: []string{"client/internal/randfield"},
		why: "encodings of requests"},
	"client/internal/randfield": {why: "random values"},
	"client/internal/attempt": {inside: []string{"client/internal/pool",
		"client/internal/credential", "client/internal/request"},
		outside: []string{grpcLib, apiLib},
		why:     "it chooses and decides; the client makes the calls and their errors"},
	"client/internal/rawconn": {inside: []string{"client/internal/pool", "client/internal/request"},
		outside: []string{grpcLib, pbLib},
		why:     "it repeats calls by the attempts that it is given"},
	"client/internal/session": {inside: []string{"client/internal/request"},
		why: "ids and requests: no stream, lock or goroutine"},
	"client/internal/inbox": {why: "a queue and revisions: no lock or goroutine"},
	"client/internal/namespace": {inside: []string{"client/internal/request"},
		why: "a function of requests"},
	"client/internal/reload":        {outside: []string{grpcLib}, why: "files and crypto/tls"},
	"client/internal/serverprocess": {why: "it runs the server as a process, so that the client's module needs nothing of it"},
	"scripts/measure":               {why: "it reads sources as text and types, and uses none"},
	"examples/follow": {inside: []string{"client", "client/mirror"},
		why: "an example is a program of a user"},
	"server/servertest": {inside: []string{"server"},
		why: "a server for the tests of packages that depend on none"},
	"cmd/vigil": {inside: []string{"server", "internal/logline",
		"internal/release", "internal/spelling"},
		outside: []string{yamlLib, sysLib, systemdLib, grpcLib, "golang.org/x/term"},
		why:     "flags, environment and file into server.Config, run, exit"},
	"internal/offline/restore/etcdwal": {inside: []string{"internal/vfs"},
		outside: []string{raftLib, pbLib},
		why:     "a foreign format: restore interprets the entries"},
	"internal/offline/restore": {inside: []string{"internal/kv", "internal/vfs",
		"internal/store/history", "internal/offline/datadir", "internal/store/mvcc",
		"internal/state/cluster", "internal/state/auth", "internal/state/fsm",
		"internal/state/lineage", "internal/offline/snapshot", "internal/edge/rpc/wire",
		"internal/offline/restore/etcdwal"},
		outside: []string{raftLib, pbLib, apiLib}, tests: []string{"internal/state/lease"},
		why: "an offline tool: it makes a store out of a backup with the packages that own its parts, and starts nothing"},
	"internal/offline/archived": {inside: []string{"internal/bucket", "internal/kv", "internal/vfs",
		"internal/store/archive", "internal/store/history", "internal/state/fsm",
		"internal/state/lineage", "internal/store/mvcc", "internal/store/mvcc/record",
		"internal/offline/restore"},
		outside: []string{raftLib}, tests: []string{"internal/state/lease"},
		why: "it reads objects and decides what is restored, verified and kept: restore makes the store"},
	"cmd/vigilctl": {inside: []string{"cmd/vigilctl/archivecmd", "cmd/vigilctl/authcmd",
		"cmd/vigilctl/cli", "cmd/vigilctl/clustercmd", "cmd/vigilctl/command",
		"cmd/vigilctl/complete", "cmd/vigilctl/doctor", "cmd/vigilctl/exit", "cmd/vigilctl/keyview",
		"cmd/vigilctl/kvcmd", "cmd/vigilctl/loadtest", "cmd/vigilctl/lockcmd",
		"cmd/vigilctl/monitor", "cmd/vigilctl/offline", "cmd/vigilctl/screen", "cmd/vigilctl/show",
		"cmd/vigilctl/transfer", "internal/kv", "internal/release"},
		outside: []string{cobraLib, pflagLib},
		tests:   []string{"client", "internal/offline/snapshot", "server/servertest"},
		why:     "the list of commands"},
	"cmd/vigilctl/archivecmd": {inside: []string{"client", "internal/amount", "internal/bucket",
		"internal/vfs", "internal/offline/archived", "cmd/vigilctl/cli", "cmd/vigilctl/command",
		"cmd/vigilctl/dumpfile", "cmd/vigilctl/exit", "cmd/vigilctl/facts", "cmd/vigilctl/keytext",
		"cmd/vigilctl/newdata", "cmd/vigilctl/outfile", "cmd/vigilctl/progress",
		"cmd/vigilctl/screen", "cmd/vigilctl/show"}, outside: []string{cobraLib},
		tests: []string{"server/servertest"}, why: commandsWhy},
	"cmd/vigilctl/authcmd": {inside: []string{"client", "cmd/vigilctl/cli",
		"cmd/vigilctl/command", "cmd/vigilctl/exit", "cmd/vigilctl/show"},
		outside: []string{cobraLib, apiLib, grpcLib}, why: commandsWhy},
	"cmd/vigilctl/clustercmd": {inside: []string{"client", "cmd/vigilctl/cli",
		"cmd/vigilctl/command", "cmd/vigilctl/exit", "cmd/vigilctl/outfile",
		"cmd/vigilctl/progress", "cmd/vigilctl/screen", "cmd/vigilctl/show"},
		outside: []string{cobraLib, apiLib, grpcLib}, why: commandsWhy},
	"cmd/vigilctl/kvcmd": {inside: []string{"client", "cmd/vigilctl/cli",
		"cmd/vigilctl/command", "cmd/vigilctl/exit", "cmd/vigilctl/show"},
		outside: []string{cobraLib, pflagLib, apiLib, grpcLib}, why: commandsWhy},
	"cmd/vigilctl/lockcmd": {inside: []string{"client", "client/concurrency", "cmd/vigilctl/cli",
		"cmd/vigilctl/command", "cmd/vigilctl/exit", "cmd/vigilctl/show"},
		outside: []string{cobraLib, apiLib, "golang.org/x/term"}, why: commandsWhy},
	"cmd/vigilctl/loadtest": {inside: []string{"client", "cmd/vigilctl/cli",
		"cmd/vigilctl/command", "cmd/vigilctl/exit", "cmd/vigilctl/probe", "cmd/vigilctl/progress"},
		outside: []string{cobraLib}, tests: []string{"server/servertest"}, why: commandsWhy},
	"cmd/vigilctl/transfer": {inside: []string{"client", "client/lease", "cmd/vigilctl/cli",
		"cmd/vigilctl/command", "cmd/vigilctl/dumpfile", "cmd/vigilctl/exit",
		"cmd/vigilctl/keytext", "cmd/vigilctl/outfile", "cmd/vigilctl/progress",
		"cmd/vigilctl/screen", "cmd/vigilctl/show", "internal/amount"}, outside: []string{cobraLib},
		tests: []string{"server/servertest"}, why: commandsWhy},
	"cmd/vigilctl/keyview": {inside: []string{"client", "client/times", "cmd/vigilctl/cli",
		"cmd/vigilctl/exit", "cmd/vigilctl/keytext", "cmd/vigilctl/screen", "cmd/vigilctl/show",
		"internal/amount", "internal/folders"},
		outside: []string{cobraLib, yamlLib, "github.com/rogpeppe/go-internal/diff"},
		why:     commandsWhy},
	"cmd/vigilctl/monitor": {inside: []string{"internal/debugpage", "client", "cmd/vigilctl/cli",
		"cmd/vigilctl/command", "cmd/vigilctl/exit", "cmd/vigilctl/keytext", "cmd/vigilctl/probe",
		"cmd/vigilctl/screen", "cmd/vigilctl/show", "cmd/vigilctl/survey", "internal/health",
		"internal/amount"}, outside: []string{cobraLib}, why: commandsWhy},
	"cmd/vigilctl/doctor": {inside: []string{"cmd/vigilctl/cli", "cmd/vigilctl/exit",
		"cmd/vigilctl/probe", "cmd/vigilctl/screen", "cmd/vigilctl/show", "cmd/vigilctl/survey",
		"internal/health", "internal/amount"}, outside: []string{cobraLib, pflagLib, apiLib},
		tests: []string{"client"}, why: commandsWhy},
	"cmd/vigilctl/offline": {inside: []string{"internal/kv", "internal/vfs",
		"internal/offline/datadir", "internal/offline/snapshot", "internal/offline/restore",
		"cmd/vigilctl/command", "cmd/vigilctl/exit", "cmd/vigilctl/facts", "cmd/vigilctl/newdata",
		"cmd/vigilctl/progress", "cmd/vigilctl/screen", "cmd/vigilctl/show", "internal/amount"},
		outside: []string{cobraLib},
		why:     "commands that read files: no connection"},
	"cmd/vigilctl/facts": {inside: []string{"cmd/vigilctl/show"}, outside: []string{pflagLib},
		why: "it prints results and knows none"},
	"cmd/vigilctl/newdata": {inside: []string{"internal/vfs", "internal/state/cluster",
		"internal/offline/restore", "cmd/vigilctl/exit", "cmd/vigilctl/facts", "cmd/vigilctl/show"},
		outside: []string{cobraLib},
		why:     "flags and output of a new data directory: where the data come from is the business of the commands"},
	"cmd/vigilctl/survey": {inside: []string{"client", "cmd/vigilctl/cli", "cmd/vigilctl/exit",
		"cmd/vigilctl/probe", "internal/health"}, outside: []string{cobraLib, apiLib},
		why: "it collects what members report: what follows from it is the business of the commands"},
	"cmd/vigilctl/cli": {inside: []string{"client", "client/times", "internal/member/discovery",
		"internal/spelling", "cmd/vigilctl/command", "cmd/vigilctl/exit", "cmd/vigilctl/screen",
		"cmd/vigilctl/show", "cmd/vigilctl/probe", "internal/health"},
		outside: []string{cobraLib, pflagLib, apiLib, grpcLib, "golang.org/x/term"},
		why:     "the global flags and the connection: it knows no command"},
	"cmd/vigilctl/complete": {inside: []string{"client", "cmd/vigilctl/cli", "cmd/vigilctl/screen"},
		outside: []string{cobraLib},
		why:     "it asks the cluster for words: the commands are known by their names"},
	"cmd/vigilctl/command": {inside: []string{"cmd/vigilctl/exit", "internal/spelling"},
		outside: []string{cobraLib, pflagLib}, why: "it knows no command"},
	"cmd/vigilctl/exit": {why: "errors with a number"},
	"cmd/vigilctl/dumpfile": {inside: []string{"client", "cmd/vigilctl/keytext"},
		why: "lines of a file: where the keys come from is the business of the commands"},
	"cmd/vigilctl/keytext": {inside: []string{"client", "cmd/vigilctl/screen"},
		why: "text of keys and values"},
	"cmd/vigilctl/outfile": {why: "files, not what is in them"},
	"cmd/vigilctl/progress": {inside: []string{"cmd/vigilctl/screen", "internal/amount"},
		outside: []string{"github.com/schollz/progressbar/v3"}, why: "it draws"},
	"cmd/vigilctl/probe": {inside: []string{"internal/debugpage", "internal/health"},
		why: "it reads the HTTP pages of members; the commands interpret them"},
	"cmd/vigilctl/screen": {outside: []string{"github.com/mattn/go-runewidth", "golang.org/x/term"},
		why: "it lays out text and does not depend on members"},
	"cmd/vigilctl/show": {inside: []string{"client"},
		outside: []string{apiLib, pbLib, yamlLib, "github.com/olekukonko/tablewriter"},
		why:     "it prints messages of the API and makes no calls"},
}

// testOnly is what test files may import on top of their package's row.
var testOnly = rule{
	inside: []string{"internal/allocs", "internal/kv", "internal/vfs", "internal/vfs/memfs",
		"internal/vfs/faultfs", "internal/vfs/vfstest", "internal/store/history",
		"internal/store/wal", "internal/offline/datadir", "internal/store/mvcc",
		"internal/state/cluster", "internal/store/watch", "internal/state/fsm",
		"internal/member/raftnode", "internal/member/stage", "internal/store/ration",
		"internal/store/stream", "internal/member/peer", "internal/edge/rpc/lockpb"},
	outside: []string{"github.com/cockroachdb/datadriven", ageLib, "go.etcd.io/bbolt",
		"github.com/tidwall/btree", apiLib, pbLib, grpcLib, promLib, raftLib,
		sysLib, "golang.org/x/net"},
}

func TestImports(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	walk := func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata") {
				return filepath.SkipDir
			}
			// Other nested modules may import what users import.
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != root &&
				path != filepath.Join(root, "client") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(rel)
		seen[pkg] = true
		for _, v := range violations(t, pkg, path) {
			t.Error(v)
		}
		return nil
	}
	if err := filepath.WalkDir(root, walk); err != nil {
		t.Fatal(err)
	}
	for pkg := range table {
		if !seen[pkg] {
			t.Errorf("%s: in the import table, but there is no such package", pkg)
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d packages were found below %s", len(seen), root)
	}
}

// violations lists what one file imports against the table.
func violations(t *testing.T, pkg, path string) []string {
	t.Helper()
	r, ok := table[pkg]
	if !ok {
		return []string{fmt.Sprintf("%s: not in the import table (%s)", pkg, path)}
	}
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		return []string{err.Error()}
	}
	test := strings.HasSuffix(path, "_test.go")
	var bad []string
	for _, spec := range f.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return []string{err.Error()}
		}
		if !allowed(r, pkg, imp) &&
			!(test && (allowed(testOnly, pkg, imp) || allowed(rule{inside: r.tests}, pkg, imp))) {
			bad = append(bad, fmt.Sprintf("%s imports %s (%s): %s", pkg, imp,
				filepath.Base(path), r.why))
		}
	}
	sort.Strings(bad)
	return bad
}

func allowed(r rule, pkg, imp string) bool {
	if in, ok := strings.CutPrefix(imp, module+"/"); ok {
		return in == pkg || slices.Contains(r.inside, in)
	}
	first, _, _ := strings.Cut(imp, "/")
	if !strings.Contains(first, ".") {
		return true // standard library
	}
	return slices.ContainsFunc(r.outside, func(p string) bool {
		return imp == p || strings.HasPrefix(imp, p+"/")
	})
}

// TestTableHasNoCycle keeps the table itself a layering.
func TestTableHasNoCycle(t *testing.T) {
	state := map[string]int{} // 1: on the path, 2: done
	var visit func(pkg string, path []string)
	visit = func(pkg string, path []string) {
		switch state[pkg] {
		case 1:
			t.Fatalf("cycle: %s", strings.Join(append(path, pkg), " -> "))
		case 2:
			return
		}
		state[pkg] = 1
		for _, in := range table[pkg].inside {
			visit(in, append(path, pkg))
		}
		state[pkg] = 2
	}
	for pkg := range table {
		visit(pkg, nil)
	}
}
