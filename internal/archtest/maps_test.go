package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mapped are the folders whose maps may grow with what clients send: when an entry is applied, or
// for a call.
var mapped = []string{"internal/state", "internal/member/replica", "internal/edge/rpc"}

// bounds has each map that a value of these packages keeps, by package, type and field, with what
// bounds it: a constant as PACKAGE.NAME, a flag, or "few" and the reason why nothing that clients
// send makes it grow.
var bounds = map[string]string{
	// State.
	"state/auth.State.users":                   "kv.MaxUsers",
	"state/auth.State.roles":                   "kv.MaxRoles",
	"state/auth/token.Simple.mu.tokens":        "state/auth/token.MaxTokens and MaxPerUser",
	"state/auth/token.Simple.mu.users":         "state/auth/token.MaxTokens (a user without tokens is not there)",
	"state/auth/password.queue.mu.lines":       "state/auth/password.maxWaiting (a line without calls is not there)",
	"state/lease.State.mu.leases":              "--quota-backend-bytes: a grant counts as state/fsm.recordBytes",
	"state/lease.State.mu.keys":                "--quota-backend-bytes: a key counts as a put",
	"state/lease.attached.places":              "--quota-backend-bytes: a key counts as a put",
	"state/lease.Timers.timers":                "--quota-backend-bytes: those of leases",
	"member/replica/proposal.Queue.mu.pending": "member/replica/proposal.MaxPendingBytes",
	// Of members and their parts.
	"member/replica.Metrics.Elections":        "few: the causes of elections",
	"member/replica/transfer.Sender.mu.to":    "few: members",
	"member/replica/transfer.Sender.mu.after": "few: members",
	"member/replica/transfer.Sender.mu.sent":  "few: members",
	"member/replica/transfer.Log.Progress":    "few: members",
	// Of connections and calls.
	"edge/rpc/healthapi.API.mu.last":             "few: the services",
	"edge/rpc/maintenanceapi.Sending.mu.senders": "member/replica.maxBackups",
	"edge/rpc/watchapi.openStreams.mu.streams":   "--max-concurrent-streams, on each connection",
	"edge/rpc/transport/h2.table.streams":        "--max-concurrent-streams",
	"edge/rpc/transport/h2.contextState.after":   "few: what the handler of one call has registered",
	"edge/rpc/transport.Answers.conns":           "few: the connections of the calls of one commit",
	"edge/rpc/transport.Server.mu.conns":         "edge/listen.shareConns",
	"edge/rpc/validate.written.puts":             "--max-txn-ops",
	"edge/rpc/gate.versionCounters.seen":         "edge/rpc/gate.MaxVersions",
	// Made at the start.
	"edge/rpc/inprocess.Caller.methods":      "few: the methods",
	"edge/rpc/transport.Server.methods":      "few: the methods",
	"edge/rpc/transport.Server.services":     "few: the services",
	"edge/rpc/transport.Server.mu.listeners": "few: the listeners",
}

var boundName = regexp.MustCompile(`^(few: .+|--[a-z-]+.*|[a-z0-9/]+\.[A-Za-z]+.*)$`)

// TestMapsHaveBounds: a map without a bound is memory that a client can fill.
func TestMapsHaveBounds(t *testing.T) {
	const root = "../.."
	found := map[string]bool{}
	for _, dir := range mapped {
		err := filepath.WalkDir(filepath.Join(root, dir),
			func(abs string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || filepath.Ext(abs) != ".go" ||
					strings.HasSuffix(abs, "_test.go") {
					return err
				}
				file, err := parser.ParseFile(token.NewFileSet(), abs, nil, 0)
				if err != nil {
					return err
				}
				rel, err := filepath.Rel(filepath.Join(root, "internal"), filepath.Dir(abs))
				if err != nil {
					return err
				}
				for _, decl := range file.Decls {
					gen, ok := decl.(*ast.GenDecl)
					if !ok || gen.Tok != token.TYPE {
						continue
					}
					for _, spec := range gen.Specs {
						if s, ok := spec.(*ast.TypeSpec).Type.(*ast.StructType); ok {
							noteMaps(filepath.ToSlash(rel)+"."+
								spec.(*ast.TypeSpec).Name.Name, s, found)
						}
					}
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range found {
		if bounds[name] == "" {
			t.Errorf("%s is a map: what bounds it? Give it a limit, which docs/limits.md names, and a line in bounds", name)
		}
	}
	for name, bound := range bounds {
		switch {
		case !found[name]:
			t.Errorf("bounds has %s, which is no map", name)
		case !boundName.MatchString(bound):
			t.Errorf("%s is bounded by %q, which names nothing", name, bound)
		}
		// A constant must exist.
		word := strings.Fields(bound)[0]
		pkg, constant, ok := strings.Cut(word, ".")
		if !ok || strings.HasSuffix(word, ":") {
			continue
		}
		files, err := filepath.Glob(filepath.Join(root, "internal", pkg, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		declared := regexp.MustCompile(`(?m)^\s*(const )?` + constant + `\b.*=|func.* ` + constant +
			`\(|^\s*` + constant + ` `)
		exists := false
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			exists = exists || declared.Match(text)
		}
		if !exists {
			t.Errorf("%s is bounded by %s, which does not exist", name, word)
		}
	}
}

// noteMaps notes the fields of a struct that are maps, or that are structs, lists or pointers with
// maps in them.
func noteMaps(name string, s *ast.StructType, found map[string]bool) {
	for _, f := range s.Fields.List {
		for _, id := range f.Names {
			field := name + "." + id.Name
			switch typ := f.Type.(type) {
			case *ast.StructType:
				noteMaps(field, typ, found)
			case *ast.MapType:
				found[field] = true
			case *ast.ArrayType:
				if _, ok := typ.Elt.(*ast.MapType); ok {
					found[field] = true
				}
			case *ast.SelectorExpr:
				if x, ok := typ.X.(*ast.Ident); ok && x.Name == "sync" && typ.Sel.Name == "Map" {
					found[field] = true
				}
			}
		}
	}
}
