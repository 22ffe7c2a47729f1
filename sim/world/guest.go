package world

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// memoryPages bounds the memory of a process: 1 GiB in pages of 64 KiB.
const memoryPages = 16 << 10

// Guest is the program of the processes, compiled. It can be used by several worlds.
type Guest struct {
	// Version identifies the program.
	Version string
	runtime wazero.Runtime
	module  wazero.CompiledModule
	// data and globals belong to the program, start is its memory after its initialization with
	// args.
	data    []segmentOfData
	globals int
	args    []string
	start   *image
}

// With returns the same program with arguments.
func (g *Guest) With(args ...string) *Guest {
	h := *g
	h.args, h.start = args, &image{}
	return &h
}

// Load compiles the program in a file, with a cache of compiled programs in a directory if cache is
// not empty.
func Load(ctx context.Context, file, cache string) (*Guest, error) {
	code, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(code)
	p, err := parseProgram(code)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	config := wazero.NewRuntimeConfigCompiler().WithMemoryLimitPages(memoryPages).WithDebugInfoEnabled(false)
	if cache != "" {
		c, err := wazero.NewCompilationCacheWithDir(cache)
		if err != nil {
			return nil, err
		}
		config = config.WithCompilationCache(c)
	}
	g := &Guest{Version: hex.EncodeToString(sum[:4]),
		runtime: wazero.NewRuntimeWithConfig(ctx, config), data: p.data, globals: p.globals,
		start: &image{}}
	if g.module, err = g.runtime.CompileModule(experimental.WithCompilationWorkers(ctx,
		runtime.GOMAXPROCS(0)), p.code); err != nil {
		return nil, err
	}
	if err := g.link(ctx); err != nil {
		return nil, err
	}
	return g, nil
}

// Close releases the compiled program.
func (g *Guest) Close(ctx context.Context) error { return g.runtime.Close(ctx) }

// link defines all functions that the program imports. Those of WASI that it never needs fail.
func (g *Guest) link(ctx context.Context) error {
	builders := map[string]wazero.HostModuleBuilder{}
	for _, f := range g.module.ImportedFunctions() {
		module, name, _ := f.Import()
		b := builders[module]
		if b == nil {
			b = g.runtime.NewHostModuleBuilder(module)
			builders[module] = b
		}
		call := imports[name]
		if call == nil {
			call = func(p *Process, mem api.Memory, stack []uint64) { stack[0] = wasiNoSys }
		}
		b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context,
			mod api.Module, stack []uint64) {
			call(ctx.Value(processKey{}).(*Process), mod.Memory(), stack)
		}), f.ParamTypes(), f.ResultTypes()).Export(name)
	}
	for _, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			return err
		}
	}
	return nil
}

// hostCall is a function that programs import. Arguments and the result are on the stack.
type hostCall func(p *Process, mem api.Memory, stack []uint64)
