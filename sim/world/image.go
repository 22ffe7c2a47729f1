package world

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

const (
	// initializeExport is the function with which the runtime and all packages are initialized,
	// runExport the one with which a process begins then.
	initializeExport = "_initialize"
	runExport        = "run"
	pageSize         = 64 << 10
)

// image is the memory of a program whose packages are initialized. All processes start with a copy
// of it: to share its pages until they change costs more, because the memory would have small pages
// then. What the initialization reads is the same for all of them, the time 1 ns and random numbers
// included, so a process draws new random numbers for its runtime.
type image struct {
	once    sync.Once
	err     error
	size    uint32
	parts   []segmentOfData // what is not zero
	globals []uint64
}

// image returns the image of the program with its arguments.
func (g *Guest) image(ctx context.Context) (*image, error) {
	g.start.once.Do(func() { g.start.err = g.start.make(ctx, g) })
	return g.start, g.start.err
}

// make initializes the program in a world of its own.
func (i *image) make(ctx context.Context, g *Guest) error {
	w := New(g, 0, nil)
	m := w.Machine("image", netip.AddrFrom4([4]byte{10, 255, 255, 255}))
	p := &Process{m: m, rng: rand.New(rand.NewPCG(0, 0)), fds: map[int32]object{}, next: 10,
		frozen: true, block: func(struct{}) bool { return false }}
	ctx = context.WithValue(ctx, processKey{}, p)
	mod, err := g.instantiate(experimental.WithMemoryAllocator(ctx,
		experimental.MemoryAllocatorFunc(func(_,
			limit uint64) experimental.LinearMemory {
			return reserve(limit, nil)
		})))
	if err != nil {
		return err
	}
	defer mod.Close(ctx)
	for _, d := range g.data {
		if !mod.Memory().Write(d.at, d.bytes) {
			return errProgram
		}
	}
	if _, err := mod.ExportedFunction(initializeExport).Call(ctx); err != nil {
		return fmt.Errorf("initialize the program: %w", err)
	}
	for n := range g.globals {
		i.globals = append(i.globals, mod.ExportedGlobal(globalName(n)).Get())
	}
	i.size = mod.Memory().Size()
	i.save(mod.Memory())
	return nil
}

// save keeps a copy of the memory, and leaves out what is zero.
func (i *image) save(mem api.Memory) {
	const part = 4 << 10
	zero := [part]byte{}
	begun := -1 // the beginning of the parts that are not zero
	for at := 0; at <= int(i.size); at += part {
		b, _ := mem.Read(uint32(at), part)
		switch empty := at == int(i.size) || [part]byte(b) == zero; {
		case !empty && begun < 0:
			begun = at
		case empty && begun >= 0:
			b, _ := mem.Read(uint32(begun), uint32(at-begun))
			i.parts = append(i.parts, segmentOfData{uint32(begun), slices.Clone(b)})
			begun = -1
		}
	}
}

// instantiate makes an instance of the program, in which nothing has run.
func (g *Guest) instantiate(ctx context.Context) (api.Module, error) {
	return g.runtime.InstantiateModule(ctx, g.module,
		wazero.NewModuleConfig().WithName("").WithStartFunctions())
}

// begin makes an instance of the program that continues after its initialization, and runs it.
func (g *Guest) begin(ctx context.Context) error {
	i, err := g.image(ctx)
	if err != nil {
		return err
	}
	mod, err := g.instantiate(experimental.WithMemoryAllocator(ctx,
		experimental.MemoryAllocatorFunc(i.reserve)))
	if err != nil {
		return err
	}
	defer mod.Close(ctx)
	if more := i.size - mod.Memory().Size(); more > 0 {
		if _, ok := mod.Memory().Grow(more / pageSize); !ok {
			return fmt.Errorf("the program cannot have %d bytes of memory", i.size)
		}
	}
	for n, v := range i.globals {
		mod.ExportedGlobal(globalName(n)).(api.MutableGlobal).Set(v)
	}
	_, err = mod.ExportedFunction(runExport).Call(ctx)
	return err
}

// reserve makes the memory of a process, which begins with the image.
func (i *image) reserve(_, limit uint64) experimental.LinearMemory {
	return reserve(limit, i.parts)
}
